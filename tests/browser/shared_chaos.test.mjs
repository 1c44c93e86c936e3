// Tabs that come, ask, leave, crash and are put away at random: whoever stays is answered, and with the right text.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { openStage } from './browser.mjs';

const TABS = 4;
const STEPS = 50;
const skip = !process.env.RILLM_SOAK && '`npm run soak` runs it; SEED=N chooses what the tabs do';

let stage;
before(async () => {
  if (!skip) stage = await openStage();
});
after(() => stage?.close());

/** Numbers from 0 to below n, the same for the same seed. */
function numbers(seed) {
  let state = seed;
  return (n) => Math.floor(((state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32) * n);
}

/** Runs in the page: what a tab does. */
async function prepare() {
  const { Engine } = await import('/rillm/dist/index.js');
  let engine;
  globalThis.ask = async (max_tokens) => {
    try {
      engine ??= Engine.shared('/golden/tied-q8_0.gguf', { onWarning: () => {} });
      const request = { prompt: 'The small boat', max_tokens, temperature: 0, ignore_eos: true };
      return (await (await engine).completions.create(request)).choices[0].text;
    } catch ({ code, message }) {
      return { code, message };
    }
  };
  globalThis.leave = async () => {
    const left = engine;
    engine = undefined;
    await (await left)?.dispose();
  };
  globalThis.page = (type) => dispatchEvent(new PageTransitionEvent(type, { persisted: true }));
}

test('whatever tabs do, those that stay are answered', { timeout: 120_000, skip }, async (t) => {
  const seed = Number(process.env.SEED ?? 4);
  t.diagnostic(`SEED=${seed}`);
  const random = numbers(seed);
  const opened = await stage.openPage();
  const open = async () => {
    const page = await opened.page.context().newPage();
    await page.goto(`${stage.origin}/blank/`);
    await page.evaluate(prepare);
    return page;
  };
  const tabs = await Promise.all(Array.from({ length: TABS }, open));
  const asked = [];
  const ways = {
    ask: async (at) => {
      const length = 20 + 60 * random(3);
      const gone = () => ({ code: 'gone' });
      asked.push(tabs[at].evaluate((length) => ask(length), length).then((answer) => ({ length, answer }), gone));
    },
    leave: async (at) => void tabs[at].evaluate(() => leave()).catch(() => {}),
    close: async (at) => {
      await tabs[at].close();
      tabs[at] = await open();
    },
    crash: async (at) => {
      const crashed = tabs[at].waitForEvent('crash');
      tabs[at].goto('chrome://crash').catch(() => {});
      await crashed;
      await ways.close(at);
    },
    'put away': async (at) => {
      await tabs[at].evaluate(() => page('pagehide'));
      await tabs[at].waitForTimeout(random(500));
      await tabs[at].evaluate(() => page('pageshow'));
    },
    wait: (at) => tabs[at].waitForTimeout(random(1500)),
  };
  const names = [...Array(6).fill('ask'), ...Object.keys(ways).slice(1), 'wait'];
  for (let step = 0; step < STEPS; step++) await ways[names[random(names.length)]](random(TABS));

  const texts = new Map();
  for (const { length, answer, code } of await Promise.all(asked)) {
    if (code === 'gone') continue;
    // A tab that leaves gives up what it has asked.
    if (typeof answer !== 'string') assert.equal(answer.code, 'disposed', answer.message);
    else texts.set(length, (texts.get(length) ?? new Set()).add(answer));
  }
  assert.ok(texts.size > 0);
  for (const [length, found] of texts) assert.equal(found.size, 1, `answers of ${length} tokens: ${[...found].join(' | ')}`);
  await Promise.all(tabs.map((tab) => tab.evaluate(() => leave())));
  await tabs[0].waitForFunction(async () => (await navigator.locks.query()).held.length === 0);
  // The end of a worker is heard of a moment after it.
  const workers = () => tabs.reduce((sum, tab) => sum + tab.workers().length, 0);
  for (let tries = 0; tries < 200 && workers() > 0; tries++) await new Promise((resolve) => setTimeout(resolve, 25));
  assert.equal(workers(), 0);
  await opened.close();
});
