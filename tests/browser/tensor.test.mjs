// rillm/tensor in Chromium: operations through JavaScript, what waits and what is fused, dtypes, memory, and wrong calls. What operations
// compute is held to PyTorch natively.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { openStage } from './browser.mjs';

const LIMIT = { timeout: 60_000 };
const TENSOR = { package: '/rillm/dist/tensor/index.js' };

let stage;
before(async () => (stage = await openStage()));
after(() => stage.close());

const run = (fn, ...parameters) => stage.runWith(TENSOR, fn, ...parameters);

/** Calls of methods on x = [[1, -2, 3], [-4, 5, -6]] and y = [2, 3, 4], with their results. */
const CALLS = {
  'x.add(y)': [2, 3, [3, 1, 7, -2, 8, -2]],
  'x.sub(1)': [2, 3, [0, -3, 2, -5, 4, -7]],
  'x.mul(y)': [2, 3, [2, -6, 12, -8, 15, -24]],
  'x.div(2)': [2, 3, [0.5, -1, 1.5, -2, 2.5, -3]],
  'x.pow(2)': [2, 3, [1, 4, 9, 16, 25, 36]],
  'x.maximum(0)': [2, 3, [1, 0, 3, 0, 5, 0]],
  'x.minimum(y)': [2, 3, [1, -2, 3, -4, 3, -6]],
  'x.neg()': [2, 3, [-1, 2, -3, 4, -5, 6]],
  'x.abs()': [2, 3, [1, 2, 3, 4, 5, 6]],
  'x.relu()': [2, 3, [1, 0, 3, 0, 5, 0]],
  'x.div(4).floor()': [2, 3, [0, -1, 0, -1, 1, -2]],
  'x.abs().sqrt().pow(2)': [2, 3, [1, 2, 3, 4, 5, 6]],
  'y.exp().log()': [3, [2, 3, 4]],
  'y.rsqrt().pow(-2)': [3, [2, 3, 4]],
  'y.sin().pow(2).add(y.cos().pow(2))': [3, [1, 1, 1]],
  'y.tanh().sub(y.mul(2).sigmoid().mul(2).sub(1))': [3, [0, 0, 0]],
  'y.silu().div(y.sigmoid())': [3, [2, 3, 4]],
  'y.gelu().sub(y.gelu({ approximate: "tanh" })).abs().lower(0.001)': [3, [1, 1, 1]],
  'y.softplus().exp().sub(1).log()': [3, [2, 3, 4]],
  'x.clamp({ min: -1, max: 2 })': [2, 3, [1, -1, 2, -1, 2, -1]],
  'x.equal(3)': [2, 3, [0, 0, 1, 0, 0, 0]],
  'x.notEqual(y)': [2, 3, [1, 1, 1, 1, 1, 1]],
  'x.greater(0).and(x.lower(4))': [2, 3, [1, 0, 1, 0, 0, 0]],
  'x.greaterEqual(3).or(x.lowerEqual(-6))': [2, 3, [0, 0, 1, 0, 1, 1]],
  'x.greater(0).xor(x.greater(2)).not()': [2, 3, [0, 1, 1, 1, 1, 1]],
  'x.greater(0).where(x, 0)': [2, 3, [1, 0, 3, 0, 5, 0]],
  'x.greater(0).where(1, -1)': [2, 3, [1, -1, 1, -1, 1, -1]],
  'x.greater(0).where(y, x)': [2, 3, [2, -2, 4, -4, 3, -6]],
  'x.cast("i32").div(2)': [2, 3, [0.5, -1, 1.5, -2, 2.5, -3]],
  'x.sum()': [[-3]],
  'x.sum(0)': [3, [-3, 3, -3]],
  'x.sum([0, 1], { keepDim: true })': [1, 1, [-3]],
  'x.mean(-1)': [2, [2 / 3, -5 / 3]],
  'x.prod(1)': [2, [-6, 120]],
  'x.max(1)': [2, [3, 5]],
  'x.min()': [[-6]],
  'x.greater(0).all(0)': [3, [0, 0, 0]],
  'x.greater(0).any(0)': [3, [1, 1, 1]],
  'y.variance()': [[1]],
  'y.variance(null, { correction: 0 })': [[2 / 3]],
  'x.argmax(1)': [2, [2, 1]],
  'x.argmin()': [[5]],
  'x.argmax(0, { keepDim: true })': [1, 3, [0, 1, 0]],
  'x.cumsum(1)': [2, 3, [1, -1, 2, -4, 1, -5]],
  'x.matmul(y)': [2, [8, -17]],
  'x.matmul(x.transpose())': [2, 2, [14, -32, -32, 77]],
  'y.dot(y)': [[29]],
  'x.reshape([3, -1])': [3, 2, [1, -2, 3, -4, 5, -6]],
  'x.transpose(0, 1).flatten()': [6, [1, -4, -2, 5, 3, -6]],
  'x.permute([1, 0])': [3, 2, [1, -4, -2, 5, 3, -6]],
  'y.expand([2, -1])': [2, 3, [2, 3, 4, 2, 3, 4]],
  'x.unsqueeze(1).squeeze()': [2, 3, [1, -2, 3, -4, 5, -6]],
  'x.slice(0, 1)': [1, 3, [1, -2, 3]],
  'x.slice(null, null, { dim: 1, step: -2 })': [2, 2, [3, 1, -6, -4]],
  'x.select(1, -1)': [2, [3, -6]],
  'x.flip([0, 1])': [2, 3, [-6, 5, -4, 3, -2, 1]],
  'y.repeat([2, 2])': [2, 6, [2, 3, 4, 2, 3, 4, 2, 3, 4, 2, 3, 4]],
  'x.pad([1, 0], 9)': [2, 4, [9, 1, -2, 3, 9, -4, 5, -6]],
  'x.triu(1)': [2, 3, [0, -2, 3, 0, 0, -6]],
  'x.tril()': [2, 3, [1, 0, 0, -4, 5, 0]],
  'x.gather(1, i)': [2, 2, [3, 1, -4, -6]],
  'x.scatterAdd(1, i, device.ones([2, 2]))': [2, 3, [2, -2, 4, -3, 5, -5]],
  'x.indexSelect(1, device.tensor([2, 0], [2], "u32"))': [2, 2, [3, 1, -6, -4]],
  'x.embedding(device.tensor([1, 1, -2], [3], "i32"))': [3, 3, [-4, 5, -6, -4, 5, -6, 1, -2, 3]],
  'x.sort().values': [2, 3, [-2, 1, 3, -6, -4, 5]],
  'x.sort(0, { descending: true }).indices': [2, 3, [0, 1, 0, 1, 0, 1]],
  'x.topk(2).values': [2, 2, [3, 1, 5, -4]],
  'x.topk(1, 1, { largest: false }).indices': [2, 1, [1, 2]],
  'x.softmax().sum(1)': [2, [1, 1]],
  'x.logSoftmax(0).exp().sum(0)': [3, [1, 1, 1]],
  'y.layerNorm().sum()': [[0]],
  'y.layerNorm({ weight: y, bias: y, eps: 0 }).select(0, 1)': [[3]],
  'y.rmsNorm({ eps: 0 }).pow(2).mean()': [[1]],
  'x.unsqueeze(0).conv1d(device.ones([1, 2, 2]))': [1, 1, 2, [0, 0]],
  'x.unsqueeze(0).conv2d(device.ones([1, 1, 2, 2]), { padding: [0, 1], bias: device.ones([1]) })': [1, 1, 4, [-2, 1, 1, -2]],
  'y.unsqueeze(0).convTranspose1d(device.ones([1, 1, 2]), { stride: 2 })': [1, 6, [2, 2, 3, 3, 4, 4]],
  'x.unsqueeze(0).convTranspose2d(device.ones([1, 1, 1, 1]))': [1, 2, 3, [1, -2, 3, -4, 5, -6]],
  'x.unsqueeze(0).maxPool2d(2, { stride: 1 }).indices': [1, 1, 2, [4, 4]],
  'x.unsqueeze(0).avgPool2d([2, 1])': [1, 1, 3, [-1.5, 1.5, -1.5]],
  'x.reshape([1, 2, 1, 3]).attention(x.reshape([1, 2, 1, 3]), x.reshape([1, 2, 1, 3]), { causal: true }).slice(0, 1, { dim: 1 })': [
    1,
    1,
    1,
    3,
    [1, -2, 3],
  ],
  'device.arange(3)': [3, [0, 1, 2]],
  'device.arange(1, 0, -0.25)': [4, [1, 0.75, 0.5, 0.25]],
  'device.linspace(0, 1, 5)': [5, [0, 0.25, 0.5, 0.75, 1]],
  'device.eye(2, 3)': [2, 3, [1, 0, 0, 0, 1, 0]],
  'device.full([2], 7, "i32")': [2, [7, 7]],
  'device.cat([y, y.neg()])': [6, [2, 3, 4, -2, -3, -4]],
  'device.stack([y, y], 1)': [3, 2, [2, 2, 3, 3, 4, 4]],
  'device.zeros([0, 3]).sum(0)': [3, [0, 0, 0]],
  'rillm.where(rillm.greater(x, 0), x, 0)': [2, 3, [1, 0, 3, 0, 5, 0]],
  'rillm.matmul(x, y)': [2, [8, -17]],
  'rillm.cat([y, y])': [6, [2, 3, 4, 2, 3, 4]],
};

