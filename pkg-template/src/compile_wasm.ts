// Fetches and compiles a WebAssembly module of the package, and makes sure that it is the one that is wanted. What passes is tried again, as with
// the files of a model. It knows nothing of the glue.

import { EngineError } from './errors.js';
import { Attempts, DEFAULT_RETRIES, DEFAULT_STALL_TIMEOUT_MS, type RetryPolicy } from './files/attempts.js';
import { isPassingStatus, RefusedError } from './files/failures.js';
import { Pending } from './files/pending.js';
import { fileBytes, isServer } from './node.js';
import type { SentWasm } from './wasm_source.js';

/** What is said of a module that does not load. */
export interface WasmNames {
  file: string;
  /** The option that takes the module. */
  option: string;
  advice: string;
}

/** A function that makes a vector of bytes and counts its bits, which are instructions of SIMD with 128 bits (opcodes 0xfd 0x0f and 0xfd 0x62). */
const VECTORS = new Uint8Array([
  ...[0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00],
  ...[0x01, 0x05, 0x01, 0x60, 0x00, 0x01, 0x7b],
  ...[0x03, 0x02, 0x01, 0x00],
  ...[0x0a, 0x0a, 0x01, 0x08, 0x00, 0x41, 0x00, 0xfd, 0x0f, 0xfd, 0x62, 0x0b],
]);

/** Refuses, before it is fetched, a module with vectors where there are none. */
export function checkVectors(file: string): void {
  if (WebAssembly.validate(VECTORS)) return;
  throw new EngineError(
    'wasm_unavailable',
    `${file} needs SIMD in WebAssembly (vectors of 128 bits), which this browser or processor does not have: update the browser, or use one with WebGPU`,
  );
}

const POLICY: RetryPolicy = { retries: DEFAULT_RETRIES, stallTimeoutMs: DEFAULT_STALL_TIMEOUT_MS, onRetry: () => {} };

/**
 * Makes what loads a wasm on a thread's first call, whose policy is for all that wait for the same. After a failure, the next call tries again.
 * `renew` gives a new instance in place of one that is broken, or nothing.
 */
export function wasmLoader<T>(
  { file, option, advice }: WasmNames,
  start: (source: SentWasm | undefined, policy: RetryPolicy) => Promise<T>,
  renew: (wasm: T) => T | undefined = () => undefined,
): (source?: SentWasm, policy?: RetryPolicy) => Promise<T> {
  let loading: Promise<T> | undefined;
  return async (source, policy = POLICY) => {
    for (;;) {
      loading ??= start(source, policy).catch((thrown: unknown) => {
        loading = undefined;
        // It says by itself what to do.
        if (thrown instanceof EngineError && thrown.code === 'wasm_unavailable') throw thrown;
        const why = thrown instanceof EngineError ? thrown.message : String(thrown);
        const message = `the WebAssembly module ${called(source, file, option)} did not load (${why}): ${advice}`;
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
export async function compileWasm(source: SentWasm | URL, mark: string, policy: RetryPolicy): Promise<WebAssembly.Module> {
  const module = await compiled(source, policy);
  // The glue keeps the first instance that it makes, so one of another module would stay for good.
  if (!WebAssembly.Module.exports(module).some(({ name }) => name === mark)) {
    throw new Error('it is another module, or one of another version of the package');
  }
  return module;
}

async function compiled(source: SentWasm | URL, policy: RetryPolicy): Promise<WebAssembly.Module> {
  if (source instanceof Uint8Array) return WebAssembly.compile(source as Uint8Array<ArrayBuffer>);
  // A module of another frame is of another class.
  if (typeof source !== 'string' && !(source instanceof URL)) return source;
  const url = String(source);
  if (url.startsWith('file:') && isServer()) return WebAssembly.compile(await fileBytes(url));
  // What is no server's, such as a blob, is there or not.
  const retries = /^https?:/i.test(url) ? policy.retries : 0;
  return new Attempts(url, { ...policy, retries }, []).run(async () => {
    const pending = new Pending(url, policy.stallTimeoutMs, []);
    try {
      return await compiledOnce(url, pending);
    } finally {
      pending.end();
    }
  });
}

async function compiledOnce(url: string, pending: Pending): Promise<WebAssembly.Module> {
  const response = await pending.wait(() => fetch(url, { signal: pending.signal }));
  if (isPassingStatus(response.status)) throw new RefusedError(url, response);
  if (!response.ok) throw new Error(`the server answered with status ${response.status}`);
  const type = response.headers.get('content-type')?.split(';')[0]?.trim().toLowerCase();
  if (type === 'text/html') {
    throw new Error('the server answered with a page of HTML, as many do for files that are not there');
  }
  const check = headerCheck();
  // Only this type may be compiled while it comes in; others are compiled all the same.
  if (type !== 'application/wasm' || typeof WebAssembly.compileStreaming !== 'function') {
    const chunks: Uint8Array<ArrayBuffer>[] = [];
    await readAll(response, pending, (chunk) => {
      check(chunk);
      chunks.push(chunk);
    });
    return WebAssembly.compile(await new Blob(chunks).arrayBuffer());
  }
  // The compiler does not say what comes in, so a copy is watched. The compiler gets the browser's own response, of which code is kept.
  const copy = response.clone();
  const compiling = WebAssembly.compileStreaming(response);
  const invalid = compiling.catch((thrown: unknown) => {
    if (thrown instanceof WebAssembly.CompileError) throw thrown;
  });
  await Promise.race([readAll(copy, pending, check), invalid.then(() => new Promise<never>(() => {}))]);
  return compiling;
}

/** Refuses what does not begin as WebAssembly does, so that the rest is not fetched: V8 tells of a fault when all has come in. */
function headerCheck(): (chunk: Uint8Array) => void {
  const header = [0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00];
  let at = 0;
  return (chunk) => {
    for (let i = 0; i < chunk.length && at < header.length; i++, at++) {
      if (chunk[i] !== header[at]) throw new WebAssembly.CompileError('it does not begin as a WebAssembly module does');
    }
  };
}

/** Reads a body to its end. Rejects with a failure that may pass if it breaks off, or nothing comes for too long. */
async function readAll({ body }: Response, pending: Pending, onChunk: (chunk: Uint8Array<ArrayBuffer>) => void): Promise<void> {
  const reader = body?.getReader();
  for (;;) {
    const chunk = await pending.wait(async () => reader?.read());
    if (chunk === undefined || chunk.done) return;
    onChunk(chunk.value);
  }
}

function called(source: SentWasm | undefined, file: string, option: string): string {
  if (source === undefined) return `${file} beside the package`;
  return typeof source === 'string' ? source : `of the option ${option}`;
}
