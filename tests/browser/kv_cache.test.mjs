// The KV cache in the package in Chromium: its formats, and answers that are longer than the context.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { goldenJson, goldenNpy, openStage, relativeError } from './browser.mjs';

let stage;
before(async () => (stage = await openStage()));
after(() => stage.close());

/** ‖a − b‖ / ‖b‖ of all logits, and the bytes of the cache. */
async function measured(kvCache) {
  const { logits, info } = await stage.run(
    ([url, ids, kvCache]) =>
      withEngine(url, { kvCache }, async (engine) => {
        const tensor = await engine.forward(ids);
        const { kv_cache, kv_cache_bytes } = engine.info;
        return { logits: [...(await tensor.readback())], info: { kv_cache, kv_cache_bytes } };
      }),
    '/golden/tied-f32.gguf',
    goldenJson('tied.ids.json'),
    kvCache,
  );
  assert.equal(info.kv_cache, kvCache);
  return { error: relativeError(logits, goldenNpy('tied-f32.logits.npy').data), bytes: info.kv_cache_bytes };
}

test('kvCache: each format is as near as it has bits', async () => {
  const [full, half, blocks] = [await measured('f32'), await measured('f16'), await measured('q8_0')];
  assert.equal(full.bytes, 2 * half.bytes);
  assert.ok(full.error < 1e-4 && half.error < 3e-3, `f32 ${full.error}, f16 ${half.error}`);
  assert.ok(blocks.error > half.error && blocks.error < 5e-2, `q8_0 ${blocks.error}`);
});

test('kvCache: what is no format is refused by name', async () => {
  const error = await stage.run(async (url) => {
    try {
      await withEngine(url, { kvCache: 'q4_0' }, () => {});
    } catch ({ code, message }) {
      return { code, message };
    }
  }, '/golden/tied-f32.gguf');
  assert.equal(error?.code, 'invalid_request', JSON.stringify(error));
  assert.match(error.message, /q8_0/);
});

test('context_shift: an answer goes on past the end of the context', async () => {
  const answers = await stage.run(
    (url) =>
      withEngine(url, { contextLength: 48, kvCache: 'q8_0' }, async (engine) => {
        const request = { prompt: [5, 60, 7, 81, 9], max_tokens: 200, temperature: 0, ignore_eos: true };
        const ends = await engine.completions.create(request);
        const goesOn = await engine.completions.create({ ...request, context_shift: { sinks: 2 } });
        const stream = await engine.completions.create({ ...request, context_shift: true, stream: true });
        const chunks = [];
        for await (const chunk of stream) chunks.push(chunk);
        return [ends, goesOn, chunks.at(-1)];
      }),
    '/golden/tied-f32.gguf',
  );
  const [ends, goesOn, last] = answers;
  assert.equal(ends.usage.completion_tokens, 48 - 5);
  assert.equal(ends.choices[0].finish_reason, 'length');
  assert.equal('context_shifts' in ends.timings, false);
  for (const [answer, dropped] of [
    [goesOn, 23],
    [last, 22],
  ]) {
    assert.equal(answer.usage.completion_tokens, 200);
    assert.equal(answer.choices[0].finish_reason, 'length');
    // 204 tokens go through a context of 48, which is emptied by so many.
    assert.equal(answer.timings.context_shifts, Math.ceil((204 - 48) / dropped));
    assert.equal(answer.timings.dropped_tokens, answer.timings.context_shifts * dropped);
  }
});
