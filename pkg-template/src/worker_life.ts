// Whether a worker still lives. It holds a lock as long as it does, and the browser gives the lock to this side when the worker is gone, however it
// went: no clock is involved, so a busy worker is never taken for a dead one. It knows nothing of what the worker does.

import { newId } from './openai.js';

/** How often the worker is asked until it holds its lock, or for ever where there are no locks. */
const ASKS_EVERY_MS = 10_000;
/** It counts as gone when it has not answered this number of times in a row. */
const MOST_SILENT = 30;

/** What is said to a worker about its life. */
export type ToLiving =
  /** The worker is to hold a lock of this name from now on. */
  { type: 'live'; lock: string } | { type: 'ping' };

/** What the worker answers. Without locks it says that it lives, as it does to each `ping`. */
export type FromLiving = { type: 'alive'; holdsLock: boolean };

/** The side that made the worker. */
export class WorkerLife {
  #worker: Worker;
  #onLost: () => void;
  #lock = newId('rillm:worker:');
  #watching = new AbortController();
  #asking: ReturnType<typeof setInterval> | undefined;
  #silent = 0;
  #isWatched = false;

  /** `onLost` is called once, if the worker goes before `end()`. */
  constructor(worker: Worker, onLost: () => void) {
    this.#worker = worker;
    this.#onLost = onLost;
    this.#hearTerminate();
    worker.addEventListener('message', ({ data }: MessageEvent<{ type?: unknown }>) => {
      this.#silent = 0;
      if (data?.type === 'alive') void this.#watch((data as FromLiving).holdsLock);
    });
    worker.postMessage({ type: 'live', lock: this.#lock } satisfies ToLiving);
    this.#ask();
  }

  /** To be called when it doesn't matter any more. */
  end(): void {
    this.#watching.abort();
    clearInterval(this.#asking);
  }

  /** The page may end the worker before that has its lock, and a busy one lives on for seconds after that. */
  #hearTerminate(): void {
    const terminate = this.#worker.terminate;
    const value = () => {
      terminate.call(this.#worker);
      this.#lose();
    };
    Reflect.defineProperty(this.#worker, 'terminate', { value, configurable: true, writable: true });
  }

  async #watch(holdsLock: boolean): Promise<void> {
    if (this.#isWatched) return;
    this.#isWatched = true;
    const { signal } = this.#watching;
    try {
      const { locks } = globalThis.navigator;
      // A lock that is free was taken somewhere else, where this side can't see it: it would tell of an end that is none.
      if (!holdsLock || (await locks.request(this.#lock, { ifAvailable: true }, (lock) => lock !== null))) return;
      clearInterval(this.#asking);
      await locks.request(this.#lock, { signal }, () => {});
      this.#lose();
    } catch {
      this.#ask();
    }
  }

  #ask(): void {
    if (this.#watching.signal.aborted) return;
    clearInterval(this.#asking);
    // By counting, since the clock goes on while a page sleeps.
    this.#asking = setInterval(() => {
      this.#silent += 1;
      if (this.#silent > MOST_SILENT) this.#lose();
      else this.#worker.postMessage({ type: 'ping' } satisfies ToLiving);
    }, ASKS_EVERY_MS);
  }

  #lose(): void {
    if (this.#watching.signal.aborted) return;
    this.end();
    this.#onLost();
  }
}

/** The worker's side: holds the lock until the worker is gone, and says so. */
export function live(lock: string, answer: (message: FromLiving) => void): void {
  const hold = () => {
    answer({ type: 'alive', holdsLock: true });
    return new Promise<never>(() => {});
  };
  const without = () => answer({ type: 'alive', holdsLock: false });
  const { locks } = globalThis.navigator ?? {};
  // There are none where pages are not served securely, and none for pages without an origin of their own.
  if (locks === undefined) without();
  else locks.request(lock, hold).catch(without);
}
