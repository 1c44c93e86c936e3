// Engines of several models, loaded when they are asked for and disposed of when they take too much memory together. It knows nothing of
// requests but when they begin and end.

import { Engine } from './engine.js';
import { BROKEN, EngineError, toEngineError } from './errors.js';
import type { InspectOptions, LoadOptions, ModelInfo, ModelSource } from './types.js';

/** A model of a pool: loaded by it, or an engine of the application's, which stays loaded. */
export type PooledModel = { engine: Engine } | { source: ModelSource; options: LoadOptions };

/** A use of an engine; ended exactly once, with the error that ended it, if one did. */
export interface EngineLease {
  engine: Engine;
  release(thrown?: unknown): void;
}

/** A served model. */
export interface ModelState {
  /** The name that it was given. */
  id: string;
  /** Whether it is on the GPU. */
  state: 'unloaded' | 'loading' | 'loaded';
  /** Of weights and KV cache on the GPU; 0 while it is not loaded. */
  bytes: number;
  /** Requests that run. */
  running: number;
}

interface Waiter {
  resolve(lease: EngineLease): void;
  reject(thrown: unknown): void;
}

interface Load {
  waiters: Set<Waiter>;
  controller: AbortController;
}

interface Place {
  name: string;
  model: PooledModel;
  engine: Engine | undefined;
  /** What the engine takes, while it is loaded. */
  bytes: number;
  running: number;
  /** When it was last asked for, by the pool's own clock. */
  used: number;
  load: Load | undefined;
}

export class EnginePool {
  #places: Map<string, Place>;
  #budgetBytes: number;
  #clock = 0;
  /** Loads run one after the other. */
  #loads: Promise<void> = Promise.resolve();
  #disposals = new Set<Promise<void>>();
  #disposed: EngineError | undefined;

  constructor(models: Map<string, PooledModel>, budgetBytes: number) {
    this.#budgetBytes = budgetBytes;
    const place = ([name, model]: [string, PooledModel]): [string, Place] => {
      const engine = 'engine' in model ? model.engine : undefined;
      const bytes = engine === undefined ? 0 : bytesOf(engine.info);
      return [name, { name, model, engine, bytes, running: 0, used: 0, load: undefined }];
    };
    this.#places = new Map([...models].map(place));
  }

