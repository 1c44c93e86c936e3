// What a model is loaded with, and what it says of itself. Made from the Rust structs by `npm run types`: change those.

import type { ErrorCode } from '../errors.js';

/** What a load is told that is data. */
export interface LoadOptions {
  /**
   * Quantise matrices of plain numbers (F32, F16, BF16) on the GPU while they are loaded: to about 8.5 or 4.5 bits a weight. With
   * `q4_0`, the matrix that gives the logits becomes Q8_0. Weights that are quantised already stay as they are.
   */
  quantize?: 'q8_0' | 'q4_0' | undefined;
  /** Length of the context in tokens. Default: 4096, or less where the model was trained for less; of an encoder what it was trained for. */
  contextLength?: number | undefined;
  /**
   * How many requests run at once, 1 to 8; more wait for their turn. Those that run decode together: each read of the weights serves
   * all of them. Each has a KV cache of its own (`info.kv_cache_bytes` is what all take). Default: 1.
   */
  maxSequences?: number | undefined;
  /** A chat template in Jinja, in place of the model's own. */
  chatTemplate?: string | undefined;
  /**
   * How exact activations are. `fast` takes in prompts with 8-bit activations (one scale for every 32), where weights are quantised too;
   * `exact` keeps 32-bit floats everywhere. Default: `fast` on a GPU, `exact` on a software adapter, which gains nothing by 8 bits.
   */
  precision?: Precision | undefined;
  /**
   * How the KV cache stores keys and values: `f16`, in half the memory of `f32`, or `q8_0`, as 8-bit integers with a scale for every 32
   * of a head, in 0.53 of the memory of `f16` (heads whose length is no multiple of 32 are filled up to one). Default: `f16`, and
   * `f32` with the precision `exact`.
   */
  kvCache?: KvFormat | undefined;
  /**
   * Bytes of GPU memory for what the model has made of texts that no request runs on any more: several conversations, their edits and
   * branches, of which later prompts then take in only what is new (`cached_tokens`, and `prompt_cache` of `stats()`). What was used
   * longest ago goes first; 0 keeps none. It is taken as it is needed. Default: what the KV cache of one request takes.
   */
  promptCacheBytes?: number | undefined;
  /**
   * Whether kernels are tuned to the GPU while loading: variants of them are compared on the model's own shapes, and the browser keeps
   * what was found (per GPU, shape and version), so that later loads take it over at once. `auto`: on GPUs only, for up to a second of a
   * model's first load (and of the next, where that was not enough); `always`: also on software adapters, where it gains little; `off`:
   * never. Default: `auto`.
   */
  autotune?: Autotune | undefined;
  /** Which GPU to prefer in a machine with two. Default: `high-performance`. */
  powerPreference?: PowerPreference | undefined;
  /** Ask for the browser's software adapter. Slow; for tests. Default: false. */
  forceFallbackAdapter?: boolean | undefined;
}

/** When variants of kernels are compared. */
export type Autotune = 'auto' | 'always' | 'off';

/** Which adapter to take if there are several. */
export type PowerPreference = 'low-power' | 'high-performance';

/** How exact the activations are. */
export type Precision = 'fast' | 'exact';

/** How keys and values are stored. */
export type KvFormat = 'f16' | 'f32' | 'q8_0';

/** The names of these options. */
export const LOAD_OPTIONS = [
  'quantize',
  'contextLength',
  'maxSequences',
  'chatTemplate',
  'precision',
  'kvCache',
  'promptCacheBytes',
  'autotune',
  'powerPreference',
  'forceFallbackAdapter',
] as const;

/** Bytes read so far. The total covers the header and the weights. */
export interface Progress {
  /** What happens now. */
  phase: Phase;
  /** Bytes. */
  loaded: number;
  /** Bytes; 0 while it is not known yet. */
  total: number;
}

/** What a load is at. */
export type Phase = 'header' | 'weights' | 'ready';

/** What was loaded. */
export interface ModelInfo {
  /** The name that the file gives itself. */
  name?: string;
  /** The file has a chat template of its own, or the load was given one; without one, chats are written in ChatML. */
  has_chat_template: boolean;
  /** As GGUF files call it: `llama`, `qwen2`. */
  architecture: string;
  /** It goes on with a text. False of an encoder, which makes embeddings only: `chat` and `completions` reject. */
  generates: boolean;
  /** It makes embeddings: it is an encoder, or its files say how the vectors of its tokens become one. */
  embeds: boolean;
  /** How many weights the model has. */
  parameters: number;
  /** Blocks of attention and feed-forward. */
  layers: number;
  /** Tokens that fit the KV cache; of an encoder, those that a text may have. */
  context_length: number;
  /** Requests that run at once, each with a context of its own. */
  max_sequences: number;
  /** How many logits a step gives, at least the number of the tokenizer's tokens. */
  vocab_size: number;
  /** Length of a token's vector between layers, and of the embeddings. */
  embedding_length: number;
  /** The type that most bytes of the matrices have, for example `Q4_K`. */
  quantization: string;
  /** The option, or its default on this adapter; `exact` of an encoder. */
  precision: Precision;
  /** The option, or its default on this adapter. */
  kv_cache: KvFormat;
  /** Bytes on the GPU. */
  weight_bytes: number;
  /** Of the weights, the bytes that a decoded token reads: all except an embedding table that is not the output's as well. */
  weight_bytes_per_token: number;
  /** Of all sequences together. */
  kv_cache_bytes: number;
  /** The model that drafts, if one was loaded. */
  draft?: DraftInfo;
  /** Where the model runs. */
  adapter: AdapterInfo;
  /** What was tuned, now or earlier. */
  autotune: AutotuneInfo;
  /** What may make the model answer worse than it could. `onWarning` hears of each. */
  warnings: Warning[];
}

