// Which of several models this device can run, and about how fast. It reads their headers and measures what would run them, the GPU or the CPU; it
// loads nothing.

import { type Bandwidth, measureBandwidth } from './bandwidth.js';
import { type Checks, describe, finite, readOptions, reading } from './arguments.js';
import { DECODE_COST, type DecodeCost, measureCpu } from './cpu_speed.js';
import { type ChosenDevice, chooseDevice, mayBeCpu, reasonOf } from './device_choice.js';
import { abortError, EngineError, toEngineError } from './errors.js';
import type { DeviceReason } from './generated/loading.js';
import { LOAD } from './load_options.js';
import { memoryOfMachine } from './machine.js';
import { isServer } from './node.js';
import { bytesOfTeam } from './team/cpu_team.js';
import type { InspectOptions, Inspection, LoadOptions, ModelSource } from './types.js';

/** What a recommendation takes into account. */
export interface RecommendOptions extends Omit<InspectOptions, 'file'> {
  /**
   * Bytes that weights and KV cache may take. WebGPU does not tell how much memory a GPU has. Default: half of `navigator.deviceMemory` where
   * that is below 8 GiB, the most that some browsers admit, and for the CPU of a server half of its memory; otherwise only the limits of the adapter or of
   * WebAssembly count. Those hold whatever this says: on the CPU 4 GiB for the KV cache and 60 GiB for weights, or 4 GiB for both where there are neither
   * threads nor relaxed SIMD.
   */
  memoryBytes?: number | undefined;
  /** Models that are slower come after those that are not. Default: 10. */
  minTokensPerSecond?: number | undefined;
  /** Which GPU of several is asked. Default: `high-performance`. */
  powerPreference?: 'high-performance' | 'low-power' | undefined;
}

/** What is known of a model on this device. */
export interface Recommendation {
  /** The model, as it was given. */
  source: ModelSource;
  /** What would run it: for `device: 'auto'` what a load would choose. */
  device: 'gpu' | 'cpu';
  /** It can be loaded here, as far as is known. */
  fits: boolean;
  /** An estimate of decoding, one request with a short prompt; undefined for what does not fit or decodes nothing, and where the clock tells no time. */
  tokens_per_s?: number;
  /** Bytes that a decoded token reads: the weights. Of a mixture of experts all are counted, so that it is faster than estimated. */
  bytes_per_token?: number;
  /** Of the weights in the memory of the GPU, or on the CPU in that of WebAssembly. */
  weight_bytes?: number;
  /** Of the KV cache there, for the context that was asked for. */
  kv_cache_bytes?: number;
  /** Bytes of the files with tensors. */
  file_bytes?: number;
  /** How many weights it has. */
  parameters?: number;
  /** Why it stands where it stands, for people. */
  reason: string;
  /** Why its headers could not be read, or what loading it would end in. */
  problem?: { code: string; message: string };
}

/**
 * Milliseconds that a layer takes besides its reads, the launches of its kernels above all: fitted to four models between 0.5 and 3 billion
 * parameters on one GPU (docs/benchmarks.md). On others it is a guess, which matters for small models only.
 */
const LAYER_MS = 0.04;
const DEFAULT_MIN_TOKENS_PER_S = 10;
/** What one memory of WebAssembly holds. On the CPU the engine has one, and weights have others where there is a team. */
const OF_ONE_MEMORY = 4 * 2 ** 30;
/** What a model takes besides weights and KV cache, as a part of them (docs/guide/devices.md). */
const BESIDES = 0.05;

/** Why a model runs on the CPU, after "it runs on the CPU". */
const ON_CPU: Partial<Record<DeviceReason, string>> = {
  no_webgpu: ', since there is no WebGPU here',
  no_adapter: ', since the browser gives no GPU',
  software_adapter: ', since the browser has a GPU in software only',
  adapter_limits: ', since it is too large for the limits of this GPU',
};

const RECOMMEND: Checks<LoadOptions & RecommendOptions> = { ...LOAD, memoryBytes: finite, minTokensPerSecond: finite };

type Inspect = (source: ModelSource, options: InspectOptions) => Promise<Inspection>;

/** What runs models, and how fast it is. */
type Runner =
  | ({ device: 'gpu' } & Bandwidth)
  | { device: 'cpu'; reason: DeviceReason; cost: DecodeCost; productsPerSecond: number | undefined };

