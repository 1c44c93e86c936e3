// rillm/gpu and rillm/tensor in Firefox: each family of operations against PyTorch, which kernels without subgroups have to agree with as
// well, order and read-back of batches, and a device that is destroyed.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { root } from '../browser/browser.mjs';
import { openFirefox } from './stage.mjs';

const LIMIT = { timeout: 120_000 };
/** Cases of each operation. The native tests run all of them. */
const CASES = 3;

/** A golden operation in JavaScript: what it is called with, and its arguments of PyTorch. */
const OPERATIONS = {
  elementwise: {
    exp: ([x]) => x.exp(),
    gelu: ([x], { approximate }) => x.gelu({ approximate }),
    add: ([x, y], { scalar }) => x.add(y ?? scalar),
  },
  comparison: { lt: ([x, y], { scalar }) => x.lower(y ?? scalar), where: ([c, x, y], { scalar }) => c.where(x, y ?? scalar) },
  reductions: {
    sum: ([x], { dims, keepdim }) => x.sum(dims, { keepDim: keepdim }),
    var: ([x], { dims, keepdim, correction }) => x.variance(dims, { keepDim: keepdim, correction }),
    argmax: ([x], { dims, keepdim }) => x.argmax(dims?.[0], { keepDim: keepdim }),
    cumsum: ([x], { dim }) => x.cumsum(dim),
  },
  shapes: { permute: ([x], { dims }) => x.permute(dims), pad: ([x], { pad, value }) => x.pad(pad, value) },
  indexing: {
    gather: ([x, i], { dim }) => x.gather(dim, i),
    scatter_add: ([x, i, y], { dim }) => x.scatterAdd(dim, i, y),
    embedding: ([i, x]) => x.embedding(i),
  },
  products: { matmul: ([x, y]) => x.matmul(y), dot: ([x, y]) => x.dot(y) },
  convolution: {
    conv2d: ([x, weight, bias], options) => x.conv2d(weight, { bias, ...options }),
    max_pool2d: ([x], { kernel_size, ceil_mode, ...options }) => x.maxPool2d(kernel_size, { ...options, ceilMode: ceil_mode }),
  },
  normalisation: {
    softmax: ([x], { dim }) => x.softmax(dim),
    layer_norm: ([x, weight, bias], { normalized_shape, eps }) => x.layerNorm({ dims: normalized_shape.length, weight, bias, eps }),
    rms_norm: ([x, weight], { normalized_shape, eps }) => x.rmsNorm({ dims: normalized_shape.length, weight, eps }),
  },
  sorting: {
    sort: ([x], { dim, descending }) => x.sort(dim, { descending }),
    topk: ([x], { k, dim, largest }) => x.topk(k, dim, { largest }),
  },
  attention: {
    scaled_dot_product_attention: ([q, k, v], { is_causal, scale }) => q.attention(k, v, { causal: is_causal, scale: scale ?? undefined }),
  },
};

let stage;
before(async () => (stage = await openFirefox()));
after(() => stage?.close());

/** Of the cases of an operation whose tensors lie plainly in f32 or as integers, the largest and some in between. */
function chosen(cases) {
  const plain = ({ dtype, strides, shape }) => ['f32', 'i32', 'bool'].includes(dtype) && strides === undefined && !shape.includes(0);
  const size = ({ inputs }) => inputs.reduce((sum, { data }) => sum + data.length, 0);
  const fit = cases.filter(({ inputs, outputs, args }) => !args.reverse && [...inputs, ...outputs].every(plain));
  const sorted = fit.sort((a, b) => size(b) - size(a));
  const every = Math.max(1, Math.floor(sorted.length / CASES));
  return sorted.filter((_, i) => i % every === 0).slice(0, CASES);
}

/** The numbers of a golden tensor. */
function numbers({ dtype, data }) {
  const bytes = Uint8Array.from(Buffer.from(data, 'base64'));
  if (dtype === 'bool') return [...bytes];
  return [...new (dtype === 'f32' ? Float32Array : Int32Array)(bytes.buffer)];
}

