// What a small dispatch costs in plain JavaScript, by how it is encoded. It is what our own `benchDispatch` is compared
// with, so it measures the same: the kernel (x += y on 256 floats, each dispatch on the result of the one before), the number
// of dispatches and what counts as encoding. Uses WebGPU alone; knows nothing of the package.

const ELEMENTS = 256;
const WORKGROUP = 64;

/** Chains before the measured ones. */
const WARM_UP = 8;

/** Chains of a stream that has a submit for each chain: long enough for the wait at its end to count little. */
const STREAM = 48;

/** A stream takes as long as many chains, so there are so many times fewer of them than of other samples. */
const FEWER_STREAMS = 10;

/**
 * A sample is as many chains as take so many ticks of the clock to encode. A page's clock ticks every 5 µs, and every 100 µs where
 * the page is not cross-origin isolated.
 */
const TICKS = 20;

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

/**
 * → [{variant, encode_us, whole_us, alone_us}]: microseconds per dispatch. Encoding ends when the submit returned; of the
 * samples it is the tenth percentile, since what comes on top is other processes: a submit wakes the GPU process, which takes
 * the thread's core where others are busy. The whole ends when the GPU is done, for a stream of chains that is waited for once
 * (`whole_us`) and for each chain by itself (`alone_us`), which is mostly the wait; both are medians.
 */
export async function measureScriptDispatch({ count = 300, repetitions = 100 } = {}) {
  const adapter = await navigator.gpu?.requestAdapter({ powerPreference: 'high-performance' });
  if (!adapter) throw new Error('this browser has no WebGPU adapter');
  const device = await adapter.requestDevice();
  try {
    const chain = await buildChain(device, count);
    const results = [];
    // A chain of many submits is a stream by itself; more would fill the browser's queues, and slow what is measured next.
    for (const [variant, encode, stream] of [
      ['submit_each', chain.submitEach, 1],
      ['tvm', chain.tvm, STREAM],
    ]) {
      results.push({ variant, ...(await measure(device, encode, { count, repetitions, stream })) });
    }
    await chain.check();
    return results;
  } finally {
    device.destroy();
  }
}

async function measure(device, encode, { count, repetitions, stream }) {
  const run = async () => {
    const start = performance.now();
    encode();
    const encodeMs = performance.now() - start;
    await device.queue.onSubmittedWorkDone();
    return { encodeMs, aloneMs: performance.now() - start };
  };
  for (let i = 0; i < WARM_UP; i++) await run();
  let chains = 0;
  const leastMs = TICKS * tickMs();
  for (let encodeMs = 0; encodeMs < leastMs; chains++) encodeMs += (await run()).encodeMs;

  const samples = { encodeMs: [], aloneMs: [] };
  for (let repetition = 0; repetition < repetitions; repetition++) {
    const runs = [];
    for (let i = 0; i < chains; i++) runs.push(await run());
    for (const [name, values] of Object.entries(samples)) values.push(runs.reduce((sum, ms) => sum + ms[name], 0));
  }
  const streams = [];
  for (let i = 0; i < Math.ceil(repetitions / FEWER_STREAMS); i++) {
    const start = performance.now();
    for (let chain = 0; chain < stream; chain++) encode();
    await device.queue.onSubmittedWorkDone();
    streams.push(performance.now() - start);
  }
  const each = 1000 / (chains * count);
  return {
    encode_us: quantile(samples.encodeMs, 0.1) * each,
    whole_us: (quantile(streams, 0.5) * 1000) / (stream * count),
    alone_us: quantile(samples.aloneMs, 0.5) * each,
  };
}

/** The clock's tick: the least of some steps that it makes. */
function tickMs() {
  const step = () => {
    const start = performance.now();
    let now;
    do now = performance.now();
    while (now === start);
    return now - start;
  };
  return Math.min(...Array.from({ length: 10 }, step));
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
    entries: ['storage', 'read-only-storage', 'uniform'].map((type, binding) => ({
      binding,
      visibility: GPUShaderStage.COMPUTE,
      buffer: { type },
    })),
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
    pass.setBindGroup(
      0,
      device.createBindGroup({ layout, entries: buffers.map((buffer, binding) => ({ binding, resource: { buffer } })) }),
    );
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

function quantile(values, q) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.round((sorted.length - 1) * q)];
}