  states(): ModelState[] {
    return [...this.#places.values()].map(({ name, engine, load, bytes, running }) => ({
      id: name,
      state: engine !== undefined ? 'loaded' : load !== undefined ? 'loading' : 'unloaded',
      bytes,
      running,
    }));
  }

  /** The engine of a model of the pool. Who stops waiting for its load ends the load, unless somebody else waits. */
  take(name: string, signal: AbortSignal): Promise<EngineLease> {
    return new Promise((resolve, reject) => {
      if (this.#disposed !== undefined) return reject(this.#disposed);
      if (signal.aborted) return reject(signal.reason);
      const place = this.#places.get(name)!;
      place.used = ++this.#clock;
      if (place.engine !== undefined) return resolve(this.#lease(place, place.engine));
      const load = (place.load ??= this.#enqueue(place));
      const abort = () => {
        load.waiters.delete(waiter);
        if (load.waiters.size === 0) {
          if (place.load === load) place.load = undefined;
          load.controller.abort(signal.reason);
        }
        reject(signal.reason);
      };
      const done = () => signal.removeEventListener('abort', abort);
      const waiter: Waiter = {
        resolve: (lease) => (done(), resolve(lease)),
        reject: (thrown) => (done(), reject(thrown)),
      };
      load.waiters.add(waiter);
      signal.addEventListener('abort', abort, { once: true });
    });
  }

  check(): void {
    if (this.#disposed !== undefined) throw this.#disposed;
  }

  /** Disposes of what the pool has loaded, and ends what is being loaded. */
  async dispose(): Promise<void> {
    if (this.#disposed === undefined) {
      this.#disposed = new EngineError('disposed', 'the server of models was disposed of: make another one');
      for (const place of this.#places.values()) {
        const { load } = place;
        place.load = undefined;
        for (const waiter of load?.waiters ?? []) waiter.reject(this.#disposed);
        load?.waiters.clear();
        load?.controller.abort();
        if ('source' in place.model) this.#drop(place);
      }
    }
    await this.#loads;
    await Promise.all(this.#disposals);
  }

  #enqueue(place: Place): Load {
    const load: Load = { waiters: new Set(), controller: new AbortController() };
    this.#loads = this.#loads.then(() => this.#run(place, load));
    return load;
  }

  /** Loads a model for those who wait for it. Doesn't reject: they are told. */
  async #run(place: Place, { waiters, controller }: Load): Promise<void> {
    const { signal } = controller;
    if (signal.aborted || !('source' in place.model)) return;
    const { source, options } = place.model;
    const both = options.signal === undefined ? signal : AbortSignal.any([signal, options.signal]);
    try {
      await this.#makeRoom(source, { ...options, signal: both });
      const engine = await Engine.load(source, { ...options, signal: both });
      // The last one may have gone at the last moment.
      if (signal.aborted) return this.#disposeOf(engine);
      place.load = undefined;
      place.engine = engine;
      place.bytes = bytesOf(engine.info);
      for (const waiter of waiters) waiter.resolve(this.#lease(place, engine));
      this.#shrink();
    } catch (thrown) {
      if (signal.aborted) return;
      place.load = undefined;
      for (const waiter of waiters) waiter.reject(thrown);
    }
  }

  /** Disposes of engines that nobody uses, the least recently used first, until a model fits beside the others. */
  async #makeRoom(source: ModelSource, { autotune, chatTemplate, ...options }: LoadOptions): Promise<void> {
    if (this.#budgetBytes !== Number.POSITIVE_INFINITY) {
      const { weight_bytes = 0, kv_cache_bytes = 0 } = await Engine.inspect(source, options as InspectOptions);
      const bytes = weight_bytes + kv_cache_bytes;
      if (bytes > this.#budgetBytes) {
        throw new EngineError('out_of_memory', `the model takes ${bytes} bytes, and budgetBytes is ${this.#budgetBytes}`);
      }
      this.#shrink(bytes);
    }
    await Promise.all(this.#disposals);
  }

  #shrink(more = 0): void {
    while (this.#bytes() + more > this.#budgetBytes) {
      const idle = [...this.#places.values()].filter(
        ({ engine, model, running }) => engine !== undefined && 'source' in model && running === 0,
      );
      if (idle.length === 0) return;
      this.#drop(idle.reduce((oldest, place) => (place.used < oldest.used ? place : oldest)));
    }
  }

  #bytes(): number {
    // An engine that was handed in may have several names.
    const engines = new Map([...this.#places.values()].map(({ engine, bytes }) => [engine, bytes]));
    return [...engines.values()].reduce((sum, bytes) => sum + bytes, 0);
  }

  #lease(place: Place, engine: Engine): EngineLease {
    place.running += 1;
    let isReleased = false;
    return {
      engine,
      release: (thrown) => {
        if (isReleased) return;
        isReleased = true;
        place.running -= 1;
        const isBroken = thrown !== undefined && BROKEN.includes(toEngineError(thrown).code);
        // What else runs on it fails too, and the last one leaves it.
        if (isBroken && place.running === 0 && place.engine === engine && 'source' in place.model) this.#drop(place);
        this.#shrink();
      },
    };
  }

  #drop(place: Place): void {
    const { engine } = place;
    place.engine = undefined;
    place.bytes = 0;
    if (engine !== undefined) this.#disposeOf(engine);
  }

  #disposeOf(engine: Engine): void {
    const disposal = engine.dispose().catch(() => {});
    this.#disposals.add(disposal);
    void disposal.then(() => this.#disposals.delete(disposal));
  }
}

function bytesOf({ weight_bytes, kv_cache_bytes, draft }: ModelInfo): number {
  return weight_bytes + kv_cache_bytes + (draft === undefined ? 0 : draft.weight_bytes + draft.kv_cache_bytes);
}
