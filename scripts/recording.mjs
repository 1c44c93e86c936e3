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

const SIZE = { width: 800, height: 520 };
const MOST_BYTES = 1_000_000;
const STILL_MS = 2500;
const LIMIT_MS = 120_000;

/** Takes pictures of the page until the text of the conversation stands still: PNGs, each with the milliseconds that it was seen. */
async function record(page) {
  const frames = [];
  const begin = performance.now();
  let text;
  let since = begin;
  while (performance.now() - since < STILL_MS) {
    if (performance.now() - begin > LIMIT_MS) throw new Problem('the answer does not end');
    const at = performance.now();
    const png = await page.screenshot();
    if (frames.length > 0) frames.at(-1).ms += at - frames.at(-1).at;
    if (frames.at(-1)?.png.equals(png)) frames.at(-1).at = at;
    else frames.push({ png, at, ms: 0 });
    const now = await page.locator('#log').innerText();
    if (now !== text) {
      text = now;
      since = performance.now();
    }
    await page.waitForTimeout(80);
  }
  frames.at(-1).ms = STILL_MS;
  return frames;
}

/** Chromium's own encoder: PNGs as WebPs. */
function encode(page, pngs, quality) {
  return page.evaluate(
    async ([pngs, quality]) => {
      const encoded = [];
      for (const png of pngs) {
        const picture = await createImageBitmap(await (await fetch(`data:image/png;base64,${png}`)).blob());
        const canvas = document.createElement('canvas');
        Object.assign(canvas, { width: picture.width, height: picture.height });
        canvas.getContext('2d', { alpha: false }).drawImage(picture, 0, 0);
        encoded.push(canvas.toDataURL('image/webp', quality).split(',')[1]);
      }
      return encoded;
    },
    [pngs.map((png) => png.toString('base64')), quality],
  );
}

/** Records an answer; resolves to the bytes of the animation. */
export async function recording(question) {
  const site = await serve(await demoMounts(root, await unpackPackage(await build())));
  const browser = await launchChromium({ adapter: likelyAdapter() });
  try {
    const page = await browser.newPage({ viewport: SIZE, colorScheme: 'light' });
    await page.goto(site.origin);
    const prompt = page.locator('#prompt');
    await page.waitForFunction(() => document.querySelector('#prompt')?.disabled === false, undefined, { timeout: LIMIT_MS });
    await prompt.pressSequentially(question, { delay: 10 });
    await prompt.press('Enter');
    const frames = await record(page);
    const blank = await browser.newPage();
    await blank.goto('about:blank');
    for (const quality of [0.8, 0.6, 0.4]) {
      const webps = await encode(
        blank,
        frames.map(({ png }) => png),
        quality,
      );
      const file = animated(
        frames.map(({ ms }, at) => ({ ms, webp: Buffer.from(webps[at], 'base64') })),
        SIZE,
      );
      if (file.length < MOST_BYTES) return file;
    }
    throw new Problem(
      `the recording of ${frames.length} frames does not fit into ${MOST_BYTES} bytes: ask something with a shorter answer`,
    );
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
    const file = await recording(values.question ?? 'Tell me a story about a fox named Ada.');
    writeFileSync(out, file);
    console.log(`${out}: ${file.length} bytes`);
  });
}
