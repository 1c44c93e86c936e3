// Where models come from and what is said about them before they are loaded: types only.

import type { ConnectionOptions } from './files/options.js';
import type { LoadOptions as LoadData } from './generated/loading.js';
import type { WasmSource } from './wasm_source.js';

export type { Inspection } from './generated/loading.js';

/**
 * What a model is loaded from:
 * - a URL (string or `URL`): of a GGUF file, of the first file of a split one, or of a folder with safetensors and `config.json`, which
 *   ends in `/`. Servers should serve byte ranges; a file of one that does not is read in one pass.
 * - `hf:owner/name[@revision][/file or :quantisation]`: a repository of the Hugging Face hub. Without a file or quantisation it is
 *   the only GGUF file, or of several that of Q4_K_M or else Q8_0; of a repository without GGUF files it is its safetensors model.
 *   Where several fit, the error lists them.
 * - `opfs:path`: a file or folder of the origin private file system.
 * - a `File` or `Blob`, a file or directory handle of the File System API.
 * - several files (`FileList`, an array): a model in several parts, or a safetensors model with its `config.json`.
 * - an object that reads for itself (`ByteSource`).
 */
export type ModelSource =
  | string
  | URL
  | Blob
  | ByteSource
  | FileSystemFileHandle
  | FileSystemDirectoryHandle
  | FileList
  | Iterable<Blob | ByteSource | ModelFile>;

/** A source of an application's own, such as a cache or an archive. It is asked on the thread that called `load`. */
export interface ByteSource {
  /** Bytes. */
  readonly size: number;
  /** For messages, and to tell the files of a model apart. */
  readonly name?: string | undefined;
  /** Exactly `length` bytes (up to 16 MiB) from `offset`. Calls may come before earlier ones are answered. */
  read(offset: number, length: number): Uint8Array | ArrayBuffer | Promise<Uint8Array | ArrayBuffer>;
}

/** A file of a model, by its path in the model's folder. */
export interface ModelFile {
  name: string;
  data: Blob | ByteSource;
}

/** How the Hugging Face hub is asked, for `hf:…`. */
export interface HubOptions {
  /** An access token, for private and gated repositories. It is sent to the hub's own address and nowhere else. */
  token?: string | undefined;
  /** The address of a mirror or of a hub of your own. Default: https://huggingface.co. */
  endpoint?: string | URL | undefined;
}

/** As in `LoadOptions`: `weight_bytes` and `kv_cache_bytes` depend on some of them. */
export interface InspectOptions extends Omit<LoadData, 'autotune' | 'chatTemplate'>, ConnectionOptions {
  /** Of a folder, the file that is the model. */
  file?: string | undefined;
  hub?: HubOptions | undefined;
  signal?: AbortSignal | undefined;
  /** Inspect in a worker, as `load` does. */
  worker?: boolean | (() => Worker) | undefined;
  wasmUrl?: string | URL | undefined;
  wasmModule?: WasmSource | undefined;
  cpuWasmUrl?: string | URL | undefined;
  cpuWasmModule?: WasmSource | undefined;
}

/** Formats that weights can be quantised to while they are loaded. */
export type Quantization = NonNullable<LoadData['quantize']>;
