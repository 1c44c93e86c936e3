// What a model is loaded with, and what it says of itself. Made from the Rust structs by `npm run types`: change those.

import type { ErrorCode } from '../errors.js';

/** How a model is loaded. */
export interface LoadOptions {
  /**
   * Quantise matrices of plain numbers (F32, F16, BF16) on the GPU while loading: to about 8.5 bits a weight (`q8_0`), 6.6 (`q6_k`) or 4.5
   * (`q4_k`, `iq4_nl`, `q4_0`, the most exact first). Of four bits the matrix that gives the logits becomes Q6_K, or Q8_0 with `q4_0`. Rows
   * that are no multiple of 256 become IQ4_NL in place of Q4_K, and Q8_0 in place of Q6_K. Weights that are already quantised stay as they
   * are.
   */
  quantize?: 'q8_0' | 'q4_0' | 'q4_k' | 'q6_k' | 'iq4_nl' | undefined;
  /**
   * Length of the context in tokens. Default: 4096, or what the model was trained for if that is less; where the GPU has no room for it
   * beside the weights, half of it, and so on down to 512, with a warning. A length that is named is never shortened. For an encoder, what
   * it was trained for.
   */
  contextLength?: number | undefined;
  /**
   * Length of text, in tokens, for which ropes that depend on it (longrope, dynamic NTK) are made. Default: `contextLength`, so that a text
   * may fill the whole context: a cache can't change from the frequencies of short texts to those of long ones on the way. With the
   * model's context before it was stretched (4096 for Phi-3.5) short chats in a long context are as exact as transformers answers them,
   * and texts beyond that length lose quality. Other ropes ignore it.
   */
  ropeContextLength?: number | undefined;
  /**
   * Load the head that predicts the token after the next one (multi-token prediction of Qwen3.5 and Qwen3-Next), so that requests with
   * `speculation: {type: 'mtp'}` draft with it. Every token then writes its keys and values besides, a few dispatches more. `inspect` tells
   * whether files have such a head; without one the load rejects with `invalid_request`. Default: false.
   */
  multiTokenPrediction?: boolean | undefined;
  /**
   * Where the table of per-layer embeddings (Gemma 3n, Gemma 4 E2B and E4B) is. `device`: in memory with the other weights. `disk`: it stays in the model's files,
   * which are in the cache or are Files, and of each token a few kilobytes are read when it comes; up to 64 MiB of rows that were read last stay in
   * memory. That saves a third to a half of such a model's memory (`inspect` tells `per_layer_embedding_bytes`), and each token then waits for the one before to be
   * read back and for its row. With files that are not on this device, with `draft`, or of a model without such embeddings, the load rejects with
   * `invalid_request`. Default: `device`.
   */
  perLayerEmbeddings?: PerLayerEmbeddings | undefined;
  /**
   * How many requests run at the same time, 1 to 8; more wait for their turn. They decode together, so one read of the weights serves
   * all. Each has a KV cache of its own (`info.kv_cache_bytes` is the sum). Default: 1.
   */
  maxSequences?: number | undefined;
  /** A chat template in Jinja, in place of the model's own. */
  chatTemplate?: string | undefined;
  /**
   * For a language model that ranks documents by the logits of two tokens, where its files don't say so: the token that speaks against a
   * document, then the one for it. A plain folder of Qwen3-Reranker takes `["no", "yes"]`. As in vLLM.
   */
  classifierFromToken?: string[] | undefined;
  /**
   * How exact activations are. `fast` takes in prompts with 8-bit activations (one scale for every 32) if the weights are quantised too; on
   * the CPU it decodes with them as well, and packs weights for it, which takes up to half more memory. `exact` keeps 32-bit floats
   * everywhere. Default: `fast`, and `exact` on a software adapter, where 8 bits gain nothing.
   */
  precision?: Precision | undefined;
  /**
   * How the KV cache stores keys and values. `f16` takes half the memory of `f32`. `q8_0` takes 0.53 of the memory of `f16`: 8-bit
   * integers with a scale for every 32 of a head (heads are padded to a multiple of 32). Default: `f16`, and `f32` with the precision
   * `exact`.
   */
  kvCache?: KvFormat | undefined;
  /**
   * Bytes of GPU memory for texts that no request runs on any more: several conversations, their edits and branches. A later prompt that
   * begins like one of them takes in only what is new (`cached_tokens`, and `prompt_cache` of `stats()`). What was used longest ago goes
   * first; 0 keeps none. Memory is taken as it is needed. Default: what the KV cache of one request takes.
   */
  promptCacheBytes?: number | undefined;
  /**
   * Whether kernels are tuned to the GPU while loading: variants are compared on the model's own shapes, and the browser keeps the
   * results (per GPU, shape and version) for later loads. `auto`: on GPUs only, for up to a second of a model's first load (and of the
   * next, if that was not enough). `always`: also on software adapters, where it gains little. `off`: never. Default: `auto`.
   */
  autotune?: Autotune | undefined;
  /**
   * What counts for more while the model loads and works. `frames`: pages that draw stay smooth, since the GPU is given a few milliseconds
   * of work at a time, measured on this GPU. `throughput`: it is given as much as makes it fastest, and a page may stand still for as long
   * as a part of a prompt takes. While the page is hidden, all is `throughput`. Default: `frames` on a GPU, `throughput` on a software
   * adapter, whose work keeps no frame waiting. `engine.setSmoothness()` changes it.
   */
  smoothness?: Smoothness | undefined;
  /** Which GPU to prefer in a machine with two. Default: `high-performance`. */
  powerPreference?: PowerPreference | undefined;
  /**
   * What runs the model: `gpu`, `cpu`, or `auto`, which is the GPU where there is one, and the CPU where there is none, where the browser
   * gives no adapter and where its adapter is software. `info.device` tells which it became and why. Default: `auto`.
   */
  device?: DeviceKind | undefined;
  /**
   * On the CPU, how many threads compute, 1 to 32. Several need a page that is cross-origin isolated (headers
   * `Cross-Origin-Opener-Policy: same-origin` and `Cross-Origin-Embedder-Policy: require-corp` or `credentialless`), or a server; elsewhere
   * it is one, with a warning if more were asked for. `info.threads` tells what it became. Default: the number of cores minus one, at most 8.
   */
  threads?: number | undefined;
  /** Ask for the browser's software adapter, which is a GPU to `device`. Slow; for tests. Default: false. */
  forceFallbackAdapter?: boolean | undefined;
}

