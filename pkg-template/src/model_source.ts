// Where models come from and what is said about them before they are loaded: types only.

import type { ErrorCode } from './errors.js';
import type { AdapterInfo } from './types.js';

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

export interface InspectOptions {
  /** Of a folder, the file that is the model. */
  file?: string | undefined;
  hub?: HubOptions | undefined;
  signal?: AbortSignal | undefined;
  /** As of `load`: `weight_bytes` is for weights that are quantised so. */
  quantize?: Quantization | undefined;
  /** Tokens that `kv_cache_bytes` is to be for. */
  contextLength?: number | undefined;
  /** Sequences that `kv_cache_bytes` is to be for. Default: 1. */
  maxSequences?: number | undefined;
  /** As in `LoadOptions`: `kv_cache_bytes` depends on both. */
  precision?: 'fast' | 'exact' | undefined;
  kvCache?: 'f16' | 'f32' | 'q8_0' | undefined;
  /** Inspect in a worker, as `load` does. Default: true. */
  worker?: boolean | undefined;
  powerPreference?: 'high-performance' | 'low-power' | undefined;
  forceFallbackAdapter?: boolean | undefined;
  wasmUrl?: string | URL | undefined;
}

/** What the headers of a model say. What only a supported architecture tells is missing for others. */
export interface Inspection {
  name?: string;
  format: 'gguf' | 'safetensors';
  /** As GGUF files call it: `llama`, `qwen2`. */
  architecture: string;
  /** Of all tensors in the files. */
  parameters: number;
  /** The type of most of the bytes: `Q4_K`, `BF16`. */
  quantization: string;
  /** Bytes in the files by type of tensor. */
  tensor_types: Record<string, number>;
  /** How many files hold the tensors. */
  files: number;
  /** Of these files, in bytes. */
  file_bytes: number;
  layers?: number;
  vocab_size?: number;
  embedding_length?: number;
  /** Tokens that the model was trained for. */
  trained_context_length?: number;
  /** Tokens that `kv_cache_bytes` is for: what was asked for, or what `load` takes by itself. */
  context_length?: number;
  /** Bytes of the weights on the GPU. */
  weight_bytes?: number;
  kv_cache_bytes?: number;
  /** The adapter that a load would take, and how large a buffer and a binding on it may be. Missing without WebGPU. */
  adapter?: AdapterInfo & { max_buffer_bytes: number; max_binding_bytes: number };
  /**
   * What loading it here would end in. Without it, nothing that can be known beforehand speaks against loading; how much memory a
   * GPU has, WebGPU does not tell.
   */
  problem?: { code: ErrorCode; message: string };
}

/** Formats that weights can be quantised to while they are loaded. */
export type Quantization = 'q8_0' | 'q4_0';