test('each operation through JavaScript', LIMIT, async () => {
  const got = await run(
    (calls) =>
      withDevice({}, async (device) => {
        const x = device.tensor([1, -2, 3, -4, 5, -6], [2, 3]);
        const y = device.tensor([2, 3, 4]);
        const i = device.tensor([2, 0, 0, 2], [2, 2], 'i32');
        const results = {};
        for (const call of calls) {
          try {
            const result = new Function('x', 'y', 'i', 'device', 'rillm', `return ${call}`)(x, y, i, device, rillm);
            results[call] = [...result.shape, [...(await result.readback())]];
          } catch (error) {
            results[call] = String(error);
          }
        }
        const parts = [x.split(2, 1), x.split([1, 2], 1), x.chunk(2)].map((list) => list.map(({ shape }) => shape.join('x')).join());
        return { results, parts };
      }),
    Object.keys(CALLS),
  );
  for (const [call, wanted] of Object.entries(CALLS)) {
    const result = got.results[call];
    assert.ok(Array.isArray(result), `${call}: ${result}`);
    assert.deepEqual(result.slice(0, -1), wanted.slice(0, -1), call);
    const [values, expected] = [result.at(-1), wanted.at(-1)];
    assert.ok(
      values.length === expected.length && values.every((value, at) => Math.abs(value - expected[at]) < 2e-5),
      `${call}: ${values}`,
    );
  }
  assert.deepEqual(got.parts, ['2x2,2x1', '2x1,2x2', '1x3,1x3']);
});

