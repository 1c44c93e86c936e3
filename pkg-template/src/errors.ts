// The one error type of the package. It knows nothing of workers, wasm or requests.

/** What went wrong, as a stable name that programs may compare. Messages may change, codes don't. */
export const ERROR_CODES = [
  /** There is no WebGPU in this browser, or it is switched off. */
  'webgpu_unavailable',
  /** WebGPU is there, but it offers no adapter. */
  'adapter_unavailable',
  /** The adapter's limits are too small for what was asked. */
  'adapter_limits',
  /** The GPU device was lost; everything in flight is rejected. */
  'device_lost',
  /** The GPU or the heap has no room for an allocation. */
  'out_of_memory',
  /** A buffer or tensor of one device was used on another. */
  'wrong_device',
  /** A slice or an index lies outside of what it is taken from. */
  'out_of_range',
  /** A shader did not compile. */
  'shader_compilation',
  /** WebGPU refused a command. */
  'gpu_validation',
  /** Shapes of tensors don't fit each other or the operation. */
  'shape_mismatch',
  /** An element type that the operation does not take. */
  'dtype_mismatch',
  /** The file does not begin as a GGUF file does. */
  'not_gguf',
  /** A GGUF version that is not read. */
  'unsupported_gguf_version',
  /** The file ends before what its header promises. */
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
  /** The tokenizer of the model is of a kind that is not supported, or is broken. */
  'unsupported_tokenizer',
  /** The draft model's tokens are not the model's. */
  'vocabulary_mismatch',
  /** The chat template does not compile or failed while rendering. */
  'chat_template',
  /** The request could not be sent or broke off. */
  'network',
  /** The server answered with an HTTP error status. */
  'http',
  /** The server wants a right that the caller has not shown: a login, a token, accepted conditions. */
  'access_denied',
  /** There is no such file, repository or revision. */
  'not_found',
  /** The server does not serve byte ranges. */
  'range_not_supported',
  /** Reading a file or Blob failed. */
  'read',
  /** The caller aborted. */
  'aborted',
  /** A field of a request is missing, unknown or out of its range. */
  'invalid_request',
  /** The prompt does not fit the context. */
  'context_length_exceeded',
  /** Logits or weights hold NaN or infinity where a number is needed. */
  'numerical_error',
  /** A logits processor threw (`cause` is what it threw), or gave something else than logits. */
  'logits_processor',
  /** The object was disposed of. */
  'disposed',
  /** The worker script did not start: not found, or forbidden by a content security policy. */
  'worker_unavailable',
  /** The WebAssembly file could not be fetched or compiled. */
  'wasm_unavailable',
  /** A fault of this library. */
  'internal',
] as const;

export type ErrorCode = (typeof ERROR_CODES)[number];

/** Everything that fails in this package rejects with this error. */
export class EngineError extends Error {
  /** A stable name for programs; `message` is for people. */
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'EngineError';
    this.code = code;
  }
}

/** An error as it travels between the worker and the page. @internal */
export interface ErrorData {
  code: ErrorCode;
  message: string;
}

/** @internal */
export function errorData(error: EngineError): ErrorData {
  return { code: error.code, message: error.message };
}

function isErrorCode(value: unknown): value is ErrorCode {
  return (ERROR_CODES as readonly unknown[]).includes(value);
}

/** Whatever was thrown, as an EngineError. @internal */
export function toEngineError(thrown: unknown): EngineError {
  if (thrown instanceof EngineError) return thrown;
  if (typeof thrown === 'object' && thrown !== null) {
    const { code, name, message } = thrown as { code?: unknown; name?: unknown; message?: unknown };
    if (isErrorCode(code)) return new EngineError(code, String(message), { cause: thrown });
    if (name === 'AbortError') return new EngineError('aborted', String(message), { cause: thrown });
    if (thrown instanceof Error) return new EngineError('internal', `${String(name)}: ${String(message)}`, { cause: thrown });
  }
  return new EngineError('internal', String(thrown), { cause: thrown });
}

/** The error of an aborted signal. @internal */
export function abortError(signal: AbortSignal, what: string): EngineError {
  return new EngineError('aborted', `${what} was aborted by the caller's signal`, { cause: signal.reason });
}
