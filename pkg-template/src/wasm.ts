// The only file that touches the engine's generated glue, of which there are three: for the GPU, for the CPU, and with what trains. It gives the glue's classes their
// types and loads each wasm once per thread; it knows nothing of workers, queues or OpenAI's shapes.

import * as gpuGlue from './wasm/rillm.js';
import * as cpuGlue from './wasm/rillm_cpu.js';
import * as trainingGlue from './wasm/rillm_train.js';
import { checkVectors, compileWasm, wasmLoader, type WasmNames } from './compile_wasm.js';
import type { LoadedAdapter, LoadOptions as LoadData, MemoryPressure } from './generated/loading.js';
import type { AttachedSession, Chunk, EmbeddingsData, ReplayData, ScoreData, ScoreKind, TrainingEventData } from './protocol.js';
import type { OpenedFile } from './files/remote_files.js';
import type { RemoteRequest } from './files/http.js';
import type { Progress } from './generated/loading.js';
import type { HeldOutLoss, TrainingPlan } from './generated/training.js';
import type { RetryPolicy } from './files/attempts.js';
import type { HostSource } from './source.js';
import { guardedAgainstTraps, type Guarded, renewal } from './traps.js';
import type { EngineWasm, SentWasm } from './wasm_source.js';
import type { EngineStats, Inspection, KernelUse, ModelInfo, Smoothness, TokenizeOptions } from './types.js';

export interface WasmGeneration {
  next(): Promise<Chunk | undefined>;
  cancel(): void;
  free(): void;
}

/** Null ends the generation as if it was cancelled. */
export type WasmLogitsProcessor = (logits: Float32Array, tokens: Uint32Array, step: number) => Promise<Float32Array | null>;

export interface WasmTensor {
  readonly shape: ArrayLike<number>;
  readonly dtype: string;
  readback(): Promise<Float32Array>;
  buffer(): [buffer: GPUBuffer, offset: number];
  dispose(): void;
  free(): void;
}

export interface WasmLoadOptions extends LoadData {
  /** What `tunings()` of an earlier load gave; anything else is passed over. */
  tunings?: string;
  signal?: AbortSignal;
  /** What reads from servers. */
  files: WasmFiles;
  onMemoryPressure?: (event: MemoryPressure) => void;
  /** The threads of the CPU. */
  team?: object;
  /** Where the second wasm comes from, for requests that want structured output. */
  grammars?: WasmGrammarLoader;
}

/** Opens files of servers; null for one that is not there. */
export interface WasmFiles {
  open(request: RemoteRequest): Promise<OpenedFile | null>;
}

/** SHA-256 of bytes that come in pieces. */
export interface WasmSha256 {
  update(bytes: Uint8Array): void;
  digest(): string;
  free(): void;
}

/** Loads the grammar engine for a vocabulary; `tokenize` cuts text into tokens. What it resolves to is an object of that wasm. */
export interface WasmGrammarLoader {
  load(
    bytes: Uint8Array,
    lengths: Uint32Array,
    control: Uint8Array,
    ends: Uint32Array,
    tokenize: (text: string) => Uint32Array,
  ): Promise<object>;
}

export interface WasmEngine {
  info(): ModelInfo;
  /** What autotuning found that was not known yet, to be kept. */
  tunings(): string | undefined;
  /** Resolves when the request was accepted: a grammar in it is compiled. */
  chat(request: object, logitsProcessor?: WasmLogitsProcessor, replay?: ReplayData): Promise<WasmGeneration>;
  complete(request: object, logitsProcessor?: WasmLogitsProcessor, replay?: ReplayData): Promise<WasmGeneration>;
  tokenize(text: string, options?: TokenizeOptions): Uint32Array;
  detokenize(ids: Uint32Array): string;
  /** When `stopped` resolves, the rest is left undone, and it rejects with `aborted`. */
  embed(request: object, stopped: Promise<void>): Promise<EmbeddingsData>;
  /** When `stopped` resolves, the rest is left undone, and it rejects with `aborted`. */
  score<Kind extends ScoreKind>(kind: Kind, request: object, stopped: Promise<void>): Promise<ScoreData[Kind]>;
  /** `write` gets the bytes in order. When `stopped` resolves, the rest is left undone, and it rejects with `aborted`. */
  saveSession(
    conversation: object,
    attachment: object | undefined,
    write: (bytes: Uint8Array<ArrayBuffer>) => void,
    stopped: Promise<void>,
  ): Promise<AttachedSession>;
  restoreSession(session: Blob, stopped: Promise<void>): Promise<AttachedSession>;
  /** Logits, then the hidden states after these numbers of layers. */
  forward(ids: Uint32Array, layers: Uint32Array): Promise<WasmTensor[]>;
  embedTensor(request: object): Promise<WasmTensor>;
  gpuDevice(): GPUDevice;
  sync(): Promise<void>;
  stats(): Omit<EngineStats, 'wasm_memory_bytes'>;
  resetStats(): void;
  setSmoothness(smoothness: Smoothness): void;
  setProfiling(on: boolean): void;
  kernelTimes(): Promise<KernelUse[]>;
  /** When `stopped` resolves, the rest is left undone, and it rejects with `aborted`. */
  loadAdapter(
    source: HostSource,
    options: { name?: string; scale?: number },
    files: WasmFiles,
    onProgress: (loaded: number, total: number) => void,
    stopped: Promise<void>,
  ): Promise<LoadedAdapter>;
  setAdapterScale(name: string, scale: number): void;
  unloadAdapter(name: string): void;
  adapters(): LoadedAdapter[];
  dispose(): void;
  free(): void;
}