test('dtypes go in and come out', LIMIT, async () => {
  const got = await run(() =>
    withDevice({}, async (device) => {
      const read = async (tensor) => {
        const values = await tensor.readback();
        return [tensor.dtype, values.constructor.name, tensor.byteSize, ...values];
      };
      const x = device.tensor([1, 2.5, 65504, 1e-7], [4], 'f16');
      return [
        await read(x),
        await read(device.tensor(Uint16Array.of(0x3c00, 0xc000, 0x7c00), [3], 'f16')),
        await read(device.tensor(Uint16Array.of(0x3f80, 0xc000), [2], 'bf16')),
        await read(device.tensor([0.1, 3.3895313892515355e38, 1], [3], 'bf16')),
        await read(device.tensor(Int32Array.of(-1, 2147483647))),
        await read(device.tensor(Uint8Array.of(0, 7, 1))),
        await read(device.tensor([true, false])),
        await read(device.tensor([1, 0, 1], [3], 'bool').sum()),
        await read(x.add(device.tensor([1, 1, 1, 1], [4], 'bf16')).slice(0, 2)),
        await read(device.tensor([1, 2], [2], 'i32').add(0.5)),
        await read(device.tensor([1, 2], [2], 'i32').mul(2)),
        await read(device.tensor([5, 6], [2], 'u32').sub(device.tensor([6, 5], [2], 'i32'))),
        [await device.tensor([3], [], 'i32').item(), await device.tensor([true], []).item()],
      ];
    }),
  );
  assert.deepEqual(got, [
    ['f16', 'Float32Array', 8, 1, 2.5, 65504, 2 ** -23],
    ['f16', 'Float32Array', 6, 1, -2, Number.POSITIVE_INFINITY],
    ['bf16', 'Float32Array', 4, 1, -2],
    ['bf16', 'Float32Array', 6, 0.10009765625, 3.3895313892515355e38, 1],
    ['i32', 'Int32Array', 8, -1, 2147483647],
    ['bool', 'Uint8Array', 12, 0, 1, 1],
    ['bool', 'Uint8Array', 8, 1, 0],
    ['i32', 'Int32Array', 4, 2],
    ['f32', 'Float32Array', 8, 2, 3.5],
    ['f32', 'Float32Array', 8, 1.5, 2.5],
    ['i32', 'Int32Array', 8, 2, 4],
    ['i32', 'Int32Array', 8, -1, 1],
    [3, 1],
  ]);
});

