// The messages between the page and the worker, and what both sides of them offer. Types only; neither side's workings.

import type { EngineError, ErrorData } from './errors.js';
import type { Digested } from './files/digester.js';
import type { HelperData, SharedMemory } from './team/helper.js';
import type { FileEvent } from './files/events.js';
import type { FilesData } from './files/options.js';
import type { ModelStore } from './files/store.js';
import type { HostSource } from './source.js';
import type { ProcessorCall } from './logits_processor.js';
import type { Chunk, Classification, Ranking } from './generated/answers.js';
import type { DeviceReason, LoadedAdapter, LoadOptions as LoadData, MemoryPressure } from './generated/loading.js';
import type { Session } from './generated/sessions.js';
import type { HeldOutLoss, TrainingPlan } from './generated/training.js';
import type { TrainingEvent } from './train/types.js';
import type { EmbeddingUsage, EngineStats, Inspection, KernelUse, LoadProgress, ModelInfo, Smoothness, TokenizeOptions } from './types.js';
import type { EngineWasm, SentWasm } from './wasm_source.js';
import type { FromLiving, ToLiving } from './worker_life.js';

export type { Chunk, TokenLogprob, TokenLogprobs } from './generated/answers.js';

export type GenerationKind = 'chat' | 'completion';

/** What is known of an answer that is generated again. Without `choices` its tokens are chosen again, as they were chosen then. */
export interface ReplayData {
  /** For a request that has none of its own: from 0 to 2³² - 1. */
  seed: number;
  choices?: { tokens: number[]; is_finished: boolean }[];
}

/** A generation that runs: pulled chunk by chunk. */
export interface Generation {
  /** Undefined after the last chunk. */
  next(): Promise<Chunk | undefined>;
  /** Ends it soon: the last chunk then has finish_reason "cancelled". */
  cancel(): void;
  /** Frees it, also before its end; resolves when nothing of it runs any more. To be called exactly once. */
  release(): Promise<void>;
}

export interface HostLoadOptions extends LoadData {
  /** Why it is this device. */
  deviceReason?: DeviceReason;
  draft?: HostSource;
  wasm?: EngineWasm;
  grammarWasm?: SentWasm;
  /** What is kept of files of servers. */
  files: FilesData;
}

/** How an adapter is loaded. */
export interface AdapterData {
  name?: string;
  scale?: number;
  /** What is kept of files of servers. */
  files: FilesData;
}

/** What a host asks of the thread of the caller while it loads. */
export interface LoadServices {
  onProgress(progress: LoadProgress): void;
  onEvent(event: FileEvent): void;
  /** Also after the load, as long as the engine is there. */
  onMemoryPressure(event: MemoryPressure): void;
  /** The application's own store, if it has one. */
  store: ModelStore | undefined;
  /** Whether the engine works for this page alone, so that it may take its time when nobody sees it. */
  isOfOnePage: boolean;
  /** Starts a worker that computes digests, if there can be one; what speaks to it. */
  startDigester(of: Digested): MessagePort | undefined | Promise<MessagePort | undefined>;
  /** Starts threads that compute on the CPU, and which end with their team; how many could be started. */
  startHelpers(helpers: HelperData[]): number | Promise<number>;
  /** Gives them a memory more. */
  shareWithHelpers(more: SharedMemory): void;
  /** Ends those that are left, whatever they do. */
  stopHelpers(): void;
}

export interface TensorData {
  handle: number;
  shape: number[];
  dtype: string;
}

/** The vectors of all inputs of a request, one after the other. */
export interface EmbeddingsData {
  values: Float32Array;
  dimensions: number;
  usage: EmbeddingUsage;
}

/** What a model that scores or labels texts is asked for, and what it answers. */
export interface ScoreData {
  rerank: Ranking;
  classify: Classification;
}

export type ScoreKind = keyof ScoreData;

/** A session as the engine has it, with what was saved besides. */
export interface AttachedSession extends Session {
  attachment?: unknown;
}

/** What a training tells; a checkpoint comes with its bytes. */
export type TrainingEventData =
  | Exclude<TrainingEvent, { type: 'checkpoint' }>
  | { type: 'checkpoint'; step: number; bytes: Uint8Array<ArrayBuffer> };

/** What was learnt. An error stands in place of what there is not. */
export interface TrainedData {
  adapter: LoadedAdapter | ErrorData;
  losses: number[];
  heldOut: HeldOutLoss[];
  gguf: Blob;
  peft: { name: string; data: Blob }[] | ErrorData;
}

