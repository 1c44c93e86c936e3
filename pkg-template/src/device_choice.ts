// What runs a model: the GPU where there is one, or else the CPU. It knows nothing of wasm, workers or loads.

import { unlessAborted } from './abort.js';
import { EngineError, type ErrorCode, noWebGpu } from './errors.js';
import type { DeviceKind, DeviceReason, LoadOptions } from './generated/loading.js';
import { isServer } from './node.js';
import { withinTime } from './time_limit.js';

/** What was chosen, and why. */
export interface ChosenDevice {
  kind: 'gpu' | 'cpu';
  reason: DeviceReason;
}

/** What `auto` takes for a reason to run on the CPU what does not load on the GPU. */
const REASONS: Partial<Record<ErrorCode, DeviceReason>> = {
  // A worker may lack what its page has.
  webgpu_unavailable: 'no_webgpu',
  adapter_unavailable: 'no_adapter',
  adapter_limits: 'adapter_limits',
};

export function reasonOf(code: ErrorCode): DeviceReason | undefined {
  return REASONS[code];
}

/** Whether nobody names a device. Who names the software adapter wants that one. */
function isAuto({ device, forceFallbackAdapter = false }: DeviceOptions): boolean {
  return (device ?? 'auto') === 'auto' && !forceFallbackAdapter;
}

/** Browsers forbid a service worker to import code later, which the modules of the CPU and of training need. */
const importsLater = () => !('ServiceWorkerGlobalScope' in globalThis);

/** Whether the GPU is no more than the first choice. The CPU does not train. */
export function mayBeCpu(options: DeviceOptions): boolean {
  return isAuto(options) && options.training !== true && importsLater();
}

/** What is read of the options. */
export type DeviceOptions = Pick<LoadOptions, 'powerPreference' | 'forceFallbackAdapter'> & {
  device?: DeviceKind | null | undefined;
  training?: boolean | undefined;
  signal?: AbortSignal | undefined;
};

/** A browser that has not answered by then has no adapter to give. Starting a GPU's process takes a second or two. */
const ADAPTER_MS = 10_000;

/** An adapter; null if there is none, or the browser does not answer. Rejects when the signal is aborted. */
export async function adapterOf(gpu: GPU, options: GPURequestAdapterOptions, signal: AbortSignal | undefined): Promise<GPUAdapter | null> {
  const asked = (async () => gpu.requestAdapter(options))().catch(() => null);
  return (await unlessAborted(withinTime(asked, ADAPTER_MS), signal, 'asking for a GPU')) ?? null;
}

/** Refuses to train where that can't be. */
function checkTraining({ device }: DeviceOptions): void {
  if (device === 'cpu') {
    throw new EngineError('invalid_request', "training needs a GPU: leave out device: 'cpu', or training: true");
  }
  if (!importsLater()) {
    throw new EngineError(
      'invalid_request',
      'training: true does not work in a service worker, which may import no code later: load in a page',
    );
  }
}

export async function chooseDevice(options: DeviceOptions): Promise<ChosenDevice> {
  const { device, powerPreference, signal } = options;
  if (options.training === true) checkTraining(options);
  // Known before anything is fetched.
  if (device === 'gpu' && isServer() && globalThis.navigator?.gpu === undefined) throw noWebGpu();
  if (!isAuto(options)) return { kind: device === 'cpu' ? 'cpu' : 'gpu', reason: 'requested' };
  if (!mayBeCpu(options)) return { kind: 'gpu', reason: 'gpu_available' };
  const gpu = globalThis.navigator?.gpu;
  if (gpu === undefined || gpu === null) return { kind: 'cpu', reason: 'no_webgpu' };
  const adapter = await adapterOf(gpu, { powerPreference: powerPreference ?? 'high-performance' }, signal);
  if (adapter === null) return { kind: 'cpu', reason: 'no_adapter' };
  return isSoftware(adapter) ? { kind: 'cpu', reason: 'software_adapter' } : { kind: 'gpu', reason: 'gpu_available' };
}

function isSoftware(adapter: GPUAdapter): boolean {
  // The attribute moved to `info`; older browsers have it here.
  const { isFallbackAdapter } = adapter as { isFallbackAdapter?: boolean };
  return (adapter.info?.isFallbackAdapter ?? isFallbackAdapter ?? false) || adapter.info?.architecture === 'swiftshader';
}
