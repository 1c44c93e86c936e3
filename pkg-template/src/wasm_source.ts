// What callers may name as a WebAssembly module, and what becomes of it on its way to the thread that compiles it. It compiles nothing.

import { describe, reading } from './arguments.js';
import { abortError, EngineError } from './errors.js';
import { resolveUrl } from './source.js';

/**
 * A WebAssembly module of the package: its address, a response with it, its bytes, or the compiled module. A response is read from a copy, so
 * it can be used again.
 */
export type WasmSource = string | URL | Response | ArrayBuffer | ArrayBufferView | WebAssembly.Module;

/** A module as it travels to a worker: an absolute address, bytes, or the compiled module. */
export type SentWasm = string | Uint8Array | WebAssembly.Module;

/** Where the engine's module comes from. */
export interface WasmOptions {
  wasmUrl?: string | URL | undefined;
  wasmModule?: WasmSource | undefined;
}

/** Which of the engine's modules, and where it comes from if that is not beside the package. */
export interface EngineWasm {
  build: EngineBuild;
  from?: SentWasm;
}

/** The engine on a GPU, on the CPU, and on a GPU with what trains. */
export type EngineBuild = 'gpu' | 'cpu' | 'train';

const OPTIONS: Record<EngineBuild, readonly [url: string, module: string]> = {
  gpu: ['wasmUrl', 'wasmModule'],
  cpu: ['cpuWasmUrl', 'cpuWasmModule'],
  train: ['trainingWasmUrl', 'trainingWasmModule'],
};

/** The engine's module for a device, with what trains if the options ask for it. */
export async function engineWasm(options: object, device: 'gpu' | 'cpu', signal?: AbortSignal): Promise<EngineWasm> {
  const { training } = options as { training?: unknown };
  const build = device === 'gpu' && training === true ? 'train' : device;
  const from = await sentWasm(options, signal, OPTIONS[build]);
  return { build, ...(from === undefined ? {} : { from }) };
}

const WANTED = 'a URL, a Response, an ArrayBuffer, a typed array or a WebAssembly.Module';

/** The module that `wasmUrl` and `wasmModule` name, or their likes by other names; undefined for the one beside the package. */
export async function sentWasm(
  options: object,
  signal?: AbortSignal,
  [urlName, moduleName]: readonly [string, string] = ['wasmUrl', 'wasmModule'],
): Promise<SentWasm | undefined> {
  const { [urlName]: url, [moduleName]: given } = options as Record<string, unknown>;
  return reading(`the option ${moduleName}`, () => sentOf(url, urlName, given, moduleName, signal));
}

function sentOf(
  url: unknown,
  urlName: string,
  given: unknown,
  moduleName: string,
  signal: AbortSignal | undefined,
): SentWasm | undefined | Promise<SentWasm> {
  if (url !== undefined && given !== undefined) {
    throw new EngineError('invalid_request', `the options ${urlName} and ${moduleName} exclude each other: leave one of them out`);
  }
  if (url !== undefined) return resolveUrl(url, urlName);
  if (given === undefined) return undefined;
  if (typeof given === 'string' || given instanceof URL) return resolveUrl(given, moduleName);
  if (isView(given)) return copied(given, moduleName);
  // By their tags, since objects of another frame have other classes.
  switch (Object.prototype.toString.call(given)) {
    case '[object ArrayBuffer]':
      return copied(given as ArrayBuffer, moduleName);
    case '[object WebAssembly.Module]':
      return given as WebAssembly.Module;
    case '[object Response]':
      return bytesOf(given as Response, moduleName, signal).then((bytes) => copied(bytes, moduleName));
    default:
      throw new EngineError('invalid_request', `the option ${moduleName} is ${WANTED}, got ${called(given)}`);
  }
}

function isView(value: unknown): value is ArrayBufferView {
  return ArrayBuffer.isView(value);
}

/** A promise is what people forget to wait for. */
function called(value: unknown): string {
  if (typeof value !== 'object' || value === null) return describe(value);
  return typeof (value as { then?: unknown }).then === 'function' ? 'a promise: await it' : 'another object';
}

/** A copy: the caller may go on using its bytes, and a view would take the whole buffer along. */
function copied(bytes: ArrayBuffer | ArrayBufferView, name: string): Uint8Array {
  // So it is too if they were transferred, and then nothing more can be asked of them.
  if (bytes.byteLength === 0) {
    throw new EngineError('invalid_request', `the option ${name} has no bytes: it is empty, or was transferred to another thread`);
  }
  return (isView(bytes) ? new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength) : new Uint8Array(bytes)).slice();
}

async function bytesOf(response: Response, name: string, signal: AbortSignal | undefined): Promise<ArrayBuffer> {
  if (response.bodyUsed) {
    throw new EngineError('invalid_request', `the option ${name} is a Response whose body was read already: hand in a clone() of it`);
  }
  if (!response.ok) {
    const what =
      response.type === 'opaque' ? 'a Response that scripts may not read (mode "no-cors")' : `a Response with status ${response.status}`;
    throw new EngineError('wasm_unavailable', `the option ${name} is ${what}`);
  }
  if (signal?.aborted) throw abortError(signal, 'reading the WebAssembly module');
  let abort!: () => void;
  const aborted = new Promise<never>((_, reject) => (abort = () => reject(abortError(signal!, 'reading the WebAssembly module'))));
  signal?.addEventListener('abort', abort, { once: true });
  try {
    return await Promise.race([response.clone().arrayBuffer(), aborted]);
  } catch (thrown) {
    if (thrown instanceof EngineError) throw thrown;
    throw new EngineError('wasm_unavailable', `the Response of the option ${name} could not be read: ${String(thrown)}`, { cause: thrown });
  } finally {
    signal?.removeEventListener('abort', abort);
  }
}
