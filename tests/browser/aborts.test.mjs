// Aborts where something else does not answer: an adapter of the browser, a module that a request waits for, texts that embed for long.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { openStage } from './browser.mjs';

const LIMIT = { timeout: 120_000 };
const MODEL = '/golden/tied-q8_0.gguf';

let stage;
before(async () => (stage = await openStage()));
after(() => stage?.close());

/** Runs in the page before `work`: what something came to when it was aborted after some milliseconds, and how long that took. */
function prepareAborts() {
  globalThis.abortedAfter = async (ms, begin) => {
    const controller = new AbortController();
    const working = begin(controller.signal);
    let began;
    setTimeout(() => {
      began = performance.now();
      controller.abort();
    }, ms);
    const { code } = await failure(working);
    return { code, isSoon: performance.now() - began < 500 };
  };
}

const run = (fn, ...parameters) => stage.runWith({ first: (page) => page.evaluate(prepareAborts) }, fn, ...parameters);
const ABORTED = { code: 'aborted', isSoon: true };

test('a browser that never answers for an adapter', LIMIT, async () => {
  const found = await run(async (model) => {
    GPU.prototype.requestAdapter = () => new Promise(() => {});
    const { Engine, models } = rillm;
    return {
      load: await abortedAfter(50, (signal) => Engine.load(model, { signal })),
      inspect: await abortedAfter(50, (signal) => Engine.inspect(model, { signal })),
      shared: await abortedAfter(50, (signal) => Engine.shared(model, { signal })),
      recommend: await abortedAfter(50, (signal) => Engine.recommend([model], { signal })),
      measured: await abortedAfter(50, (signal) => Engine.recommend([model], { device: 'gpu', signal })),
      download: await abortedAfter(50, (signal) => models.download(model, { signal })),
    };
  }, MODEL);
  for (const [name, ended] of Object.entries(found)) assert.deepEqual(ended, ABORTED, name);
});

test('a request that is not accepted yet', LIMIT, async () => {
  const found = await run(async (model) => {
    const request = { prompt: 'The small boat', max_tokens: 4 };
    const schema = { type: 'json_schema', json_schema: { name: 'x', schema: { type: 'object' } } };
    const options = { device: 'cpu', maxSequences: 2, grammarWasmUrl: '/never-answers/grammar.wasm', stallTimeoutMs: 20_000 };
    return withEngine(model, options, async (engine) => {
      const ask = (signal, more) => engine.completions.create({ ...request, ...more, response_format: schema }, { signal });
      const whole = await abortedAfter(50, (signal) => ask(signal));
      const streamed = await abortedAfter(50, (signal) => ask(signal, { stream: true }));
      return { whole, streamed };
    });
  }, MODEL);
  assert.deepEqual(found, { whole: ABORTED, streamed: ABORTED });
});

test('texts that embed for long', LIMIT, async () => {
  const found = await run(
    (model) =>
      withEngine(model, { device: 'cpu', threads: 1 }, async ({ embeddings }) => {
        const embed = (count, signal) => embeddings.create({ input: Array(count).fill('a '.repeat(50)) }, { signal });
        await embed(1);
        const begin = performance.now();
        await embed(50);
        const ms = (performance.now() - begin) / 50;
        // Seconds of work.
        const aborted = await abortedAfter(100, (signal) => embed(Math.ceil(8000 / ms), signal));
        const next = await embed(1);
        return { aborted, next: next.data.length };
      }),
    '/encoders/bert/',
  );
  assert.deepEqual(found, { aborted: ABORTED, next: 1 });
});