test('operations of each family agree with PyTorch', LIMIT, async () => {
  const wanted = Object.entries(OPERATIONS).flatMap(([family, operations]) => {
    const all = JSON.parse(readFileSync(join(root, 'tests/golden/tensor', `${family}.json`), 'utf8'));
    return Object.keys(operations).flatMap((op) =>
      chosen(all.filter((golden) => golden.op === op)).map((golden) => ({ family, ...golden })),
    );
  });
  const calls = wanted.map(({ family, op, args, inputs }) => ({
    source: String(OPERATIONS[family][op]),
    args,
    inputs: inputs.map((input) => ({ values: numbers(input).map(String), shape: input.shape, dtype: input.dtype })),
  }));
  const { run, close } = await stage.openPage({ address: '/rillm/dist/tensor/index.js' });
  const got = await run(async (calls) => {
    const device = await rillm.Device.request();
    const results = calls.map(({ source, args, inputs }) => {
      const tensors = inputs.map(({ values, shape, dtype }) => device.tensor(values.map(Number), shape, dtype));
      const result = (0, eval)(`(${source})`)(tensors, args);
      return result.values ? [result.values, result.indices] : [result];
    });
    const values = await device.readback(...results.flat());
    // JSON has no NaN and no infinity.
    const told = results.map((tensors) =>
      tensors.map(({ shape }) => ({ shape, values: Array.from(values.shift(), (x) => String(Number(x))) })),
    );
    device.destroy();
    return told;
  }, calls);
  await close();
  const seen = new Set();
  for (const [n, { op, args, outputs, tolerance }] of wanted.entries()) {
    seen.add(op);
    for (const [i, { shape, values }] of got[n].entries()) {
      const expected = numbers(outputs[i]);
      const largest = Math.max(0, ...expected.filter(Number.isFinite).map(Math.abs));
      const name = `${op} ${JSON.stringify(args)} of ${JSON.stringify(wanted[n].inputs.map(({ shape }) => shape))}`;
      assert.deepEqual(shape, outputs[i].shape, name);
      for (const [at, text] of values.entries()) {
        const same = Object.is(Number(text), expected[at]) || Math.abs(Number(text) - expected[at]) <= tolerance * largest;
        assert.ok(same, `${name}: element ${at} is ${text}, wanted ${expected[at]}`);
      }
    }
  }
  const all = Object.values(OPERATIONS).flatMap((operations) => Object.keys(operations));
  assert.deepEqual([...seen].sort(), all.sort());
});

test('a batch, a sync and 65 read-backs at once: each has its own numbers, and nothing is left', LIMIT, async () => {
  const { run, close } = await stage.openPage({ address: '/rillm/dist/gpu/index.js' });
  const got = await run(async () => {
    const device = await rillm.Device.request();
    const x = device.tensor(Float32Array.from({ length: 1031 }, (_, i) => i / 1031));
    const batch = device.batch();
    const id = batch.add(batch.scale(batch.importBuffer(x), 2), batch.upload(new Float32Array(1031).fill(1)));
    const many = Array.from({ length: 64 }, (_, i) => device.full([i + 1], i));
    const [, , kept, ...read] = await Promise.all([
      batch.execute(),
      device.sync(),
      x.readback(),
      ...many.map((tensor) => tensor.readback()),
    ]);
    const values = [...(await batch.read(id))];
    const wrong = read.findIndex((values, i) => values.length !== i + 1 || values.some((value) => value !== i));
    for (const tensor of [x, ...many]) tensor.dispose();
    batch.dispose();
    await device.sync();
    const { tensors } = device.memoryStats();
    device.destroy();
    return { kept: [...kept], values, wrong, tensors };
  });
  await close();
  const kept = Array.from({ length: 1031 }, (_, i) => Math.fround(i / 1031));
  assert.deepEqual(got, { kept, values: kept.map((x) => Math.fround(2 * x + 1)), wrong: -1, tensors: 0 });
});

test('a GPUDevice that is destroyed is told of, and the next one computes', LIMIT, async () => {
  const { run, close } = await stage.openPage({ address: '/rillm/dist/gpu/index.js' });
  const got = await run(async () => {
    const device = await rillm.Device.request();
    const tensor = device.ones([4]);
    const before = [...(await tensor.readback())];
    device.gpuDevice.destroy();
    const { reason } = await device.lost;
    const codes = [
      await failure(() => tensor.readback()),
      await failure(() => device.sync()),
      await failure(() => device.ones([2]).readback()),
    ];
    device.destroy();
    const next = await rillm.Device.request();
    const after = [...(await next.ones([4]).add(1).readback())];
    next.destroy();
    return { before, reason, codes: codes.map(({ code }) => code), after };
  });
  await close();
  assert.deepEqual(got, {
    before: [1, 1, 1, 1],
    reason: 'destroyed',
    codes: ['device_lost', 'device_lost', 'device_lost'],
    after: [2, 2, 2, 2],
  });
});
