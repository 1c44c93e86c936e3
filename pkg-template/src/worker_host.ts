// The page's side of the worker: forwards every call to the EngineHost over there. When the worker is gone, so is every
// open call: each is rejected, none stays open. It knows nothing of the wasm or of OpenAI's shapes.

import { ChunkQueue, RUN_AHEAD_CHUNKS } from './chunk_queue.js';
import { abortError, EngineError, errorData, textOf, toEngineError, workerLost } from './errors.js';
import type { Digested } from './files/digester.js';
import type { LoadedAdapter } from './generated/loading.js';
import type { TrainingPlan } from './generated/training.js';
import type { ProcessorCall } from './logits_processor.js';
import type {
  AdapterData,
  AttachedSession,
  Chunk,
  EmbeddingsData,
  FromWorker,
  Generation,
  GenerationKind,
  Host,
  HostCalls,
  HostLoadOptions,
  LoadServices,
  ReplayData,
  ScoreData,
  ScoreKind,
  SentSource,
  TensorData,
  ToWorker,
  TrainedData,
  TrainingEventData,
} from './protocol.js';
import { watchVisibility } from './page_visibility.js';
import type { HostSource } from './source.js';
import { Digesters } from './start_digester.js';
import { Helpers } from './team/start_helpers.js';
import { startWorker } from './start_worker.js';
import { withinTime } from './time_limit.js';
import { WorkerStart } from './worker_fault.js';
import { WorkerLife } from './worker_life.js';
import type { ByteSource, EngineStats, Inspection, KernelUse, ModelInfo, Smoothness, TokenizeOptions } from './types.js';
import type { EngineWasm } from './wasm_source.js';

/** A worker that is busy this long after dispose() is ended as it is. */
const DISPOSE_TIMEOUT_MS = 2000;

/** What is read, in the words of an abort. */
const READING = { load: 'loading the model', inspect: 'inspecting the model', download: 'downloading the model' };

interface OpenCall {
  resolve(value: unknown): void;
  reject(error: EngineError): void;
  /** Of a load, a download or an inspection. */
  services?: LoadServices;
  /** Of a training. */
  onTraining?: (event: TrainingEventData) => void;
}

/** Who hears what an open call tells. */
type Heard = Pick<OpenCall, 'services' | 'onTraining'>;

export class WorkerHost implements Host {
  readonly ended: Promise<EngineError>;
  #worker: Worker;
  #life: WorkerLife;
  #nextId = 1;
  #calls = new Map<number, OpenCall>();
  #generations = new Map<number, RemoteGeneration>();
  /** The application's own sources of what is being read, and of what is read later too, by number. */
  #sources = new Map<number, ByteSource>();
  #nextSource = 0;
  /** The application's store, if it is read after the load too. */
  #lastingStore: LoadServices['store'];
  #gone: EngineError | undefined;
  #make: (() => Worker) | undefined;
  #digesters = new Digesters();
  #helpers = new Helpers();
  /** What the load that runs was given. */
  #services: LoadServices | undefined;
  #wasm: EngineWasm | undefined;
  /** Of the load, and heard as long as the worker lives. */
  #onMemoryPressure: LoadServices['onMemoryPressure'] = () => {};
  #start: WorkerStart;
  #unwatch = () => {};
  #tellEnded!: (error: EngineError) => void;

