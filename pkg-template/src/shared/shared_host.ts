// The engine that tabs share, as a host of this tab: asks whichever tab leads, and asks the next one again when that is gone. It holds what is
// under way; who leads is the seat's affair.

import { abortError, EngineError, toEngineError } from '../errors.js';
import type {
  AttachedSession,
  EmbeddingsData,
  Generation,
  GenerationKind,
  LoadedHost,
  ReplayData,
  ScoreData,
  ScoreKind,
} from '../protocol.js';
import { SCORED } from '../scores.js';
import type { ProcessorCall } from '../logits_processor.js';
import type { RecoveryEvent } from '../recovery/events.js';
import type { EngineStats, FileEvent, LoadProgress, MemoryPressure, ModelInfo, TokenizeOptions } from '../types.js';
import type { SharedEvent } from './events.js';
import type { LoadModel } from './leader.js';
import { watchPage } from './lifecycle.js';
import { copyOf, type FromLeader, type SharedCalls, type ToLeader } from './messages.js';
import { Seat } from './seat.js';
import { SharedGeneration } from './shared_generation.js';

export interface SharedModel {
  /** Of the locks and channels. */
  name: string;
  load: LoadModel;
  onProgress(progress: LoadProgress): void;
  onEvent(event: FileEvent | RecoveryEvent | SharedEvent): void;
  onMemoryPressure(event: MemoryPressure): void;
}

/** Something that was asked and is not answered to its end. */
interface Open {
  send(): void;
  result(value: unknown): void;
  fail(error: EngineError): void;
  generation?: SharedGeneration;
}

export class SharedHost implements LoadedHost {
  #model: SharedModel;
  #seat: Seat | undefined;
  /** The leader has the model, and hears what is posted. */
  #isReady = false;
  /** A leader was there before the one that comes. */
  #hadLeader = false;
  #isSuspended = false;
  #open = new Map<number, Open>();
  #nextId = 1;
  #gone: EngineError | undefined;
  #info: ModelInfo | undefined;
  #unwatch: () => void;

