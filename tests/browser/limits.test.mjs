// Devices with less than this browser's: each optional feature is left out, the limits are those that WebGPU guarantees everywhere, and all of
// it at once. A dense model, a mixture of experts and an encoder answer as they do with everything.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { openStage } from './browser.mjs';

const LIMIT = { timeout: 240_000 };
/** https://www.w3.org/TR/webgpu/#limits */
const DEFAULTS = {
  maxBufferSize: 268435456,
  maxStorageBufferBindingSize: 134217728,
  maxStorageBuffersPerShaderStage: 8,
  maxComputeWorkgroupsPerDimension: 65535,
  maxComputeInvocationsPerWorkgroup: 256,
  maxComputeWorkgroupSizeX: 256,
  maxComputeWorkgroupSizeY: 256,
  maxComputeWorkgroupSizeZ: 64,
  maxComputeWorkgroupStorageSize: 16384,
  maxUniformBufferBindingSize: 65536,
  maxBindGroups: 4,
};
const FEATURES = ['shader-f16', 'subgroups', 'timestamp-query'];

let stage;
before(async () => (stage = await openStage()));
after(() => stage.close());

/** Runs in the page: adapters have neither these features nor, with `limits`, higher limits. */
function take({ without, limits }) {
  const descriptor = (name) => Object.getOwnPropertyDescriptor(GPUAdapter.prototype, name);
  const [features, own] = [descriptor('features').get, descriptor('limits').get];
  Object.defineProperty(GPUAdapter.prototype, 'features', {
    get() {
      return new Set([...features.call(this)].filter((name) => !without.includes(name)));
    },
  });
  if (limits !== undefined) Object.defineProperty(GPUAdapter.prototype, 'limits', { get: () => limits });
  const { requestDevice } = GPUAdapter.prototype;
  globalThis.devices = [];
  GPUAdapter.prototype.requestDevice = async function (...args) {
    const device = await requestDevice.apply(this, args);
    const names = limits === undefined ? [] : Object.keys(limits).filter((name) => device.limits[name] !== limits[name]);
    devices.push({
      features: without.filter((name) => device.features.has(name)),
      limits: names,
      had: [...features.call(this)],
      own: own.call(this),
    });
    return device;
  };
}

async function answers(mode) {
  const { page, prepare, close } = await stage.openPage({ allowed: [/Failed to load resource/] });
  try {
    await prepare('/rillm/dist/index.js');
    await page.evaluate(take, mode);
    return await page.evaluate(async () => {
      const texts = {};
      const ask = { prompt: 'The small boat goes to the', max_tokens: 12, temperature: 0, ignore_eos: true };
      for (const [name, source, { prompt = ask.prompt, ...options }] of [
        // These have the most kernels.
        ['demo', '/models/demo/rillm-demo-q4_0.gguf', { precision: 'fast', kvCache: 'f16' }],
        ['mixture of experts', '/architectures/qwen3_moe/', {}],
        // Its kernels would bind two buffers more.
        ['adapter', '/golden/tied-q4_0.gguf', { adapters: [{ source: '/adapters/llama_q4_0/adapter0/' }], prompt: [3, 14, 15, 92] }],
      ]) {
        texts[name] = await withEngine(source, { worker: false, contextLength: 64, ...options }, async (engine) => {
          const { choices } = await engine.completions.create({ ...ask, prompt });
          return choices[0].text;
        });
      }
      const vector = await withEngine('/encoders/bert/', { worker: false }, async (engine) => {
        const { data } = await engine.embeddings.create({ input: 'one boat' });
        return data[0].embedding;
      });
      return { texts, vector, devices };
    });
  } finally {
    await close();
  }
}

test('without each feature, with the least limits, and with both: the same answers', LIMIT, async () => {
  const all = await answers({ without: [] });
  const [{ had }] = all.devices;
  for (const mode of [
    // Timestamps have no part in answers; without the rest each is left out alone.
    ...FEATURES.filter((name) => had.includes(name) && name !== 'timestamp-query').map((name) => ({ without: [name] })),
    { without: ['timestamp-query'], limits: DEFAULTS },
    { without: FEATURES, limits: DEFAULTS },
  ]) {
    const name = JSON.stringify(mode);
    const { texts, vector, devices } = await answers(mode);
    for (const { features, limits } of devices) assert.deepEqual([features, limits], [[], []], `${name} was not taken`);
    assert.deepEqual(texts, all.texts, name);
    const apart = Math.max(...vector.map((value, at) => Math.abs(value - all.vector[at])));
    assert.ok(apart < 1e-5, `${name}: ${apart}`);
  }
});
