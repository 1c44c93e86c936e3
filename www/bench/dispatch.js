// What a small dispatch costs in plain JavaScript, by how it is encoded. It is what the package's `benchDispatch` is compared
// with, so it measures the same: the kernel (x += y on 256 floats, each dispatch on the result of the one before), the number
// of dispatches and what counts as encoding. Uses WebGPU alone; knows nothing of the package.

const ELEMENTS = 256;
const WORKGROUP = 64;

/**
 * A repetition is as many chains as take so long to encode: the clock of a page ticks every 5 µs at best, 100 µs where it is
 * not cross-origin isolated.
 */
const LEAST_ENCODE_MS = 5;
const LEAST_CHAINS = 8;

const KERNEL = `
struct Params { elements: u32 }
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read> y: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(${WORKGROUP})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < params.elements) {
    x[id.x] += y[id.x];
  }
}`;

/** → [{variant, encode_us, whole_us}]: microseconds per dispatch, medians over the repetitions. */
export async function measureScriptDispatch({ count = 300, repetitions = 10 } = {}) {
  const adapter = await navigator.gpu?.requestAdapter({ powerPreference: 'high-performance' });
  if (!adapter) throw new Error('this browser has no WebGPU adapter');
  const device = await adapter.requestDevice();
  try {
    const chain = await buildChain(device, count);
    const results = [];
    for (const [variant, encode] of Object.entries({ submit_each: chain.submitEach, tvm: chain.tvm })) {
      results.push({ variant, ...(await measure(device, encode, { count, repetitions })) });
    }
    await chain.check();
    return results;
  } finally {
    device.destroy();
  }
}

async function measure(device, encode, { count, repetitions }) {
  const encodes = [];
  const wholes = [];
  // The first repetition warms up and is dropped.
  for (let repetition = 0; repetition <= repetitions; repetition++) {
    const encodeMs = [];
    const wholeMs = [];
    while (encodeMs.length < LEAST_CHAINS || sum(encodeMs) < LEAST_ENCODE_MS) {
      const start = performance.now();
      encode();
      encodeMs.push(performance.now() - start);
      await device.queue.onSubmittedWorkDone();
      wholeMs.push(performance.now() - start);
    }
    if (repetition === 0) continue;
    encodes.push((interquartileMean(encodeMs) * 1000) / count);
    wholes.push((interquartileMean(wholeMs) * 1000) / count);
  }
  return { encode_us: median(encodes), whole_us: median(wholes) };
}

async function buildChain(device, count) {
  const bytes = ELEMENTS * 4;
  const x = device.createBuffer({ size: bytes, usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC });
  const y = device.createBuffer({ size: bytes, usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST });
  device.queue.writeBuffer(y, 0, new Float32Array(ELEMENTS).fill(1));
  // One uniform buffer for each dispatch of a chain: writeBuffer comes before everything that is submitted after it.
  const uniforms = Array.from({ length: count }, () =>
    device.createBuffer({ size: 16, usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST }),
  );
  const layout = device.createBindGroupLayout({
    entries: ['storage', 'read-only-storage', 'uniform'].map((type, binding) => ({ binding, visibility: GPUShaderStage.COMPUTE, buffer: { type } })),
  });
  const pipeline = await device.createComputePipelineAsync({
    layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
    compute: { module: device.createShaderModule({ code: KERNEL }), entryPoint: 'main' },
  });
  let dispatches = 0;

  /** A pass with one dispatch: a new uniform content and a new bind group, nothing cached. */
  function encodePass(encoder, i) {
    device.queue.writeBuffer(uniforms[i], 0, new Uint32Array([ELEMENTS]));
    const pass = encoder.beginComputePass();
    pass.setPipeline(pipeline);
    const buffers = [x, y, uniforms[i]];
    pass.setBindGroup(0, device.createBindGroup({ layout, entries: buffers.map((buffer, binding) => ({ binding, resource: { buffer } })) }));
    pass.dispatchWorkgroups(ELEMENTS / WORKGROUP);
    pass.end();
    dispatches++;
  }

  return {
    /** The simplest way: everything anew for each dispatch. */
    submitEach() {
      for (let i = 0; i < count; i++) {
        const encoder = device.createCommandEncoder();
        encodePass(encoder, i);
        device.queue.submit([encoder.finish()]);
      }
    },

    /**
     * As the runtime of Apache TVM and WebLLM does since 2026 (web/src/webgpu.ts of apache/tvm): one encoder and one submit; for
     * each dispatch a pass, a bind group and a write to its own uniform buffer of a pool. Without the calls from wasm that
     * TVM has besides, so if anything this is too fast.
     */
    tvm() {
      const encoder = device.createCommandEncoder();
      for (let i = 0; i < count; i++) encodePass(encoder, i);
      device.queue.submit([encoder.finish()]);
    },

    /** Every dispatch added one, or what was measured is not what was meant. */
    async check() {
      const target = device.createBuffer({ size: bytes, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
      const encoder = device.createCommandEncoder();
      encoder.copyBufferToBuffer(x, 0, target, 0, bytes);
      device.queue.submit([encoder.finish()]);
      await target.mapAsync(GPUMapMode.READ);
      const sums = new Float32Array(target.getMappedRange());
      const wrong = sums.find((sum) => sum !== dispatches);
      if (wrong !== undefined) throw new Error(`${dispatches} dispatches added up to ${wrong}`);
    },
  };
}

const sum = (values) => values.reduce((total, value) => total + value, 0);

/**
 * The mean of the middle half. The outer ones are chains during which the scheduler ran something else, such as the GPU process
 * that the submit woke; a median would show the clock's ticks.
 */
function interquartileMean(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const quarter = Math.floor(sorted.length / 4);
  const middle = sorted.slice(quarter, sorted.length - quarter);
  return sum(middle) / middle.length;
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
