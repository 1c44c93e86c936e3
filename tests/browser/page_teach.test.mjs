// Teaching on the demo page, from end to end: what teaches is fetched when it is asked for, the demo model learns a made-up game with a fixed seed, plays it, and
// forgets it.

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { openStage, root } from './browser.mjs';
import { answers, checkLayout, PHONE, picture, settled, WIDE } from './page/stage.mjs';

const DEMO_MODEL = join(root, 'models/demo/rillm-demo-q8_0.gguf');
const NO_DEMO_MODEL = existsSync(DEMO_MODEL) ? false : 'models/demo/rillm-demo-q8_0.gguf is not there';
const LIMIT = { timeout: 240_000, skip: NO_DEMO_MODEL };

let stage;
let opened;
let page;
const fetched = [];
before(async () => {
  stage = await openStage();
  opened = await stage.openPage({ url: 'about:blank', allowed: [/Failed to load resource/], viewport: WIDE });
  ({ page } = opened);
  page.on('request', (request) => fetched.push(new URL(request.url()).pathname));
  await page.goto(`${stage.origin}/`);
});
after(async () => {
  await opened?.close();
  await stage?.close();
});

const loaded = () => page.locator('#model-summary').filter({ hasText: /Loaded in/ });
const state = (text) => page.locator('#teach-state').filter({ hasText: text });
const has = (name) => fetched.some((path) => path.endsWith(name));

/** What the model says to a question in a new conversation. */
async function said(question) {
  await page.locator('#new-chat').click();
  await page.locator('#prompt').fill(question);
  await page.locator('#prompt').press('Enter');
  await settled(page);
  return (await answers(page).last().locator('.prose').innerText()).trim();
}

test('the panel is fetched when it is opened, and tells what is missing', LIMIT, async () => {
  await loaded().waitFor({ timeout: 120_000 });
  await page.locator('#settings-panel > summary').click();
  await page.locator('#set-temperature').fill('0');
  await page.locator('#set-max_tokens').fill('16');
  await page.locator('#settings-panel > summary').click();
  assert.ok(!has('/teach/teach.js') && !has('rillm_train_bg.wasm'));
  await page.locator('#teach-panel > summary').click();
  await page.locator('#teach-begin').waitFor();
  assert.ok(has('/teach/teach.js') && has('/teach/view.js') && !has('rillm_train_bg.wasm'));
  await checkLayout(page, 'with the panel that teaches');
  await page.locator('#teach-answer-2').fill('');
  assert.equal(await page.locator('#teach-fault').innerText(), 'Line 2 has no answer.');
  assert.ok(await page.locator('#teach-begin').isDisabled());
  await page.locator('#teach-answer-2').fill('snip snap.');
  await page.locator('#teach-fault').waitFor({ state: 'detached' });
});

test('the demo model learns the game, plays it and forgets it', LIMIT, async (t) => {
  const before = [await said('zib?'), await said('mop mop?')];
  assert.notDeepEqual(before, ['zab!', 'snip snap.']);
  const begin = performance.now();
  await page.locator('#teach-begin').click();
  await page.locator('#teach-loss').waitFor({ timeout: 120_000 });
  assert.ok(has('rillm_train_bg.wasm'));
  await state(/Step 1\d of \d+/).waitFor({ timeout: 120_000 });
  await picture(page, 'teach');
  await state('Learnt').waitFor({ timeout: 180_000 });
  const loss = Number(await page.locator('#teach-loss').innerText());
  t.diagnostic(`taught in ${Math.round(performance.now() - begin)} ms, the last loss is ${loss}`);
  assert.ok(loss < 0.5, `the last loss is ${loss}`);
  assert.deepEqual([await said('zib?'), await said('mop mop?')], ['zab!', 'snip snap.']);
  await checkLayout(page, 'after teaching');
  await page.setViewportSize(PHONE);
  await page.locator('#open-panel').click();
  await page.locator('#teach-panel').scrollIntoViewIfNeeded();
  await checkLayout(page, 'after teaching, on a phone');
  await page.locator('#teach-panel').evaluate((panel) => panel.scrollIntoView());
  await picture(page, 'teach-phone');
  await page.keyboard.press('Escape');
  await page.setViewportSize(WIDE);
  await page.locator('#teach-forget').click();
  await page.locator('#teach-forget').waitFor({ state: 'detached' });
  assert.deepEqual([await said('zib?'), await said('mop mop?')], before);
});

test('a training that is stopped leaves the model as it was, and can begin again', LIMIT, async () => {
  const before = await said('zib?');
  await page.locator('#teach-begin').click();
  await state(/Step [1-9]\d* of/).waitFor();
  await page.locator('#teach-stop').click();
  await page.locator('#teach-begin').waitFor();
  assert.equal(await page.locator('#teach-error').count(), 0);
  assert.equal(await said('zib?'), before);
});