export async function recommend(given: ModelSource[], options: RecommendOptions, inspect: Inspect): Promise<Recommendation[]> {
  const {
    memoryBytes,
    minTokensPerSecond = DEFAULT_MIN_TOKENS_PER_S,
    signal,
    ...rest
  } = readOptions('the options of Engine.recommend', options, RECOMMEND);
  const sources = reading('the array of models', () => (Array.isArray(given) ? Array.from(given) : undefined));
  if (sources === undefined) throw new EngineError('invalid_request', `Engine.recommend takes an array of models, got ${describe(given)}`);
  for (const [name, value] of Object.entries({ memoryBytes, minTokensPerSecond })) {
    if (value !== undefined && !(Number.isFinite(value) && value > 0)) {
      throw new EngineError('invalid_request', `the option ${name} is ${String(value)}, wanted a number above 0`);
    }
  }
  if (sources.length === 0) return [];
  const checkAborted = () => {
    if (signal?.aborted) throw abortError(signal, 'the recommendation');
  };
  checkAborted();
  let cpu: Promise<number | undefined> | undefined;
  const onCpu = async (reason: DeviceReason): Promise<Runner> => {
    cpu ??= measureCpu(signal);
    return { device: 'cpu', reason, cost: DECODE_COST[rest.precision ?? 'fast'], productsPerSecond: await cpu };
  };
  const runnerOf = async ({ kind, reason }: ChosenDevice): Promise<Runner> => {
    if (kind === 'cpu') return onCpu(reason);
    try {
      return { device: 'gpu', ...(await measureBandwidth({ ...rest, signal })) };
    } catch (thrown) {
      const why = reasonOf(toEngineError(thrown).code);
      if (why === undefined || !mayBeCpu(rest)) throw thrown;
      return onCpu(why);
    }
  };
  const inspectOn = (source: ModelSource, device: 'gpu' | 'cpu') =>
    inspect(source, { ...rest, device, ...(signal === undefined ? {} : { signal }) });
  // First of all: what else uses the GPU would take a part of it.
  const first = await runnerOf(await chooseDevice({ ...rest, signal }));
  const found: Recommendation[] = [];
  for (const source of sources) {
    checkAborted();
    let runner = first;
    try {
      let inspection = await inspectOn(source, runner.device);
      // As a load does.
      const leaves = runner.device === 'gpu' && mayBeCpu(rest) && inspection.problem !== undefined && reasonOf(inspection.problem.code);
      if (leaves) {
        runner = await onCpu(leaves);
        inspection = await inspectOn(source, 'cpu');
      }
      const memory = { ofTeam: bytesOfTeam(rest.threads), has: memoryBytes ?? halfOf(memoryFor(runner)) };
      found.push(judged(source, inspection, runner, memory, minTokensPerSecond));
    } catch (thrown) {
      checkAborted();
      const { code, message } = toEngineError(thrown);
      const { device } = runner;
      found.push({ source, device, fits: false, reason: `its headers can't be read: ${message}`, problem: { code, message } });
    }
  }
  return found.sort((a, b) => rank(a) - rank(b) || within(a, b));

  /** Of a model that runs on the CPU and whose speed is unknown, nothing says that it is fast enough. */
  function rank({ fits, device, tokens_per_s, kv_cache_bytes }: Recommendation): number {
    if (!fits) return 2;
    const isUnknown = device === 'cpu' && kv_cache_bytes !== 0 && tokens_per_s === undefined;
    return !isUnknown && (tokens_per_s ?? Infinity) >= minTokensPerSecond ? 0 : 1;
  }

  function within(a: Recommendation, b: Recommendation): number {
    const [more, less] = [b.parameters ?? 0, a.parameters ?? 0];
    if (rank(a) !== 1) return more - less;
    return (b.tokens_per_s ?? 0) - (a.tokens_per_s ?? 0) || less - more;
  }
}

