// The names of the options of everything that reads models, and what is checked of them at once. The rest is checked where an option is used.

import {
  abortSignal,
  address,
  anything,
  callable,
  type Check,
  type Checks,
  finite,
  named,
  readOptions,
  text,
  texts,
  truth,
  whole,
} from './arguments.js';
import { type CacheOptions, type ConnectionOptions, isStore } from './files/options.js';
import type {
  Autotune,
  DeviceKind,
  KvFormat,
  LoadOptions as LoadData,
  PerLayerEmbeddings,
  Precision,
  PowerPreference,
  Smoothness,
} from './generated/loading.js';
import type { AdapterOptions, HubOptions, LoadOptions } from './types.js';

/** The largest number that the engine counts tokens in. */
const MOST = 0xffffffff;

/** More than any default, and few enough that they all start. */
const MOST_THREADS = 32;

/** Which texts there are is checked with what they mean. */
const cache: Check = (value) =>
  typeof value === 'string' || isStore(value) ? undefined : "'opfs', 'memory', 'none' or an object with get, put and delete";
const integrity: Check = (value) =>
  value === null || typeof value === 'string' || texts(value) === undefined ? undefined : 'a digest, or digests by file name';

const tokens: Check = (value) =>
  Array.isArray(value) && value.length === 2 && value.every((token) => typeof token === 'string') ? undefined : "two texts: ['no', 'yes']";

export const SMOOTHNESS = named<Smoothness>({ frames: true, throughput: true });

const DATA: Checks<LoadData> = {
  quantize: named<NonNullable<LoadData['quantize']>>({ q8_0: true, q4_0: true, q4_k: true, q6_k: true, iq4_nl: true }),
  contextLength: whole(1, MOST),
  maxSequences: whole(1, MOST),
  chatTemplate: text,
  classifierFromToken: tokens,
  precision: named<Precision>({ fast: true, exact: true }),
  kvCache: named<KvFormat>({ f16: true, f32: true, q8_0: true }),
  promptCacheBytes: whole(0),
  ropeContextLength: whole(1, MOST),
  multiTokenPrediction: truth,
  perLayerEmbeddings: named<PerLayerEmbeddings>({ device: true, disk: true }),
  autotune: named<Autotune>({ auto: true, always: true, off: true }),
  smoothness: SMOOTHNESS,
  threads: whole(1, MOST_THREADS),
  device: named<DeviceKind>({ auto: true, gpu: true, cpu: true }),
  powerPreference: named<PowerPreference>({ 'low-power': true, 'high-performance': true }),
  forceFallbackAdapter: truth,
};

const CONNECTION: Checks<ConnectionOptions> = { stallTimeoutMs: anything, retries: anything };

export const CACHE: Checks<CacheOptions> = {
  ...CONNECTION,
  cache,
  update: named<NonNullable<CacheOptions['update']>>({ check: true, never: true }),
  integrity,
  connections: finite,
  persist: truth,
  onEvent: callable,
};

/** An inspection takes them too, since one set of options may serve both: of some it has no use. */
export const LOAD: Checks<LoadOptions> = {
  ...DATA,
  ...CACHE,
  file: text,
  hub: anything,
  maxRecoveries: whole(0),
  onProgress: callable,
  onWarning: callable,
  onMemoryPressure: callable,
  signal: abortSignal,
  draft: anything,
  adapters: anything,
  training: truth,
  worker: anything,
  wasmUrl: address,
  cpuWasmUrl: address,
  grammarWasmUrl: address,
  trainingWasmUrl: address,
  wasmModule: anything,
  cpuWasmModule: anything,
  grammarWasmModule: anything,
  trainingWasmModule: anything,
};

/** Of `adapters.load`. */
export const ADAPTER: Checks<AdapterOptions> = {
  ...CACHE,
  name: text,
  scale: finite,
  file: text,
  hub: anything,
  onProgress: callable,
  signal: abortSignal,
};

const HUB: Checks<HubOptions> = { token: text, endpoint: address };

export function loadOptions(what: string, given: unknown): LoadOptions {
  return readOptions(`the options of ${what}`, given, LOAD);
}

/** The options of `models.…` with these checks. */
export function modelsOptions<Options extends object>(name: string, given: unknown, checks: Checks<Options>): Options {
  return readOptions(`the options of models.${name}`, given, checks);
}

export function hubOptions(given: unknown): HubOptions {
  return readOptions('the options of hub', given, HUB);
}
