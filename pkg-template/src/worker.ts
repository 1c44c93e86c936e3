// The dedicated worker: an EngineHost whose calls arrive as messages. It decides nothing but how far a generation may run
// ahead of the page (its credit).

import { type EngineError, errorData, toEngineError } from './errors.js';
import { EngineHost } from './host.js';
import type { ProcessorCall } from './logits_processor.js';
import type { FromWorker, Generation, RemoteSource, SentSource, ToWorker } from './protocol.js';
import type { LoadServices, TrainingEventData } from './protocol.js';
import { serveChunks } from './files/chunk_reader.js';
import { serveDigester } from './files/port_digester.js';
import type { ModelStore } from './files/store.js';
import type { HostSource } from './source.js';
import { Helper } from './team/helper.js';
import type { ByteSource } from './types.js';
import { loadWasm } from './wasm.js';
import { live } from './worker_life.js';

// The DOM's types describe a page; these are the members of a worker's scope that are used here.
const scope = globalThis as unknown as {
  postMessage(message: FromWorker, transfer?: Transferable[]): void;
  close(): void;
  addEventListener(type: 'message', listener: (event: MessageEvent<ToWorker>) => void): void;
  addEventListener(type: 'error', listener: (event: ErrorEvent) => void): void;
  addEventListener(type: 'unhandledrejection', listener: (event: PromiseRejectionEvent) => void): void;
};

interface Running {
  generation: Generation;
  credit: number;
  wake: () => void;
}

const host = new EngineHost();
const running = new Map<number, Running>();

/** Reads of the application's own sources that the page has not answered yet. */
const reads = new Map<number, { resolve(bytes: Uint8Array): void; reject(error: EngineError): void }>();
let nextRead = 1;

/** The source with objects that ask the page in place of those that could not be sent. */
function revive(source: SentSource): HostSource {
  if (source.kind !== 'files') return source;
  return { ...source, files: source.files.map(({ name, data }) => ({ name, data: data instanceof Blob ? data : remote(data) })) };
}

function remote({ size, remote: source }: RemoteSource): ByteSource {
  return {
    size,
    read: (offset, length) =>
      new Promise((resolve, reject) => {
        const id = nextRead++;
        reads.set(id, { resolve, reject });
        scope.postMessage({ type: 'read', id, source, offset, length });
      }),
  };
}

/** Questions to the application's store that the page has not answered yet. */
const storing = new Map<number, { resolve(value: Uint8Array | ArrayBuffer | Blob | undefined): void; reject(error: unknown): void }>();
let nextStoring = 1;

type Unnumbered<Message> = Message extends { id: number } ? Omit<Message, 'id'> : never;

function askStore(message: Unnumbered<FromWorker & { type: 'store' }>, transfer: Transferable[] = []) {
  return new Promise<Uint8Array | ArrayBuffer | Blob | undefined>((resolve, reject) => {
    const id = nextStoring++;
    storing.set(id, { resolve, reject });
    scope.postMessage({ ...message, id }, transfer);
  });
}

/** The application's store, which is the page's. */
const remoteStore: ModelStore = {
  get: (key) => askStore({ type: 'store', method: 'get', key }),
  put: async (key, bytes) => void (await askStore({ type: 'store', method: 'put', key, bytes }, [bytes.buffer as ArrayBuffer])),
  delete: async (key) => void (await askStore({ type: 'store', method: 'delete', key })),
};

/** Those that wait for threads. */
const helping: ((started: number) => void)[] = [];
/** What this worker is if it helps another. */
let helper: Helper | undefined;

/** Those that wait for a worker that computes digests. */
const digesters: ((port: MessagePort | undefined) => void)[] = [];