test('what waits is computed when it is read, in one kernel, and never submitted before', LIMIT, async () => {
  const got = await run(() =>
    withDevice({}, async (device) => {
      const [x, w] = [device.rand([33, 65], { seed: 1 }), device.rand([65, 17], { seed: 2 })];
      const [b, mask] = [device.rand([17], { seed: 3 }), device.rand([33, 1], { seed: 4 }).greater(0.5)];
      await device.readback(x, w, b, mask);
      const chain = () => x.matmul(w).add(b).gelu().mul(mask);
      const counts = [];
      const count = async (work) => {
        const before = device.stats();
        const result = await work();
        const after = device.stats();
        counts.push([after.dispatches - before.dispatches, after.submits - before.submits]);
        return result;
      };
      const fused = await count(() => chain().readback());
      await count(async () => chain());
      device.setLazyMode(false);
      const eager = await count(() => chain().readback());
      device.setLazyMode(true);
      const pending = chain();
      await count(() => device.sync());
      await count(() => pending.readback());
      return { counts, same: fused.every((value, at) => value === eager[at]), some: fused.some((value) => value !== 0) };
    }),
  );
  assert.equal(got.same, true);
  assert.equal(got.some, true);
  // The two chains that nobody read are computed by the sync.
  assert.deepEqual(got.counts.slice(0, 2), [
    [1, 1],
    [0, 0],
  ]);
  assert.ok(got.counts[2][0] >= 4, 'one at a time');
  assert.equal(got.counts[4][0], 0, 'the sync computed it');
});

test('a kernel of the caller among operations: order, views, and what may not be written', LIMIT, async () => {
  const got = await run(() =>
    withDevice({}, async (device) => {
      const increment = await device.kernel({
        wgsl: `@group(0) @binding(0) var<storage, read_write> x: array<f32>;
          @compute @workgroup_size(WORKGROUP_X) fn main(@builtin(global_invocation_id) id: vec3u) { if (id.x < 4) { x[id.x] += 1; } }`,
        bindings: ['read_write'],
      });
      const copy = await device.kernel({
        wgsl: `@group(0) @binding(0) var<storage, read> x: array<f32>; @group(0) @binding(1) var<storage, read_write> y: array<f32>;
          @compute @workgroup_size(1) fn main() { for (var i = 0; i < 4; i++) { y[i] = x[i]; } }`,
        bindings: ['read', 'read_write'],
      });
      const x = device.tensor([1, 2, 3, 4]);
      const doubled = x.mul(2);
      const flipped = x.flip(0);
      increment.dispatch({ bindings: [x], threads: [4] });
      const y = device.zeros([4]);
      copy.dispatch({ bindings: [x.add(1).flip(0), y], grid: [1] });
      const shared = await failure(() => copy.dispatch({ bindings: [x.slice(0, 4), x], grid: [1] }));
      const view = await failure(() => increment.dispatch({ bindings: [flipped], threads: [4] }));
      x.assign(0);
      return [...(await device.readback(doubled, flipped, y, x)).map((values) => [...values]), shared.code, shared.message, view.message];
    }),
  );
  assert.deepEqual(got.slice(0, 5), [[2, 4, 6, 8], [0, 0, 0, 0], [6, 5, 4, 3], [0, 0, 0, 0], 'invalid_request']);
  assert.match(got[5], /shares memory/);
  assert.match(got[6], /view/);
});

