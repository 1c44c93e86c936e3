// Which models a device can run: order, bounds, reasons, and models that can't be read.

import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { golden, openStage } from './browser.mjs';
import { readGguf, uint32Entry, writeGguf } from './gguf.mjs';

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
  for (const { device, fits, tokens_per_s, bytes_per_token, weight_bytes, kv_cache_bytes, reason } of fitting) {
    assert.ok(device === 'gpu' && fits && tokens_per_s > 10 && kv_cache_bytes > 0);
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

test('without WebGPU models are for the CPU, as a load chooses; a GPU that is asked for is missed', LIMIT, async () => {
  const sources = ['/golden/tied-q8_0.gguf', '/models/demo/rillm-demo-q8_0.gguf', '/status/404'];
  const found = await stage.runWith(
    ALLOWED,
    async ([sources]) => {
      Object.defineProperty(navigator, 'gpu', { value: undefined });
      const { Engine } = rillm;
      const options = { contextLength: 64 };
      // Both precisions are compared, so the speed must be the same each time that it is measured.
      const { now } = performance;
      let ms = 0;
      performance.now = () => (ms += 1 / 32);
      const fast = await Engine.recommend(sources, options);
      const exact = await Engine.recommend(sources, { ...options, precision: 'exact', device: 'cpu' });
      performance.now = now;
      return {
        fast,
        exact,
        slow: await Engine.recommend(sources.slice(0, 2), { ...options, minTokensPerSecond: 1e12 }),
        gpu: await failure(Engine.recommend(sources, { device: 'gpu' })),
        device: await withEngine(sources[0], options, ({ info }) => [info.device, info.device_reason]),
      };
    },
    sources,
    0,
  );
  assert.deepEqual(found.device, ['cpu', 'no_webgpu']);
  assert.equal(found.gpu.code, 'webgpu_unavailable');
  for (const all of [found.exact, found.fast]) {
    assert.deepEqual(
      all.map(({ source, device, fits }) => [source, device, fits]),
      [
        [sources[1], 'cpu', true],
        [sources[0], 'cpu', true],
        [sources[2], 'cpu', false],
      ],
    );
    assert.equal(all[2].problem.code, 'http');
  }
  // The last of them by the clock of this machine.
  for (const [large, small] of [found.exact, found.fast, found.slow.toReversed()]) {
    const all = JSON.stringify([large, small]);
    assert.ok(large.tokens_per_s > 10 && large.tokens_per_s < small.tokens_per_s && small.tokens_per_s < 1e6, all);
  }
  const large =
    /^it runs on the CPU, since there is no WebGPU here, and needs \d+ MB; about \d+ tokens a second: each token takes products with 14 million weights/;
  assert.match(found.fast[0].reason, large);
  assert.match(found.exact[0].reason, /^it runs on the CPU, and needs/);
  assert.ok(found.fast[0].tokens_per_s > found.exact[0].tokens_per_s, JSON.stringify([found.fast, found.exact]));
  assert.deepEqual(
    found.slow.map(({ source }) => source),
    sources.slice(0, 2),
    'of those that are too slow the fastest comes first',
  );
  assert.match(found.slow[0].reason, /below the wanted/);
});

test('the CPU where the GPU is software or gives nothing, and for what the GPU has no room for', LIMIT, async () => {
  const long = readGguf(readFileSync(join(golden, 'tied-q8_0.gguf')));
  long.entries.set('llama.context_length', uint32Entry(100e6));
  writeFileSync(join(stage.made, 'long.gguf'), writeGguf(long));
  const found = await stage.run(async () => {
    const { Engine } = rillm;
    const [model, long] = ['/golden/tied-q8_0.gguf', '/made/long.gguf'];
    const of = async (source, options) => {
      const [{ device, fits, reason, problem, kv_cache_bytes }] = await Engine.recommend([source], { worker: false, ...options });
      return { device, fits, reason, problem: problem?.code, kv_cache_bytes };
    };
    const found = { gpu: await of(model) };
    const patch = (name, descriptor) => {
      const own = Object.getOwnPropertyDescriptor(GPUAdapter.prototype, name);
      Object.defineProperty(GPUAdapter.prototype, name, { configurable: true, ...descriptor });
      return () => Object.defineProperty(GPUAdapter.prototype, name, own);
    };
    let undo = patch('requestDevice', { value: () => Promise.reject(new DOMException('no device', 'OperationError')) });
    found.refused = await of(model);
    found.refusedGpu = await failure(Engine.recommend([model], { device: 'gpu' }));
    undo();
    const limits = { maxBufferSize: 268435456, maxStorageBufferBindingSize: 134217728 };
    const all = Object.getOwnPropertyDescriptor(GPUAdapter.prototype, 'limits').get;
    undo = patch('limits', {
      get() {
        const own = all.call(this);
        return Object.fromEntries(Object.keys(GPUSupportedLimits.prototype).map((name) => [name, limits[name] ?? own[name]]));
      },
    });
    found.large = await of(long, { contextLength: 2e6 });
    found.largeOnGpu = await of(long, { contextLength: 2e6, device: 'gpu' });
    undo();
    found.tooLarge = await of(long, { contextLength: 16e6, device: 'cpu' });
    found.tooLargeToo = await of(long, { contextLength: 16e6, device: 'cpu', memoryBytes: 1e12 });
    const gpu = navigator.gpu.constructor.prototype;
    const { requestAdapter } = gpu;
    gpu.requestAdapter = async () => null;
    found.none = await of(model);
    gpu.requestAdapter = requestAdapter;
    Object.defineProperty(GPUAdapter.prototype, 'info', { get: () => ({ isFallbackAdapter: true }) });
    found.software = await of(model);
    found.asked = await of(model, { forceFallbackAdapter: true });
    return found;
  });
  const devices = Object.entries(found).flatMap(([name, { device, fits }]) => (device === undefined ? [] : [[name, [device, fits]]]));
  assert.deepEqual(Object.fromEntries(devices), {
    gpu: ['gpu', true],
    refused: ['cpu', true],
    large: ['cpu', true],
    largeOnGpu: ['gpu', false],
    tooLarge: ['cpu', false],
    tooLargeToo: ['cpu', false],
    none: ['cpu', true],
    software: ['cpu', true],
    asked: ['gpu', true],
  });
  assert.equal(found.refusedGpu.code, 'adapter_unavailable');
  assert.match(found.large.reason, /^it runs on the CPU, since it is too large for the limits of this GPU, and needs/);
  assert.equal(found.largeOnGpu.problem, 'adapter_limits');
  for (const { kv_cache_bytes, reason } of [found.tooLarge, found.tooLargeToo]) {
    assert.ok(kv_cache_bytes > 4e9 && kv_cache_bytes < 2 ** 32, 'it would fit without what is needed besides');
    assert.match(reason, /its KV cache needs 4\.1 GB .* has 4\.3 GB on the CPU/);
  }
  assert.match(found.none.reason, /the browser gives no GPU/);
  assert.match(found.software.reason, /a GPU in software only/);
  assert.match(found.asked.reason, /this CPU, which stands in for a GPU/);
});

test('clocks that are coarse or stand still, little memory, and an abort while the CPU is measured', LIMIT, async () => {
  const found = await stage.run(async () => {
    const { Engine } = rillm;
    const sources = ['/models/demo/rillm-demo-q8_0.gguf', '/golden/tied-q8_0.gguf'];
    const recommend = (options) => Engine.recommend(sources, { device: 'cpu', contextLength: 64, ...options });
    const found = { fine: [], coarse: [] };
    const now = performance.now.bind(performance);
    const lasting = async (work) => {
      const begin = now();
      const result = await work();
      return { result, ms: now() - begin };
    };
    // In turns, and several times: a tick may pass while other programs have the core, and they may have it for a while.
    for (let round = 0; round < 3; round++) {
      performance.now = now;
      found.fine.push(await recommend());
      performance.now = () => Math.floor(now() / 100) * 100;
      found.coarse.push(await recommend());
    }
    performance.now = () => 5;
    found.still = await recommend();
    performance.now = now;
    const memory = async (deviceMemory) => {
      Object.defineProperty(navigator, 'deviceMemory', { value: deviceMemory, configurable: true });
      return (await recommend()).map(({ fits, reason }) => (fits ? 'fits' : reason));
    };
    found.memory = [await memory(0.25), await memory(0.015625), await memory(Number.NaN), await memory('lots'), await memory(-1)];
    found.aborted = await lasting(async () => (await failure(recommend({ signal: AbortSignal.timeout(30) }))).code);
    return found;
  });
  const speeds = (all) => all.map(([first]) => first.tokens_per_s);
  const [fine, coarse] = [speeds(found.fine), speeds(found.coarse)];
  for (const { tokens_per_s } of found.coarse.flat()) assert.ok(tokens_per_s > 0);
  const isNear = Math.max(...coarse) > Math.min(...fine) / 3 && Math.min(...coarse) < 3 * Math.max(...fine);
  assert.ok(isNear, `a coarse clock gives ${coarse} tokens/s, a fine one ${fine}`);
  assert.deepEqual(
    found.still.map(({ source, fits, tokens_per_s }) => [source, fits, tokens_per_s]),
    [
      ['/golden/tied-q8_0.gguf', true, undefined],
      ['/models/demo/rillm-demo-q8_0.gguf', true, undefined],
    ],
    'the smallest comes first where nothing is known of the speed',
  );
  assert.match(found.still[0].reason, /clock of this page stands still/);
  const [quarter, tiny, ...untold] = found.memory;
  assert.deepEqual(quarter, ['fits', 'fits']);
  assert.deepEqual([tiny[0], /needs \d+ MB and this device has about 9 MB/.test(tiny[1])], ['fits', true], String(tiny));
  for (const told of untold) assert.deepEqual(told, ['fits', 'fits']);
  assert.equal(found.aborted.result, 'aborted');
  assert.ok(found.aborted.ms < 5000, `${found.aborted.ms} ms`);
});
