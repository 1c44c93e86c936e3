// rillm/gpu in Chromium: results against plain loops, order, sharing with an application's device, counters and memory.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { openStage, relativeError } from './browser.mjs';

const LIMIT = { timeout: 60_000 };
const GPU = { package: '/rillm/dist/gpu/index.js' };

let stage;
before(async () => (stage = await openStage()));
after(() => stage.close());

const run = (fn, ...parameters) => stage.runWith(GPU, fn, ...parameters);

/** Numbers in [-1, 1) that are the same every time. */
function numbers(count, seed) {
  let state = seed;
  return Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.fround(state / 2 ** 31 - 1);
  });
}

const gelu = (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
const sigmoid = (x) => 1 / (1 + Math.exp(-x));
const UNARY = {
  relu: (x) => Math.max(x, 0),
  sigmoid,
  tanh: Math.tanh,
  swish: (x) => x * sigmoid(x),
  gelu,
  abs: Math.abs,
  neg: (x) => -x,
  exp: Math.exp,
};
const BINARY = { add: (a, b) => a + b, sub: (a, b) => a - b, mul: (a, b) => a * b, max: Math.max, min: Math.min };

for (const count of [1, 37, 1031, 70_001]) {
  test(`every operation of a batch agrees with a plain loop, ${count} elements, in one submit`, LIMIT, async () => {
    const a = numbers(count, 1).map((x) => Math.fround(x * 4));
    const b = numbers(count, 2);
    const got = await run(
      ([a, b, unary, binary]) =>
        withDevice({}, async (device) => {
          const batch = device.batch();
          const [x, y] = [batch.upload(a), batch.upload(new Float32Array(b))];
          const ids = {};
          for (const name of unary) ids[name] = batch[name](x);
          for (const name of binary) ids[name] = batch[name](x, y);
          ids.scale = batch.scale(x, -2.5);
          ids.sqrt = batch.sqrt(batch.abs(x));
          ids.div = batch.div(y, batch.exp(x));
          ids.dot = batch.dot(x, y);
          ids.chain = batch.tanh(batch.add(batch.relu(x), batch.scale(y, 3)));
          const operations = batch.numOperations;
          const buffers = batch.numBuffers;
          const before = device.stats();
          await batch.execute();
          const after = device.stats();
          const results = {};
          for (const [name, id] of Object.entries(ids)) results[name] = [...(await batch.read(id))];
          return {
            results,
            operations,
            left: batch.numOperations,
            buffers,
            submits: after.submits - before.submits,
            dispatches: after.dispatches - before.dispatches,
          };
        }),
      a,
      b,
      Object.keys(UNARY),
      Object.keys(BINARY),
    );
    const wanted = { scale: a.map((x) => x * -2.5), sqrt: a.map((x) => Math.sqrt(Math.abs(x))), div: b.map((y, i) => y / Math.exp(a[i])) };
    for (const [name, of] of Object.entries(UNARY)) wanted[name] = a.map(of);
    for (const [name, of] of Object.entries(BINARY)) wanted[name] = a.map((x, i) => of(x, b[i]));
    wanted.chain = a.map((x, i) => Math.tanh(Math.max(x, 0) + b[i] * 3));
    for (const [name, values] of Object.entries(wanted)) {
      const error = values.some((value) => value !== 0)
        ? relativeError(got.results[name], values)
        : Math.max(...got.results[name].map(Math.abs));
      assert.ok(error < 1e-5, `${name}: relative error ${error}`);
    }
    const products = a.map((x, i) => x * b[i]);
    const scale = products.reduce((sum, x) => sum + Math.abs(x), 0);
    assert.equal(got.results.dot.length, 1);
    assert.ok(Math.abs(got.results.dot[0] - products.reduce((sum, x) => sum + x, 0)) <= 1e-5 * scale, 'dot');
    // Two uploads, and one result for each operation.
    assert.equal(got.operations, 23);
    assert.equal(got.buffers, got.operations + 2);
    // What is part of another one's kernel has none of its own.
    assert.ok(got.dispatches < got.operations);
    assert.equal(got.left, 0);
    assert.equal(got.submits, 1);
  });
}

for (const [m, k, n] of [
  [1, 1, 1],
  [3, 5, 7],
  [65, 129, 33],
  [127, 31, 257],
]) {
  test(`matmul [${m}, ${k}] · [${k}, ${n}] agrees with a plain loop`, LIMIT, async () => {
    const [a, b] = [numbers(m * k, 3), numbers(k * n, 4)];
    const { product, shape } = await run(
      ([a, b, m, k, n]) =>
        withDevice({}, async (device) => {
          const batch = device.batch();
          // One operand comes flat and one as a matrix.
          const id = batch.matmul(batch.upload(a), batch.upload(b, [k, n]), m, k, n);
          await batch.execute();
          return { product: [...(await batch.read(id))], shape: batch.shape(id) };
        }),
      a,
      b,
      m,
      k,
      n,
    );
    assert.deepEqual(shape, [m, n]);
    const wanted = Array.from({ length: m * n }, (_, at) => {
      let sum = 0;
      for (let i = 0; i < k; i++) sum += a[Math.floor(at / n) * k + i] * b[i * n + (at % n)];
      return sum;
    });
    assert.ok(relativeError(product, wanted) < 1e-5);
  });
}

test('a batch goes on after it was executed, one submit each time', LIMIT, async () => {
  const { submits, values, nothing } = await run(() =>
    withDevice({}, async (device) => {
      const batch = device.batch();
      const submits = [];
      let x = batch.upload([1, 2, 3]);
      for (let round = 0; round < 3; round++) {
        x = batch.add(batch.scale(x, 2), batch.upload([round, round, round]));
        const before = device.stats().submits;
        await batch.execute();
        submits.push(device.stats().submits - before);
      }
      const before = device.stats().submits;
      await batch.execute();
      return { submits, nothing: device.stats().submits - before, values: [...(await batch.read(x))] };
    }),
  );
  assert.deepEqual(submits, [1, 1, 1]);
  assert.equal(nothing, 0);
  // ((x · 2 + 0) · 2 + 1) · 2 + 2
  assert.deepEqual(values, [12, 20, 28]);
});

test('tensors: data, zeros, ones, rand, write, slice, readback', LIMIT, async () => {
  const got = await run(() =>
    withDevice({}, async (device) => {
      const read = async (tensor) => ({
        shape: tensor.shape,
        dtype: tensor.dtype,
        size: tensor.size,
        type: (await tensor.readback()).constructor.name,
        values: [...(await tensor.readback())],
      });
      const matrix = device.tensor([1, 2, 3, 4, 5, 6], [3, 2]);
      const part = matrix.slice(1, 3);
      // A slice is a view, so it sees what is written; a clone has memory of its own.
      const apart = part.clone();
      matrix.write([20, 30], 1);
      const early = matrix.readback();
      matrix.write([-1], 5);
      return {
        part: await read(part),
        apart: [...(await apart.readback())],
        early: [...(await early)],
        matrix: await read(matrix),
        unsigned: await read(device.tensor(Uint32Array.of(7, 4294967295), [2])),
        converted: await read(device.tensor([1, 2, 3], [3, 1], 'u32')),
        zeros: await read(device.zeros([2, 3])),
        onesUnsigned: await read(device.ones([5], 'u32')),
        ones: await read(device.ones([5])),
        rand: [...(await device.rand([1000], { seed: 7 }).readback())],
        again: [...(await device.rand([1000], { seed: 7 }).readback())],
        other: [...(await device.rand([1000], { seed: 2 ** 40 + 7 }).readback())],
        large: (await device.tensor(new Float32Array(3_000_001).fill(2.5), [3_000_001]).readback()).every((x) => x === 2.5),
        scalar: await read(device.tensor([42], [])),
      };
    }),
  );
  assert.deepEqual(got.part, { shape: [2, 2], dtype: 'f32', size: 4, type: 'Float32Array', values: [30, 4, 5, -1] });
  assert.deepEqual(got.apart, [3, 4, 5, 6]);
  assert.deepEqual(got.early, [1, 20, 30, 4, 5, 6]);
  assert.deepEqual(got.matrix.values, [1, 20, 30, 4, 5, -1]);
  assert.deepEqual(got.unsigned, { shape: [2], dtype: 'u32', size: 2, type: 'Uint32Array', values: [7, 4294967295] });
  assert.deepEqual(got.converted, { shape: [3, 1], dtype: 'u32', size: 3, type: 'Uint32Array', values: [1, 2, 3] });
  assert.deepEqual(got.zeros.values, [0, 0, 0, 0, 0, 0]);
  assert.deepEqual(got.onesUnsigned.values, [1, 1, 1, 1, 1]);
  assert.deepEqual(got.ones.values, [1, 1, 1, 1, 1]);
  assert.deepEqual(got.scalar, { shape: [], dtype: 'f32', size: 1, type: 'Float32Array', values: [42] });
  assert.ok(got.large);
  assert.deepEqual(got.rand, got.again);
  assert.notDeepEqual(got.rand, got.other);
  assert.ok(got.rand.every((x) => x >= 0 && x < 1));
  assert.ok(Math.abs(got.rand.reduce((sum, x) => sum + x, 0) / 1000 - 0.5) < 0.05);
});

const SAXPY = `
struct Params { factor: f32, count: u32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP_X, WORKGROUP_Y)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
  let i = id.y * groups.x * WORKGROUP_X + id.x;
  if (i < params.count) { y[i] += params.factor * x[i]; }
}`;

test("a kernel of the caller's own: uniforms, order, one compilation", LIMIT, async () => {
  const count = 1031;
  const x = numbers(count, 5);
  const { values, created, hits } = await run(
    ([wgsl, x]) =>
      withDevice({}, async (device) => {
        const options = { label: 'saxpy', wgsl, bindings: ['read', 'read_write', 'uniform'], workgroup: [8, 4] };
        device.resetStats();
        const saxpy = await device.kernel(options);
        const twin = await device.kernel(options);
        const [input, output] = [device.tensor(x, [x.length]), device.zeros([x.length])];
        const params = (factor) => {
          const bytes = new DataView(new ArrayBuffer(8));
          bytes.setFloat32(0, factor, true);
          bytes.setUint32(4, x.length, true);
          return bytes;
        };
        for (const factor of [1, 2, 3]) saxpy.dispatch({ bindings: [input, output, params(factor)], threads: [x.length] });
        input.write([0]);
        twin.dispatch({ bindings: [input, output, params(10)], grid: [11, 3] });
        const values = [...(await output.readback())];
        const { pipelines_created: created, uniforms } = device.stats();
        return { values, created, hits: uniforms };
      }),
    SAXPY,
    x,
  );
  // `fill` of the zeros is the second pipeline.
  assert.equal(created, 2);
  assert.ok(hits.misses >= 4);
  for (const [i, value] of values.entries()) assert.ok(Math.abs(value - x[i] * (i === 0 ? 6 : 16)) < 1e-4, `element ${i}: ${value}`);
});

test('many read-backs in flight come back right, whatever the order; many tensors come with one submit and one map', LIMIT, async () => {
  const { single, together, counts } = await run(() =>
    withDevice({}, async (device) => {
      const sizes = Array.from({ length: 40 }, (_, i) => 1 + ((i * 977) % 5003));
      const tensors = sizes.map((size, i) => device.tensor(new Float32Array(size).fill(i), [size]));
      const right = (values, i) => values.length === sizes[i] && values.every((value) => value === i);
      const flights = tensors.map((tensor) => tensor.readback());
      const single = [];
      for (const i of tensors.keys()) single[tensors.length - 1 - i] = right(await flights[tensors.length - 1 - i], tensors.length - 1 - i);
      device.resetStats();
      const together = (await device.readback(...tensors)).map(right);
      const { submits, maps } = device.stats();
      return { single, together, counts: { submits, maps } };
    }),
  );
  assert.ok(single.every(Boolean) && single.length === 40);
  assert.ok(together.every(Boolean) && together.length === 40);
  assert.deepEqual(counts, { submits: 1, maps: 1 });
});

test('calls take effect in program order: random sequences against a model on the CPU', LIMIT, async () => {
  const { wrong, reads } = await run(() =>
    withDevice({}, async (device) => {
      const wgsl = `
        @group(0) @binding(0) var<storage, read> x: array<u32>;
        @group(0) @binding(1) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(WORKGROUP_X) fn main(@builtin(global_invocation_id) id: vec3u) {
          if (id.x < arrayLength(&y)) { y[id.x] = y[id.x] * 3u + x[id.x % arrayLength(&x)] + 1u; }
        }`;
      const kernel = await device.kernel({ wgsl, bindings: ['read', 'read_write'] });
      let state = 1;
      const below = (n) => ((state = (Math.imul(state, 1664525) + 1013904223) >>> 0) >>> 8) % n;
      const wrong = [];
      let reads = 0;
      for (let sequence = 0; sequence < 200; sequence++) {
        const sizes = [1 + below(5), 1 + below(100), 1 + below(3000)];
        const models = sizes.map((size) => Uint32Array.from({ length: size }, () => below(1000)));
        const tensors = models.map((model) => device.tensor(model, [model.length]));
        const flights = [];
        for (let step = 0; step < 40; step++) {
          const [i, j] = [below(3), below(3)];
          switch (below(8)) {
            case 0:
            case 1: {
              const first = below(sizes[i]);
              const data = Uint32Array.from({ length: 1 + below(sizes[i] - first) }, () => below(1000));
              tensors[i].write(data, first);
              models[i].set(data, first);
              data.fill(0);
              break;
            }
            case 2:
            case 3:
            case 4:
              if (i === j) break;
              kernel.dispatch({ bindings: [tensors[i], tensors[j]], threads: [sizes[j]] });
              models[j] = models[j].map((y, at) => Math.imul(y, 3) + models[i][at % sizes[i]] + 1);
              break;
            case 5: {
              const copy = tensors[i].slice(0, sizes[i]);
              tensors[i].dispose();
              tensors[i] = copy;
              break;
            }
            case 6:
              flights.push([tensors[i].readback(), models[i].slice()]);
              break;
            case 7:
              if (below(4) === 0) device.flush();
              if (below(16) === 0) await device.sync();
          }
        }
        for (const i of [0, 1, 2]) flights.push([tensors[i].readback(), models[i]]);
        for (const tensor of tensors) tensor.dispose();
        for (const [flight, model] of flights) {
          reads += 1;
          const values = await flight;
          if (values.length !== model.length || values.some((value, at) => value !== model[at])) wrong.push(sequence);
        }
      }
      return { wrong, reads };
    }),
  );
  assert.deepEqual(wrong, []);
  assert.ok(reads > 1000);
});

test('flush, sync and counters', LIMIT, async () => {
  const { recorded, flushed, synced, reset, limited, debug } = await run(async (wgsl) => {
    const double = async (device) => {
      const kernel = await device.kernel({ wgsl, bindings: ['read_write'] });
      const x = device.tensor([1], [1]);
      await device.sync();
      device.resetStats();
      return () => kernel.dispatch({ bindings: [x], grid: [1] });
    };
    const counts = (device) => {
      const { dispatches, submits, passes, syncs } = device.stats();
      return { dispatches, submits, passes, syncs };
    };
    const first = await withDevice({}, async (device) => {
      const dispatch = await double(device);
      for (let i = 0; i < 10; i++) dispatch();
      const recorded = counts(device);
      device.flush();
      const flushed = counts(device);
      await device.sync();
      const synced = counts(device);
      device.resetStats();
      return { recorded, flushed, synced, reset: counts(device) };
    });
    const limited = await withDevice({ maxBatchSize: 4 }, async (device) => {
      const dispatch = await double(device);
      for (let i = 0; i < 10; i++) dispatch();
      return counts(device).submits;
    });
    const debug = await withDevice({ debug: true }, async (device) => {
      const dispatch = await double(device);
      for (let i = 0; i < 3; i++) dispatch();
      return counts(device).submits;
    });
    return { ...first, limited, debug };
  }, '@group(0) @binding(0) var<storage, read_write> x: array<f32>;\n@compute @workgroup_size(1) fn main() { x[0] *= 2; }');
  assert.equal(recorded.submits, 0);
  assert.deepEqual(flushed, { dispatches: 10, submits: 1, passes: 1, syncs: 0 });
  assert.deepEqual(synced, { dispatches: 10, submits: 1, passes: 1, syncs: 1 });
  assert.deepEqual(reset, { dispatches: 0, submits: 0, passes: 0, syncs: 0 });
  assert.equal(limited, 2);
  assert.equal(debug, 3);
});

test("a batch's kernels are compiled ahead, its own and the caller's", LIMIT, async () => {
  const { counts, values, disposed, lost } = await run(async (wgsl) => {
    const code = async (work) => {
      try {
        await work();
      } catch (error) {
        return error.code;
      }
    };
    return withDevice({}, async (device) => {
      const kernel = await device.kernel({ wgsl, bindings: ['read_write'] });
      const batch = device.batch();
      const x = batch.upload([1, -2, 3]);
      const y = batch.scale(batch.relu(x), 2);
      batch.dispatch(kernel, { bindings: [y], grid: [1] });
      const z = batch.tanh(y);
      await device.sync();
      device.resetStats();
      const compiled = () => device.stats().pipelines.entries;
      const before = compiled();
      // Twice at once, and executed before it is done.
      const twice = Promise.all([batch.compile(), batch.compile()]);
      await twice;
      const { dispatches, submits } = device.stats();
      const counts = [compiled() - before, dispatches, submits];
      const meanwhile = batch.compile();
      await batch.execute();
      await meanwhile;
      counts.push(compiled() - before);
      const values = [...(await batch.read(y)), ...(await batch.read(z))];
      batch.dispose();
      const disposed = await code(() => batch.compile());
      const late = device.batch();
      late.exp(late.upload([1]));
      const pending = code(() => late.compile());
      device.gpuDevice.destroy();
      await device.lost;
      await pending;
      return { counts, values, disposed, lost: await code(() => late.compile()) };
    });
  }, '@group(0) @binding(0) var<storage, read_write> x: array<f32>;\n@compute @workgroup_size(1) fn main() { x[0] += 0.5; }');
  assert.deepEqual(counts, [2, 0, 0, 2]);
  assert.deepEqual(values.slice(0, 3), [2.5, 0, 6]);
  assert.ok(Math.abs(values[3] - Math.tanh(2.5)) < 1e-6);
  assert.deepEqual([disposed, lost], ['disposed', 'device_lost']);
});

test('debug mode logs each kernel when it is finished, in order, and none after a loss', LIMIT, async () => {
  const { finished, quiet, lost } = await run(async () => {
    const lines = [];
    const debug = console.debug;
    console.debug = (...args) => lines.push(args.join(' '));
    const taken = () => lines.splice(0).filter((line) => !line.includes('probe'));
    try {
      const finished = await withDevice({ debug: true }, async (device) => {
        await device.sync();
        taken();
        const batch = device.batch();
        const x = batch.upload([1, 2, 3]);
        batch.add(batch.scale(x, 2), x);
        await batch.execute();
        await device.sync();
        return taken();
      });
      const quiet = await withDevice({}, async (device) => {
        const batch = device.batch();
        batch.scale(batch.upload([1]), 2);
        await batch.execute();
        await device.sync();
        return taken();
      });
      const gpu = await (await navigator.gpu.requestAdapter()).requestDevice();
      const device = await rillm.Device.request({ device: gpu, debug: true });
      await device.sync();
      taken();
      gpu.destroy();
      const batch = device.batch();
      batch.scale(batch.upload([1]), 2);
      await batch.execute().catch(() => {});
      await device.sync().catch(() => {});
      device.destroy();
      return { finished, quiet, lost: taken() };
    } finally {
      console.debug = debug;
    }
  });
  assert.deepEqual(
    finished.map((line) => line.replace(/after [\d.]+ ms$/, 'after N ms')),
    ['rillm: mul+add [1, 1, 1] finished after N ms'],
  );
  assert.deepEqual([quiet, lost], [[], []]);
});

test('kernels are timed where the adapter can', LIMIT, async () => {
  const { times, passes, failed, after } = await run(() =>
    withDevice({}, async (device) => {
      if (!device.features.has('timestamp-query')) return { failed: await failure(() => device.setProfiling(true)) };
      device.setProfiling(true);
      const batch = device.batch();
      const x = batch.importBuffer(device.rand([100_000], { seed: 1 }));
      for (let i = 0; i < 3; i++) batch.matmul(x, x, 100, 1000, 100);
      device.resetStats();
      await batch.execute();
      const { passes } = device.stats();
      const times = await device.kernelTimes();
      device.setProfiling(false);
      batch.relu(x);
      await batch.execute();
      return { times, passes, after: await device.kernelTimes() };
    }),
  );
  if (failed !== undefined) return assert.equal(failed.code, 'adapter_limits');
  assert.equal(times.matmul.dispatches, 3);
  assert.ok(times.matmul.nanoseconds > 0);
  assert.ok(passes >= 3);
  assert.deepEqual(after, {});
});

test('caches can be switched off and made small', LIMIT, async () => {
  const counts = await run(async () => {
    const counts = {};
    for (const [name, caches] of Object.entries({
      off: { uniforms: 0, bindGroups: 0, staging: 0 },
      small: { uniforms: 2, bindGroups: 3 },
      usual: {},
    })) {
      counts[name] = await withDevice({ caches }, async (device) => {
        const right = [];
        for (let round = 0; round < 3; round++) {
          const batch = device.batch();
          const ids = [1, 2, 3, 4, 5].map((factor) => batch.scale(batch.upload([1, 2]), factor));
          await batch.execute();
          for (const [i, id] of ids.entries()) right.push((await batch.read(id))[1] === 2 * (i + 1));
          batch.dispose();
        }
        const { uniforms, bind_groups: bindGroups } = device.stats();
        return { right: right.every(Boolean), uniforms, bindGroups };
      });
    }
    return counts;
  });
  for (const { right } of Object.values(counts)) assert.ok(right);
  assert.deepEqual([counts.off.uniforms.entries, counts.off.bindGroups.entries], [0, 0]);
  assert.equal(counts.off.uniforms.hits, 0);
  assert.ok(counts.small.uniforms.entries <= 2 + 3, 'two, and those that the three bind groups hold');
  assert.equal(counts.small.bindGroups.entries, 3);
  assert.ok(counts.small.bindGroups.evictions > 0);
  assert.equal(counts.usual.uniforms.entries, 5);
  assert.equal(counts.usual.uniforms.hits, 10);
  assert.equal(counts.usual.uniforms.evictions, 0);
});

test('shapes cross as numbers; the oldest goes when there are too many', LIMIT, async () => {
  const { few, off, usual } = await run(async () => {
    const use = (caches) =>
      withDevice({ caches }, async (device) => {
        const right = [];
        for (const n of [1, 2, 3, 4, 1, 2, 4, 5, 3, 3, 1]) {
          const tensor = device.ones([n, 2]);
          right.push(tensor.shape[0] === n && (await tensor.readback()).length === 2 * n);
          tensor.dispose();
        }
        return { right: right.every(Boolean), ...device.stats().shapes };
      });
    return { few: await use({ shapes: 3 }), off: await use({ shapes: 0 }), usual: await use({}) };
  });
  // 1 2 3 miss, 4 evicts 1, 1 evicts 2, 2 evicts 3, 4 hits, 5 evicts 4, 3 evicts 1, 3 hits, 1 evicts 2.
  assert.deepEqual(few, { right: true, hits: 2, misses: 9, evictions: 6, entries: 3, bytes: 0 });
  assert.deepEqual(off, { right: true, hits: 0, misses: 11, evictions: 0, entries: 0, bytes: 0 });
  assert.deepEqual(usual, { right: true, hits: 6, misses: 5, evictions: 0, entries: 5, bytes: 0 });
});

test('memory goes back to what it was after tensors and batches are disposed of', LIMIT, async () => {
  const memory = await run(() =>
    withDevice({}, async (device) => {
      const keep = device.tensor([1, 2, 3], [3]);
      const round = async () => {
        const batch = device.batch();
        const x = batch.importBuffer(keep);
        const y = batch.matmul(batch.add(x, batch.upload([4, 5, 6])), x, 3, 1, 3);
        await batch.execute();
        const out = batch.tensor(y);
        batch.dispose();
        const other = device.rand([10_000], { seed: 1 });
        await device.readback(out, other);
        out.dispose();
        other.dispose();
        await device.sync();
        const { pool, ...now } = device.memoryStats();
        const misses = Object.values(pool).map(({ misses }) => misses);
        return { ...now, misses };
      };
      const first = await round();
      let last;
      for (let i = 0; i < 30; i++) last = await round();
      return { first, last, kept: [...(await keep.readback())] };
    }),
  );
  assert.deepEqual(memory.last, memory.first);
  assert.equal(memory.last.tensors, 1);
  assert.equal(memory.last.tensor_bytes, 12);
  assert.deepEqual(memory.kept, [1, 2, 3], 'the batch frees nothing that it imported');
});

test("an application's own GPUDevice and GPUBuffer are shared and survive", LIMIT, async () => {
  const got = await run(async () => {
    const adapter = await navigator.gpu.requestAdapter();
    const gpu = await adapter.requestDevice();
    const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    const buffer = gpu.createBuffer({ size: 64, usage });
    gpu.queue.writeBuffer(
      buffer,
      0,
      Float32Array.from({ length: 16 }, (_, i) => i - 8),
    );
    const device = await rillm.Device.request({ device: gpu });
    const shared = device.isShared && device.gpuDevice === gpu;
    // By a batch, which reads it …
    const batch = device.batch();
    const id = batch.importBuffer(buffer);
    const relu = batch.relu(id);
    await batch.execute();
    const seen = [...(await batch.read(relu))];
    batch.dispose();
    // … and by a kernel, which writes it.
    const tensor = await device.importBuffer(buffer, [4, 4]);
    const wgsl =
      '@group(0) @binding(0) var<storage, read_write> x: array<f32>;\n@compute @workgroup_size(16) fn main(@builtin(local_invocation_index) i: u32) { x[i] *= 10; }';
    const kernel = await device.kernel({ wgsl, bindings: ['read_write'], workgroup: [16] });
    kernel.dispatch({ bindings: [tensor], grid: [1] });
    device.flush();
    const live = device.memoryStats();
    tensor.dispose();
    device.destroy();
    const lost = await device.lost;
    // The application goes on with both.
    const target = gpu.createBuffer({ size: 64, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
    const encoder = gpu.createCommandEncoder();
    encoder.copyBufferToBuffer(buffer, 0, target, 0, 64);
    gpu.queue.submit([encoder.finish()]);
    await target.mapAsync(GPUMapMode.READ);
    const values = [...new Float32Array(target.getMappedRange())];
    gpu.destroy();
    return { shared, seen, values, lost, live };
  });
  assert.ok(got.shared);
  assert.deepEqual(
    got.seen,
    Array.from({ length: 16 }, (_, i) => Math.max(i - 8, 0)),
  );
  assert.deepEqual(
    got.values,
    Array.from({ length: 16 }, (_, i) => (i - 8) * 10),
  );
  assert.equal(got.lost.reason, 'destroyed');
  assert.equal(got.live.tensors, 1);
});

test('NaN and infinities come out as they do of PyTorch', LIMIT, async () => {
  const special = [NaN, Infinity, -Infinity, 0, 1, -2, 3.4028234663852886e38, -3.4028234663852886e38];
  const [xs, ys] = [special.flatMap((x) => special.map(() => x)), special.flatMap(() => special)];
  const got = await run(
    ([xs, ys, unary, binary]) =>
      withDevice({}, async (device) => {
        // JSON has neither.
        const numbers = (texts) => new Float32Array(texts.map(Number));
        const batch = device.batch();
        const [x, y] = [batch.upload(numbers(xs)), batch.upload(numbers(ys))];
        const ids = Object.fromEntries([
          ...unary.map((name) => [name, batch[name](x)]),
          ...binary.map((name) => [name, batch[name](x, y)]),
        ]);
        await batch.execute();
        const values = {};
        for (const [name, id] of Object.entries(ids)) values[name] = Array.from(await batch.read(id), String);
        return values;
      }),
    xs.map(String),
    ys.map(String),
    [...Object.keys(UNARY), 'sqrt'],
    [...Object.keys(BINARY), 'div'],
  );
  const functions = { ...UNARY, sqrt: Math.sqrt, ...BINARY, div: (a, b) => a / b };
  for (const [name, values] of Object.entries(got)) {
    for (const [i, text] of values.entries()) {
      const value = Number(text);
      const wanted = Math.fround(functions[name](xs[i], ys[i]));
      const agrees = Number.isFinite(wanted) ? Math.abs(value - wanted) <= 1e-5 * Math.abs(wanted) + 1e-6 : Object.is(value, wanted);
      assert.ok(agrees, `${name}(${xs[i]}, ${ys[i]}) is ${text}, wanted ${wanted}`);
    }
  }
});

test('what is recorded takes effect at the call, imported buffers too', LIMIT, async () => {
  const got = await run(() =>
    withDevice({}, async (device) => {
      const gpu = device.gpuDevice;
      const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST | GPUBufferUsage.COPY_SRC;
      const buffer = gpu.createBuffer({ size: 16, usage });
      const write = (value) => gpu.queue.writeBuffer(buffer, 0, new Float32Array(4).fill(value));
      const results = [];
      for (const next of ['write', 'dispatch']) {
        write(1);
        const batch = device.batch();
        const scaled = batch.scale(batch.importBuffer(buffer), 2);
        const executed = batch.execute();
        // What comes after the call comes after it on the GPU.
        if (next === 'write') write(10);
        else (await device.importBuffer(buffer, [4])).write([10, 10, 10, 10]);
        await executed;
        results.push([...(await batch.read(scaled))]);
        batch.dispose();
      }
      return results;
    }),
  );
  assert.deepEqual(got, [
    [2, 2, 2, 2],
    [2, 2, 2, 2],
  ]);
});

test('sync waits for what was written', LIMIT, async () => {
  const got = await run(() =>
    withDevice({}, async (device) => {
      const data = new Float32Array(16 << 20);
      const tensor = device.tensor(data, [data.length]);
      await device.sync();
      const order = [];
      for (let round = 0; round < 3; round++) {
        tensor.write(data);
        const queue = device.gpuDevice.queue.onSubmittedWorkDone().then(() => order.push('queue'));
        const sync = device.sync().then(() => order.push('sync'));
        await Promise.all([queue, sync]);
      }
      const [before, , after] = [device.stats(), await device.sync(), device.stats()];
      return { order, idle: after.syncs_without_wait - before.syncs_without_wait };
    }),
  );
  assert.deepEqual(got, { order: ['queue', 'sync', 'queue', 'sync', 'queue', 'sync'], idle: 1 });
});

test('a buffer without a usage is refused at the call that wants it, and nothing else fails', LIMIT, async () => {
  const got = await run(() =>
    withDevice({}, async (device) => {
      const storage = GPUBufferUsage.STORAGE;
      const [source, target] = [storage | GPUBufferUsage.COPY_SRC, storage | GPUBufferUsage.COPY_DST].map((usage) =>
        device.gpuDevice.createBuffer({ size: 16, usage }),
      );
      const [unwritten, unread] = [await device.importBuffer(source, [4]), await device.importBuffer(target, [4])];
      const errors = [await failure(() => unwritten.write([1, 2, 3, 4])), await failure(() => unread.readback())];
      await device.sync();
      const batch = device.batch();
      const doubled = batch.scale(batch.importBuffer(unread), 2);
      unread.write([1, 2, 3, 4]);
      await batch.execute();
      return { errors, values: [...(await batch.read(doubled))] };
    }),
  );
  const wanted = [/write.*COPY_DST/, /read-back.*COPY_SRC/];
  got.errors.forEach(({ code, message }, index) => {
    assert.equal(code, 'invalid_request');
    assert.match(message, wanted[index]);
  });
  assert.deepEqual(got.values, [2, 4, 6, 8]);
});

test("destroy leaves nothing of ours on an application's own GPUDevice", LIMIT, async () => {
  const got = await run(async () => {
    const gpu = await (await navigator.gpu.requestAdapter()).requestDevice();
    const live = new Set();
    const create = gpu.createBuffer.bind(gpu);
    gpu.createBuffer = (descriptor) => {
      const buffer = create(descriptor);
      live.add(buffer);
      const destroy = buffer.destroy.bind(buffer);
      buffer.destroy = () => (live.delete(buffer), destroy());
      return buffer;
    };
    const device = await rillm.Device.request({ device: gpu });
    const own = gpu.createBuffer({ size: 16, usage: GPUBufferUsage.STORAGE });
    const batches = [device.batch(), device.batch()];
    for (const batch of batches) batch.relu(batch.scale(batch.upload(new Float32Array(5000)), 3));
    await batches[0].execute();
    const kernel = await device.kernel({
      wgsl: '@group(0) @binding(0) var<storage, read_write> x: array<f32>; @group(0) @binding(1) var<uniform> by: vec4f;\n@compute @workgroup_size(1) fn main() { x[0] += by.x; }',
      bindings: ['read_write', 'uniform'],
    });
    const tensor = device.zeros([4]);
    // Staged writes, uniforms, a read-back and a batch in flight.
    for (let step = 0; step < 5; step++) {
      tensor.write([step, 0, 0, 0]);
      kernel.dispatch({ bindings: [tensor, new Float32Array([step, 0, 0, 0])], grid: [1] });
    }
    const open = [tensor.readback(), batches[1].execute(), device.sync()].map((promise) => failure(promise));
    const before = live.size;
    device.destroy();
    const errors = await Promise.all(open);
    batches[0].dispose();
    tensor.dispose();
    await gpu.queue.onSubmittedWorkDone();
    return { before, left: [...live].map((buffer) => [buffer === own, buffer.label]), errors: errors.map(({ code }) => code) };
  });
  assert.ok(got.before > 8, String(got.before));
  assert.deepEqual(got.left, [[true, '']]);
  assert.ok(
    got.errors.every((code) => code === 'disposed' || code === 'did not fail'),
    String(got.errors),
  );
});

test('a kernel keeps its pipeline, however long its text is', LIMIT, async () => {
  const got = await run(() =>
    withDevice({}, async (device) => {
      const wgsl = `${'// a long comment\n'.repeat(6000)}@group(0) @binding(0) var<storage, read_write> x: array<f32>;
        @compute @workgroup_size(1) fn main() { x[0] += 1; }`;
      const kernel = await device.kernel({ wgsl, bindings: ['read_write'] });
      const tensor = device.zeros([1]);
      await device.sync();
      device.resetStats();
      for (let step = 0; step < 1000; step++) kernel.dispatch({ bindings: [tensor], grid: [1] });
      const { pipelines } = device.stats();
      const [[value]] = await device.readback(tensor);
      return { looked: pipelines.hits, value };
    }),
  );
  assert.deepEqual([got.looked, got.value], [0, 1000]);
});

test('memory and traffic are told apart: in use and pooled, by size, and by direction', LIMIT, async () => {
  const { grown, reused, trimmed, traffic } = await run(() =>
    withDevice({}, async (device) => {
      const before = device.memoryStats();
      const sizes = [10, 5000, 1 << 20];
      const make = () => sizes.map((size) => device.tensor(new Float32Array(size), [size]));
      const tensors = make();
      const grown = device.memoryStats();
      for (const tensor of tensors) tensor.dispose();
      for (const tensor of make()) tensor.dispose();
      const reused = device.memoryStats();
      device.trim();
      await device.sync();
      const trimmed = device.memoryStats();

      const [x, y] = [device.zeros([64]), device.zeros([4096])];
      await device.sync();
      device.resetStats();
      y.write(new Float32Array(4096));
      x.write([1]);
      await x.readback();
      const { copies, bytes_copied, staged_writes, queue_writes, bytes_uploaded, bytes_read_back } = device.stats();
      const traffic = { copies, bytes_copied, staged_writes, queue_writes, bytes_uploaded, bytes_read_back };
      return { before, grown, reused, trimmed, traffic };
    }),
  );
  for (const stats of [grown, reused, trimmed]) {
    assert.equal(stats.live_bytes, stats.active_bytes + stats.pooled_bytes);
    assert.equal(stats.live_buffers, stats.active_buffers + stats.pooled_buffers);
  }
  const counts = ({ pool }) => Object.values(pool).map(({ hits, misses }) => [hits, misses]);
  assert.deepEqual(
    counts(grown).map(([, misses]) => misses),
    [1, 1, 1],
  );
  assert.deepEqual(
    counts(reused).map(([hits, misses], at) => [hits - counts(grown)[at][0], misses]),
    [
      [1, 1],
      [1, 1],
      [1, 1],
    ],
  );
  assert.ok(reused.pooled_bytes > 4 << 20 && reused.active_bytes < grown.active_bytes - (4 << 20));
  assert.deepEqual([trimmed.pooled_bytes, trimmed.pooled_buffers], [0, 0]);
  for (const { allocated_bytes, released_bytes } of Object.values(trimmed.pool)) assert.equal(released_bytes, allocated_bytes);
  assert.ok(trimmed.allocated_bytes >= grown.allocated_bytes && trimmed.peak_bytes >= grown.live_bytes);
  assert.deepEqual(traffic, {
    copies: 0,
    bytes_copied: 0,
    staged_writes: 1,
    queue_writes: 1,
    bytes_uploaded: 4096 * 4 + 4,
    bytes_read_back: 256,
  });
});

test('batches and lazy mode change at any time; what waits is counted', LIMIT, async () => {
  const got = await run(() =>
    withDevice({}, async (device) => {
      const kernel = await device.kernel({
        wgsl: '@group(0) @binding(0) var<storage, read_write> x: array<f32>; @compute @workgroup_size(1) fn main() { x[0] += 1; }',
        bindings: ['read_write'],
      });
      const x = device.tensor([0], [1]);
      await device.sync();
      device.resetStats();
      const add = (count) => {
        for (let i = 0; i < count; i++) kernel.dispatch({ bindings: [x], grid: [1] });
      };
      const counts = [];
      const note = () => counts.push([device.pendingWork, device.stats().submits]);
      add(5);
      note();
      device.setMaxBatchSize(4); // five wait already
      note();
      add(6);
      note();
      device.setMaxBatchSize(0);
      add(9);
      note();
      device.setLazyMode(false);
      note();
      add(3);
      note();
      device.setLazyMode(true);
      add(2);
      note();
      x.eval();
      note();
      return { counts, value: await x.item(), flushes: device.stats().flushes };
    }),
  );
  assert.deepEqual(got.counts, [
    [5, 0],
    [0, 1],
    [2, 2],
    [11, 2],
    [0, 3],
    [0, 6],
    [2, 6],
    [0, 7],
  ]);
  assert.equal(got.value, 25);
  assert.deepEqual([got.flushes.batch_limit, got.flushes.eager, got.flushes.explicit], [2, 4, 1]);
});

test('tensors: copyFrom, item, byteSize, and what is wrong with them', LIMIT, async () => {
  const got = await run(() =>
    withDevice({}, async (device) => {
      const [a, b] = [device.tensor([1, 2, 3], [3]), device.zeros([2, 4])];
      b.copyFrom(a, 5);
      a.write([9]);
      b.copyFrom(a);
      const one = device.tensor([7], [1, 1]);
      const other = await rillm.Device.request();
      const foreign = other.zeros([1]);
      const errors = [
        await failure(() => b.copyFrom(a, 6)),
        await failure(() => b.copyFrom(a, -1)),
        await failure(() => b.copyFrom(b)),
        await failure(() => b.copyFrom([1])),
        await failure(() => b.copyFrom(foreign)),
        await failure(() => b.copyFrom(device.zeros([1], 'u32'))),
        await failure(() => a.item()),
        await failure(() => device.setMaxBatchSize(-1)),
        await failure(() => device.setMaxBatchSize()),
        await failure(() => device.setLazyMode('on')),
        await failure(() => (one.dispose(), one.eval())),
      ];
      other.destroy();
      return { values: [...(await b.readback())], bytes: b.byteSize, errors: errors.map(({ code, message }) => [code, message]) };
    }),
  );
  assert.deepEqual(got.values, [9, 2, 3, 0, 0, 1, 2, 3]);
  assert.equal(got.bytes, 32);
  const wanted = [
    ['out_of_range', /copyFrom: 3 elements from element 6.*8 elements/],
    ['out_of_range', /-1/],
    ['invalid_request', /itself/],
    ['invalid_request', /Tensor/],
    ['wrong_device', /another device/],
    ['dtype_mismatch', /copyFrom: u32 into f32/],
    ['shape_mismatch', /item.*\[3\]/],
    ['invalid_request', /-1/],
    ['invalid_request', /null/],
    ['invalid_request', /setLazyMode.*on/],
    ['disposed', /disposed/],
  ];
  got.errors.forEach(([code, message], at) => {
    assert.equal(code, wanted[at][0], message);
    assert.match(message, wanted[at][1]);
  });
});

test("a batch dispatches a caller's kernel among its operations", LIMIT, async () => {
  const got = await run(() =>
    withDevice({}, async (device) => {
      const square = await device.kernel({
        label: 'square',
        wgsl: `
          @group(0) @binding(0) var<storage, read> x: array<f32>;
          @group(0) @binding(1) var<storage, read_write> y: array<f32>;
          @group(0) @binding(2) var<uniform> factor: vec4f;
          @compute @workgroup_size(WORKGROUP_X)
          fn main(@builtin(global_invocation_id) id: vec3u) { if (id.x < arrayLength(&x)) { y[id.x] += factor.x * x[id.x] * x[id.x]; } }`,
        bindings: ['read', 'read_write', 'uniform'],
      });
      const batch = device.batch();
      const kept = device.tensor([100, 100, 100, 100], [4]);
      const x = batch.upload([1, -2, 3, -4]);
      const positive = batch.relu(x);
      const squares = batch.zeros([4]);
      const factor = new Float32Array([2, 0, 0, 0]);
      batch.dispatch(square, { bindings: [positive, squares, factor], threads: [4] });
      factor[0] = 1000;
      const sum = batch.add(squares, x);
      batch.dispatch(square, { bindings: [sum, kept, new Float32Array([1, 0, 0, 0])], grid: [1] });
      const operations = batch.numOperations;
      // A tensor is one buffer, however often it is bound.
      const buffers = batch.numBuffers;
      batch.dispatch(square, { bindings: [sum, kept, new Float32Array(4)], grid: [1] });
      const more = batch.numBuffers - buffers;
      device.resetStats();
      await batch.execute();
      const { submits } = device.stats();
      const values = [...(await batch.read(sum)), ...(await kept.readback())];
      // Once more, with what it made: it adds to the same buffer.
      batch.dispatch(square, { bindings: [positive, squares, new Float32Array([1, 0, 0, 0])], threads: [4] });
      await batch.execute();
      values.push(...(await batch.read(squares)));
      const other = await rillm.Device.request();
      const foreign = await other.kernel({ wgsl: '@compute @workgroup_size(1) fn main() {}', bindings: [] });
      const gone = device.zeros([4]);
      gone.dispose();
      const one = new Float32Array(4);
      const same = batch.importBuffer(kept);
      const handed = batch.tensor(squares);
      const errors = [];
      for (const [kernel, bindings, more] of [
        [square, [x, x, one]],
        [square, [same, kept, one]],
        [square, [squares, handed, one]],
        [square, [99, squares, one]],
        [square, [-1, squares, one]],
        [square, [1.5, squares, one]],
        [square, [gone, squares, one]],
        [square, [other.zeros([4]), squares, one]],
        [square, [x, squares, 3]],
        [square, [x, squares]],
        [foreign, []],
        [{ dispatch() {} }, [x]],
        [square, [x, squares, one], { grid: [1] }],
      ]) {
        errors.push(await failure(() => batch.dispatch(kernel, { bindings, threads: [4], ...more })));
      }
      other.destroy();
      const left = batch.numOperations;
      batch.dispose();
      errors.push(await failure(() => batch.dispatch(square, { bindings: [x, squares, one], threads: [4] })));
      return { values, operations, more, submits, left, handed: [...(await handed.readback())], errors: errors.map(({ code }) => code) };
    }),
  );
  assert.deepEqual(got.values, [3, -2, 21, -4, 109, 104, 541, 116, 3, 0, 27, 0]);
  assert.deepEqual([got.operations, got.more, got.submits, got.left], [4, 0, 1, 0]);
  assert.deepEqual(got.handed, [3, 0, 27, 0]);
  assert.deepEqual(got.errors, [
    ...Array(6).fill('invalid_request'),
    'disposed',
    'wrong_device',
    'invalid_request',
    'invalid_request',
    'wrong_device',
    'invalid_request',
    'invalid_request',
    'disposed',
  ]);
});

test('recordReadback: tensors as they were, copied with the next submit and read when one likes', LIMIT, async () => {
  const got = await run(() =>
    withDevice({}, async (device) => {
      const double = await device.kernel({
        wgsl: `
          @group(0) @binding(0) var<storage, read_write> x: array<f32>;
          @compute @workgroup_size(WORKGROUP_X)
          fn main(@builtin(global_invocation_id) id: vec3u) { if (id.x < arrayLength(&x)) { x[id.x] *= 2; } }`,
        bindings: ['read_write'],
      });
      const x = device.tensor([1, 2, 3], [3]);
      const ids = device.tensor(Uint32Array.of(7), [1]);
      const twice = () => double.dispatch({ bindings: [x], threads: [3] });
      await device.sync();
      device.resetStats();
      const first = device.recordReadback(x, ids);
      twice();
      const second = device.recordReadback(x);
      twice();
      const given_up = device.recordReadback(x);
      given_up.dispose();
      given_up.dispose();
      const before = device.stats();
      // Read before anything was submitted: it submits all that was recorded.
      const [[b], again] = [await second.values(), await second.values()];
      const between = device.stats();
      twice();
      // Read after its submit, while something else is recorded: that stays recorded.
      const [a, u] = await first.values();
      const pending = device.pendingWork;
      const after = device.stats();
      first.dispose();
      await device.sync();
      const reused = [];
      for (let round = 0; round < 5; round++) {
        device.recordReadback(x).dispose();
        reused.push([...(await x.readback())].join());
      }
      const { live_buffers } = device.memoryStats();
      for (let round = 0; round < 50; round++) {
        device.recordReadback(x).dispose();
        await device.sync();
      }
      const grown = device.memoryStats().live_buffers - live_buffers;
      const late = device.recordReadback(x);
      const inTime = device.recordReadback(x).values();
      inTime.catch(() => {});
      device.destroy();
      return {
        submits: [before.submits, between.submits, after.submits],
        pending,
        values: [[...a], [...u], [...b], u.constructor.name],
        same: again[0] === b,
        reused: new Set(reused).size === 1 && reused[0],
        grown,
        errors: [
          await failure(() => given_up.values()),
          await failure(() => late.values()),
          await failure(() => inTime),
          await failure(() => device.recordReadback(x)),
        ].map(({ code }) => code),
      };
    }),
  );
  assert.deepEqual(got.submits, [0, 1, 1]);
  assert.equal(got.pending, 1);
  assert.deepEqual(got.values, [[1, 2, 3], [7], [2, 4, 6], 'Uint32Array']);
  assert.equal(got.same, true);
  assert.equal(got.reused, '8,16,24');
  assert.ok(got.grown <= 1, `${got.grown} buffers more`);
  assert.deepEqual(got.errors, Array(4).fill('disposed'));
});

test('buffer: an application draws what was just computed, without a copy', LIMIT, async () => {
  const got = await run(() =>
    withDevice({}, async (device) => {
      const { gpuDevice } = device;
      const grey = device.tensor(new Float32Array(64).fill(0.25), [8, 8]);
      const bright = await device.kernel({
        wgsl: `
          @group(0) @binding(0) var<storage, read_write> x: array<f32>;
          @compute @workgroup_size(WORKGROUP_X)
          fn main(@builtin(global_invocation_id) id: vec3u) { x[id.x] = x[id.x] + select(0.0, 0.5, id.x % 8 >= 4); }`,
        bindings: ['read_write'],
      });
      bright.dispatch({ bindings: [grey], threads: [64] });
      const pendingBefore = device.pendingWork;
      const { buffer, offset, size } = grey.buffer();
      const pendingAfter = device.pendingWork;
      const module = gpuDevice.createShaderModule({
        code: `
          @group(0) @binding(0) var<storage, read> image: array<f32, 64>;
          @vertex fn corner(@builtin(vertex_index) at: u32) -> @builtin(position) vec4f {
            return vec4f(f32(at & 1u) * 4 - 1, f32(at >> 1u) * 4 - 1, 0, 1);
          }
          @fragment fn colour(@builtin(position) at: vec4f) -> @location(0) vec4f {
            return vec4f(vec3f(image[u32(at.y) * 8 + u32(at.x)]), 1);
          }`,
      });
      const pipeline = gpuDevice.createRenderPipeline({
        layout: 'auto',
        vertex: { module },
        fragment: { module, targets: [{ format: 'rgba8unorm' }] },
      });
      const texture = gpuDevice.createTexture({ size: [8, 8], format: 'rgba8unorm', usage: 0x10 | 0x01 });
      const pixels = gpuDevice.createBuffer({ size: 8 * 256, usage: 0x08 | 0x01 });
      const encoder = gpuDevice.createCommandEncoder();
      const pass = encoder.beginRenderPass({ colorAttachments: [{ view: texture.createView(), loadOp: 'clear', storeOp: 'store' }] });
      pass.setPipeline(pipeline);
      const entries = [{ binding: 0, resource: { buffer, offset, size } }];
      pass.setBindGroup(0, gpuDevice.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }));
      pass.draw(3);
      pass.end();
      encoder.copyTextureToBuffer({ texture }, { buffer: pixels, bytesPerRow: 256 }, [8, 8]);
      gpuDevice.queue.submit([encoder.finish()]);
      await pixels.mapAsync(1);
      const row = [...new Uint8Array(pixels.getMappedRange(0, 32))];
      // Of an imported buffer it is the application's own. A part begins where no binding may, so it takes a copy.
      const own = gpuDevice.createBuffer({ size: 64, usage: 0x80 });
      const imported = await device.importBuffer(own, [16]);
      const part = grey.slice(1, 3).clone().buffer();
      const other = device.tensor([1], [1]);
      other.dispose();
      return {
        row,
        size,
        pending: [pendingBefore, pendingAfter],
        isOwn: imported.buffer().buffer === own,
        part: [part.size, part.buffer instanceof GPUBuffer, part.buffer.size >= part.offset + part.size],
        disposed: (await failure(() => other.buffer())).code,
        values: [...(await grey.readback())].slice(3, 5),
      };
    }),
  );
  const [dark, light] = [64, 191];
  assert.deepEqual(got.row, Array.from({ length: 8 }, (_, x) => [...Array(3).fill(x < 4 ? dark : light), 255]).flat());
  assert.deepEqual(got.pending, [1, 0]);
  assert.deepEqual(got.part, [64, true, true]);
  assert.deepEqual([got.size, got.isOwn, got.disposed, got.values], [256, true, 'disposed', [0.25, 0.75]]);
});

test('adapters, features and limits', LIMIT, async () => {
  const got = await run(async () => {
    const adapters = await rillm.listAdapters();
    const device = await rillm.Device.request({ ...adapters[0].request, features: ['subgroups'], limits: { maxBindGroups: 4 } });
    const result = {
      available: await rillm.isAvailable(),
      adapters,
      adapter: device.adapter,
      features: [...device.features],
      buffers: device.limits.maxStorageBuffersPerShaderStage,
    };
    device.destroy();
    return result;
  });
  assert.equal(got.available, true);
  assert.ok(got.adapters.length >= 1);
  assert.equal(got.adapters[0].architecture, 'swiftshader');
  assert.equal(got.adapter.is_fallback, true);
  assert.ok(got.features.includes('subgroups'));
  assert.ok(got.buffers >= 8);
});

test('it runs in a worker of the application', LIMIT, async () => {
  const values = await run(
    (origin) =>
      new Promise((resolve, reject) => {
        const code = `
          import { Device } from '${origin}/rillm/dist/gpu/index.js';
          const device = await Device.request();
          const batch = device.batch();
          const x = batch.scale(batch.upload([1, 2, 3]), 2);
          await batch.execute();
          postMessage([...await batch.read(x)]);
          device.destroy();`;
        const worker = new Worker(URL.createObjectURL(new Blob([code], { type: 'text/javascript' })), { type: 'module' });
        worker.onmessage = ({ data }) => resolve(data);
        worker.onerror = (event) => reject(new Error(event.message));
      }),
    stage.origin,
  );
  assert.deepEqual(values, [2, 4, 6]);
});
