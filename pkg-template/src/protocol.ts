// The messages between the page and the worker, and what both sides of them offer. Types only; neither side's workings.

import type { ErrorData } from './errors.js';
import type { HostSource } from './source.js';
import type { ProcessorCall } from './logits_processor.js';
import type { Chunk } from './generated/answers.js';
import type { LoadOptions as LoadData } from './generated/loading.js';
import type { EmbeddingUsage, EngineStats, Inspection, KernelUse, LoadProgress, ModelInfo, TokenizeOptions } from './types.js';

export type { Chunk, TokenLogprob, TokenLogprobs } from './generated/answers.js';

export type GenerationKind = 'chat' | 'completion';

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
  draft?: HostSource;
  wasmUrl?: string;
  grammarWasmUrl?: string;
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

/** The calls that are one question and one answer. Each name is a message of its own to the worker. */
export interface HostCalls {
  tokenize(text: string, options: TokenizeOptions): Promise<Uint32Array>;
  detokenize(ids: Uint32Array): Promise<string>;
  embed(request: object): Promise<EmbeddingsData>;
  forward(ids: Uint32Array): Promise<TensorData>;
  readback(handle: number): Promise<Float32Array>;
  disposeTensor(handle: number): Promise<void>;
  sync(): Promise<void>;
  stats(): Promise<EngineStats>;
  resetStats(): Promise<void>;
  setProfiling(on: boolean): Promise<void>;
  kernelTimes(): Promise<KernelUse[]>;
  dispose(): Promise<void>;
}

/** What runs a model: `EngineHost` itself, or `WorkerHost`, which forwards to one in a worker. */
export interface Host extends HostCalls {
  load(
    source: HostSource,
    options: HostLoadOptions,
    onProgress: (progress: LoadProgress) => void,
    signal: AbortSignal | undefined,
  ): Promise<ModelInfo>;
  /** Reads headers only; a host that inspects loads nothing. */
  inspect(source: HostSource, options: HostLoadOptions, signal: AbortSignal | undefined): Promise<Inspection>;
  /** Resolves when the request was accepted. */
  generate(kind: GenerationKind, request: object, processor: ProcessorCall | undefined): Promise<Generation>;
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
  | { type: 'load' | 'inspect'; id: number; source: SentSource; draft?: SentSource; options: Omit<HostLoadOptions, 'draft'> }
  /** What a source of the application's read, in answer to `read`; it belongs to the worker. */
  | { type: 'bytes'; id: number; bytes: Uint8Array }
  | { type: 'unread'; id: number; error: ErrorData }
  | CallMessage
  | { type: 'generate'; id: number; kind: GenerationKind; request: object; credit: number; isProcessed: boolean }
  /** What the logits processor made of them, in answer to `process`; they belong to the worker. */
  | { type: 'processed'; id: number; logits: Float32Array }
  | { type: 'unprocessed'; id: number; error: ErrorData }
  /** The page took `count` chunks, so the worker may run ahead by as many more. */
  | { type: 'credit'; id: number; count: number }
  | { type: 'cancel'; id: number }
  /** Answered when generation `generation` no longer runs. */
  | { type: 'release'; id: number; generation: number };

export type FromWorker =
  | { type: 'progress'; id: number; progress: LoadProgress }
  | { type: 'result'; id: number; value: unknown }
  | { type: 'error'; id: number; error: ErrorData }
  /** Asks source number `source` of the application's for bytes. */
  | { type: 'read'; id: number; source: number; offset: number; length: number }
  /** Hands logits to the processor of generation `generation`; they belong to the page. */
  | { type: 'process'; id: number; generation: number; logits: Float32Array; tokens: Uint32Array; step: number }
  | { type: 'chunk'; id: number; chunk: Chunk | undefined }
  /** The wasm instance is broken: nothing more will be answered. */
  | { type: 'crash'; error: ErrorData };