/** What runs the kernels. */
export type DeviceKind = 'auto' | 'gpu' | 'cpu';

/** When variants of kernels are compared. */
export type Autotune = 'auto' | 'always' | 'off';

/** What counts for more while the model works: the frames of pages, or speed. */
export type Smoothness = 'frames' | 'throughput';

/** Where the table of per-layer embeddings is, while a model is loaded. */
export type PerLayerEmbeddings = 'device' | 'disk';

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
  'ropeContextLength',
  'multiTokenPrediction',
  'perLayerEmbeddings',
  'maxSequences',
  'chatTemplate',
  'classifierFromToken',
  'precision',
  'kvCache',
  'promptCacheBytes',
  'autotune',
  'smoothness',
  'powerPreference',
  'device',
  'threads',
  'forceFallbackAdapter',
] as const;

/** How far a load is. */
export interface Progress {
  /** What happens now. */
  phase: Phase;
  /** Bytes read so far. */
  loaded: number;
  /** Bytes of the headers and the weights; 0 while that is not known. */
  total: number;
}

/** What a load is doing: it reads the headers, it reads the weights, or the model is ready. */
export type Phase = 'header' | 'weights' | 'ready';

/** What was loaded. */
export interface ModelInfo {
  /** What runs it. */
  device: DeviceKind;
  /**
   * Why that: `requested` by the option `device`, `gpu_available`, `no_webgpu` in this browser, `no_adapter`, a `software_adapter`,
   * `adapter_limits` that the model is too large for, or `device_lost` more than once.
   */
  device_reason?: DeviceReason;
  /** On the CPU, how many threads compute: the option `threads`, or as many as could be started. Not given for a GPU. */
  threads?: number;
  /** The name that the file gives itself. */
  name?: string;
  /** The file has a chat template, or the load was given one. Otherwise chats are written in ChatML. */
  has_chat_template: boolean;
  /** As GGUF files call it: `llama`, `qwen2`. */
  architecture: string;
  /** It generates text. False for an encoder, and for a decoder with a head that scores or labels texts: `chat` and `completions` reject. */
  generates: boolean;
  /** An encoder reads the prompt, and a decoder answers it (T5): `completions` does that, and `chat` rejects. */
  is_encoder_decoder: boolean;
  /** It makes embeddings: it is an encoder, or its files say how the vectors of tokens become one. */
  embeds: boolean;
  /** It ranks documents by a query: `rerank` works. */
  reranks: boolean;
  /** What it labels texts with, if it does: `classify` works. */
  labels?: string[];
  /** How many weights the model has. */
  parameters: number;
  /** Blocks of attention and feed-forward. */
  layers: number;
  /** The most tokens of a prompt with its answer; for an encoder, the most tokens of a text. */
  context_length: number;
  /** How many requests run at the same time, each with a context of its own. */
  max_sequences: number;
  /** How many logits a step gives, at least the number of the tokenizer's tokens. */
  vocab_size: number;
  /** Length of the embeddings. But for models with layers after their pooling it is that of a token's vector between layers. */
  embedding_length: number;
  /** The type that most bytes of the matrices have on the GPU, for example `Q4_K`, or `INT4_128` of a folder in GPTQ. */
  quantization: string;
  /** The option, or its default on this adapter; always `exact` for an encoder. */
  precision: Precision;
  /** The option, or its default on this adapter. */
  kv_cache: KvFormat;
  /** Bytes on the GPU. */
  weight_bytes: number;
  /**
   * Bytes of the weights that each decoded token reads: all, except tables of which it reads a row, an encoder, the experts that it does not use, and a
   * head that drafts.
   */
  weight_bytes_per_token: number;
  /** Where the table of per-layer embeddings is; `device` for models without one. */
  per_layer_embeddings: PerLayerEmbeddings;
  /** Bytes on the GPU, of all sequences together. */
  kv_cache_bytes: number;
  /** The head for multi-token prediction is loaded: `speculation: {type: 'mtp'}` works. */
  multi_token_prediction: boolean;
  /** The draft model, if one was loaded. */
  draft?: DraftInfo;
  /** Where the model runs. */
  adapter: AdapterInfo;
  /** What was tuned, now or earlier. */
  autotune: AutotuneInfo;
  /** What may make the model's answers worse. `onWarning` is called with each. */
  warnings: Warning[];
}

