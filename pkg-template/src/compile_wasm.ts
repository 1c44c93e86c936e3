// Fetches and compiles a WebAssembly module of the package, and makes sure that it is the one that is wanted. It knows nothing of the glue.

import { EngineError } from './errors.js';
import type { SentWasm } from './wasm_source.js';

/** What is said of a module that does not load. */
export interface WasmNames {
  file: string;
  /** The option that takes the module. */
  option: string;
  advice: string;
}

/**
 * Makes what loads a wasm on a thread's first call. After a failure, the next call tries again. `renew` gives a new instance in place of one that is
 * broken, or nothing.
 */
export function wasmLoader<T>(
  { file, option, advice }: WasmNames,
  start: (source: SentWasm | undefined) => Promise<T>,
  renew: (wasm: T) => T | undefined = () => undefined,
): (source?: SentWasm) => Promise<T> {
  let loading: Promise<T> | undefined;
  return async (source) => {
    for (;;) {
      loading ??= start(source).catch((thrown: unknown) => {
        loading = undefined;
        const message = `the WebAssembly module ${called(source, file, option)} did not load (${String(thrown)}): ${advice}`;
        throw new EngineError('wasm_unavailable', message, { cause: thrown });
      });
      const current = loading;
      const wasm = await current;
      // Another call may have renewed it meanwhile.
      if (loading !== current) continue;
      const renewed = renew(wasm);
      if (renewed !== undefined) loading = Promise.resolve(renewed);
      return renewed ?? wasm;
    }
  };
}

/** `mark` is an export by which the module is known. Rejects with what went wrong, in words for people. */
export async function compileWasm(source: SentWasm | URL, mark: string): Promise<WebAssembly.Module> {
  const module = await compiled(source);
  // The glue keeps the first instance that it makes, so one of another module would stay for good.
  if (!WebAssembly.Module.exports(module).some(({ name }) => name === mark)) {
    throw new Error('it is another module, or one of another version of the package');
  }
  return module;
}

async function compiled(source: SentWasm | URL): Promise<WebAssembly.Module> {
  if (source instanceof Uint8Array) return WebAssembly.compile(source as Uint8Array<ArrayBuffer>);
  // A module of another frame is of another class.
  if (typeof source !== 'string' && !(source instanceof URL)) return source;
  const response = await fetch(source);
  if (!response.ok) throw new Error(`the server answered with status ${response.status}`);
  const type = response.headers.get('content-type')?.split(';')[0]?.trim().toLowerCase();
  if (type === 'text/html') {
    throw new Error('the server answered with a page of HTML, as many do for files that are not there');
  }
  // Only this type may be compiled while it comes in; others are compiled all the same.
  if (type === 'application/wasm' && typeof WebAssembly.compileStreaming === 'function') return WebAssembly.compileStreaming(response);
  return WebAssembly.compile(await response.arrayBuffer());
}

function called(source: SentWasm | undefined, file: string, option: string): string {
  if (source === undefined) return `${file} beside the package`;
  return typeof source === 'string' ? source : `of the option ${option}`;
}
