// Records the demo page while the demo model answers, as README shows it: docs/recording.webp, an animated picture below 1 MB.
//
//   node scripts/recording.mjs [--question TEXT] [--out FILE]

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';

import { build, unpackPackage } from './build.mjs';
import { launchChromium, likelyAdapter } from './chromium.mjs';
import { isMain, main, Problem, root } from './command.mjs';
import { animated } from './recording/webp.mjs';
import { demoMounts, serve } from './serve.mjs';
import { setup } from './setup.mjs';

/** Wide enough for all three columns of the page. */
const SIZE = { width: 1240, height: 720 };
const MOST_BYTES = 1_000_000;
/** Milliseconds between two frames: the first with which the file is small enough. */
const FRAME_MS = [80, 120, 200, 300];
const BEFORE_MS = 800;
const STILL_MS = 3000;
const LIMIT_MS = 120_000;
const KEY_MS = 45;

/**
 * Films what `act` does with a page: [{png, at}]. Chromium itself tells when it has drawn something, so the times are those at which a person would have
 * seen it.
 */
async function film(page, act) {
  const frames = [];
  const session = await page.context().newCDPSession(page);
  session.on('Page.screencastFrame', ({ data, sessionId, metadata }) => {
    frames.push({ png: data, at: metadata.timestamp * 1000 });
    void session.send('Page.screencastFrameAck', { sessionId }).catch(() => {});
  });
  await session.send('Page.startScreencast', { format: 'png', maxWidth: SIZE.width, maxHeight: SIZE.height });
  await act();
  await session.send('Page.stopScreencast');
  return frames;
}

/** Frames that are seen long enough, {png, ms}; the last one stays for a while. */
function thinned(all, frameMs) {
  const frames = [];
  for (const frame of all) {
    if (frames.length > 0 && frame.at - frames.at(-1).at < frameMs) frames.at(-1).png = frame.png;
    else frames.push({ ...frame });
  }
  return frames.map(({ png, at }, i) => ({ png, ms: i + 1 < frames.length ? frames[i + 1].at - at : STILL_MS }));
}

/**
 * Chromium's own encoder, which loses nothing at the quality of 1: of each PNG the pixels that differ from the one before, and nothing in place of the others.
 */
async function encode(page, pngs) {
  await page.evaluate(() => (globalThis.before = undefined));
  const parts = [];
  for (const png of pngs) {
    const { webp, ...place } = await page.evaluate(async (png) => {
      const picture = await createImageBitmap(await (await fetch(`data:image/png;base64,${png}`)).blob());
      const { width, height } = picture;
      const canvas = Object.assign(document.createElement('canvas'), { width, height });
      const context = canvas.getContext('2d', { willReadFrequently: true });
      context.drawImage(picture, 0, 0);
      const image = context.getImageData(0, 0, width, height);
      const pixels = new Uint32Array(image.data.buffer);
      const before = globalThis.before ?? new Uint32Array(pixels.length);
      globalThis.before = pixels.slice();
      let [left, top, right, bottom] = [width, height, 0, 0];
      for (let i = 0; i < pixels.length; i++) {
        if (pixels[i] === before[i]) {
          pixels[i] = 0;
          continue;
        }
        const [x, y] = [i % width, Math.floor(i / width)];
        [left, top, right, bottom] = [Math.min(left, x), Math.min(top, y), Math.max(right, x + 1), Math.max(bottom, y + 1)];
      }
      // Where nothing differs, one pixel stands for it: a frame has to have some.
      if (right <= left) [left, top, right, bottom] = [0, 0, 1, 1];
      const [x, y] = [left - (left % 2), top - (top % 2)];
      const part = Object.assign(document.createElement('canvas'), { width: right - x, height: bottom - y });
      part.getContext('2d').putImageData(image, -x, -y);
      return { x, y, width: part.width, height: part.height, webp: part.toDataURL('image/webp', 1).split(',')[1] };
    }, png);
    parts.push({ ...place, webp: Buffer.from(webp, 'base64') });
  }
  return parts;
}

/** Records an answer; resolves to the bytes of the animation. */
export async function recording(question) {
  const site = await serve(await demoMounts(root, await unpackPackage(await build())));
  const browser = await launchChromium({ adapter: likelyAdapter() });
  try {
    const page = await browser.newPage({ viewport: SIZE, colorScheme: 'light' });
    await page.goto(site.origin);
    await page.locator('#model-summary', { hasText: 'Loaded in' }).waitFor({ timeout: LIMIT_MS });
    const prompt = page.locator('#prompt');
    const all = await film(page, async () => {
      await page.waitForTimeout(BEFORE_MS);
      await prompt.pressSequentially(question, { delay: KEY_MS });
      await prompt.press('Enter');
      await page.locator('.message.assistant .counts').waitFor({ timeout: LIMIT_MS });
      await page.waitForTimeout(FRAME_MS[0] * 3);
    });
    const blank = await browser.newPage();
    await blank.goto('about:blank');
    for (const frameMs of FRAME_MS) {
      const frames = thinned(all, frameMs);
      const parts = await encode(
        blank,
        frames.map(({ png }) => png),
      );
      const file = animated(
        parts.map((part, i) => ({ ...part, ms: frames[i].ms })),
        SIZE,
      );
      console.log(`${frames.length} frames: ${file.length} bytes`);
      if (file.length < MOST_BYTES) return { file, ms: frames.reduce((sum, { ms }) => sum + ms, 0) };
    }
    throw new Problem(`the recording does not fit into ${MOST_BYTES} bytes: ask something with a shorter answer`);
  } finally {
    await browser.close();
    await site.close();
  }
}

if (isMain(import.meta.url)) {
  await main(async () => {
    const { values } = parseArgs({ options: { question: { type: 'string' }, out: { type: 'string' } } });
    await setup({ test: false });
    const out = values.out ?? join(root, 'docs/recording.webp');
    const { file, ms } = await recording(values.question ?? 'How do I install rillm?');
    writeFileSync(out, file);
    console.log(`${out}: ${file.length} bytes, ${(ms / 1000).toFixed(1)} s`);
  });
}
