// Pages of the demo site whose package is the stub: what tests of the page share.

import assert from 'node:assert/strict';
import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

import { transform } from 'esbuild';

import { root } from '../browser.mjs';
import { passForGpu } from '../device.mjs';

export const WIDE = { width: 1280, height: 800 };
export const PHONE = { width: 390, height: 844 };
/** Where pictures of the page go: to be looked at after a run, and with UPDATE_SCREENSHOTS to be kept. */
const SCREENSHOTS = join(root, process.env.UPDATE_SCREENSHOTS ? 'docs/screenshots' : 'target/screenshots');
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** A page with the stub, whose console is watched. `address` opens it without one. */
export async function openStubbed(stage, options = {}) {
  const { code } = await transform(readFileSync(join(root, 'tests/browser/page/stub.ts'), 'utf8'), { loader: 'ts' });
  const opened = await stage.openPage({
    url: 'about:blank',
    allowed: [/Failed to load resource/],
    viewport: WIDE,
    serviceWorkers: 'block',
    ...options,
  });
  const context = opened.page.context();
  // Whatever runs the tests: what the page says without a GPU has tests of its own.
  await context.addInitScript(passForGpu);
  await context.route('**/rillm/dist/index.js', (route) => route.fulfill({ contentType: 'text/javascript', body: code }));
  const start = async (page = opened.page) => {
    await page.goto(`${stage.origin}/`);
    await page.locator('#prompt').waitFor();
  };
  await start();
  return { ...opened, context, start };
}

/** Loads the stub's model as if it were at an address. */
export async function loadStub(page, name = 'stub') {
  await page.evaluate((source) => document.getElementById('choose-model').click() ?? source, name);
  await page.locator('#model-query').fill(`https://models.example/${name}`);
  await page.locator('#load').click();
  await page.locator('#model-summary').filter({ hasText: 'Loaded in' }).waitFor({ state: 'attached' });
}

export const plan = (page, ...plans) => page.evaluate((all) => stub.plans.push(...all), plans);

/** Writes a question, and waits until nothing is being answered. */
export async function ask(page, text) {
  await page.locator('#prompt').fill(text);
  await page.locator('#prompt').press('Enter');
  await settled(page);
}

/** Waits until nothing is being answered, and all is drawn. */
export async function settled(page) {
  await page.locator('#log[aria-busy=false]').waitFor();
}

/** What a check says at last: the page draws what changed a moment later. */
export async function eventually(check) {
  for (const end = performance.now() + 10_000; performance.now() < end; ) {
    try {
      return await check();
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
  return check();
}

export const screenshot = (name) => join(SCREENSHOTS, name);

export const answers = (page) => page.locator('.message.assistant');

/** What axe finds wrong with the page as it is. */
export async function faultsOf(page) {
  if (!(await page.evaluate(() => 'axe' in globalThis))) await page.evaluate(AXE);
  return page.evaluate(async () => {
    const { violations } = await axe.run(document, { resultTypes: ['violations'] });
    return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 160)).join(' | ')}`);
  });
}

/** Buttons, fields and links that a finger could miss; links inside of a text are none. */
export async function smallTargets(page) {
  return page.evaluate(() =>
    [...document.querySelectorAll('button, select, input, textarea, summary, .bar a, label.check')]
      .filter(
        (element) =>
          element.checkVisibility() &&
          !element.classList.contains('hidden') &&
          (element.closest('label.check') !== null) === element.matches('label.check'),
      )
      .map((element) => [element, element.getBoundingClientRect()])
      .filter(([, { width, height }]) => width > 0 && (width < 43.5 || height < 43.5))
      .map(([element, { width, height }]) => `${element.outerHTML.slice(0, 120)} ${width.toFixed(0)}×${height.toFixed(0)}`),
  );
}

export async function checkLayout(page, when) {
  assert.deepEqual(await faultsOf(page), [], `axe, ${when}`);
  assert.deepEqual(await smallTargets(page), [], `small targets, ${when}`);
  const overflows = await page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth);
  assert.equal(overflows, false, `wider than the screen, ${when}`);
}

/** A picture of the page as it is. */
export async function picture(page, name) {
  mkdirSync(SCREENSHOTS, { recursive: true });
  await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
  await page.screenshot({ path: join(SCREENSHOTS, `${name}.png`) });
}