/** What was learnt. An error stands in place of what there is not. */
export interface WasmTrained {
  adapter?: LoadedAdapter;
  unloaded?: Error;
  losses: number[];
  heldOut: HeldOutLoss[];
  gguf: Uint8Array<ArrayBuffer>;
  peft?: [name: string, bytes: Uint8Array<ArrayBuffer>][];
  unsaved?: Error;
}

interface Glue {
  WasmEngine: {
    load(source: HostSource, options: WasmLoadOptions, onProgress?: (progress: Progress) => void): Promise<WasmEngine>;
  };
  inspectModel(source: HostSource, options: WasmLoadOptions): Promise<Inspection>;
  /** Reads the headers of a model, which opens all of its files; their bytes. */
  openModel(source: HostSource, options: WasmLoadOptions): Promise<number>;
  WasmSha256: new () => WasmSha256;
  /** Tells all engines of this thread whether anybody sees their page. */
  setPageHidden(isHidden: boolean): void;
  renderTemplate(template: string, context: object): string;
  /** Only where the module has what trains. */
  planLora?(engine: WasmEngine, training: object): TrainingPlan;
  /** `onEvent` gets the bytes of a checkpoint beside its event. When `stopped` resolves, the rest is left undone, and it rejects with `aborted`. */
  trainLora?(
    engine: WasmEngine,
    training: object,
    checkpoint: Blob | undefined,
    onEvent: (event: TrainingEventData, bytes: Uint8Array<ArrayBuffer> | undefined) => void,
    stopped: Promise<void>,
  ): Promise<WasmTrained>;
}

/** The loaded wasm of this thread. */
export interface Wasm extends Glue, Guarded {
  memoryBytes(): number;
}

type Name = 'rillm' | 'rillm_cpu' | 'rillm_train';

/** What the generated glue exports besides. */
interface Generated {
  default(source: { module_or_path: WebAssembly.Module }): Promise<unknown>;
  initSync(): { memory: WebAssembly.Memory };
  __wbg_reset_state(): void;
}

/** Guards the glue's instance against its traps. */
function instance(name: Name, glue: Glue & Generated): Wasm {
  const guarded = guardedAgainstTraps(name, 'load the engine again');
  const { initSync, ...rest } = glue;
  return { ...rest, ...guarded, memoryBytes: () => initSync().memory.buffer.byteLength };
}

function namesOf(name: Name, [urlName, moduleName]: readonly [string, string]): WasmNames {
  const advice =
    "check that the file is served and that the content security policy allows 'wasm-unsafe-eval', or hand it in with the option " +
    `${urlName} or ${moduleName}`;
  return { file: `${name}_bg.wasm`, option: moduleName, advice };
}

/** Fetches and compiles a wasm on the first call, and makes a new instance after a trap. `own` is its address beside the package. */
function loaderOf(name: Name, options: readonly [string, string], own: () => URL, generated: unknown, mark = 'wasmengine_load') {
  const glue = generated as Glue & Generated;
  return wasmLoader(
    namesOf(name, options),
    async (source, policy): Promise<Wasm> => {
      if (name === 'rillm_cpu') checkVectors(`${name}_bg.wasm`);
      const module = await compileWasm(source ?? own(), mark, policy);
      await glue.default({ module_or_path: module });
      return instance(name, glue);
    },
    renewal(
      () => glue.__wbg_reset_state(),
      () => instance(name, glue),
    ),
  );
}

// Bundlers look for exactly these expressions.
const loadGpu = loaderOf('rillm', ['wasmUrl', 'wasmModule'], () => new URL('./wasm/rillm_bg.wasm', import.meta.url), gpuGlue);
const loadCpu = loaderOf('rillm_cpu', ['cpuWasmUrl', 'cpuWasmModule'], () => new URL('./wasm/rillm_cpu_bg.wasm', import.meta.url), cpuGlue);

const TRAINING = ['trainingWasmUrl', 'trainingWasmModule'] as const;
const trainingUrl = () => new URL('./wasm/rillm_train_bg.wasm', import.meta.url);
const TRAINING_MARK = 'trainLora';
const loadTraining = loaderOf('rillm_train', TRAINING, trainingUrl, trainingGlue, TRAINING_MARK);

/** The module with what trains, which another thread may run. */
export function compileTraining(from: SentWasm | undefined, policy: RetryPolicy): Promise<WebAssembly.Module> {
  const compile = wasmLoader(namesOf('rillm_train', TRAINING), (source, policy) =>
    compileWasm(source ?? trainingUrl(), TRAINING_MARK, policy),
  );
  return compile(from, policy);
}

/** The engine of this thread, of one build. */
export function loadWasm({ build, from }: EngineWasm = { build: 'gpu' }, policy?: RetryPolicy): Promise<Wasm> {
  switch (build) {
    case 'cpu':
      return loadCpu(from, policy);
    case 'train':
      return loadTraining(from, policy);
    default:
      return loadGpu(from, policy);
  }
}
