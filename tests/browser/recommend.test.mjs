// Which models a device can run: order, bounds, reasons, and models that can't be read.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { openStage } from './browser.mjs';

const LIMIT = { timeout: 90_000 };
const ALLOWED = { allowed: [/Failed to load resource/] };

let stage;
before(async () => {
  stage = await openStage();
});
after(() => stage?.close());

test('the largest that is fast enough comes first, and every one has its reason', LIMIT, async () => {
  const sources = ['/golden/tied-q4_0.gguf', '/status/404', '/golden/untied-q4_0.gguf', '/golden/tied-f32.gguf'];
  const found = await stage.runWith(ALLOWED, ([sources]) => rillm.Engine.recommend(sources, { contextLength: 64 }), sources, 0);
  assert.equal(found.length, sources.length);
  const last = found.at(-1);
  assert.deepEqual([last.source, last.fits, last.problem.code], ['/status/404', false, 'http']);
  assert.match(last.reason, /404/);
  const fitting = found.slice(0, -1);
  assert.equal(fitting[0].source, '/golden/untied-q4_0.gguf', 'it has the most parameters');
  for (const { fits, tokens_per_s, bytes_per_token, weight_bytes, kv_cache_bytes, reason } of fitting) {
    assert.ok(fits && tokens_per_s > 10 && kv_cache_bytes > 0);
    assert.equal(bytes_per_token, weight_bytes);
    assert.match(reason, /needs .* tokens a second: each token reads/);
  }
  const [small, large] = ['q4_0', 'f32'].map((name) => fitting.find(({ source }) => source.endsWith(`/tied-${name}.gguf`)));
  assert.ok(small.weight_bytes < large.weight_bytes && small.tokens_per_s >= large.tokens_per_s);
});

test('too little memory, too slow, embeddings, nothing, aborts, mistakes', LIMIT, async () => {
  const found = await stage.run(async () => {
    const model = '/golden/tied-q8_0.gguf';
    const { Engine } = rillm;
    const aborted = AbortSignal.abort();
    const controller = new AbortController();
    const later = failure(Engine.recommend([model, model], { signal: controller.signal }));
    setTimeout(() => controller.abort(), 20);
    return {
      memory: await Engine.recommend([model], { memoryBytes: 1000 }),
      slow: await Engine.recommend([model], { minTokensPerSecond: 1e12 }),
      none: await Engine.recommend([]),
      aborted: await failure(Engine.recommend([model], { signal: aborted })),
      later: await later,
      wrong: await Promise.all([
        failure(Engine.recommend(model)),
        failure(Engine.recommend([model], { memoryBytes: 0 })),
        failure(Engine.recommend([model], { minTokensPerSecond: 'fast' })),
      ]),
    };
  });
  assert.equal(found.memory[0].fits, false);
  assert.match(found.memory[0].reason, /needs .* and this device has about/);
  assert.equal(found.slow[0].fits, true);
  assert.match(found.slow[0].reason, /below the wanted/);
  assert.deepEqual(found.none, []);
  assert.deepEqual([found.aborted.code, found.later.code], ['aborted', 'aborted']);
  assert.deepEqual(
    found.wrong.map(({ code }) => code),
    ['invalid_request', 'invalid_request', 'invalid_request'],
  );
});

test('without WebGPU: webgpu_unavailable', LIMIT, async () => {
  const code = await stage.run(async () => {
    Object.defineProperty(navigator, 'gpu', { value: undefined });
    return (await failure(rillm.Engine.recommend(['/golden/tied-q8_0.gguf']))).code;
  });
  assert.equal(code, 'webgpu_unavailable');
});
