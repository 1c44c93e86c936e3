// Which adapters the browser offers, and how a GPUDevice is asked for. It knows nothing of wasm or tensors.

import { EngineError, textOf } from '../errors.js';
import type { AdapterInfo, DeviceOptions, ListedAdapter, SubgroupMatrix } from './types.js';

/** Switched on where they are: kernels have faster variants for them, and timestamps measure kernels. */
const PROFITABLE_FEATURES: readonly string[] = ['shader-f16', 'subgroups', 'timestamp-query'];

/** Chromium's experiment of products of small matrices in subgroups; looked for and not asked for. */
const SUBGROUP_MATRIX = 'chromium-experimental-subgroup-matrix';

/** Asked for at the adapter's maximum: without asking, WebGPU grants only what every adapter has. */
const PROFITABLE_LIMITS = [
  'maxBufferSize',
  'maxStorageBufferBindingSize',
  'maxStorageBuffersPerShaderStage',
  'maxComputeWorkgroupsPerDimension',
  'maxComputeInvocationsPerWorkgroup',
  'maxComputeWorkgroupSizeX',
  'maxComputeWorkgroupSizeY',
  'maxComputeWorkgroupStorageSize',
  'maxUniformBufferBindingSize',
] as const;

const REQUESTS: readonly ListedAdapter['request'][] = [
  { powerPreference: 'high-performance' },
  { powerPreference: 'low-power' },
  { forceFallbackAdapter: true },
];

/** Whether this browser has WebGPU and offers an adapter. */
export async function isAvailable(): Promise<boolean> {
  try {
    return Boolean(await webgpu()?.requestAdapter());
  } catch {
    return false;
  }
}

/**
 * The adapters that the browser offers, each once. WebGPU has no list of them: it is asked for its fastest, its most
 * economical and its software adapter. Empty where there is no WebGPU.
 */
export async function listAdapters(): Promise<ListedAdapter[]> {
  const found: ListedAdapter[] = [];
  for (const request of REQUESTS) {
    const adapter = await webgpu()?.requestAdapter(request);
    if (!adapter) continue;
    const info = describe(adapter.info, adapter.features);
    const same = ({ request: _, ...known }: ListedAdapter) => JSON.stringify(known) === JSON.stringify(info);
    if (!found.some(same)) found.push({ ...info, request });
  }
  return found;
}

/** @internal */
export function describe(info: GPUAdapterInfo | undefined, features: ReadonlySet<string>): AdapterInfo {
  const { vendor = '', architecture = '', device = '', description = '' } = info ?? {};
  return {
    vendor,
    architecture,
    device,
    description,
    is_fallback: info?.isFallbackAdapter === true || architecture === 'swiftshader',
    features: [...features].sort(),
    subgroup_matrices: features.has(SUBGROUP_MATRIX) ? subgroupMatrices(info) : [],
  };
}

/** The experiment's attribute is in no type definitions yet; its entries have their fields on the prototype. */
function subgroupMatrices(info: GPUAdapterInfo | undefined): SubgroupMatrix[] {
  type Config = { componentType: string; resultComponentType: string; M: number; N: number; K: number };
  const { subgroupMatrixConfigs = [] } = (info ?? {}) as { subgroupMatrixConfigs?: Iterable<Config> };
  return Array.from(subgroupMatrixConfigs, ({ componentType, resultComponentType, M, N, K }) => ({
    component: componentType,
    result: resultComponentType,
    m: M,
    n: N,
    k: K,
  }));
}

/** A GPUDevice of our own, as the options want it. @internal */
export async function requestGpuDevice(options: DeviceOptions): Promise<GPUDevice> {
  const { powerPreference = 'high-performance', forceFallbackAdapter = false, features = [], limits = {} } = options;
  const gpu = webgpu();
  if (gpu === undefined) {
    throw new EngineError(
      'webgpu_unavailable',
      'this browser has no WebGPU (navigator.gpu is missing): use a current Chrome, Edge, Firefox or Safari, on a page served by https or from localhost',
    );
  }
  const adapter = await gpu.requestAdapter({ powerPreference, ...(forceFallbackAdapter ? { forceFallbackAdapter } : {}) });
  if (adapter === null) {
    throw new EngineError(
      'adapter_unavailable',
      "WebGPU is there, but it offers no adapter: the GPU or its driver is on the browser's block list, or hardware acceleration is off in the browser's settings",
    );
  }
  const available: ReadonlySet<string> = adapter.features;
  const lacking = features.filter((feature) => !available.has(feature));
  if (lacking.length > 0) {
    throw new EngineError('adapter_limits', `the adapter has no ${lacking.join(', ')}; it has ${[...available].join(', ')}`);
  }
  const granted = adapter.limits as unknown as Record<string, unknown>;
  const required: Record<string, number> = {};
  for (const name of PROFITABLE_LIMITS) {
    // A browser that does not know a limit yet refuses a request that names it.
    const most = granted[name];
    if (typeof most === 'number') required[name] = most;
  }
  for (const [name, wanted] of Object.entries(limits)) {
    const most = granted[name];
    if (typeof most !== 'number') throw new EngineError('invalid_request', `WebGPU here knows no limit named ${name}`);
    // Alignments are the other way round: the smaller, the more is allowed.
    if (name.startsWith('min') ? wanted < most : wanted > most) {
      throw new EngineError('adapter_limits', `${name}: ${wanted} is wanted and this adapter allows ${most}`);
    }
    required[name] = wanted;
  }
  const requiredFeatures = [
    ...new Set([...features, ...PROFITABLE_FEATURES.filter((feature) => available.has(feature))]),
  ] as GPUFeatureName[];
  try {
    return await adapter.requestDevice({ label: 'rillm', requiredFeatures, requiredLimits: required });
  } catch (thrown) {
    throw new EngineError('adapter_limits', `the adapter gave no device: ${textOf(thrown)}`, { cause: thrown });
  }
}

function webgpu(): GPU | undefined {
  return (globalThis.navigator as Navigator | undefined)?.gpu;
}
