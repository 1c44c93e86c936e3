// rillm/gpu used wrongly: each mistake is an EngineError with its code, at the call, and the device stays usable. A lost
// device rejects what is in flight.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { openStage } from './browser.mjs';

const LIMIT = { timeout: 60_000 };
const GPU = { package: '/rillm/dist/gpu/index.js' };

let stage;
before(async () => (stage = await openStage()));
after(() => stage.close());

const DOUBLE = `
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@compute @workgroup_size(WORKGROUP_X)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.x < arrayLength(&x)) { x[id.x] *= 2; }
}`;

/**
 * What is wrong → the code it gives and what the message has to name. `use` runs in the page with a device, another device,
 * a compiled kernel that doubles a tensor, and a tensor; it may return a promise.
 */
const MISTAKES = {
  'data of a dtype that there is not': ['dtype_mismatch', /Float64Array/, ({ device }) => device.tensor(new Float64Array(2), [2])],
  'data of another dtype than is wished': [
    'dtype_mismatch',
    /Float32Array.*u32/,
    ({ device }) => device.tensor(new Float32Array(2), [2], 'u32'),
  ],
  'a dtype that there is not': ['dtype_mismatch', /f64/, ({ device }) => device.zeros([2], 'f64')],
  'numbers that no u32 can hold': ['dtype_mismatch', /element 1 is -1/, ({ device }) => device.tensor([1, -1], [2], 'u32')],
  'elements that are no numbers': ['dtype_mismatch', /element 0/, ({ device }) => device.tensor(['1'], [1])],
  'data that does not fill its shape': ['shape_mismatch', /3 elements.*\[2, 2\]/, ({ device }) => device.tensor([1, 2, 3], [2, 2])],
  'a shape of seven dimensions': ['shape_mismatch', /7 dimensions/, ({ device }) => device.zeros([1, 1, 1, 1, 1, 1, 1])],
  'a shape with a negative dimension': ['shape_mismatch', /-1/, ({ device }) => device.zeros([2, -1])],
  'a shape with half a dimension': ['shape_mismatch', /1\.5/, ({ device }) => device.ones([1.5])],
  'a shape that is none': ['shape_mismatch', /undefined/, ({ device }) => device.rand()],
  'a seed that is none': ['invalid_request', /seed/, ({ device }) => device.rand([1], { seed: -1 })],
  'a tensor over the limit of a binding': ['adapter_limits', /65536/, ({ device }) => device.zeros([65536, 65536])],
  'a tensor whose bytes are past 2^64': [
    'adapter_limits',
    /4294967295/,
    ({ device }) => device.zeros([4294967295, 4294967295, 4294967295]),
  ],
  'a slice from half an element': ['invalid_request', /slice: start.*0\.5/, ({ tensor }) => tensor.slice(0.5)],
  'a slice by steps of nothing': ['invalid_request', /step is 0/, ({ tensor }) => tensor.slice(0, 1, { step: 0 })],
  'a part that no binding can begin at': ['invalid_request', /buffer: .*view.*clone/, ({ tensor }) => tensor.slice(1).buffer()],
  'a write past the end': ['out_of_range', /from element 3/, ({ tensor }) => tensor.write([1, 2], 3)],
  'a write of another dtype': ['dtype_mismatch', /Uint32Array/, ({ tensor }) => tensor.write(new Uint32Array(1))],
  'reading a tensor back that was disposed of': [
    'disposed',
    /disposed/,
    ({ device }) => {
      const t = device.zeros([1]);
      t.dispose();
      t.dispose();
      return t.readback();
    },
  ],
  'slicing a tensor that was disposed of': [
    'disposed',
    /disposed/,
    ({ device }) => {
      const t = device.zeros([1]);
      t.dispose();
      t.slice(0, 1);
    },
  ],
  'a tensor of another device in a read-back': [
    'wrong_device',
    /tensor 1.*another device/,
    ({ device, tensor, other }) => device.readback(tensor, other.zeros([1])),
  ],
  'a tensor of another device in a kernel': [
    'wrong_device',
    /binding 0.*another device/,
    ({ double, other }) => double.dispatch({ bindings: [other.zeros([1])], grid: [1] }),
  ],
  'a tensor of another device in a batch': [
    'wrong_device',
    /another device/,
    ({ device, other }) => device.batch().importBuffer(other.zeros([1])),
  ],
  'a tensor that is none': ['invalid_request', /Tensor/, ({ double }) => double.dispatch({ bindings: [new Float32Array(4)], grid: [1] })],
  'a GPUBuffer of another device': [
    'wrong_device',
    /another device/,
    ({ device, other }) => device.importBuffer(other.gpuDevice.createBuffer({ size: 16, usage: 0x80 }), [4]),
  ],
  'a GPUBuffer of another device in a batch': [
    'wrong_device',
    /another device/,
    ({ device, other }) => {
      const batch = device.batch();
      batch.relu(batch.importBuffer(other.gpuDevice.createBuffer({ size: 16, usage: 0x84 })));
      return batch.execute();
    },
  ],
  'a GPUBuffer without STORAGE': [
    'invalid_request',
    /STORAGE/,
    ({ device }) => device.importBuffer(device.gpuDevice.createBuffer({ size: 16, usage: 0x4 }), [4]),
  ],
  'a GPUBuffer that is too small': [
    'shape_mismatch',
    /20 bytes.*16/,
    ({ device }) => device.importBuffer(device.gpuDevice.createBuffer({ size: 16, usage: 0x80 }), [5]),
  ],
  'a GPUBuffer that is none': ['invalid_request', /GPUBuffer/, ({ device }) => device.importBuffer({}, [4])],
  'WGSL that does not compile': [
    'shader_compilation',
    /broken[\s\S]*line 3:10: .*nonsense[\s\S]*x\[0\] = nonsense;/,
    ({ device }) =>
      device.kernel({
        label: 'broken',
        wgsl: '@group(0) @binding(0) var<storage, read_write> x: array<f32>;\n@compute @workgroup_size(1) fn main() {\n  x[0] = nonsense;\n}',
        bindings: ['read_write'],
      }),
  ],
  'WGSL that is no WGSL': ['shader_compilation', /line 1:/, ({ device }) => device.kernel({ wgsl: 'void main() {}', bindings: [] })],
  'a line of another preprocessor': [
    'shader_compilation',
    /line 1:1: [\s\S]*#define X 1/,
    ({ device }) => device.kernel({ wgsl: '#define X 1\n@compute @workgroup_size(1) fn main() {}', bindings: [] }),
  ],
  'WGSL without main': [
    'shader_compilation',
    /main/,
    ({ device }) => device.kernel({ wgsl: '@compute @workgroup_size(1) fn start() {}', bindings: [] }),
  ],
  'WGSL that does not fit its bindings': ['shader_compilation', /./, ({ device, wgsl }) => device.kernel({ wgsl, bindings: ['read'] })],
  'WGSL with a workgroup over the limit': [
    'shader_compilation',
    /./,
    ({ device }) => device.kernel({ wgsl: '@compute @workgroup_size(100000) fn main() {}', bindings: [] }),
  ],
  'a kind of binding that there is not': [
    'invalid_request',
    /write_only/,
    ({ device, wgsl }) => device.kernel({ wgsl, bindings: ['write_only'] }),
  ],
  'a workgroup over the limit': [
    'adapter_limits',
    /workgroup/,
    ({ device, wgsl }) => device.kernel({ wgsl, bindings: ['read_write'], workgroup: [4096, 4096] }),
  ],
  'more bindings than the limit': [
    'adapter_limits',
    /binds 100/,
    ({ device, wgsl }) => device.kernel({ wgsl, bindings: Array(100).fill('read') }),
  ],
  'a grid over the limit': [
    'adapter_limits',
    /grid|workgroups/,
    ({ double, tensor }) => double.dispatch({ bindings: [tensor], grid: [1e8] }),
  ],
  'a grid of nothing': ['invalid_request', /grid/, ({ double, tensor }) => double.dispatch({ bindings: [tensor], grid: [0] })],
  'a grid and threads': [
    'invalid_request',
    /either/,
    ({ double, tensor }) => double.dispatch({ bindings: [tensor], grid: [1], threads: [1] }),
  ],
  'too few bindings': ['invalid_request', /1 bindings/, ({ double }) => double.dispatch({ bindings: [], grid: [1] })],
  'a uniform over the limit': [
    'adapter_limits',
    /uniform/,
    async ({ device }) => {
      const kernel = await device.kernel({
        wgsl: '@group(0) @binding(0) var<uniform> x: vec4f;\n@compute @workgroup_size(1) fn main() { _ = x; }',
        bindings: ['uniform'],
      });
      kernel.dispatch({ bindings: [new ArrayBuffer(1 << 20)], grid: [1] });
    },
  ],
  'a tensor that is read and written by one dispatch': [
    'invalid_request',
    /twice/,
    async ({ device, tensor }) => {
      const wgsl =
        '@group(0) @binding(0) var<storage, read> x: array<f32>;\n@group(0) @binding(1) var<storage, read_write> y: array<f32>;\n@compute @workgroup_size(1) fn main() { y[0] = x[0]; }';
      const kernel = await device.kernel({ wgsl, bindings: ['read', 'read_write'] });
      kernel.dispatch({ bindings: [tensor, tensor], grid: [1] });
    },
  ],
  'an operation on bool': [
    'dtype_mismatch',
    /^neg: bools/,
    ({ device }) => {
      const b = device.batch();
      b.neg(b.upload([1], [1], 'bool'));
    },
  ],
  'operands of different shapes': [
    'shape_mismatch',
    /^add: the shapes \[2\] and \[3\]/,
    ({ device }) => {
      const b = device.batch();
      b.add(b.upload([1, 2]), b.upload([1, 2, 3]));
    },
  ],
  'a matmul that does not fit': [
    'shape_mismatch',
    /^matmul: .*\[2, 2\]/,
    ({ device }) => {
      const b = device.batch();
      b.matmul(b.upload([1, 2, 3]), b.upload([1, 2, 3, 4]), 2, 2, 2);
    },
  ],
  'a matmul of half a row': [
    'shape_mismatch',
    /0\.5/,
    ({ device }) => {
      const b = device.batch();
      b.matmul(b.upload([1]), b.upload([1]), 0.5, 1, 1);
    },
  ],
  'a buffer that the batch has not': ['invalid_request', /no buffer 7/, ({ device }) => device.batch().relu(7)],
  'reading a result before it is executed': [
    'invalid_request',
    /execute/,
    ({ device }) => {
      const b = device.batch();
      return b.read(b.relu(b.upload([1])));
    },
  ],
  'a batch that was disposed of': [
    'disposed',
    /batch/,
    ({ device }) => {
      const b = device.batch();
      b.dispose();
      b.dispose();
      b.upload([1]);
    },
  ],
  'a factor that is none': [
    'invalid_request',
    /factor/,
    ({ device }) => {
      const b = device.batch();
      b.scale(b.upload([1]), '2');
    },
  ],
  'a feature that the adapter has not': [
    'adapter_limits',
    /no-such-feature/,
    () => rillm.Device.request({ features: ['no-such-feature'] }),
  ],
  'a limit that the adapter has not': [
    'adapter_limits',
    /maxBufferSize/,
    () => rillm.Device.request({ limits: { maxBufferSize: 2 ** 50 } }),
  ],
  'a limit that WebGPU knows not': ['invalid_request', /maxWishes/, () => rillm.Device.request({ limits: { maxWishes: 3 } })],
  'a GPUDevice that is none': ['invalid_request', /GPUDevice/, () => rillm.Device.request({ device: {} })],
  'choosing an adapter for a device that is there': [
    'invalid_request',
    /powerPreference/,
    ({ device }) => rillm.Device.request({ device: device.gpuDevice, powerPreference: 'low-power' }),
  ],
  'a size of a cache that is none': ['invalid_request', /uniforms/, () => rillm.Device.request({ caches: { uniforms: -1 } })],
};