function judged(
  source: ModelSource,
  inspection: Inspection,
  runner: Runner,
  memory: { ofTeam: number | undefined; has: number | undefined },
  minTokensPerSecond: number,
): Recommendation {
  const { weight_bytes = 0, kv_cache_bytes = 0, file_bytes, parameters, problem } = inspection;
  const { device } = runner;
  const known = { source, device, weight_bytes, kv_cache_bytes, file_bytes, parameters };
  const needed = weight_bytes + kv_cache_bytes;
  const refused = (reason: string): Recommendation => ({ ...known, fits: false, reason });
  if (problem !== undefined) return { ...refused(`it can't be loaded here: ${problem.message}`), problem };
  const lack = device === 'cpu' ? lackOnCpu(weight_bytes, kv_cache_bytes, memory.ofTeam) : undefined;
  if (lack !== undefined) return refused(lack);
  if (memory.has !== undefined && needed > memory.has) {
    return refused(`it needs ${gigabytes(needed)} and this device has about ${gigabytes(memory.has)} for it`);
  }
  const where = `it ${placeOf(runner)}needs ${gigabytes(needed)}${device === 'gpu' && memory.has === undefined ? ' of the GPU, whose memory is not known' : ''}`;
  if (kv_cache_bytes === 0) return { ...known, fits: true, reason: `${where}; it gives embeddings and no text` };
  const { tokens_per_s, why } = decoding(inspection, runner);
  const decodes = { ...known, fits: true, bytes_per_token: weight_bytes };
  if (tokens_per_s === undefined) return { ...decodes, reason: `${where}; ${why}` };
  const speed = `about ${tokens_per_s >= 10 ? Math.round(tokens_per_s) : tokens_per_s.toFixed(1)} tokens a second`;
  const slow = tokens_per_s < minTokensPerSecond ? `, which is below the wanted ${minTokensPerSecond}` : '';
  return { ...decodes, tokens_per_s, reason: `${where}; ${speed}${slow}: ${why}` };
}

function placeOf(runner: Runner): string {
  return runner.device === 'gpu' ? '' : `runs on the CPU${ON_CPU[runner.reason] ?? ''}, and `;
}

/** How many tokens a second, if that is known, and why. */
function decoding({ weight_bytes = 0, parameters, layers = 0 }: Inspection, runner: Runner): { tokens_per_s?: number; why: string } {
  if (runner.device === 'gpu') {
    const { bytesPerSecond, isSoftware } = runner;
    const tokens_per_s = 1 / (weight_bytes / bytesPerSecond + (layers * LAYER_MS) / 1000);
    const reads = `${isSoftware ? 'this CPU, which stands in for a GPU,' : 'this GPU'} reads ${gigabytes(bytesPerSecond)} a second`;
    return { tokens_per_s, why: `each token reads ${gigabytes(weight_bytes)}, and ${reads}` };
  }
  const { cost, productsPerSecond } = runner;
  if (productsPerSecond === undefined) return { why: 'how fast it will be is not known, since the clock of this page stands still' };
  const tokens_per_s = productsPerSecond / (parameters * cost.weight + layers * cost.layer);
  return {
    tokens_per_s,
    why: `each token takes products with ${count(parameters)} weights, of which this CPU does about ${count(productsPerSecond / cost.weight)} a second`,
  };
}

/** Why WebAssembly has no room for a model; undefined if it has. */
function lackOnCpu(weights: number, kvCache: number, ofTeam: number | undefined): string | undefined {
  const own = ofTeam === undefined ? weights + kvCache : kvCache;
  if (own * (1 + BESIDES) > OF_ONE_MEMORY) {
    const what = ofTeam === undefined ? 'it' : 'its KV cache';
    return `${what} needs ${gigabytes(own)} and something besides, and that has ${gigabytes(OF_ONE_MEMORY)} on the CPU, a memory of WebAssembly`;
  }
  if (ofTeam === undefined || weights <= ofTeam) return undefined;
  return `its weights need ${gigabytes(weights)}, and on this CPU they have ${gigabytes(ofTeam)} at most`;
}

/** Of the memory that this machine tells of, what a model has: a server says nothing about its GPU. */
function memoryFor({ device }: Runner): number | undefined {
  return device === 'gpu' && isServer() ? undefined : memoryOfMachine();
}

function halfOf(bytes: number | undefined): number | undefined {
  return bytes === undefined ? undefined : bytes / 2;
}

function gigabytes(bytes: number): string {
  return bytes >= 1e9 ? `${(bytes / 1e9).toFixed(bytes >= 1e10 ? 0 : 1)} GB` : `${Math.ceil(bytes / 1e6)} MB`;
}

function count(weights: number): string {
  return weights >= 1e9 ? `${(weights / 1e9).toFixed(weights >= 1e10 ? 0 : 1)} billion` : `${Math.ceil(weights / 1e6)} million`;
}
