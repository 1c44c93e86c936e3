// How fast this GPU reads its memory, in 200 ms: each token that is decoded reads every weight once. Plain WebGPU, so that it needs no wasm.

import { unlessAborted } from './abort.js';
import { adapterOf, type DeviceOptions } from './device_choice.js';
import { EngineError, noWebGpu } from './errors.js';

const WORKGROUP = 256;
/** Reads of 16 bytes that an invocation does. */
const READS = 8;
const PIECE = WORKGROUP * READS * 16;
/** Large enough that no cache holds a noticeable part of it; an adapter in software has the caches of a CPU, and less time. */
const BYTES = 256 << 20;
const BYTES_IN_SOFTWARE = 32 << 20;
const LASTS_MS = 200;
const MEASURING = 'measuring the GPU';
/** `GPUBufferUsage.STORAGE`. */
const STORAGE = 0x80;

export interface Bandwidth {
  bytesPerSecond: number;
  isSoftware: boolean;
}

/** @throws EngineError `webgpu_unavailable`, `adapter_unavailable` or `out_of_memory`. */
export async function measureBandwidth({ powerPreference, forceFallbackAdapter = false, signal }: DeviceOptions): Promise<Bandwidth> {
  const { gpu } = globalThis.navigator ?? {};
  if (gpu === undefined || gpu === null) throw noWebGpu();
  const adapter = await adapterOf(gpu, { powerPreference: powerPreference ?? 'high-performance', forceFallbackAdapter }, signal);
  if (adapter === null) throw new EngineError('adapter_unavailable', 'the browser offers no WebGPU adapter: update the graphics driver');
  const { maxBufferSize, maxStorageBufferBindingSize } = adapter.limits;
  const { info } = adapter as { info: GPUAdapterInfo & { isFallbackAdapter?: boolean } };
  const isSoftware = Boolean(info.isFallbackAdapter ?? (adapter as { isFallbackAdapter?: boolean }).isFallbackAdapter);
  const asking = adapter.requestDevice({ requiredLimits: { maxBufferSize, maxStorageBufferBindingSize } }).catch((thrown: unknown) => {
    throw new EngineError('adapter_unavailable', `the GPU gives no device: ${String(thrown)}`, { cause: thrown });
  });
  try {
    const device = await unlessAborted(asking, signal, MEASURING);
    const wanted = Math.min(isSoftware ? BYTES_IN_SOFTWARE : BYTES, maxBufferSize, maxStorageBufferBindingSize);
    return { bytesPerSecond: await unlessAborted(measured(device, Math.floor(wanted / PIECE) * PIECE), signal, MEASURING), isSoftware };
  } finally {
    // Also one that comes when nobody waits for it any more.
    void asking.then((device) => device.destroy()).catch(() => {});
  }
}

async function measured(device: GPUDevice, size: number): Promise<number> {
  device.pushErrorScope('out-of-memory');
  const words = device.createBuffer({ size, usage: STORAGE });
  if ((await device.popErrorScope()) !== null) throw new EngineError('out_of_memory', `the GPU has no room for ${size} bytes`);
  const sink = device.createBuffer({ size: 256, usage: STORAGE });
  const fill = await pipelineOf(device, FILL);
  const read = await pipelineOf(device, READ);
  const groups = size / PIECE;
  const columns = Math.min(groups, 32768);
  const grid: [number, number] = [columns, Math.ceil(groups / columns)];
  await run(device, fill, [words], [Math.min(groups, 65535), 1], 1);
  await run(device, read, [words, sink], grid, 1);
  const begin = performance.now();
  let times = 1;
  let best = 0;
  // Waiting costs a millisecond or two, which counts less the more there is to do.
  while (performance.now() - begin < LASTS_MS) {
    const seconds = (await run(device, read, [words, sink], grid, times)) / 1000;
    best = Math.max(best, (size * times) / seconds);
    if (seconds < LASTS_MS / 4000) times *= 2;
  }
  return best;
}

/** Milliseconds from the submit of `times` dispatches until the GPU has done them. */
async function run(
  device: GPUDevice,
  pipeline: GPUComputePipeline,
  buffers: GPUBuffer[],
  grid: [number, number],
  times: number,
): Promise<number> {
  const group = device.createBindGroup({
    layout: pipeline.getBindGroupLayout(0),
    entries: buffers.map((buffer, binding) => ({ binding, resource: { buffer } })),
  });
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

async function pipelineOf(device: GPUDevice, code: string): Promise<GPUComputePipeline> {
  return device.createComputePipelineAsync({
    layout: 'auto',
    compute: { module: device.createShaderModule({ code }), entryPoint: 'main' },
  });
}

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
const READ = `
@group(0) @binding(0) var<storage, read> words: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> sink: array<u32>;

@compute @workgroup_size(${WORKGROUP})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let begin = (group.y * groups.x + group.x) * ${WORKGROUP * READS}u + local;
  if (begin + ${WORKGROUP * (READS - 1)}u < arrayLength(&words)) {
    var sum = words[begin];
${Array.from({ length: READS - 1 }, (_, i) => `    sum ^= words[begin + ${WORKGROUP * (i + 1)}u];`).join('\n')}
    // Never true for this filling, which the compiler can't know; so every read is needed and next to nothing is written.
    if (all(sum == vec4<u32>(0x9e3779b9u, 1u, 2u, 3u))) { sink[local % 64u] = sum.x; }
  }
}`;
