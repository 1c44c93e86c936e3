// Which of several models this device can run, and about how fast. It reads their headers and measures the GPU; it loads nothing.

import { type Bandwidth, measureBandwidth } from './bandwidth.js';
import { type Checks, describe, finite, readOptions, reading } from './arguments.js';
import { abortError, EngineError, toEngineError } from './errors.js';
import { LOAD } from './load_options.js';
import type { InspectOptions, Inspection, LoadOptions, ModelSource } from './types.js';

/** What a recommendation takes into account. */
export interface RecommendOptions extends Omit<InspectOptions, 'file'> {
  /**
   * Bytes that weights and KV cache may take. WebGPU does not tell how much memory a GPU has. Default: half of `navigator.deviceMemory` where
   * that is below 8 GiB, the most that some browsers admit; otherwise only the adapter's limits count.
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
  /** It can be loaded here, as far as is known. */
  fits: boolean;
  /** An estimate of decoding, one request with a short prompt; undefined for what does not fit or decodes nothing. */
  tokens_per_s?: number;
  /** Bytes that a decoded token reads: the weights. Of a mixture of experts all are counted, so that it is faster than estimated. */
  bytes_per_token?: number;
  /** Of the weights on the GPU. */
  weight_bytes?: number;
  /** Of the KV cache on the GPU, for the context that was asked for. */
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
/** From here on browsers may report less memory than there is. */
const REPORTED_AT_MOST = 8;

const RECOMMEND: Checks<LoadOptions & RecommendOptions> = { ...LOAD, memoryBytes: finite, minTokensPerSecond: finite };

type Inspect = (source: ModelSource, options: InspectOptions) => Promise<Inspection>;

export async function recommend(given: ModelSource[], options: RecommendOptions, inspect: Inspect): Promise<Recommendation[]> {
  const {
    memoryBytes = reportedMemory(),
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
  // What else uses the GPU would take a part of it.
  const bandwidth = await measureBandwidth(rest.powerPreference);
  const found: Recommendation[] = [];
  for (const source of sources) {
    if (signal?.aborted) throw abortError(signal, 'the recommendation');
    try {
      const inspection = await inspect(source, { ...rest, ...(signal === undefined ? {} : { signal }) });
      found.push(judged(source, inspection, bandwidth, memoryBytes, minTokensPerSecond));
    } catch (thrown) {
      if (signal?.aborted) throw abortError(signal, 'the recommendation');
      const { code, message } = toEngineError(thrown);
      found.push({ source, fits: false, reason: `its headers can't be read: ${message}`, problem: { code, message } });
    }
  }
  const rank = (one: Recommendation) => (one.fits ? ((one.tokens_per_s ?? Infinity) >= minTokensPerSecond ? 0 : 1) : 2);
  const within = (a: Recommendation, b: Recommendation) =>
    rank(a) === 1 ? b.tokens_per_s! - a.tokens_per_s! : (b.parameters ?? 0) - (a.parameters ?? 0);
  return found.sort((a, b) => rank(a) - rank(b) || within(a, b));
}

function judged(
  source: ModelSource,
  inspection: Inspection,
  { bytesPerSecond, isSoftware }: Bandwidth,
  memoryBytes: number | undefined,
  minTokensPerSecond: number,
): Recommendation {
  const { weight_bytes = 0, kv_cache_bytes = 0, file_bytes, parameters, layers = 0, problem } = inspection;
  const known = { source, weight_bytes, kv_cache_bytes, file_bytes, parameters };
  const needed = weight_bytes + kv_cache_bytes;
  if (problem !== undefined) return { ...known, fits: false, reason: `it can't be loaded here: ${problem.message}`, problem };
  if (memoryBytes !== undefined && needed > memoryBytes) {
    return { ...known, fits: false, reason: `it needs ${gigabytes(needed)} and this device has about ${gigabytes(memoryBytes)} for it` };
  }
  const memory =
    memoryBytes === undefined ? `needs ${gigabytes(needed)} of the GPU, whose memory is not known` : `needs ${gigabytes(needed)}`;
  if (kv_cache_bytes === 0) return { ...known, fits: true, reason: `it ${memory}; it gives embeddings and no text` };
  const tokens_per_s = 1 / (weight_bytes / bytesPerSecond + (layers * LAYER_MS) / 1000);
  const speed = `about ${tokens_per_s >= 10 ? Math.round(tokens_per_s) : tokens_per_s.toFixed(1)} tokens a second`;
  const why = `each token reads ${gigabytes(weight_bytes)}, and ${isSoftware ? 'this CPU, which stands in for a GPU,' : 'this GPU'} reads ${gigabytes(bytesPerSecond)} a second`;
  const slow = tokens_per_s < minTokensPerSecond ? `, which is below the wanted ${minTokensPerSecond}` : '';
  return { ...known, fits: true, tokens_per_s, bytes_per_token: weight_bytes, reason: `it ${memory}; ${speed}${slow}: ${why}` };
}

function reportedMemory(): number | undefined {
  const { deviceMemory } = (globalThis.navigator ?? {}) as { deviceMemory?: number };
  return deviceMemory === undefined || deviceMemory >= REPORTED_AT_MOST ? undefined : (deviceMemory * 2 ** 30) / 2;
}

function gigabytes(bytes: number): string {
  return bytes >= 1e9 ? `${(bytes / 1e9).toFixed(bytes >= 1e10 ? 0 : 1)} GB` : `${Math.ceil(bytes / 1e6)} MB`;
}