for (const [what, [code, message, use]] of Object.entries(MISTAKES)) {
  test(`${what}: ${code}`, LIMIT, async () => {
    const { failed, usable } = await stage.runWith(
      GPU,
      async ([use, wgsl]) => {
        const [device, other] = [await rillm.Device.request(), await rillm.Device.request()];
        const double = await device.kernel({ label: 'double', wgsl, bindings: ['read_write'] });
        const tensor = device.tensor([1, 2, 3, 4], [4]);
        const failed = await failure(() => (0, eval)(`(${use})`)({ device, other, double, tensor, wgsl }));
        double.dispatch({ bindings: [tensor], threads: [tensor.size] });
        const batch = device.batch();
        const sum = batch.add(batch.importBuffer(tensor), batch.upload([1, 1, 1, 1]));
        await batch.execute();
        const usable = [...(await batch.read(sum))];
        await device.sync();
        device.destroy();
        other.destroy();
        return { failed, usable };
      },
      String(use),
      DOUBLE,
    );
    assert.ok(failed.isEngineError, JSON.stringify(failed));
    assert.equal(failed.code, code, failed.message);
    assert.match(failed.message, message);
    assert.deepEqual(usable, [3, 5, 7, 9]);
  });
}

test('a mistake that only the GPU sees is told by the next wait, with the kernel, and does not stay', LIMIT, async () => {
  const { failed, values } = await stage.runWith(
    GPU,
    (wgsl) =>
      withDevice({}, async (device) => {
        const kernel = await device.kernel({
          label: 'small_uniform',
          wgsl: '@group(0) @binding(0) var<uniform> x: array<vec4f, 8>;\n@compute @workgroup_size(1) fn main() { _ = x[0]; }',
          bindings: ['uniform'],
        });
        kernel.dispatch({ bindings: [new Uint8Array(16)], grid: [1] });
        const failed = await failure(device.sync());
        const double = await device.kernel({ wgsl, bindings: ['read_write'] });
        const x = device.tensor([1, 2], [2]);
        double.dispatch({ bindings: [x], grid: [1] });
        return { failed, values: [...(await x.readback())] };
      }),
    DOUBLE,
  );
  assert.equal(failed.code, 'gpu_validation', failed.message);
  assert.match(failed.message, /small_uniform/);
  assert.deepEqual(values, [2, 4]);
});

