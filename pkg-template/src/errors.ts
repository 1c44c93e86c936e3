// The one error type of the package. It knows nothing of workers, wasm or requests.

import { ERROR_CODES } from './generated/errors.js';

export { ERROR_CODES };

export type ErrorCode = (typeof ERROR_CODES)[number];

/** Where the site of the documentation is, with a slash at its end: `homepage` of package.json. Empty while it has no address. */
const DOCS_SITE = '';

/** Everything that fails in this package rejects with this error. */
export class EngineError extends Error {
  /** A stable name for programs; `message` is for people. */
  readonly code: ErrorCode;
  /** Where the documentation says what to do about this code: an address, or while its site has none a path on that site. */
  readonly docs: string;
  /** What `sessions.save` has computed, if it could not be kept by its name. */
  declare readonly session?: Blob;

  constructor(code: ErrorCode, message: string, { session, ...options }: ErrorOptions & { session?: Blob } = {}) {
    super(message, options);
    this.name = 'EngineError';
    this.code = code;
    this.docs = `${DOCS_SITE}guide/errors.html#${code}`;
    if (session !== undefined) this.session = session;
  }
}

/** An error as it travels between the worker and the page. */
export interface ErrorData {
  code: ErrorCode;
  message: string;
}

/** @internal */
export function errorData(error: EngineError): ErrorData {
  return { code: error.code, message: error.message };
}

/** Codes of errors after which an engine can't answer again. @internal */
export const BROKEN: readonly ErrorCode[] = ['device_lost', 'worker_lost', 'internal', 'disposed'];

/** The error of a GPU device that is lost. @internal */
export function deviceLost({ reason, message }: Pick<GPUDeviceLostInfo, 'reason' | 'message'>): EngineError {
  const what = reason === 'destroyed' ? DESTROYED : 'the GPU device was lost';
  return new EngineError('device_lost', `${what} (${message || 'no reason given'}); load the model again`);
}

const DESTROYED = 'the GPU device was lost, since it was destroyed';

/** Whether a page ended its device itself. @internal */
export function wasDestroyed({ message }: EngineError): boolean {
  return message.startsWith(DESTROYED);
}

/** The error of a worker that is gone. @internal */
export function workerLost(what: string): EngineError {
  return new EngineError(
    'worker_lost',
    `the worker ${what} is gone: the page terminated it, or the browser ended it, such as for want of memory; load the engine again with Engine.load()`,
  );
}

function isErrorCode(value: unknown): value is ErrorCode {
  return (ERROR_CODES as readonly unknown[]).includes(value);
}

/** Whatever was thrown, as text. Never throws, though the caller's own objects may be thrown. @internal */
export function textOf(thrown: unknown): string {
  try {
    // To write out a long one would take all memory.
    if (Array.isArray(thrown) && thrown.length > 100) return `an array of ${thrown.length}`;
    return String(thrown);
  } catch {
    return `something that can't be read (${typeof thrown})`;
  }
}

/** Whether it is an error of ours. Never throws, as `instanceof` may of a proxy. @internal */
export function isEngineError(thrown: unknown): thrown is EngineError {
  try {
    return thrown instanceof EngineError;
  } catch {
    return false;
  }
}

/** Whatever was thrown, as an EngineError. Never throws. @internal */
export function toEngineError(thrown: unknown): EngineError {
  try {
    return errorOf(thrown);
  } catch {
    return new EngineError('internal', textOf(thrown), { cause: thrown });
  }
}

function errorOf(thrown: unknown): EngineError {
  if (thrown instanceof EngineError) return thrown;
  if (typeof thrown === 'object' && thrown !== null) {
    const { code, name, message } = thrown as { code?: unknown; name?: unknown; message?: unknown };
    if (isErrorCode(code)) return new EngineError(code, String(message), { cause: thrown });
    if (name === 'AbortError') return new EngineError('aborted', String(message), { cause: thrown });
    if (thrown instanceof Error) return new EngineError('internal', `${String(name)}: ${String(message)}`, { cause: thrown });
  }
  return new EngineError('internal', textOf(thrown), { cause: thrown });
}

/** The error where no browser is. @internal */
export function noWebGpu(): EngineError {
  return new EngineError(
    'webgpu_unavailable',
    'there is no WebGPU here (navigator.gpu): run this in a browser that has it; a server may import the package, and load nothing',
  );
}

/** The error of an aborted signal. @internal */
export function abortError(signal: AbortSignal, what: string): EngineError {
  return new EngineError('aborted', `${what} was aborted by the caller's signal`, { cause: signal.reason });
}