/** Why a model runs on the device that it runs on. */
export type DeviceReason =
  | 'requested'
  | 'gpu_available'
  | 'no_webgpu'
  | 'no_adapter'
  | 'software_adapter'
  | 'adapter_limits'
  | 'device_lost';

/** Something that is no error, but that a person should know. */
export interface Warning {
  /**
   * Stable, for programs. `no_chat_template`: the model has no template, as base models do, so chats are written in ChatML, which it may
   * not have been trained with. `ignored_head`: the model was trained for a task whose head is not computed (labels of tokens, answers to
   * questions), so what is made of it are embeddings that nobody trained. `ignored_parts`: of a model with several parts, such
   * as one that sees images, the text model alone runs. `shorter_context`: the GPU has no room for the default context, so a shorter one was
   * taken (`info.context_length`). `fewer_threads`: on the CPU fewer threads compute than were asked for, or than there could be (`info.threads`).
   * `moved_to_cpu`: there is a GPU, and with the device `auto` the model runs on the CPU, since it is too large for the GPU's limits or the GPU was lost.
   */
  code: 'no_chat_template' | 'ignored_head' | 'ignored_parts' | 'shorter_context' | 'fewer_threads' | 'moved_to_cpu';
  /** For people; it may change. */
  message: string;
}

/** A model that drafts for another one. */
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
 * `done`: every kernel is tuned, now or by an earlier load. `partial`: time ran out, and the next load continues. `software`: not done on
 * a software adapter. `off`: not wanted, or the model is an encoder.
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

