// How fast this GPU reads its memory: the limit that decoding is held against, since a decoded token reads every weight once.
// Plain WebGPU, so that nothing of the package's runtime takes part in it.

import { EngineError } from 'rillm';

const WORKGROUP = 256;
/** Reads of 16 bytes that an invocation does; which is best differs from GPU to GPU. */
const READS = [4, 8, 16];
/** Large enough that no cache holds a noticeable part of it. An adapter in software has the caches of a CPU, and less time. */
const WANTED_BYTES = 2 ** 30;
const WANTED_BYTES_IN_SOFTWARE = 2 ** 26;
/** A measurement lasts so long, so that submitting it and waiting for it hardly count. */
const LEAST_MS = 100;
const REPETITIONS = 5;

/** Not all zeros: memory that is may be stored compressed. */
const FILL = `
@group(0) @binding(0) var<storage, read_write> words: array<vec4<u32>>;

@compute @workgroup_size(${WORKGROUP})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let stride = groups.x * ${WORKGROUP}u;
  for (var i = group.x * ${WORKGROUP}u + local; i < arrayLength(&words); i += stride) {
    let x = (i + 1u) * 2654435769u;
    words[i] = vec4<u32>(x, x ^ (x >> 15u), x * 2246822519u, ~x);
  }
}`;

/** Each workgroup reads one contiguous piece; neighbouring invocations read neighbouring vectors. */
function readKernel(reads) {
  return `
@group(0) @binding(0) var<storage, read> words: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> sink: array<u32>;

@compute @workgroup_size(${WORKGROUP})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let begin = (group.y * groups.x + group.x) * ${WORKGROUP * reads}u + local;
  if (begin + ${WORKGROUP * (reads - 1)}u < arrayLength(&words)) {
    var sum = words[begin];
${Array.from({ length: reads - 1 }, (_, i) => `    sum ^= words[begin + ${WORKGROUP * (i + 1)}u];`).join('\n')}
    // Never true for this filling, which the compiler can't know; so every read is needed and next to nothing is written.
    if (all(sum == vec4<u32>(0x9e3779b9u, 1u, 2u, 3u))) { sink[local % 64u] = sum.x; }
  }
}`;
}

/**
 * → {bytes_per_s, buffer_bytes, reads_per_invocation, is_fallback}: the best of the variants, each the median of some runs. Null where the browser gives no GPU:
 * then the CPU runs the model.
 */
export async function measureBandwidth() {
  const adapter = await navigator.gpu?.requestAdapter({ powerPreference: 'high-performance' });
  if (!adapter) return null;
  const is_fallback = Boolean(adapter.info.isFallbackAdapter ?? adapter.isFallbackAdapter);
  const { maxBufferSize, maxStorageBufferBindingSize } = adapter.limits;
  const device = await adapter.requestDevice({ requiredLimits: { maxBufferSize, maxStorageBufferBindingSize } });
  try {
    const wanted = is_fallback ? WANTED_BYTES_IN_SOFTWARE : WANTED_BYTES;
    const piece = WORKGROUP * Math.max(...READS) * 16;
    let size = Math.floor(Math.min(wanted, maxBufferSize, maxStorageBufferBindingSize) / piece) * piece;
    const buffer = await halvingUntilItFits(device, size, piece);
    size = buffer.size;
    await run(device, await pipelineOf(device, FILL), [buffer], [Math.min(size / piece, 65535), 1], 1);
    const results = [];
    for (const reads of READS) {
      results.push({
        bytes_per_s: await measureReads(device, buffer, reads),
        buffer_bytes: size,
        reads_per_invocation: reads,
        is_fallback,
      });
    }
    return results.reduce((best, result) => (result.bytes_per_s > best.bytes_per_s ? result : best));
  } finally {
    device.destroy();
  }
}

async function halvingUntilItFits(device, size, piece) {
  for (;;) {
    device.pushErrorScope('out-of-memory');
    const buffer = device.createBuffer({ size, usage: GPUBufferUsage.STORAGE });
    const error = await device.popErrorScope();
    if (error === null) return buffer;
    if (size <= piece) throw new EngineError('out_of_memory', `no memory for a buffer of ${size} bytes: ${error.message}`);
    size = Math.max(piece, Math.floor(size / 2 / piece) * piece);
  }
}

async function measureReads(device, buffer, reads) {
  const pipeline = await pipelineOf(device, readKernel(reads));
  const sink = device.createBuffer({ size: 256, usage: GPUBufferUsage.STORAGE });
  const workgroups = buffer.size / (WORKGROUP * reads * 16);
  // Every dimension of a grid has a limit; the grid has exactly as many workgroups as pieces, or some rows too many at the end.
  const columns = Math.min(workgroups, 32768);
  const grid = [columns, Math.ceil(workgroups / columns)];
  const seconds = async (times) => (await run(device, pipeline, [buffer, sink], grid, times)) / 1000;
  let times = 1;
  while ((await seconds(times)) * 1000 < LEAST_MS && times < 2 ** 16) times *= 2;
  const rates = [];
  for (let i = 0; i < REPETITIONS; i++) rates.push((buffer.size * times) / (await seconds(times)));
  sink.destroy();
  return rates.sort((a, b) => a - b)[REPETITIONS >> 1];
}

/** Milliseconds from the submit of `times` dispatches until the GPU has done them. */
async function run(device, pipeline, buffers, grid, times) {
  const group = device.createBindGroup({
    layout: pipeline.getBindGroupLayout(0),
    entries: buffers.map((buffer, binding) => ({ binding, resource: { buffer } })),
  });
  await device.queue.onSubmittedWorkDone();
  const begin = performance.now();
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, group);
  for (let i = 0; i < times; i++) pass.dispatchWorkgroups(...grid);
  pass.end();
  device.queue.submit([encoder.finish()]);
  await device.queue.onSubmittedWorkDone();
  return performance.now() - begin;
}

async function pipelineOf(device, code) {
  return device.createComputePipelineAsync({
    layout: 'auto',
    compute: { module: device.createShaderModule({ code }), entryPoint: 'main' },
  });
}