/** Something that is no error and that a person should know. */
export interface Warning {
  /** Stable, for programs. `no_chat_template`: chats are written in ChatML, which the model may not have been trained with. */
  code: 'no_chat_template';
  /** For people; it may change. */
  message: string;
}

/** A model that was loaded to draft. */
export interface DraftInfo {
  /** As GGUF files call it. */
  architecture: string;
  /** How many weights it has. */
  parameters: number;
  /** The type that most bytes of its matrices have. */
  quantization: string;
  /** Bytes on the GPU. */
  weight_bytes: number;
  /** Bytes on the GPU, for one sequence. */
  kv_cache_bytes: number;
}

/** What autotuning did. */
export interface AutotuneInfo {
  /** How far it came. */
  state: AutotuneState;
  /** The kernels with variants, measured or from the stored choices. */
  kernels: Tuned[];
  /** Kernels that are not tuned yet. */
  left: number;
  /** Why kernels could not be measured; they run as they do without tuning. */
  failed: string[];
  /** The time that it took, in milliseconds. */
  milliseconds: number;
}

/**
 * `done`: every kernel is tuned, now or by an earlier load; `partial`: time ran out, and the next load goes on; `software`: not done on a
 * software adapter; `off`: not wanted.
 */
export type AutotuneState = 'off' | 'software' | 'done' | 'partial';

/** A kernel of a model and what was found for it. */
export interface Tuned {
  /** The op's name. */
  op: string;
  /** Rows and columns of the weight and a further number; for attention heads, key-value heads and their length. */
  sizes: [number, number, number];
  /** The weight's format; `None` without a weight. */
  format: string | null;
  /** Not measured by this load. */
  from_cache: boolean;
  /** The variant that runs; null for the default. */
  variant: string | null;
  /** Microseconds of one dispatch of the default; 0 if nothing could be measured. */
  default_us: number;
  /** Microseconds of one dispatch of the variant that runs; 0 if nothing could be measured. */
  us: number;
  /** Variants that the default was compared with. */
  candidates: number;
  /** Of these, those that were discarded because they gave another result or did not compile. */
  rejected: number;
}

/** Which adapter runs, in the words of WebGPU's GPUAdapterInfo. */
export interface AdapterInfo {
  /** The maker, such as `nvidia`; natively the PCI id of the maker. */
  vendor: string;
  /** The family of GPUs, such as `ampere`; natively the driver. */
  architecture: string;
  /** The maker's id of the device; empty in most browsers. */
  device: string;
  /** The adapter's name for people; empty in most browsers. */
  description: string;
  /** True if the adapter runs in software. */
  is_fallback: boolean;
  /** The optional features that are switched on. */
  features: string[];
  /** Matrix products that one subgroup can compute, if the browser lists them. No kernel uses them yet. */
  subgroup_matrices: SubgroupMatrix[];
}

/** A product [m, k] × [k, n], as in GPUAdapterInfo's experimental `subgroupMatrixConfigs`. */
export interface SubgroupMatrix {
  /** Type of the factors' elements, such as `f16`. */
  component: string;
  /** Type of the product's elements. */
  result: string;
  /** Rows of the left factor and of the product. */
  m: number;
  /** Columns of the right factor and of the product. */
  n: number;
  /** Columns of the left factor, rows of the right one. */
  k: number;
}

/** What the headers of a model say. What only a supported architecture tells is missing for others. */
export interface Inspection {
  /** The name that the file gives itself. */
  name?: string;
  /** The format of the files. */
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
  /** Blocks of attention and feed-forward. */
  layers?: number;
  /** How many logits a step gives. */
  vocab_size?: number;
  /** Length of a token's vector between layers, and of the embeddings. */
  embedding_length?: number;
  /** Tokens that the model was trained for. */
  trained_context_length?: number;
  /** Tokens that `kv_cache_bytes` is for: what was asked for, or what `load` takes by itself. */
  context_length?: number;
  /** Bytes of the weights on the GPU. */
  weight_bytes?: number;
  /** Bytes of the KV cache on the GPU, for `maxSequences` requests; 0 of an encoder. */
  kv_cache_bytes?: number;
  /** The adapter that a load would take, and how large a buffer and a binding on it may be. Missing without WebGPU. */
  adapter?: AdapterLimits;
  /**
   * What loading it here would end in. Without it, nothing that can be known beforehand speaks against loading; how much memory a GPU
   * has, WebGPU does not tell.
   */
  problem?: Problem;
}

/** An adapter, and how large things on it may be. */
export interface AdapterLimits {
  /** The largest buffer, in bytes. */
  max_buffer_bytes: number;
  /** The largest part of a buffer that a kernel can read, in bytes. */
  max_binding_bytes: number;
  /** The maker, such as `nvidia`; natively the PCI id of the maker. */
  vendor: string;
  /** The family of GPUs, such as `ampere`; natively the driver. */
  architecture: string;
  /** The maker's id of the device; empty in most browsers. */
  device: string;
  /** The adapter's name for people; empty in most browsers. */
  description: string;
  /** True if the adapter runs in software. */
  is_fallback: boolean;
  /** The optional features that are switched on. */
  features: string[];
  /** Matrix products that one subgroup can compute, if the browser lists them. No kernel uses them yet. */
  subgroup_matrices: SubgroupMatrix[];
}

/** What loading would end in. */
export interface Problem {
  /** Stable, for programs. */
  code: ErrorCode;
  /** For people; it may change. */
  message: string;
}