test('destroy: what is in flight is rejected, every later call throws, other devices go on', LIMIT, async () => {
  const { flights, later, lost, twice, values } = await stage.runWith(
    GPU,
    async (wgsl) => {
      const [device, other] = [await rillm.Device.request(), await rillm.Device.request()];
      const double = await device.kernel({ wgsl, bindings: ['read_write'] });
      const tensor = device.rand([100_000]);
      const batch = device.batch();
      const result = batch.relu(batch.importBuffer(tensor));
      const open = [tensor.readback(), batch.execute(), device.readback(tensor, tensor), device.sync()].map((promise) => failure(promise));
      device.destroy();
      const twice = device.destroy();
      const flights = (await Promise.all(open)).map(({ code }) => code);
      const calls = [
        () => device.tensor([1], [1]),
        () => device.zeros([1]),
        () => device.rand([1]),
        () => device.kernel({ wgsl, bindings: ['read_write'] }),
        () => device.batch(),
        () => device.flush(),
        () => device.sync(),
        () => device.readback(tensor),
        () => device.stats(),
        () => device.resetStats(),
        () => device.memoryStats(),
        () => tensor.readback(),
        () => tensor.write([1]),
        () => tensor.slice(0, 1),
        () => double.dispatch({ bindings: [tensor], grid: [1] }),
        () => batch.upload([1]),
        () => batch.execute(),
        () => batch.read(result),
        () => batch.numBuffers,
      ];
      const later = [];
      for (const call of calls) later.push((await failure(call)).code);
      tensor.dispose();
      batch.dispose();
      const values = [...(await other.ones([2]).readback())];
      other.destroy();
      return { flights, later, lost: await device.lost, twice, values };
    },
    DOUBLE,
  );
  assert.deepEqual(new Set(flights), new Set(['disposed']));
  assert.deepEqual(new Set(later), new Set(['disposed']), later.join());
  assert.equal(lost.reason, 'destroyed');
  assert.equal(twice, undefined);
  assert.deepEqual(values, [1, 1]);
});

