// What a model is loaded with, and what a loaded one says of itself.

import type { AdapterSource } from './adapters.js';
import type { FileEvent } from './files/events.js';
import type { CacheOptions } from './files/options.js';
import type { LoadProgress } from './files/progress.js';
import type { LoadOptions as LoadData, MemoryPressure, Warning } from './generated/loading.js';
import type { CacheStats, MemoryUse, Stats } from './generated/stats.js';
import type { HubOptions, ModelSource } from './model_source.js';
import type { RecoveryEvent } from './recovery/events.js';
import type { WasmSource } from './wasm_source.js';

export type {
  AdapterInfo,
  AdapterLimits,
  Autotune,
  AutotuneInfo,
  AutotuneState,
  DraftInfo,
  KvFormat,
  MemoryPressure,
  ModelInfo,
  PerLayerEmbeddings,
  Phase,
  PowerPreference,
  Precision,
  PressureAction,
  Problem,
  Smoothness,
  SubgroupMatrix,
  Tuned as TunedKernel,
  Warning,
} from './generated/loading.js';
export type { FallbackReason, FileEvent, RetryReason } from './files/events.js';
export type { CacheOptions, ConnectionOptions } from './files/options.js';
export type { LoadProgress } from './files/progress.js';
export type { RecoveryEvent } from './recovery/events.js';
export type { ModelStore } from './files/store.js';
export type { WasmOptions, WasmSource } from './wasm_source.js';
export type { KernelUse, MemoryUse } from './generated/stats.js';

/** How a model is loaded, and what is heard of it. */
export interface LoadOptions extends LoadData, CacheOptions {
  /** Of a folder with several models, the file that is the model. */
  file?: string | undefined;
  /** How the Hugging Face hub is asked, for `hf:…`. */
  hub?: HubOptions | undefined;
  /**
   * How many times in ten minutes the engine comes back by itself when its GPU device or its worker is lost: the model is loaded again, from the
   * cache if it is there, and what runs goes on where it stood. `onEvent` hears `lost`, `recovering` and `recovered`. One loss more, or
   * 0, ends in `device_lost` or `worker_lost`. Default: 3.
   */
  maxRecoveries?: number | undefined;
  /** Called for what happens to the model's files, and when the engine is lost and comes back. */
  onEvent?: ((event: FileEvent | RecoveryEvent) => void) | undefined;
  /** Called with the bytes loaded, many times; from the beginning again when the model is loaded again. */
  onProgress?: ((progress: LoadProgress) => void) | undefined;
  /**
   * Called for each of `info.warnings` when the model is loaded, such as that it has no chat template. Without it, `console.warn` has
   * them.
   */
  onWarning?: ((warning: Warning) => void) | undefined;
  /**
   * Called when the GPU's memory runs short, while loading and as long as the engine is there, with what was done about it: a shorter context was
   * taken than the default, what no request uses was freed, a prompt takes shorter passes, or a request waits for another one.
   */
  onMemoryPressure?: ((event: MemoryPressure) => void) | undefined;
  /** Aborting it rejects the load with code `aborted` and frees what was loaded. */
  signal?: AbortSignal | undefined;
  /**
   * A second, smaller model that drafts for requests with `speculation: {type: 'draft_model'}`. It must
   * have the model's vocabulary, as smaller models of one family do; otherwise the load rejects with code `vocabulary_mismatch`.
   */
  draft?: ModelSource | undefined;
  /**
   * Adapters (LoRA) that are loaded after the model, in this order, as `engine.adapters.load` does it. If one can't be, the load rejects. Not for
   * `Engine.shared`.
   */
  adapters?: readonly AdapterSource[] | undefined;
  /**
   * Load the WebAssembly module that can train adapters too (`engine.train`), in place of the engine's. It needs a GPU, which may be a software
   * adapter, and is not for `Engine.shared`. `engine.train.enable` does the same later. Default: false.
   */
  training?: boolean | undefined;
  /**
   * Run in a dedicated worker, so that the page never stutters. Default: where there are any, which shared and service workers may lack; `true`
   * insists on one. A function makes the worker, where a bundler or a policy wants
   * it made in a certain way: `() => new Worker(new URL('rillm/worker', import.meta.url), {type: 'module'})`.
   */
  worker?: boolean | (() => Worker) | undefined;
  /** Where rillm_bg.wasm is served, if not beside the package's JavaScript. */
  wasmUrl?: string | URL | undefined;
  /** Where rillm_cpu_bg.wasm is served, if not beside the package's JavaScript. It is fetched where a model runs on the CPU. */
  cpuWasmUrl?: string | URL | undefined;
  /** Where rillm_grammar_bg.wasm is served, if not beside the package's JavaScript. It is fetched when a request first asks for structured output. */
  grammarWasmUrl?: string | URL | undefined;
  /** Where rillm_train_bg.wasm is served, if not beside the package's JavaScript. It is fetched with `training: true`, in place of rillm_bg.wasm. */
  trainingWasmUrl?: string | URL | undefined;
  /** The module rillm_bg.wasm itself, in place of `wasmUrl`: its address, a Response, its bytes, or a compiled `WebAssembly.Module`. */
  wasmModule?: WasmSource | undefined;
  /** The same of rillm_cpu_bg.wasm, in place of `cpuWasmUrl`. */
  cpuWasmModule?: WasmSource | undefined;
  /** The same of rillm_grammar_bg.wasm, in place of `grammarWasmUrl`. */
  grammarWasmModule?: WasmSource | undefined;
  /** The same of rillm_train_bg.wasm, in place of `trainingWasmUrl`. */
  trainingWasmModule?: WasmSource | undefined;
}

/** Counters since the engine was loaded. The difference of two readings tells what happened between them. */
export interface EngineStats extends Stats {
  /**
   * What is kept of texts that no request runs on any more, in blocks of up to 64 tokens. Hits and misses are of prompts: whether tokens of
   * them were taken from here.
   */
  prompt_cache: CacheStats;
  /** The GPU memory, by what it is for. */
  memory: MemoryUse;
  /** How often the engine came back after its GPU device or its worker was lost. The other counters began at 0 then. */
  recoveries: number;
  /** Size of the WebAssembly heap. Weights never pass through it. */
  wasm_memory_bytes: number;
}
