// The only file that touches the engine's generated glue. It gives the glue's classes their types, loads the wasm once per thread
// and notices when it traps; it knows nothing of workers, queues or OpenAI's shapes.

import init, * as glue from './wasm/rillm.js';
import { compileWasm, wasmName } from './compile_wasm.js';
import { EngineError, toEngineError } from './errors.js';
import type { LoadOptions as LoadData } from './generated/loading.js';
import type { AttachedSession, Chunk, EmbeddingsData } from './protocol.js';
import type { OpenedFile } from './files/remote_files.js';
import type { RemoteRequest } from './files/http.js';
import type { Progress } from './generated/loading.js';
import type { HostSource } from './source.js';
import type { BindingKind, CacheSizes, DType, MemoryStats } from './gpu/types.js';
import type { GpuStats, KernelTime } from './stats.js';
import type { EngineStats, Inspection, KernelUse, ModelInfo, TokenizeOptions } from './types.js';
import type { SentWasm } from './wasm_source.js';

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
  dispose(): void;
  free(): void;
}

export interface WasmLoadOptions extends LoadData {
  /** What `tunings()` of an earlier load gave; anything else is passed over. */
  tunings?: string;
  signal?: AbortSignal;
  /** What reads from servers. */
  files: WasmFiles;
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
  chat(request: object, logitsProcessor?: WasmLogitsProcessor): Promise<WasmGeneration>;
  complete(request: object, logitsProcessor?: WasmLogitsProcessor): Promise<WasmGeneration>;
  tokenize(text: string, options?: TokenizeOptions): Uint32Array;
  detokenize(ids: Uint32Array): string;
  embed(request: object): Promise<EmbeddingsData>;
  /** `write` gets the bytes in order. When `stopped` resolves, the rest is left undone, and it rejects with `aborted`. */
  saveSession(
    conversation: object,
    attachment: object | undefined,
    write: (bytes: Uint8Array<ArrayBuffer>) => void,
    stopped: Promise<void>,
  ): Promise<AttachedSession>;
  restoreSession(session: Blob, stopped: Promise<void>): Promise<AttachedSession>;
  forward(ids: Uint32Array): Promise<WasmTensor>;
  sync(): Promise<void>;
  stats(): Omit<EngineStats, 'wasm_memory_bytes'>;
  resetStats(): void;
  setProfiling(on: boolean): void;
  kernelTimes(): Promise<KernelUse[]>;
  dispose(): void;
  free(): void;
}

/** What a tensor is. */
export interface WasmTensorInfo {
  shape: number[];
  dtype: DType;
}

/** A GPU device; tensors and kernels are ids of it. */
export interface WasmGpu {
  /** The number by which a shape is named in other calls, until more others are asked for than are kept. */
  shape(dims: Uint32Array): number;
  tensor(bytes: Uint8Array, shape: number, dtype: DType): number;
  fill(shape: number, dtype: DType, value: number): number;
  rand(shape: number, seedHigh: number, seedLow: number): number;
  importBuffer(buffer: GPUBuffer, shape: number, dtype: DType): number;
  describe(tensor: number): WasmTensorInfo;
  write(tensor: number, first: number, bytes: Uint8Array): void;
  slice(tensor: number, start: number, end: number): number;
  disposeTensor(tensor: number): void;
  kernel(label: string, wgsl: string, bindings: BindingKind[], workgroup: Uint32Array): Promise<number>;
  dispatch(kernel: number, bindings: (number | Uint8Array)[], grid: Uint32Array): void;
  batch(): WasmBatch;
  flush(): void;
  sync(): Promise<void>;
  readback(tensors: Uint32Array): Promise<Uint8Array[]>;
  recordReadback(tensors: Uint32Array): WasmReadback;
  setProfiling(on: boolean): void;
  kernelTimes(): Promise<Record<string, KernelTime>>;
  stats(): GpuStats;
  resetStats(): void;
  memoryStats(): MemoryStats;
  trim(): void;
  /** How many dispatches and copies wait to be submitted. */
  pending(): number;
  setMaxBatchSize(most: number): void;
  setLazyMode(on: boolean): void;
  copyTensor(from: number, to: number, first: number): void;
  tensorBuffer(tensor: number): [buffer: GPUBuffer, offset: number];
  destroy(): void;
}

/** Copies that are recorded. */
export interface WasmReadback {
  start(): Promise<Uint8Array[]>;
  free(): void;
}

/** A batch of a device; its buffers are ids of it, other than those of the device's tensors. */
export interface WasmBatch {
  upload(bytes: Uint8Array, shape: number, dtype: DType): number;
  adopt(tensor: number): number;
  unary(kind: 'abs' | 'exp' | 'gelu' | 'neg' | 'relu' | 'sigmoid' | 'sqrt' | 'swish' | 'tanh', x: number): number;
  binary(kind: 'add' | 'sub' | 'mul' | 'div' | 'max' | 'min', a: number, b: number): number;
  scale(x: number, factor: number): number;
  dot(a: number, b: number): number;
  matmul(a: number, b: number, m: number, k: number, n: number): number;
  zeros(shape: number, dtype: DType): number;
  dispatch(kernel: number, bindings: (number | Uint8Array)[], grid: Uint32Array): void;
  compile(): Promise<void>;
  numOperations(): number;
  numBuffers(): number;
  describe(buffer: number): WasmTensorInfo;
  execute(): Promise<void>;
  read(buffer: number): Promise<Uint8Array>;
  /** The device's id of a buffer. */
  tensor(buffer: number): number;
  dispose(): void;
}