for (const shared of [true, false]) {
  test(
    `losing ${shared ? "an application's" : 'its own'} GPUDevice rejects what is in flight with device_lost and resolves lost`,
    LIMIT,
    async () => {
      const { flights, later, lost } = await stage.runWith(
        GPU,
        async (shared) => {
          const device = await rillm.Device.request(shared ? { device: await (await navigator.gpu.requestAdapter()).requestDevice() } : {});
          const tensor = device.rand([100_000]);
          const batch = device.batch();
          batch.relu(batch.importBuffer(tensor));
          const open = [tensor.readback(), tensor.readback(), batch.execute(), device.sync()].map((promise) => failure(promise));
          device.gpuDevice.destroy();
          const flights = (await Promise.all(open)).map(({ code }) => code);
          const lost = await device.lost;
          const later = [];
          for (const call of [() => device.zeros([1]), () => tensor.readback(), () => device.sync(), () => device.batch().upload([1])])
            later.push((await failure(call)).code);
          device.destroy();
          return { flights, later, lost };
        },
        shared,
      );
      assert.deepEqual(new Set(flights), new Set(['device_lost']), flights.join());
      assert.deepEqual(new Set(later), new Set(['device_lost']), later.join());
      assert.equal(lost.reason, 'destroyed');
    },
  );
}

test('without WebGPU: webgpu_unavailable, no adapter in the list', LIMIT, async () => {
  const { failed, available, adapters } = await stage.runWith(GPU, async () => {
    Object.defineProperty(navigator, 'gpu', { value: undefined });
    return { failed: await failure(rillm.Device.request()), available: await rillm.isAvailable(), adapters: await rillm.listAdapters() };
  });
  assert.equal(failed.code, 'webgpu_unavailable', failed.message);
  assert.equal(available, false);
  assert.deepEqual(adapters, []);
});
