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

test('whoever aborts hears of it before anything else runs, and the GPU does not get the rest', LIMIT, async () => {
  const found = await run(async (model) => {
    let heardOf = () => {};
    let submits = 0;
    const { submit } = GPUQueue.prototype;
    GPUQueue.prototype.submit = function (...args) {
      submits += 1;
      heardOf();
      return submit.apply(this, args);
    };
    /** Aborts something at a submit of its own. */
    const abortedAt = async (count, begin) => {
      const controller = new AbortController();
      const [first, ended] = [submits, { isSettled: false }];
      let looked;
      const aborted = new Promise((resolve) => {
        heardOf = () => {
          if (submits < first + count || controller.signal.aborted) return;
          controller.abort();
          setTimeout(() => resolve((looked = { isHeard: ended.isSettled })));
        };
      });
      ended.code = (await failure(begin(controller.signal).finally(() => (ended.isSettled = true)))).code;
      if (!controller.signal.aborted) return { code: ended.code, submits: submits - first };
      await aborted;
      // What is on its way to the GPU by now still comes.
      await new Promise((resolve) => setTimeout(resolve, 250));
      heardOf = () => {};
      return { code: ended.code, ...looked, more: submits - first - count };
    };
    const options = { device: 'gpu', worker: false, autotune: 'off', smoothness: 'frames' };
    return withEngine(model, options, async (engine) => {
      let next = 0;
      const long = () => `${++next} ${Array(18).fill('The small boat').join(' ')}`;
      const ask = (more, signal) => engine.completions.create({ temperature: 0, ignore_eos: true, ...more }, { signal });
      const chat = () => [{ role: 'user', content: long() }];
      const answer = { prompt: 'The small boat', max_tokens: 150 };
      // Compiles kernels.
      await ask({ prompt: long(), max_tokens: 8 });
      const before = submits;
      await ask(answer);
      const whole = submits - before;
      const found = {
        prompt: await abortedAt(1, (signal) => ask({ prompt: long(), max_tokens: 1 }, signal)),
        answer: await abortedAt(6, (signal) => ask(answer, signal)),
        choices: await abortedAt(4, (signal) => ask({ prompt: 'The large boat', max_tokens: 100, n: 2 }, signal)),
        save: await abortedAt(1, (signal) => engine.sessions.save(chat(), { signal })),
      };
      Object.assign(found.answer, { whole });
      found.after = (await ask({ prompt: 'The small boat', max_tokens: 4 })).usage.completion_tokens;
      return found;
    });
  }, MODEL);
  const { after, ...phases } = found;
  assert.equal(after, 4);
  for (const [name, { code, isHeard }] of Object.entries(phases)) assert.deepEqual([code, isHeard], ['aborted', true], name);
  // Two that are on their way, which are cut in pieces where a page draws.
  const { more, whole } = phases.answer;
  assert.ok(more <= 8 && whole >= 16, `${more} submits after the abort, of ${whole} that the whole answer takes`);
});

test('documents that are ranked for long, in a worker: the caller hears at once', LIMIT, async () => {
  const found = await run(
    (model) =>
      withEngine(model, { device: 'cpu', threads: 1 }, async ({ rerank }) => {
        const rank = (count, signal) => rerank.create({ query: 'boats', documents: Array(count).fill('a '.repeat(50)) }, { signal });
        await rank(1);
        const controller = new AbortController();
        let isSettled = false;
        const ended = failure(rank(2000, controller.signal).finally(() => (isSettled = true)));
        await new Promise((resolve) => setTimeout(resolve, 30));
        controller.abort();
        await new Promise((resolve) => setTimeout(resolve));
        return { isSettled, code: (await ended).code, next: (await rank(1)).results.length };
      }),
    '/classifiers/bert_reranker/',
  );
  assert.deepEqual(found, { isSettled: true, code: 'aborted', next: 1 });
});