/** The calls that are one question and one answer. Each name is a message of its own to the worker. */
export interface HostCalls {
  tokenize(text: string, options: TokenizeOptions): Promise<Uint32Array>;
  detokenize(ids: Uint32Array): Promise<string>;
  embed(request: object): Promise<EmbeddingsData>;
  score<Kind extends ScoreKind>(kind: Kind, request: object): Promise<ScoreData[Kind]>;
  /** Saves a conversation, with something that comes back with it. */
  saveSession(conversation: object, attachment: object | undefined): Promise<Blob>;
  restoreSession(session: Blob): Promise<AttachedSession>;
  /** Logits, then the hidden states after these numbers of layers. */
  forward(ids: Uint32Array, layers: Uint32Array): Promise<TensorData[]>;
  embedTensor(request: object): Promise<TensorData>;
  readback(handle: number): Promise<Float32Array>;
  disposeTensor(handle: number): Promise<void>;
  sync(): Promise<void>;
  stats(): Promise<EngineStats>;
  resetStats(): Promise<void>;
  setSmoothness(smoothness: Smoothness): Promise<void>;
  setProfiling(on: boolean): Promise<void>;
  kernelTimes(): Promise<KernelUse[]>;
  setAdapterScale(name: string, scale: number): Promise<void>;
  unloadAdapter(name: string): Promise<void>;
  adapters(): Promise<LoadedAdapter[]>;
  planLora(training: object): Promise<TrainingPlan>;
  dispose(): Promise<void>;
}

/** What has a model and runs it. */
export interface LoadedHost extends HostCalls {
  /** What it loaded last. Undefined where that can't change. */
  readonly loaded?: ModelInfo | undefined;
  /** The signal ends the waiting for others, and the work. */
  embed(request: object, signal?: AbortSignal): Promise<EmbeddingsData>;
  /** The signal ends the work; when the promise settles nothing of it runs any more, but for a host that other tabs share. */
  score<Kind extends ScoreKind>(kind: Kind, request: object, signal?: AbortSignal): Promise<ScoreData[Kind]>;
  /** The signal ends the work; when the promise settles nothing of it runs any more, but for a host that other tabs share. */
  saveSession(conversation: object, attachment: object | undefined, signal?: AbortSignal): Promise<Blob>;
  restoreSession(session: Blob, signal?: AbortSignal): Promise<AttachedSession>;
  /** One at a time. The signal ends it, and the engine stays as it was. */
  loadAdapter(source: HostSource, data: AdapterData, services: LoadServices, signal?: AbortSignal): Promise<LoadedAdapter>;
  /** Whether it has what trains. Undefined where that is known when it is asked to. */
  readonly canTrain?: boolean;
  /** Loads the model again with what trains; if that fails, as it was. */
  enableTraining?(onProgress: (progress: LoadProgress) => void, signal?: AbortSignal): Promise<void>;
  /** Goes on from a checkpoint, if there is one. The signal ends it, and the engine stays as it was. */
  trainLora(
    training: object,
    checkpoint: Blob | undefined,
    onEvent: (event: TrainingEventData) => void,
    signal?: AbortSignal,
  ): Promise<TrainedData>;
  /** Resolves when it answers nothing any more, with the reason. */
  readonly ended?: Promise<EngineError>;
  /** The GPUDevice, where it belongs to this thread. */
  gpuDevice?(): GPUDevice;
  /** The GPUBuffer of a tensor and its first byte there, likewise. */
  tensorBuffer?(handle: number): [buffer: GPUBuffer, offset: number];
  /** Resolves when the request was accepted. The signal ends a waiting, as for `embed`, and not the generation. */
  generate(
    kind: GenerationKind,
    request: object,
    processor: ProcessorCall | undefined,
    replay?: ReplayData,
    signal?: AbortSignal,
  ): Promise<Generation>;
}

/** What loads a model and runs it: `EngineHost` itself, or `WorkerHost`, which forwards to one in a worker. */
export interface Host extends LoadedHost {
  load(source: HostSource, options: HostLoadOptions, services: LoadServices, signal: AbortSignal | undefined): Promise<ModelInfo>;
  /** Downloads a model and loads nothing; resolves to its bytes. */
  download(source: HostSource, options: HostLoadOptions, services: LoadServices, signal: AbortSignal | undefined): Promise<number>;
  /** Reads headers only; a host that inspects loads nothing. */
  inspect(source: HostSource, options: HostLoadOptions, services: LoadServices, signal: AbortSignal | undefined): Promise<Inspection>;
}