function services(id: number): LoadServices {
  return {
    onProgress: (progress) => scope.postMessage({ type: 'progress', id, progress }),
    onEvent: (event) => scope.postMessage({ type: 'event', id, event }),
    onMemoryPressure: (event) => scope.postMessage({ type: 'memory', event }),
    store: remoteStore,
    // The page tells.
    isOfOnePage: false,
    startDigester: (of) =>
      new Promise((resolve) => {
        digesters.push(resolve);
        scope.postMessage({ type: 'digester', of });
      }),
    startHelpers: (helpers) =>
      new Promise((resolve) => {
        helping.push(resolve);
        scope.postMessage({ type: 'helpers', helpers });
      }),
    shareWithHelpers: (more) => scope.postMessage({ type: 'share', more }),
    // The page ends them with this worker.
    stopHelpers: () => {},
  };
}

/** Calls of logits processors that the page has not answered yet. */
const processing = new Map<number, { resolve(logits: Float32Array): void; reject(error: EngineError): void }>();
let nextProcessing = 1;

/** A logits processor that asks the page. */
function remoteProcessor(generation: number): ProcessorCall {
  return (logits, tokens, step) =>
    new Promise((resolve, reject) => {
      const id = nextProcessing++;
      processing.set(id, { resolve, reject });
      const message = { type: 'process', id, generation, logits, tokens, step } as const;
      scope.postMessage(message, [logits.buffer as ArrayBuffer, tokens.buffer as ArrayBuffer]);
    });
}

function fail(id: number, thrown: unknown): void {
  scope.postMessage({ type: 'error', id, error: errorData(toEngineError(thrown)) });
}

function transferables(value: unknown): Transferable[] {
  if (value instanceof Float32Array || value instanceof Uint32Array) return [value.buffer as ArrayBuffer];
  // The vectors of embeddings.
  const values = typeof value === 'object' && value !== null && 'values' in value ? value.values : undefined;
  return values instanceof Float32Array ? [values.buffer as ArrayBuffer] : [];
}

async function answer(id: number, work: () => Promise<unknown>): Promise<void> {
  try {
    const value = await work();
    scope.postMessage({ type: 'result', id, value }, transferables(value));
  } catch (thrown) {
    fail(id, thrown);
  }
}

async function generate(message: ToWorker & { type: 'generate' }): Promise<void> {
  const { id } = message;
  try {
    const processor = message.isProcessed ? remoteProcessor(id) : undefined;
    const generation = await host.generate(message.kind, message.request, processor, message.replay);
    const state: Running = { generation, credit: message.credit, wake: () => {} };
    running.set(id, state);
    scope.postMessage({ type: 'result', id, value: undefined });
    for (;;) {
      while (state.credit <= 0 && running.has(id)) await new Promise<void>((resolve) => (state.wake = resolve));
      if (!running.has(id)) return;
      const chunk = await generation.next();
      if (!running.has(id)) return;
      state.credit -= 1;
      scope.postMessage({ type: 'chunk', id, chunk });
      if (chunk === undefined) return;
    }
  } catch (thrown) {
    fail(id, thrown);
  }
}

/** Calls that run. */
const calls = new Map<number, AbortController>();

async function call({ id, method, args }: ToWorker & { type: 'call' }): Promise<unknown> {
  const controller = new AbortController();
  calls.set(id, controller);
  try {
    // TypeScript cannot see that `args` belongs to `method` once both come out of the union. A signal is the last of what a method takes.
    return await (host[method] as (...args: unknown[]) => Promise<unknown>).apply(host, [...args, controller.signal]);
  } finally {
    calls.delete(id);
  }
}

async function loadAdapter({ id, source, data }: ToWorker & { type: 'adapter' }): Promise<unknown> {
  const controller = new AbortController();
  calls.set(id, controller);
  try {
    return await host.loadAdapter(revive(source), data, services(id), controller.signal);
  } finally {
    calls.delete(id);
  }
}