  constructor(model: SharedModel) {
    this.#model = model;
    this.#unwatch = watchPage(
      () => this.#suspend(),
      () => this.#resume(),
    );
  }

  /** Resolves when the model is loaded, in this tab or another. */
  info(signal: AbortSignal | undefined): Promise<ModelInfo> {
    return this.#call('info', [], signal, 'loading the model');
  }

  get loaded(): ModelInfo | undefined {
    return this.#info;
  }

  async generate(
    kind: GenerationKind,
    request: object,
    processor: ProcessorCall | undefined,
    _replay?: ReplayData,
    signal?: AbortSignal,
  ): Promise<Generation> {
    if (processor !== undefined) throw unshared('logitsProcessor is a function, and it would have to run in another tab');
    const id = this.#nextId++;
    const generation = new SharedGeneration(
      id,
      kind,
      request,
      (message) => this.#open.has(id) && this.#post(message),
      () => this.#open.delete(id),
    );
    const settle = {
      send: () => generation.send(),
      result: () => generation.settle(),
      fail: (error: EngineError) => generation.fail(error),
    };
    this.#ask(id, { ...settle, generation });
    await this.#unlessAborted(id, generation.accepted, signal, 'the request');
    return generation;
  }

  tokenize(text: string, options: TokenizeOptions): Promise<Uint32Array> {
    return this.#call('tokenize', [text, options]);
  }

  detokenize(ids: Uint32Array): Promise<string> {
    return this.#call('detokenize', [ids]);
  }

  embed(request: object, signal?: AbortSignal): Promise<EmbeddingsData> {
    return this.#call('embed', [request], signal, 'the embedding');
  }

  score<Kind extends ScoreKind>(kind: Kind, request: object, signal?: AbortSignal): Promise<ScoreData[Kind]> {
    return this.#call('score', [kind, request], signal, SCORED[kind]) as Promise<ScoreData[Kind]>;
  }

  saveSession(conversation: object, attachment: object | undefined, signal?: AbortSignal): Promise<Blob> {
    return this.#call('saveSession', [conversation, attachment], signal, 'saving the session');
  }

  restoreSession(session: Blob, signal?: AbortSignal): Promise<AttachedSession> {
    return this.#call('restoreSession', [session], signal, 'restoring the session');
  }

  sync(): Promise<void> {
    return this.#call('sync', []);
  }

  stats(): Promise<EngineStats> {
    return this.#call('stats', []);
  }

  async forward(): Promise<never> {
    throw unshared('forward() leaves a tensor on the GPU, which one tab holds');
  }

  async embedTensor(): Promise<never> {
    throw unshared('embedTensor() leaves a tensor on the GPU, which one tab holds');
  }

  async readback(): Promise<never> {
    throw unshared('a tensor is on the GPU of one tab');
  }

  async disposeTensor(): Promise<never> {
    throw unshared('a tensor is on the GPU of one tab');
  }

  async resetStats(): Promise<never> {
    throw unshared('resetStats() would change the counters of all tabs: take the difference of two readings');
  }

  async setSmoothness(): Promise<never> {
    throw unshared('setSmoothness() would change the engine of all tabs: name smoothness in the options');
  }

  async setProfiling(): Promise<never> {
    throw unshared('setProfiling() would slow all tabs down');
  }

  async kernelTimes(): Promise<never> {
    throw unshared('kernelTimes() are those of all tabs');
  }

  async loadAdapter(): Promise<never> {
    throw unshared('an adapter would be loaded into the engine of all tabs');
  }

  async setAdapterScale(): Promise<never> {
    throw unshared('the scale of an adapter would change the answers of all tabs');
  }

  async unloadAdapter(): Promise<never> {
    throw unshared('an adapter would be unloaded for all tabs');
  }

  /** None can be loaded. */
  async adapters(): Promise<[]> {
    return [];
  }

  async enableTraining(): Promise<never> {
    throw unshared('an engine that tabs share trains nothing');
  }

  async planLora(): Promise<never> {
    throw unshared('an engine that tabs share trains nothing');
  }

  async trainLora(): Promise<never> {
    throw unshared('an engine that tabs share trains nothing');
  }

  /** Leaves the other tabs. The engine is gone with the last one. */
  async dispose(): Promise<void> {
    if (this.#gone !== undefined) return;
    this.#gone = new EngineError('disposed', 'the engine was disposed of: share the model again with Engine.shared()');
    this.#unwatch();
    const left = this.#leave();
    this.#failAll(this.#gone);
    await left;
  }

  async #call<Method extends keyof SharedCalls>(
    method: Method,
    given: Parameters<SharedCalls[Method]>,
    signal?: AbortSignal,
    what = 'the request',
  ): Promise<Awaited<ReturnType<SharedCalls[Method]>>> {
    const args = copyOf(given);
    const id = this.#nextId++;
    const answer = new Promise<Awaited<ReturnType<SharedCalls[Method]>>>((resolve, reject) => {
      const done = () => this.#open.delete(id);
      this.#ask(id, {
        send: () => this.#post({ type: 'call', id, method, args }),
        result: (value) => (done(), resolve(value as Awaited<ReturnType<SharedCalls[Method]>>)),
        fail: (error) => (done(), reject(error)),
      });
    });
    return this.#unlessAborted(id, answer, signal, what);
  }

  /** Stops waiting when the signal is aborted; the leader hears that nobody waits. */
  async #unlessAborted<T>(id: number, answer: Promise<T>, signal: AbortSignal | undefined, what: string): Promise<T> {
    if (signal === undefined) return answer;
    const abort = () => {
      const open = this.#open.get(id);
      if (open !== undefined && this.#isReady) this.#post({ type: 'release', id });
      open?.fail(abortError(signal, what));
    };
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort, { once: true });
    try {
      return await answer;
    } finally {
      signal.removeEventListener('abort', abort);
    }
  }

  #ask(id: number, open: Open): void {
    this.#open.set(id, open);
    if (this.#gone !== undefined) open.fail(this.#gone);
    else if (this.#isReady) this.#send(open);
    else if (!this.#isSuspended) this.#join();
  }

  #send(open: Open): void {
    try {
      open.send();
    } catch (thrown) {
      open.fail(new EngineError('invalid_request', `the request cannot be sent to another tab: ${String(thrown)}`, { cause: thrown }));
    }
  }

  #post(message: ToLeader): boolean {
    if (this.#isReady) this.#seat?.post(message);
    return this.#isReady;
  }

  #lose(): void {
    this.#isReady = false;
    for (const { generation } of [...this.#open.values()]) generation?.lost();
  }

  #join(): void {
    this.#seat ??= new Seat(this.#model.name, this.#model.load, {
      onLeader: (isOwn) => {
        this.#lose();
        this.#model.onEvent({ type: isOwn ? 'leader' : 'follower' });
      },
      onMessage: (message) => this.#receive(message),
    });
  }

  #leave(): Promise<void> | undefined {
    const seat = this.#seat;
    this.#seat = undefined;
    this.#lose();
    return seat?.leave();
  }

  #receive(message: FromLeader): void {
    switch (message.type) {
      case 'progress':
        this.#model.onProgress(message.progress);
        break;
      case 'event':
        this.#model.onEvent(message.event);
        if (message.event.type === 'recovered') this.#updateInfo();
        break;
      case 'memory':
        this.#model.onMemoryPressure(message.event);
        break;
      case 'ready':
        this.#begin();
        break;
      case 'failed':
        // The next call takes a seat again.
        void this.#leave();
        this.#failAll(toEngineError(message.error));
        break;
      case 'result':
        this.#open.get(message.id)?.result(message.value);
        break;
      case 'chunk':
        this.#open.get(message.id)?.generation?.receive(message.chunk, message.attempt);
        break;
      case 'error':
        this.#open.get(message.id)?.fail(toEngineError(message.error));
        break;
    }
  }

  /** Asks the leader everything that is open, in its order. */
  #begin(): void {
    if (this.#isReady) return;
    this.#isReady = true;
    const isNext = this.#hadLeader;
    if (isNext) this.#model.onEvent({ type: 'takeover', requests: this.#open.size });
    this.#hadLeader = true;
    for (const open of [...this.#open.values()]) this.#send(open);
    if (isNext) this.#updateInfo();
  }

  /** The model was loaded again, perhaps with less room. */
  #updateInfo(): void {
    this.info(undefined).then(
      (info) => (this.#info = info),
      () => {},
    );
  }

  #failAll(error: EngineError): void {
    for (const open of [...this.#open.values()]) open.fail(error);
  }

  /** The page stands still soon: others must not wait for it. What is open stays. */
  #suspend(): void {
    if (this.#isSuspended) return;
    this.#isSuspended = true;
    void this.#leave();
  }

  #resume(): void {
    if (!this.#isSuspended) return;
    this.#isSuspended = false;
    if (this.#open.size > 0) this.#join();
  }
}

function unshared(reason: string): EngineError {
  return new EngineError('invalid_request', `${reason}; Engine.load() gives this tab an engine of its own`);
}
