// What can go wrong. Made from the Rust structs by `npm run types`: change those.

/** What went wrong, as a stable name that programs may compare. Messages may change, codes don't. */
export const ERROR_CODES = [
  /** There is no WebGPU in this browser, or it is switched off. */
  'webgpu_unavailable',
  /** WebGPU is there, but it offers no adapter. */
  'adapter_unavailable',
  /** The adapter's limits are too small for the request. */
  'adapter_limits',
  /** The GPU device was lost and does not come back (`maxRecoveries`, for an engine); everything in flight is rejected. */
  'device_lost',
  /** The GPU or the heap has no room for an allocation. */
  'out_of_memory',
  /** A buffer or tensor of one device was used on another. */
  'wrong_device',
  /** A slice or an index is out of range. */
  'out_of_range',
  /** A shader did not compile. */
  'shader_compilation',
  /** WebGPU refused a command. */
  'gpu_validation',
  /** Shapes of tensors don't fit each other or the operation. */
  'shape_mismatch',
  /** An element type that the operation does not support. */
  'dtype_mismatch',
  /** The file does not begin like a GGUF file. */
  'not_gguf',
  /** A GGUF version that is not supported. */
  'unsupported_gguf_version',
  /** The file is shorter than its header says. */
  'truncated',
  /** The file contradicts itself or its format. */
  'invalid_file',
  /** An architecture that is not supported. */
  'unsupported_architecture',
  /** A tensor type that is not supported. */
  'unsupported_tensor_type',
  /** A tensor that the architecture needs is not in the file. */
  'missing_tensor',
  /** A metadata key that the architecture needs is not in the file, or has another type. */
  'invalid_metadata',
  /** The model's tokenizer is of an unsupported kind, or is broken. */
  'unsupported_tokenizer',
  /** The draft model has other tokens than the model. */
  'vocabulary_mismatch',
  /** The chat template does not compile or failed while rendering. */
  'chat_template',
  /** The request could not be sent, or its connection broke. */
  'network',
  /** The server answered with an HTTP error status. */
  'http',
  /** The server requires a right that the caller lacks: a login, a token, accepted conditions. */
  'access_denied',
  /** There is no such file, repository or revision. */
  'not_found',
  /** A file has another SHA-256 than it should: it was damaged on its way, or replaced. */
  'integrity_mismatch',
  /** Files can't be kept in the browser: it has no place for them, or no room. */
  'cache_unavailable',
  /** A tab works with files that were to be deleted. */
  'cache_in_use',
  /** The server does not support byte ranges. */
  'range_not_supported',
  /** Reading a file or Blob failed. */
  'read',
  /** The caller aborted. */
  'aborted',
  /** An adapter (LoRA) is of another model: it names matrices that this one lacks, or has other shapes. */
  'adapter_mismatch',
  /** An adapter is of a kind that is not supported, or adds to what no adapter can be added to here. */
  'unsupported_adapter',
  /** A request or a call names an adapter that is not loaded. */
  'unknown_adapter',
  /** A saved session is of another model, of the same one loaded with other options, or of adapters that are not loaded. */
  'session_mismatch',
  /** A checkpoint of a training is of other data, settings or another model. */
  'checkpoint_mismatch',
  /** A field of a request is missing, unknown or out of its range. */
  'invalid_request',
  /** The prompt does not fit the context. */
  'context_length_exceeded',
  /** Logits or weights hold NaN or infinity where a finite number is needed. */
  'numerical_error',
  /** A logits processor threw (`cause` is what it threw), or did not return logits. */
  'logits_processor',
  /** The WebAssembly file could not be fetched or compiled. */
  'wasm_unavailable',
  /** The worker script did not start: not found, or forbidden by a content security policy. Only JavaScript can tell. */
  'worker_unavailable',
  /** The worker that ran the engine is gone and does not come back (`maxRecoveries`): the page or the browser ended it. Load the engine again. Only JavaScript can tell. */
  'worker_lost',
  /** The object was disposed of. */
  'disposed',
  /** A fault of this library. */
  'internal',
] as const;