/** What the headers of a model say. Fields that need a supported architecture are missing for others. */
export interface Inspection {
  /** The name that the file gives itself. */
  name?: string;
  /** The format of the files. */
  format: 'gguf' | 'safetensors';
  /** As GGUF files call it: `llama`, `qwen2`. */
  architecture: string;
  /** Numbers in all tensors of the files. */
  parameters: number;
  /** The type that most of the bytes have: `Q4_K`, `BF16`, `GPTQ`. */
  quantization: string;
  /** Bytes in the files, by type of tensor. */
  tensor_types: Record<string, number>;
  /** How many files hold the tensors. */
  files: number;
  /** The size of these files. */
  file_bytes: number;
  /** Blocks of attention and feed-forward. */
  layers?: number;
  /** How many logits a step gives. */
  vocab_size?: number;
  /** Length of the embeddings. But for models with layers after their pooling it is that of a token's vector between layers. */
  embedding_length?: number;
  /** The files have a head for multi-token prediction, which the option `multiTokenPrediction` loads. */
  multi_token_prediction?: boolean;
  /** Tokens that the model was trained for. */
  trained_context_length?: number;
  /** Tokens of the context that `load` would use, by the option or its default. `kv_cache_bytes` is for these. */
  context_length?: number;
  /** Bytes of the weights on the GPU. */
  weight_bytes?: number;
  /**
   * Bytes of the table of per-layer embeddings on the GPU, which `perLayerEmbeddings: 'disk'` leaves in the files; 0 without one. `weight_bytes` is by the
   * option: with the table, or with the rows of it that stay in memory.
   */
  per_layer_embedding_bytes?: number;
  /** Bytes of the KV cache on the GPU, for `maxSequences` requests; 0 for an encoder. */
  kv_cache_bytes?: number;
  /** Bytes of it that a token takes, in all layers; 0 for an encoder. */
  kv_cache_bytes_per_token?: number;
  /**
   * The most bytes that copies of recurrent states take besides, once answers run (`stats().memory.recurrent_checkpoints`): up to eight for each of
   * `maxSequences` requests, fewer where they are large; 0 for models without such layers.
   */
  recurrent_checkpoint_bytes?: number;
  /** The adapter that a load would use, and its limits. Missing without WebGPU. */
  adapter?: AdapterLimits;
  /**
   * The error that loading it here would end in. Without it, nothing known beforehand speaks against loading; WebGPU doesn't tell how
   * much memory a GPU has.
   */
  problem?: Problem;
  /** What loading it would warn of (`info.warnings`). */
  warnings: Warning[];
}

/** An adapter, and the largest sizes on it. */
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

/** The error that loading would end in. */
export interface Problem {
  /** Stable, for programs. */
  code: ErrorCode;
  /** For people; it may change. */
  message: string;
}

/** The GPU's memory ran short, and something was done about it. */
export interface MemoryPressure {
  /** What was done. */
  action: PressureAction;
  /** What there was no room for, in bytes. */
  needed_bytes: number;
  /** How many bytes were freed. */
  freed_bytes: number;
  /** Bytes that the engine holds on the GPU after that. */
  held_bytes: number;
  /** For people; it may change. */
  message: string;
}

/**
 * What was done about it. `shorter_context`: a load took a shorter context than its default. `evicted`: what no request uses was freed, such as the
 * prompt cache. `shorter_passes`: a prompt is taken in by shorter passes. `queued`: a request waits until another one ends.
 */
export type PressureAction = 'shorter_context' | 'evicted' | 'shorter_passes' | 'queued';

/** An adapter that is loaded. */
export interface LoadedAdapter {
  /** What requests call it. */
  name: string;
  /** The scale in requests that say nothing of adapters; 0 is off. */
  scale: number;
  /** The largest rank of its matrices. */
  rank: number;
  /** The kind of its files. */
  format: AdapterFormat;
  /** The kinds of matrices that it adds to, as GGUF files call them: `attn_q`, `ffn_up`. */
  targets: string[];
  /** Bytes on the GPU. */
  bytes: number;
}

/** The kind of an adapter's files. */
export type AdapterFormat = 'peft' | 'gguf';