async function train({ id, training, checkpoint }: ToWorker & { type: 'train' }): Promise<unknown> {
  const controller = new AbortController();
  calls.set(id, controller);
  const tell = (event: TrainingEventData) =>
    scope.postMessage({ type: 'training', id, event }, event.type === 'checkpoint' ? [event.bytes.buffer] : []);
  try {
    return await host.trainLora(training, checkpoint, tell, controller.signal);
  } finally {
    calls.delete(id);
  }
}

scope.addEventListener('message', ({ data }) => {
  // An application that made the worker may send it something as well.
  switch (data?.type) {
    case 'live':
      live(data.lock, (message) => scope.postMessage(message));
      break;
    case 'ping':
      scope.postMessage({ type: 'alive', holdsLock: false });
      break;
    case 'load': {
      const { id } = data;
      const source = revive(data.source);
      const options = data.draft === undefined ? data.options : { ...data.options, draft: revive(data.draft) };
      void answer(id, () => host.load(source, options, services(id), undefined));
      void host.ended.then((error) => scope.postMessage({ type: 'crash', error: errorData(error) }));
      break;
    }
    case 'inspect':
      void answer(data.id, () => host.inspect(revive(data.source), data.options, services(data.id), undefined));
      break;
    case 'download':
      void answer(data.id, () => host.download(revive(data.source), data.options, services(data.id), undefined));
      break;
    case 'adapter':
      void answer(data.id, () => loadAdapter(data));
      break;
    case 'train':
      void answer(data.id, () => train(data));
      break;
    case 'digest': {
      const { of, port, wasm } = data;
      if (of === 'chunks') serveChunks(port);
      else serveDigester(port, async () => new (await loadWasm(wasm)).WasmSha256());
      break;
    }
    case 'help':
      helper = new Helper(data);
      if (helper.help()) scope.close();
      break;
    case 'help-more':
      helper?.add(data.memory, data.stack);
      if (helper?.help()) scope.close();
      break;
    case 'helping':
      helping.shift()?.(data.started);
      break;
    case 'digester':
      digesters.shift()?.(data.port);
      break;
    case 'stored': {
      const asked = storing.get(data.id);
      storing.delete(data.id);
      // The name of the error tells a full store from a broken one.
      if (data.error === undefined) asked?.resolve(data.value);
      else asked?.reject(data.isFull ? new DOMException(data.error, 'QuotaExceededError') : new Error(data.error));
      break;
    }
    case 'bytes':
      reads.get(data.id)?.resolve(data.bytes);
      reads.delete(data.id);
      break;
    case 'unread':
      reads.get(data.id)?.reject(toEngineError(data.error));
      reads.delete(data.id);
      break;
    case 'processed':
      processing.get(data.id)?.resolve(data.logits);
      processing.delete(data.id);
      break;
    case 'unprocessed':
      processing.get(data.id)?.reject(toEngineError(data.error));
      processing.delete(data.id);
      break;
    case 'call':
      void answer(data.id, () => call(data));
      break;
    case 'abort':
      calls.get(data.id)?.abort();
      break;
    case 'generate':
      void generate(data);
      break;
    case 'credit': {
      const state = running.get(data.id);
      if (state !== undefined) {
        state.credit += data.count;
        state.wake();
      }
      break;
    }
    case 'visibility':
      host.setPageHidden(data.isHidden);
      break;
    case 'cancel':
      running.get(data.id)?.generation.cancel();
      break;
    case 'release': {
      const state = running.get(data.generation);
      running.delete(data.generation);
      state?.wake();
      void answer(data.id, async () => state?.generation.release());
      break;
    }
  }
});

// What nobody caught: the host rejects its own open calls on a trap, and the page must hear that nothing else will come.
scope.addEventListener('error', (event) => {
  scope.postMessage({ type: 'crash', error: errorData(toEngineError(event.error ?? event.message)) });
});
scope.addEventListener('unhandledrejection', (event) => {
  scope.postMessage({ type: 'crash', error: errorData(toEngineError(event.reason)) });
});
