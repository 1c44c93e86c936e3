// The counters of the GPU runtime. Made from the Rust structs by `npm run types`: change those.

/** Counters since the start or the last reset, and what is alive now. */
export interface Stats {
  /** Kernels that were submitted. */
  dispatches: number;
  /** Compute passes that were encoded. */
  passes: number;
  /** Command encoders, one for each submit. */
  encoders: number;
  /** Submits to the queue. */
  submits: number;
  /** Calls of `sync()`. */
  syncs: number;
  /** Of these, those that waited for nothing or only for a read-back. */
  syncs_without_wait: number;
  /** Mappings of staging buffers for reading. */
  maps: number;
  /** Uniform buffers written, which happens only if a content is not in the cache. */
  uniform_writes: number;
  /** Small writes encoded as copies, which force no submit. */
  staged_writes: number;
  /** Writes that were handed to the queue: large ones, and those before which nothing was recorded. */
  queue_writes: number;
  /** GPU buffers that were made, of any kind. */
  buffers_created: number;
  /** Storage buffers that came from those that wait for reuse. */
  buffers_reused: number;
  /** Bind groups that were made. */
  bind_groups_created: number;
  /** Pipelines that were compiled. */
  pipelines_created: number;
  /** Copies from buffer to buffer, within the GPU's memory. */
  copies: number;
  /** Bytes of these copies. */
  bytes_copied: number;
  /** Bytes written from the CPU to storage buffers, by writes of both kinds. */
  bytes_uploaded: number;
  /** Bytes read back to the CPU. */
  bytes_read_back: number;
  /** Buffers that were freed while submitted work could still use them. */
  deferred_frees: number;
  /** The same submits, by their reason. */
  flushes: Flushes;
  /** Bytes in GPU buffers that are alive or kept for reuse. */
  live_bytes: number;
  /** The highest that `live_bytes` has been. */
  peak_bytes: number;
  /** GPU buffers that are alive or kept for reuse. */
  live_buffers: number;
  /** Of the live bytes, those that wait for reuse. */
  pooled_bytes: number;
  /** Of the live bytes, those of the arenas of plans. */
  arena_bytes: number;
  /** What the tensors of those plans would take if none shared its bytes. */
  arena_bytes_without_reuse: number;
  /** Uniform buffers, by content. */
  uniforms: CacheStats;
  /** Bind groups, by layout and what they bind. */
  bind_groups: CacheStats;
  /** Compiled pipelines, by the text of their shaders. */
  pipelines: CacheStats;
}

/** Submits by their reason. */
export interface Flushes {
  /** `sync()` was called. */
  sync: number;
  /** A read-back was started. */
  readback: number;
  /** `flush()` was called, or a batch executed. */
  explicit: number;
  /** A large write had to come after recorded commands. */
  write: number;
  /** The ring of staged writes was full. */
  pending_writes: number;
  /** `maxBatchSize` dispatches were recorded. */
  batch_limit: number;
  /** Lazy mode was off. */
  eager: number;
  /** Debug mode submits each dispatch by itself. */
  debug: number;
  /** The device was destroyed. */
  end: number;
}

/** One cache since the last reset, and what lives in it now. */
export interface CacheStats {
  /** Look-ups that found an entry. */
  hits: number;
  /** Look-ups that found none. */
  misses: number;
  /** Entries dropped to make room for others. */
  evictions: number;
  /** Entries now. */
  entries: number;
  /** Bytes of GPU memory that the entries hold, as far as that is known. */
  bytes: number;
}

/** GPU time of one kernel. */
export interface KernelTime {
  /** The number of its dispatches. */
  dispatches: number;
  /** The time of all of them together. */
  nanoseconds: number;
  /**
   * Bytes of the tensors bound for reading only, summed over the dispatches. A kernel that reads its whole input, such as a
   * mat-vec, reads this much; a kernel that picks rows reads less.
   */
  read_bytes: number;
}

/** GPU time of one kernel with inputs of one size. */
export interface KernelUse {
  /** The kernel's name. */
  label: string;
  /** The number of its dispatches. */
  dispatches: number;
  /** The time of all of them together. */
  nanoseconds: number;
  /**
   * Bytes of the tensors bound for reading only, summed over the dispatches. A kernel that reads its whole input, such as a
   * mat-vec, reads this much; a kernel that picks rows reads less.
   */
  read_bytes: number;
}

/** Bytes on the GPU, by what they are for. All but `total`, `peak` and the last two add up to `total`, which is what the device counts. */
export interface MemoryUse {
  /** The weights of the model, and of the draft model. */
  weights: number;
  /** Adapters (LoRA). */
  adapters: number;
  /** Keys and values of all sequences. */
  kv_cache: number;
  /** States of recurrent layers. */
  recurrent_state: number;
  /** Copies of them, from which earlier beginnings of a text go on. */
  recurrent_checkpoints: number;
  /** Texts that no request runs on any more. */
  prompt_cache: number;
  /** Tensors of recorded steps. */
  arenas: number;
  /** What waits for reuse. */
  pools: number;
  /** All else in use: what a prompt's pass needs, samplers, uniforms. */
  other: number;
  /** All of them. */
  total: number;
  /** The most that `total` has been since the load or the last `resetStats`. */
  peak: number;
  /** Bytes that were written and that the GPU is not known to have read. A browser keeps copies of them until then. */
  unfinished_writes: number;
  /** The most of them at one time since the load began. */
  peak_unfinished_writes: number;
}