/** An application's own source as the worker sees it: its size, and the number by which the page is asked to read. */
export interface RemoteSource {
  name: string;
  size: number;
  remote: number;
}

/** A model's source as it travels to the worker. */
export type SentSource =
  | Exclude<HostSource, { kind: 'files' }>
  | { kind: 'files'; files: { name: string; data: Blob | RemoteSource }[]; file?: string };

type CallMessage = {
  [Method in keyof HostCalls]: { type: 'call'; id: number; method: Method; args: Parameters<HostCalls[Method]> };
}[keyof HostCalls];

export type ToWorker =
  | ToLiving
  | { type: 'load' | 'inspect' | 'download'; id: number; source: SentSource; draft?: SentSource; options: Omit<HostLoadOptions, 'draft'> }
  /** Ended by `abort`, as calls are. */
  | { type: 'adapter'; id: number; source: SentSource; data: AdapterData }
  /** Likewise; tells of `training` meanwhile. */
  | { type: 'train'; id: number; training: object; checkpoint?: Blob }
  /** What a source of the application's read, in answer to `read`; it belongs to the worker. */
  | { type: 'bytes'; id: number; bytes: Uint8Array }
  | { type: 'unread'; id: number; error: ErrorData }
  /** What the application's store answered, or that it failed. */
  | { type: 'stored'; id: number; value?: Uint8Array | ArrayBuffer | Blob; error?: string; isFull?: boolean }
  /** To a worker that does nothing else: computes digests of what the port asks for. */
  | { type: 'digest'; of: Digested; port: MessagePort; wasm?: EngineWasm }
  /** To a worker that does nothing else: multiplies on the CPU until its team ends. */
  | ({ type: 'help' } & HelperData)
  /** To such a worker: in one memory more. */
  | { type: 'help-more'; memory: WebAssembly.Memory; stack: number }
  /** In answer to `helpers`: how many could be started. */
  | { type: 'helping'; started: number }
  /** In answer to `digester`. */
  | { type: 'digester'; port: MessagePort | undefined }
  | CallMessage
  /** Nobody waits for the answer to call `id` any more. */
  | { type: 'abort'; id: number }
  | { type: 'generate'; id: number; kind: GenerationKind; request: object; credit: number; isProcessed: boolean; replay?: ReplayData }
  /** What the logits processor made of them, in answer to `process`; they belong to the worker. */
  | { type: 'processed'; id: number; logits: Float32Array }
  | { type: 'unprocessed'; id: number; error: ErrorData }
  /** The page took `count` chunks, so the worker may run ahead by as many more. */
  | { type: 'credit'; id: number; count: number }
  | { type: 'cancel'; id: number }
  /** Nobody sees the page any more, or somebody does again. */
  | { type: 'visibility'; isHidden: boolean }
  /** Answered when generation `generation` no longer runs. */
  | { type: 'release'; id: number; generation: number };

export type FromWorker =
  | FromLiving
  | { type: 'progress'; id: number; progress: LoadProgress }
  | { type: 'event'; id: number; event: FileEvent }
  | { type: 'training'; id: number; event: TrainingEventData }
  | { type: 'memory'; event: MemoryPressure }
  /** Asks the application's store. */
  | { type: 'store'; id: number; method: 'get' | 'delete'; key: string }
  | { type: 'store'; id: number; method: 'put'; key: string; bytes: Uint8Array }
  /** Asks for workers that multiply on the CPU. */
  | { type: 'helpers'; helpers: HelperData[] }
  /** Gives them a memory more. */
  | { type: 'share'; more: SharedMemory }
  /** Asks for a worker that computes digests. */
  | { type: 'digester'; of: Digested }
  | { type: 'result'; id: number; value: unknown }
  | { type: 'error'; id: number; error: ErrorData }
  /** Asks source number `source` of the application's for bytes. */
  | { type: 'read'; id: number; source: number; offset: number; length: number }
  /** Hands logits to the processor of generation `generation`; they belong to the page. */
  | { type: 'process'; id: number; generation: number; logits: Float32Array; tokens: Uint32Array; step: number }
  | { type: 'chunk'; id: number; chunk: Chunk | undefined }
  /** The wasm instance is broken or the GPU device is lost: nothing more will be answered. */
  | { type: 'crash'; error: ErrorData };