  /** `make` makes the worker, in place of the package's own way. */
  constructor(make?: () => Worker) {
    this.#make = make;
    this.ended = new Promise((resolve) => (this.#tellEnded = resolve));
    const start = new WorkerStart(make !== undefined);
    this.#start = start;
    try {
      this.#worker = startWorker(make);
    } catch (thrown) {
      start.end();
      throw thrown;
    }
    this.#life = new WorkerLife(this.#worker, () => this.#end(workerLost('that ran the engine')));
    let hasStarted = false;
    this.#worker.addEventListener('message', (event: MessageEvent<FromWorker>) => {
      start.end();
      hasStarted = true;
      this.#receive(event.data);
    });
    this.#worker.addEventListener('messageerror', () => {
      this.#end(new EngineError('internal', 'a message of the worker could not be read: this is a fault of rillm; load the engine again'));
    });
    this.#worker.addEventListener('error', (event) => {
      // A script that does not load comes as a bare Event; an uncaught error of a running one has a message.
      if (event.message) this.#end(new EngineError('internal', `the worker stopped with "${event.message}": load the engine again`));
      else if (hasStarted) this.#end(workerLost('that ran the engine'));
      else void start.fault().then((error) => this.#end(error));
    });
  }

  async load(source: HostSource, options: HostLoadOptions, services: LoadServices, signal: AbortSignal | undefined): Promise<ModelInfo> {
    if (services.isOfOnePage) this.#unwatch = watchVisibility((isHidden) => this.#post({ type: 'visibility', isHidden }));
    return this.#read<ModelInfo>('load', source, options, services, signal);
  }

  async inspect(
    source: HostSource,
    options: HostLoadOptions,
    services: LoadServices,
    signal: AbortSignal | undefined,
  ): Promise<Inspection> {
    return this.#read<Inspection>('inspect', source, options, services, signal);
  }

  async download(source: HostSource, options: HostLoadOptions, services: LoadServices, signal: AbortSignal | undefined): Promise<number> {
    return this.#read<number>('download', source, options, services, signal);
  }

  async #read<T>(
    type: keyof typeof READING,
    source: HostSource,
    options: HostLoadOptions,
    services: LoadServices,
    signal: AbortSignal | undefined,
  ): Promise<T> {
    // The worker holds nothing but this load, so ending the worker frees the requests and the GPU buffers at once.
    const abort = () => this.#end(abortError(signal!, READING[type]));
    this.#services = services;
    this.#onMemoryPressure = services.onMemoryPressure;
    this.#wasm = options.wasm;
    signal?.addEventListener('abort', abort, { once: true });
    const numbers: number[] = [];
    try {
      const { draft, ...data } = options;
      const sent = { source: this.#send(source, numbers), ...(draft === undefined ? {} : { draft: this.#send(draft, numbers) }) };
      return await this.#ask<T>((id) => ({ type, id, ...sent, options: data }), { services });
    } finally {
      signal?.removeEventListener('abort', abort);
      this.#services = undefined;
      this.#digesters.end();
      // What stays in the model's files is read as long as the worker lives.
      if (options.perLayerEmbeddings === 'disk') this.#lastingStore = services.store;
      else for (const number of numbers) this.#sources.delete(number);
    }
  }

  /** The source with numbers in place of the application's own objects, which can't be sent. */
  #send(source: HostSource, numbers: number[]): SentSource {
    if (source.kind !== 'files') return source;
    const numbered = (data: ByteSource) => {
      const number = this.#nextSource++;
      this.#sources.set(number, data);
      numbers.push(number);
      return number;
    };
    const sent = ({ name, data }: { name: string; data: Blob | ByteSource }) => ({
      name,
      data: data instanceof Blob ? data : { name, size: data.size, remote: numbered(data) },
    });
    return { ...source, files: source.files.map(sent) };
  }

  /** Reads from an object of the application's for the worker. */
  async #answerRead({ id, source, offset, length }: FromWorker & { type: 'read' }): Promise<void> {
    try {
      const read = await this.#sources.get(source)!.read(offset, length);
      // A copy: the bytes may be a view of something that the application goes on using.
      const bytes = new Uint8Array(read).slice();
      if (this.#gone === undefined) this.#worker.postMessage({ type: 'bytes', id, bytes } satisfies ToWorker, [bytes.buffer]);
    } catch (thrown) {
      this.#post({ type: 'unread', id, error: errorData(toEngineError(thrown)) });
    }
  }

  /** Asks the application's store for the worker. */
  async #answerStore(message: FromWorker & { type: 'store' }): Promise<void> {
    const { id, method, key } = message;
    const store = this.#services?.store ?? this.#lastingStore;
    try {
      if (store === undefined) throw new Error('there is no store');
      const value = method === 'put' ? await store.put(key, message.bytes) : await store[method](key);
      this.#post({ type: 'stored', id, ...(value === undefined || value === null ? {} : { value }) });
    } catch (thrown) {
      this.#post({ type: 'stored', id, error: textOf(thrown), isFull: isFull(thrown) });
    }
  }

  /** Starts a worker that computes digests, for the worker that reads the model. */
  #answerDigester(of: Digested): void {
    const port = this.#digesters.start(of, this.#make, this.#wasm, (error) => this.#end(error));
    if (this.#gone === undefined) this.#worker.postMessage({ type: 'digester', port } satisfies ToWorker, port === undefined ? [] : [port]);
  }

  /** Lets a logits processor work for the worker. */
  async #answerProcess({ id, generation, logits, tokens, step }: FromWorker & { type: 'process' }): Promise<void> {
    const processor = this.#generations.get(generation)?.processor;
    // Of a generation that was released.
    if (processor === undefined) return;
    try {
      const processed = await processor(logits, tokens, step);
      if (this.#gone === undefined)
        this.#worker.postMessage({ type: 'processed', id, logits: processed } satisfies ToWorker, [processed.buffer as ArrayBuffer]);
    } catch (thrown) {
      this.#post({ type: 'unprocessed', id, error: errorData(toEngineError(thrown)) });
    }
  }

  async generate(kind: GenerationKind, request: object, processor: ProcessorCall | undefined, replay?: ReplayData): Promise<Generation> {
    let generation: RemoteGeneration | undefined;
    await this.#ask<void>((id) => {
      generation = new RemoteGeneration(
        id,
        (message) => this.#post(message),
        () => this.#release(id),
        processor,
      );
      this.#generations.set(id, generation);
      const message = { type: 'generate', id, kind, request, credit: RUN_AHEAD_CHUNKS, isProcessed: processor !== undefined } as const;
      return replay === undefined ? message : { ...message, replay };
    });
    return generation!;
  }

  tokenize(text: string, options: TokenizeOptions): Promise<Uint32Array> {
    return this.#call('tokenize', text, options);
  }

  detokenize(ids: Uint32Array): Promise<string> {
    return this.#call('detokenize', ids);
  }

  embed(request: object, signal?: AbortSignal): Promise<EmbeddingsData> {
    return this.#abortable(signal, 'embed', request);
  }

  score<Kind extends ScoreKind>(kind: Kind, request: object, signal?: AbortSignal): Promise<ScoreData[Kind]> {
    return this.#abortable(signal, 'score', kind, request) as Promise<ScoreData[Kind]>;
  }

  saveSession(conversation: object, attachment: object | undefined, signal?: AbortSignal): Promise<Blob> {
    return this.#abortable(signal, 'saveSession', conversation, attachment);
  }

  restoreSession(session: Blob, signal?: AbortSignal): Promise<AttachedSession> {
    return this.#abortable(signal, 'restoreSession', session);
  }

  forward(ids: Uint32Array, layers: Uint32Array): Promise<TensorData[]> {
    return this.#call('forward', ids, layers);
  }

  embedTensor(request: object): Promise<TensorData> {
    return this.#call('embedTensor', request);
  }

  readback(handle: number): Promise<Float32Array> {
    return this.#call('readback', handle);
  }

  disposeTensor(handle: number): Promise<void> {
    return this.#call('disposeTensor', handle);
  }

  sync(): Promise<void> {
    return this.#call('sync');
  }

  stats(): Promise<EngineStats> {
    return this.#call('stats');
  }

  resetStats(): Promise<void> {
    return this.#call('resetStats');
  }

  setSmoothness(smoothness: Smoothness): Promise<void> {
    return this.#call('setSmoothness', smoothness);
  }

  setProfiling(on: boolean): Promise<void> {
    return this.#call('setProfiling', on);
  }

  kernelTimes(): Promise<KernelUse[]> {
    return this.#call('kernelTimes');
  }

  /** The engine stays when it is aborted, unlike in `load`. */
  async loadAdapter(source: HostSource, data: AdapterData, services: LoadServices, signal?: AbortSignal): Promise<LoadedAdapter> {
    this.#services = services;
    const numbers: number[] = [];
    try {
      const sent = this.#send(source, numbers);
      return await this.#ending<LoadedAdapter>(signal, (id) => ({ type: 'adapter', id, source: sent, data }), { services });
    } finally {
      this.#services = undefined;
      this.#digesters.end();
      for (const number of numbers) this.#sources.delete(number);
    }
  }

  setAdapterScale(name: string, scale: number): Promise<void> {
    return this.#call('setAdapterScale', name, scale);
  }

  unloadAdapter(name: string): Promise<void> {
    return this.#call('unloadAdapter', name);
  }

  adapters(): Promise<LoadedAdapter[]> {
    return this.#call('adapters');
  }

  planLora(training: object): Promise<TrainingPlan> {
    return this.#call('planLora', training);
  }

  trainLora(
    training: object,
    checkpoint: Blob | undefined,
    onTraining: (event: TrainingEventData) => void,
    signal?: AbortSignal,
  ): Promise<TrainedData> {
    const message = (id: number) => ({ type: 'train', id, training, ...(checkpoint === undefined ? {} : { checkpoint }) }) as const;
    return this.#ending<TrainedData>(signal, message, { onTraining });
  }

  async dispose(): Promise<void> {
    if (this.#gone !== undefined) return;
    try {
      await withinTime(this.#call('dispose'), DISPOSE_TIMEOUT_MS);
    } catch (thrown) {
      // With the worker everything of the engine is gone.
      if (this.#gone === undefined) throw thrown;
    } finally {
      this.#end(new EngineError('disposed', 'the engine was disposed of: load the model again with Engine.load()'));
    }
  }

  async #release(generation: number): Promise<void> {
    this.#generations.delete(generation);
    // With the worker gone, nothing of it runs any more.
    await this.#ask<void>((id) => ({ type: 'release', id, generation })).catch(() => {});
  }

  #call<Method extends keyof HostCalls>(method: Method, ...args: Parameters<HostCalls[Method]>): ReturnType<HostCalls[Method]> {
    const promise = this.#ask((id) => ({ type: 'call', id, method, args }) as ToWorker);
    return promise as ReturnType<HostCalls[Method]>;
  }

  /** A call that the signal ends over there. */
  #abortable<Method extends keyof HostCalls>(
    signal: AbortSignal | undefined,
    method: Method,
    ...args: Parameters<HostCalls[Method]>
  ): Promise<Awaited<ReturnType<HostCalls[Method]>>> {
    return this.#ending(signal, (id) => ({ type: 'call', id, method, args }) as ToWorker);
  }

  /** Something that the signal ends over there. */
  async #ending<T>(signal: AbortSignal | undefined, message: (id: number) => ToWorker, heard?: Heard): Promise<T> {
    let abort = () => {};
    const answer = this.#ask<T>((id) => {
      abort = () => this.#post({ type: 'abort', id });
      return message(id);
    }, heard);
    if (signal?.aborted) abort();
    signal?.addEventListener('abort', abort, { once: true });
    try {
      return await answer;
    } finally {
      signal?.removeEventListener('abort', abort);
    }
  }

  #ask<T>(message: (id: number) => ToWorker, heard: Heard = {}): Promise<T> {
    return new Promise((resolve, reject) => {
      if (this.#gone !== undefined) {
        reject(this.#gone);
        return;
      }
      const id = this.#nextId++;
      const call: OpenCall = { ...heard, resolve: resolve as (value: unknown) => void, reject };
      this.#calls.set(id, call);
      try {
        this.#post(message(id));
      } catch (thrown) {
        // Functions and the like cannot be sent to a worker, and no field of a request takes one.
        this.#calls.delete(id);
        this.#generations.delete(id);
        reject(new EngineError('invalid_request', `the request cannot be sent to the worker: ${textOf(thrown)}`, { cause: thrown }));
      }
    });
  }

  #post(message: ToWorker): void {
    if (this.#gone === undefined) this.#worker.postMessage(message);
  }

  #receive(message: FromWorker): void {
    // The module of a worker that the application made may send something as well.
    if (typeof message !== 'object' || message === null) return;
    if (message.type === 'crash') {
      this.#end(toEngineError(message.error));
      return;
    }
    if (message.type === 'read') {
      void this.#answerRead(message);
      return;
    }
    if (message.type === 'process') {
      void this.#answerProcess(message);
      return;
    }
    if (message.type === 'store') {
      void this.#answerStore(message);
      return;
    }
    if (message.type === 'digester') {
      this.#answerDigester(message.of);
      return;
    }
    if (message.type === 'helpers') {
      this.#post({ type: 'helping', started: this.#helpers.start(message.helpers, this.#make) });
      return;
    }
    if (message.type === 'share') {
      this.#helpers.share(message.more);
      return;
    }
    if (message.type === 'alive') return;
    if (message.type === 'memory') {
      this.#onMemoryPressure(message.event);
      return;
    }
    const { id } = message;
    const call = this.#calls.get(id);
    switch (message.type) {
      case 'progress':
        call?.services?.onProgress(message.progress);
        break;
      case 'event':
        call?.services?.onEvent(message.event);
        break;
      case 'training':
        call?.onTraining?.(message.event);
        break;
      case 'result':
        this.#calls.delete(id);
        call?.resolve(message.value);
        break;
      case 'chunk':
        this.#generations.get(id)?.receive(message.chunk);
        break;
      case 'error': {
        const error = toEngineError(message.error);
        this.#calls.delete(id);
        // Before it is accepted a generation's error is the answer to the call, afterwards the end of its chunks.
        if (call !== undefined) {
          this.#generations.delete(id);
          call.reject(error);
        } else this.#generations.get(id)?.fail(error);
        break;
      }
    }
  }

  #end(error: EngineError): void {
    if (this.#gone !== undefined) return;
    this.#gone = error;
    this.#tellEnded(error);
    this.#life.end();
    this.#worker.terminate();
    this.#unwatch();
    this.#start.end();
    this.#digesters.end();
    this.#helpers.stop();
    for (const call of this.#calls.values()) call.reject(error);
    this.#calls.clear();
    for (const generation of this.#generations.values()) generation.fail(error);
    this.#generations.clear();
  }
}

/** The application's store may throw anything. */
function isFull(thrown: unknown): boolean {
  try {
    return thrown instanceof DOMException && thrown.name === 'QuotaExceededError';
  } catch {
    return false;
  }
}

class RemoteGeneration implements Generation {
  readonly processor: ProcessorCall | undefined;
  #id: number;
  #post: (message: ToWorker) => void;
  #releaseInWorker: () => Promise<void>;
  #chunks: ChunkQueue;

  constructor(id: number, post: (message: ToWorker) => void, release: () => Promise<void>, processor: ProcessorCall | undefined) {
    this.processor = processor;
    this.#id = id;
    this.#post = post;
    this.#releaseInWorker = release;
    this.#chunks = new ChunkQueue((count) => post({ type: 'credit', id, count }));
  }

  receive(chunk: Chunk | undefined): void {
    this.#chunks.push(chunk);
  }

  fail(error: EngineError): void {
    this.#chunks.fail(error);
  }

  next(): Promise<Chunk | undefined> {
    return this.#chunks.next();
  }

  cancel(): void {
    this.#post({ type: 'cancel', id: this.#id });
  }

  release(): Promise<void> {
    return this.#releaseInWorker();
  }
}