interface Glue {
  WasmGpu: {
    adopt(device: GPUDevice, options: { shared: boolean; debug: boolean; caches: CacheSizes; maxBatchSize: number }): Promise<WasmGpu>;
  };
  WasmEngine: {
    load(source: HostSource, options: WasmLoadOptions, onProgress?: (progress: Progress) => void): Promise<WasmEngine>;
  };
  inspectModel(source: HostSource, options: WasmLoadOptions): Promise<Inspection>;
  /** Reads the headers of a model, which opens all of its files; their bytes. */
  openModel(source: HostSource, options: WasmLoadOptions): Promise<number>;
  WasmSha256: new () => WasmSha256;
  renderTemplate(template: string, context: object): string;
}

/** The loaded wasm of this thread. */
export interface Wasm extends Glue {
  memoryBytes(): number;
  /** True after a trap: nothing can be called any more. */
  isBroken(): boolean;
  /** Runs `work` and converts what it throws. Rejects also when the wasm traps in a callback, where no promise would settle. */
  guard<T>(work: () => T | Promise<T>): Promise<Awaited<T>>;
  /** Runs `work`, which returns at once, and converts what it throws. */
  call<T>(work: () => T): T;
}

let loading: Promise<Wasm> | undefined;

/** Fetches and compiles the wasm on the first call. After a failure, the next call tries again. */
export function loadWasm(source?: SentWasm): Promise<Wasm> {
  loading ??= start(source).catch((error: unknown) => {
    loading = undefined;
    throw error;
  });
  return loading;
}

async function start(source: SentWasm | undefined): Promise<Wasm> {
  let exports: { memory: WebAssembly.Memory };
  try {
    // Bundlers look for exactly this expression.
    const module = await compileWasm(source ?? new URL('./wasm/rillm_bg.wasm', import.meta.url), 'wasmengine_load');
    exports = await init({ module_or_path: module });
  } catch (thrown) {
    throw new EngineError(
      'wasm_unavailable',
      `the WebAssembly module ${wasmName(source, 'rillm_bg.wasm', 'wasmModule')} did not load (${String(thrown)}): check that the file is ` +
        `served and that the content security policy allows 'wasm-unsafe-eval', or hand it in with the option wasmUrl or wasmModule`,
      { cause: thrown },
    );
  }
  const traps = watchForTraps();
  return {
    ...(glue as unknown as Glue),
    memoryBytes: () => exports.memory.buffer.byteLength,
    isBroken: () => traps.trapped(),
    guard: (work) => traps.guard(work),
    call: (work) => traps.call(work),
  };
}

/**
 * A trap leaves the instance in an unknown state, so everything that runs and everything that is asked later is rejected.
 * Inside an async function of Rust the trap surfaces as an uncaught error of the thread, never as a rejection: without the
 * listener below its promise would stay open forever.
 */
function watchForTraps() {
  let trapped: EngineError | undefined;
  const pending = new Set<(error: EngineError) => void>();

  function trap(error: WebAssembly.RuntimeError): EngineError {
    trapped ??= new EngineError(
      'internal',
      `the WebAssembly module stopped with "${error.message}": this is a fault of rillm. The engine is gone; ` +
        `load it again (without a worker: reload the page first)`,
      { cause: error },
    );
    for (const reject of pending) reject(trapped);
    pending.clear();
    return trapped;
  }

  // Not every runtime outside of browsers has it.
  globalThis.addEventListener?.('error', (event) => {
    // Another wasm module of the page may trap too; frames of ours have the name of our file.
    if (event.error instanceof WebAssembly.RuntimeError && (event.error.stack ?? 'rillm').includes('rillm')) trap(event.error);
  });

  return {
    trapped: () => trapped !== undefined,
    call<T>(work: () => T): T {
      if (trapped !== undefined) throw trapped;
      try {
        return work();
      } catch (thrown) {
        if (thrown instanceof WebAssembly.RuntimeError) throw trap(thrown);
        throw toEngineError(thrown);
      }
    },
    async guard<T>(work: () => T | Promise<T>): Promise<Awaited<T>> {
      if (trapped !== undefined) throw trapped;
      let reject: ((error: EngineError) => void) | undefined;
      const trapping = new Promise<never>((_, rejectTrapping) => {
        reject = rejectTrapping;
        pending.add(rejectTrapping);
      });
      trapping.catch(() => {});
      try {
        return await Promise.race([work(), trapping]);
      } catch (thrown) {
        if (thrown instanceof WebAssembly.RuntimeError) throw trap(thrown);
        throw toEngineError(thrown);
      } finally {
        if (reject !== undefined) pending.delete(reject);
      }
    },
  };
}