test('tidy, using and the garbage collector free what is not kept', LIMIT, async () => {
  const got = await run(() =>
    withDevice({}, async (device) => {
      const x = device.rand([1000], { seed: 1 });
      const tensors = () => device.memoryStats().tensors;
      const before = tensors();
      const norm = device.tidy(() => x.mul(x).sum().sqrt());
      const nested = device.tidy(() => ({ list: [device.tidy(() => x.add(1))], number: 3 }));
      const later = await device.tidy(async () => {
        const y = x.exp();
        await y.readback();
        return y.sum();
      });
      const failed = await failure(() =>
        device.tidy(() => {
          x.mul(2).matmul(device.ones([3]));
        }),
      );
      const after = tensors();
      const [value] = await norm.readback();
      for (const tensor of [norm, nested.list[0], later]) tensor[Symbol.dispose]();
      return { grown: after - before, left: tensors() - before, value, failed: failed.code, disposed: norm.disposed };
    }),
  );
  assert.equal(got.grown, 3);
  assert.equal(got.left, 0);
  assert.ok(Math.abs(got.value - Math.sqrt(1000 / 3)) < 1);
  assert.deepEqual([got.failed, got.disposed], ['shape_mismatch', true]);
});

/** `npm run soak` runs more. */
const OPERATIONS = process.env.RILLM_SOAK ? 10_000 : 1_500;

test(`${OPERATIONS} random operations leave bytes and buffers as they were`, LIMIT, async () => {
  // Without caches of uniforms, whose sizes differ.
  const got = await run(
    (operationsWanted) =>
      withDevice({ caches: { uniforms: 0, bindGroups: 0 } }, async (device) => {
        let state = 12345;
        const random = (n) => ((state = (Math.imul(state, 1664525) + 1013904223) >>> 0) >>> 8) % n;
        const operations = [
          (x, y) => x.add(y),
          (x, y) => x.mul(y).tanh(),
          (x) => x.reshape([8, 8]).transpose().reshape([64]),
          (x) => x.slice(0, 32).repeat([2]),
          (x, y) => x.greater(y).where(x, y),
          (x) => x.sub(x.mean()),
          (x) => x.cumsum(0).sigmoid(),
          (x) => x.flip(0).relu(),
          (x) => x.cast('f16').add(1).cast('f32'),
          (x, y) => device.cat([x.slice(0, 10), y.slice(10)]),
          (x) =>
            x
              .reshape([8, 8])
              .matmul(x.reshape([8, 8]))
              .flatten()
              .clamp({ min: -1, max: 1 }),
          (x) => x.sort().values,
        ];
        const round = async (count) => {
          for (let done = 0; done < count; ) {
            const [x, y] = [device.rand([64], { seed: random(1000) }), device.rand([64], { seed: random(1000) })];
            const last = device.tidy(() => {
              let [a, b] = [x, y];
              for (let step = 0; step < 50; step++, done++) [a, b] = [b, operations[random(operations.length)](a, b)];
              return a;
            });
            if (random(3) === 0) await last.readback();
            for (const tensor of [x, y, last]) tensor.dispose();
          }
          await device.sync();
          device.trim();
          await device.sync();
          const { tensors, live_buffers, live_bytes } = device.memoryStats();
          return { tensors, live_buffers, live_bytes };
        };
        // The pool of read-backs keeps a buffer from the first read on.
        const ones = device.ones([64]);
        await ones.readback();
        ones.dispose();
        return [await round(300), await round(operationsWanted)];
      }),
    OPERATIONS,
  );
  assert.deepEqual(got[1], got[0]);
});

/** Calls of a batch on buffers x = [[1, -2, 3], [-4, 5, -6]] and y = [2, 3, 4], with their results. */
const NOTED = {
  'batch.add(x, y)': [3, 1, 7, -2, 8, -2],
  'batch.mul(x, batch.scalar(2))': [2, -4, 6, -8, 10, -12],
  'batch.where(batch.greater(x, y), x, batch.scalar(0))': [0, 0, 0, 0, 5, 0],
  'batch.cast(x, "i32")': [1, -2, 3, -4, 5, -6],
  'batch.sum(x, 1)': [2, -5],
  'batch.amax(x, 0, { keepDim: true })': [1, 5, 3],
  'batch.max(x, y)': [2, 3, 4, 2, 5, 4],
  'batch.argmin(x)': [5],
  'batch.variance(y)': [1],
  'batch.softmax(batch.zeros([2, 4]), 1)': [0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25],
  'batch.matmul(x, batch.transpose(x))': [14, -32, -32, 77],
  'batch.matmul(x, x, 2, 3, 2)': [10, -12, -19, 24],
  'batch.dot(x, x)': [91],
  'batch.layerNorm(y, { weight: y, bias: y, eps: 0 })': [-0.449489, 3, 8.898979],
  'batch.conv2d(batch.reshape(x, [1, 1, 2, 3]), batch.ones([1, 1, 2, 2]), { bias: batch.ones([1]) })': [1, 1],
  'batch.maxPool2d(batch.reshape(x, [1, 2, 3]), 2, { stride: 1 }).values': [5, 5],
  'batch.slice(x, 0, 1)': [1, -2, 3],
  'batch.split(x, [1, 2], 1)[1]': [-2, 3, 5, -6],
  'batch.gather(x, 1, batch.full([2, 1], 2, "i32"))': [3, -6],
  'batch.scatterAdd(y, 0, batch.arange(2), batch.ones([2]))': [3, 4, 4],
  'batch.embedding(x, batch.arange(1, -1, -1))': [-4, 5, -6, 1, -2, 3],
  'batch.sort(x).values': [-2, 1, 3, -6, -4, 5],
  'batch.cat([y, batch.linspace(0, 1, 2)])': [2, 3, 4, 0, 1],
  'batch.stack([y, y], 1)': [2, 2, 3, 3, 4, 4],
  'batch.eye(2)': [1, 0, 0, 1],
  'batch.gelu(y, { approximate: "none" })': [1.9544997, 2.9959502, 3.9998732],
};

