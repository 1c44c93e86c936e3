// The demo page in Chromium: loads, answers, stops, tells of errors, fits a phone.

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { golden, openStage, root } from './browser.mjs';

const DEMO_MODEL = join(root, 'models/demo/rillm-demo-q8_0.gguf');
const NO_DEMO_MODEL = existsSync(DEMO_MODEL) ? false : 'models/demo/rillm-demo-q8_0.gguf is not there';
/** Without the demo model, the page finds neither it nor its prompts. */
const allowed = [/Failed to load resource/];
const PHONE = { viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true };
const LIMIT = { timeout: 180_000 };

let stage;
before(async () => (stage = await openStage()));
after(() => stage.close());

const openDemo = (options = {}) => stage.openPage({ url: `${stage.origin}/`, allowed, ...options });

/** Gives the page a small model as a local file. */
async function loadSmallModel(page) {
  if (!(await page.locator('#model').isVisible())) await page.locator('#model-panel > summary').click();
  await page.locator('#file').setInputFiles(join(golden, 'tied-q8_0.gguf'));
  await page
    .locator('#model-summary')
    .filter({ hasText: /Loaded in/ })
    .waitFor({ state: 'attached' });
}

async function overflows(page) {
  return page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth);
}

test('loads the demo model and answers "What is 12 plus 30?" with 42, streamed', { ...LIMIT, skip: NO_DEMO_MODEL }, async () => {
  const { page, close } = await openDemo();
  await page.locator('#prompt:enabled').waitFor({ timeout: 120_000 });
  await page.evaluate(() => {
    globalThis.lengths = new Set();
    new MutationObserver(() => {
      const answer = document.querySelector('.message.assistant');
      if (answer !== null) lengths.add(answer.textContent.length);
    }).observe(document.getElementById('log'), { childList: true, subtree: true, characterData: true });
  });
  await page.locator('#prompt').fill('What is 12 plus 30?');
  await page.locator('#prompt').press('Enter');
  const answer = page.locator('.message.assistant:not([aria-busy])');
  await answer.waitFor({ timeout: 120_000 });
  assert.match(await answer.textContent(), /\b42\b/);
  assert.ok((await page.evaluate(() => lengths.size)) > 2, 'the answer came in pieces');
  assert.match(await page.locator('#speed').textContent(), /^\d+\.\d$/);
  assert.ok((await page.locator('#counters tr').count()) >= 8);
  await close();
});

test('every example prompt of the demo model gets an answer', { timeout: 600_000, skip: NO_DEMO_MODEL }, async () => {
  const { page, close } = await openDemo();
  await page.locator('#prompt:enabled').waitFor({ timeout: 120_000 });
  await page.locator('#max-tokens').evaluate((field) => (field.value = '24'));
  const count = await page.locator('#examples button').count();
  assert.ok(count >= 3);
  for (let i = 0; i < count; i++) {
    await page.locator('#examples button:enabled').nth(i).click();
    await page.locator('.message.assistant:not([aria-busy])').waitFor({ timeout: 120_000 });
    assert.equal(await page.locator('#notice').isVisible(), false, await page.locator('#notice').textContent());
    assert.ok((await page.locator('.message.assistant').textContent()).length > 'Model: '.length);
    await page.locator('#new-chat').click();
  }
  await close();
});

test('a local file, a stopped answer, a new chat', LIMIT, async () => {
  const { page, close } = await openDemo();
  await loadSmallModel(page);
  await page.locator('#max-tokens').evaluate((field) => (field.value = '200'));
  await page.locator('#prompt').fill('Hello');
  await page.locator('#prompt').press('Enter');
  await page.locator('#stop').click();
  await page.locator('#send:visible').waitFor();
  assert.match(await page.locator('.message.user').textContent(), /Hello/);
  assert.equal(await page.locator('.message.assistant').count(), 1);
  await page.locator('#new-chat').click();
  assert.equal(await page.locator('.message').count(), 0);
  await page.locator('#welcome').waitFor();
  await close();
});

test('a dropped file is loaded', LIMIT, async () => {
  const { page, close } = await openDemo();
  await page.evaluate(async () => {
    const transfer = new DataTransfer();
    transfer.items.add(new File([await (await fetch('/golden/tied-q8_0.gguf')).arrayBuffer()], 'dropped.gguf'));
    for (const type of ['dragenter', 'dragover', 'drop'])
      document.body.dispatchEvent(new DragEvent(type, { dataTransfer: transfer, bubbles: true, cancelable: true }));
  });
  await page.locator('#file-name').filter({ hasText: 'dropped.gguf' }).waitFor();
  await close();
});

test('errors are told in words, and another model can be loaded', LIMIT, async () => {
  const { page, close } = await openDemo();
  await page.locator('#load:enabled').waitFor({ timeout: 120_000 });
  await page.locator('#model').selectOption('url');
  await page.locator('#url').fill(`${stage.origin}/status/404/nothing.gguf`);
  await page.locator('#load').click();
  const notice = page.getByRole('alert');
  await notice.filter({ hasText: 'Check the address' }).waitFor();
  assert.match(await notice.textContent(), /404/);
  await loadSmallModel(page);
  assert.equal(await notice.isVisible(), false);
  await close();
});

test('a phone-sized screen: nothing is wider than it, with and without a conversation', LIMIT, async () => {
  const { page, close } = await openDemo(PHONE);
  assert.equal(await overflows(page), false, 'at the start');
  await page.locator('#load:enabled').waitFor({ state: 'attached', timeout: 120_000 });
  await loadSmallModel(page);
  await page.locator('#max-tokens').evaluate((field) => (field.value = '40'));
  await page.locator('#prompt').fill(`long${'long'.repeat(60)}`);
  await page.locator('#send').click();
  await page.locator('.message.assistant:not([aria-busy])').waitFor();
  for (const panel of await page.locator('details').all()) await panel.evaluate((element) => (element.open = true));
  assert.equal(await overflows(page), false, 'with a conversation and all panels open');
  await close();
});

test('every field and button has a name', LIMIT, async () => {
  const { page, close } = await openDemo();
  const nameless = await page.evaluate(() =>
    [...document.querySelectorAll('button, input, select, textarea')]
      .filter((element) => !(element.labels?.length > 0 || element.textContent.trim() !== '' || element.getAttribute('aria-label')))
      .map((element) => element.outerHTML),
  );
  assert.deepEqual(nameless, []);
  await close();
});

test('a model that may be on the server is offered if it is', LIMIT, async () => {
  const { page, close } = await openDemo();
  const isOffered = async (status) => {
    await page.unroute('**/models/smollm2/**');
    await page.route('**/models/smollm2/**', (route) => route.fulfill({ status }));
    const asked = page.waitForResponse('**/models/smollm2/**');
    await page.reload();
    await asked;
    const option = page.locator('#model [data-if-served]');
    await page.waitForFunction((wanted) => document.querySelector('#model [data-if-served]').disabled !== wanted, status === 200);
    return (await option.getAttribute('hidden')) === null;
  };
  assert.deepEqual([await isOffered(200), await isOffered(404)], [true, false]);
  await close();
});