test('a batch has the operations of tensors, on ids', LIMIT, async () => {
  const got = await run(
    (calls) =>
      withDevice({}, async (device) => {
        const batch = device.batch();
        const [x, y] = [batch.upload([1, -2, 3, -4, 5, -6], [2, 3]), batch.upload([2, 3, 4])];
        const ids = calls.map((call) => new Function('batch', 'x', 'y', `return ${call}`)(batch, x, y));
        const shapes = ids.map((id) => batch.shape(id).reduce((size, dim) => size * dim, 1));
        const before = device.stats().submits;
        await batch.execute();
        const submits = device.stats().submits - before;
        const values = [];
        for (const id of ids) values.push([...(await batch.read(id))]);
        const kept = batch.rand([3], { seed: 1 });
        const unkept = batch.cumsum(kept, 0);
        await batch.execute({ outputs: [kept] });
        const mistakes = {};
        for (const [name, work] of Object.entries({
          shape: () => batch.add(x, batch.upload([1, 2])),
          operand: () => batch.add(x),
          id: () => batch.relu(999),
          kind: () => batch.relu('x'),
          tensor: () => batch.add(x, device.ones([3])),
          option: () => batch.sum(x, 0, { keepdim: true }),
          bias: () => batch.conv2d(x, x, { bias: 999 }),
          dtype: () => batch.where(x, x, x),
          outputs: () => batch.execute({ outputs: 5 }),
          unknown: () => batch.execute({ outputs: [999] }),
          unkept: () => batch.read(unkept),
        })) {
          mistakes[name] = await failure(async () => work());
        }
        const waiting = batch.numOperations;
        batch[Symbol.dispose]();
        return { values, shapes, submits, mistakes, waiting, after: (await failure(async () => batch.relu(x))).code };
      }),
    Object.keys(NOTED),
  );
  Object.entries(NOTED).forEach(([call, wanted], at) => {
    assert.equal(got.shapes[at], wanted.length, call);
    assert.ok(
      got.values[at].every((value, index) => Math.abs(value - wanted[index]) < 2e-5),
      `${call}: ${got.values[at]}`,
    );
  });
  assert.deepEqual([got.submits, got.waiting, got.after], [1, 0, 'disposed']);
  const { dtype, shape, ...others } = got.mistakes;
  assert.deepEqual([shape.code, dtype.code], ['shape_mismatch', 'dtype_mismatch']);
  assert.match(shape.message, /^add: the shapes \[2, 3\] and \[2\] don't broadcast$/);
  for (const [name, { code, message }] of Object.entries(others)) assert.equal(code, 'invalid_request', `${name}: ${message}`);
  assert.match(got.mistakes.unkept.message, /outputs of execute\(\)/);
});

test('a plan is replayed with nothing created and nothing written; what can not be in one is refused', LIMIT, async () => {
  const got = await run(() =>
    withDevice({}, async (device) => {
      const read = async (tensor) => [...(await tensor.readback())];
      const x = device.tensor([1, -2, 3]);
      const steps = device.zeros([]);
      let calls = 0;
      const plan = await device.plan(() => {
        calls++;
        steps.assign(steps.add(1));
        const { values } = x.mul(2).sort();
        return { values, parts: [values.slice(0, 1).add(steps)] };
      });
      const first = [await read(plan.result.values), await read(plan.result.parts[0]), await steps.item()];
      const derived = plan.result.values.add(100);
      x.write([9, 8, 7]);
      plan.replay();
      const second = [await read(plan.result.values), await read(plan.result.parts[0]), await read(derived)];
      const before = { ...device.stats(), memory: device.memoryStats() };
      for (let i = 0; i < 10; i++) plan.replay();
      device.flush();
      const after = { ...device.stats(), memory: device.memoryStats() };
      const counts = {
        submits: after.submits - before.submits,
        dispatches: after.dispatches - before.dispatches - 10 * plan.dispatches,
        uploaded: after.bytes_uploaded - before.bytes_uploaded,
        allocated: after.memory.allocated_bytes - before.memory.allocated_bytes,
        tensors: after.memory.tensors - before.memory.tensors,
      };
      const third = await steps.item();
      const refused = {};
      for (const [name, work] of Object.entries({
        upload: () => device.tensor([1]),
        write: () => x.write([1, 2, 3]),
        read: () => void x.readback().catch(() => {}),
        flush: () => device.flush(),
        sync: () => void device.sync().catch(() => {}),
        eval: () => x.add(1).eval(),
        buffer: () => x.buffer(),
        nested: () => void device.plan(() => x.add(1)).catch(() => {}),
        trim: () => device.trim(),
        async: async () => x.add(1),
        shape: () => x.matmul(device.ones([2])),
        batch: () => device.batch().upload([1]),
      })) {
        refused[name] = await failure(device.plan(work));
      }
      const own = new Error('mine');
      const thrown = await device
        .plan(() => {
          throw own;
        })
        .catch((error) => error === own);
      const wrong = await failure(device.plan(5));
      const empty = await device.plan(() => undefined);
      empty.replay();
      const outside = await device.plan(() => x);
      outside.replay();
      plan.replay();
      const values = await read(plan.result.values);
      plan.dispose();
      plan[Symbol.dispose]();
      const disposed = (await failure(async () => plan.replay())).code;
      const kept = await read(plan.result.values);
      const left = device.plan(() => x.add(1));
      device.destroy();
      const late = await failure(left);
      return {
        calls,
        first,
        second,
        third,
        counts,
        refused,
        thrown,
        wrong,
        values,
        kept,
        disposed,
        late: late.code,
        arena: [plan.arenaBytes, plan.arenaBytesWithoutReuse],
      };
    }),
  );
  assert.ok(got.calls >= 2);
  assert.deepEqual(got.first, [[-4, 2, 6], [-3], 1]);
  assert.deepEqual(got.second, [[14, 16, 18], [16], [96, 102, 106]]);
  assert.equal(got.third, 12);
  assert.deepEqual(got.counts, { submits: 1, dispatches: 0, uploaded: 0, allocated: 0, tensors: 0 });
  const { shape, read, sync, nested, ...refused } = got.refused;
  assert.equal(shape.code, 'shape_mismatch');
  // Asynchronous calls that are not waited for: the step itself goes on.
  for (const { code } of [read, sync, nested]) assert.ok(['did not fail', 'invalid_request'].includes(code), code);
  for (const [name, { code, message }] of Object.entries(refused)) assert.equal(code, 'invalid_request', `${name}: ${message}`);
  assert.equal(got.thrown, true);
  assert.equal(got.wrong.code, 'invalid_request');
  assert.deepEqual([got.values, got.kept, got.disposed], [[14, 16, 18], [14, 16, 18], 'disposed']);
  assert.ok(['disposed', 'did not fail'].includes(got.late), got.late);
  assert.ok(got.arena[0] > 0 && got.arena[0] <= got.arena[1]);
});

/** What is wrong → the code and what the message names. `x` is [2, 3] of f32. */
const MISTAKES = {
  'x.matmul(device.ones([4, 5]))': ['shape_mismatch', /^matmul: inner dimensions differ, \[2, 3\] and \[4, 5\]$/],
  'x.add(device.ones([2]))': ['shape_mismatch', /add: the shapes \[2, 3\] and \[2\] don't broadcast/],
  'x.add("1")': ['invalid_request', /add: the other operand.*Tensor.*1/],
  'x.add()': ['invalid_request', /add: the other operand.*undefined/],
  'x.add(other.ones([3]))': ['wrong_device', /add/],
  'x.sum(2)': ['out_of_range', /sum: there is no dimension 2 of 2; they go from -2 to 1/],
  'x.sum([0, 0])': ['invalid_request', /sum: the dimension 0 is named twice/],
  'x.sum(0.5)': ['invalid_request', /sum: dims.*0\.5/],
  'x.sum(0, { keepdim: true })': ['invalid_request', /sum has no option keepdim; it has keepDim/],
  'x.sum(0, true)': ['invalid_request', /options are an object/],
  'x.reshape([4, -1])': ['shape_mismatch', /reshape/],
  'x.reshape([-1, -1])': ['shape_mismatch', /reshape/],
  'x.reshape("6")': ['invalid_request', /reshape/],
  'x.expand([2, 4])': ['shape_mismatch', /expand: \[2, 3\] does not broadcast to \[2, 4\]/],
  'x.permute([0])': ['shape_mismatch', /permute/],
  'x.greater(0).neg()': ['dtype_mismatch', /neg.*bool/],
  'x.where(x, x)': ['dtype_mismatch', /where.*f32.*bool/],
  'x.gather(1, x)': ['dtype_mismatch', /gather: the index is f32/],
  'x.topk(4)': ['out_of_range', /topk: k is 4/],
  'x.split(0)': ['invalid_request', /split/],
  'x.split([1, 1], 1)': ['shape_mismatch', /split.*add up/],
  'x.chunk(0)': ['invalid_request', /chunk/],
  'x.select(0, 2)': ['out_of_range', /select/],
  'x.cast("f64")': ['dtype_mismatch', /f64/],
  'x.clamp({})': ['invalid_request', /clamp/],
  'x.pad([1])': ['shape_mismatch', /pad/],
  'x.unsqueeze(7)': ['out_of_range', /unsqueeze/],
  'x.reshape([1, 1, 1, 1, 1, 1, 6])': ['shape_mismatch', /7 dimensions/],
  'x.conv2d(device.ones([1, 1, 1, 1]))': ['shape_mismatch', /conv2d/],
  'x.conv1d(device.ones([1, 2, 1]), { stride: 0 })': ['shape_mismatch', /conv1d|conv2d/],
  'x.conv1d(device.ones([1, 2, 1]), { strides: 1 })': ['invalid_request', /no option strides/],
  'x.attention(x, x)': ['shape_mismatch', /attention/],
  'device.arange(0, 1, 0)': ['out_of_range', /arange/],
  'device.full([2], 1e10, "i32")': ['out_of_range', /i32/],
  'device.full([2], -1, "u32")': ['out_of_range', /u32/],
  'device.eye(-1)': ['invalid_request', /eye/],
  'device.rand([70000, 70000])': ['adapter_limits', /70000/],
  'device.cat([])': ['invalid_request', /cat/],
  'device.cat([x, device.ones([2, 3, 1])])': ['shape_mismatch', /cat/],
  'device.stack([x, device.ones([3])])': ['shape_mismatch', /stack/],
  'x.expand([70000, 70000, 2, 3]).clone()': ['adapter_limits', /./],
  'rillm.relu(5)': ['invalid_request', /relu.*Tensor/],
  'gone.relu()': ['disposed', /disposed/],
  'x.add(gone)': ['disposed', /disposed/],
};

test('mistakes are thrown at the call, and what comes after works', LIMIT, async () => {
  const got = await run(
    (calls) =>
      withDevice({}, async (device) => {
        const other = await rillm.Device.request();
        const x = device.tensor([1, 2, 3, 4, 5, 6], [2, 3]);
        const gone = device.ones([1]);
        gone.dispose();
        const results = {};
        for (const call of calls) {
          try {
            const result = new Function('x', 'gone', 'device', 'other', 'rillm', `return ${call}`)(x, gone, device, other, rillm);
            results[call] = { code: 'did not fail', message: String(result) };
          } catch ({ code, message }) {
            results[call] = { code, message };
          }
        }
        const values = [...(await x.add(1).readback())];
        other.destroy();
        return { results, values };
      }),
    Object.keys(MISTAKES),
  );
  for (const [call, wanted] of Object.entries(MISTAKES)) {
    const { code, message } = got.results[call];
    assert.equal(code, wanted[0], `${call}: ${message}`);
    assert.match(message, wanted[1], call);
  }
  assert.deepEqual(got.values, [2, 3, 4, 5, 6, 7]);
});
