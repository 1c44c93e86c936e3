// The order of one engine's requests: as many answers are generated at once as the engine was loaded for, other requests wait for
// their turn. It knows nothing of what runs.

import { abortError, type EngineError } from './errors.js';

/** Held by the request that runs; given back exactly once. */
export interface Turn {
  /** Milliseconds that it was waited for. */
  readonly waitedMs: number;
  release(): void;
  /** Called when another request begins to wait, at once if one waits already. */
  onWaiting(callback: () => void): void;
}

interface Waiter {
  places: number;
  start(): void;
  reject(error: EngineError): void;
}

export class RequestQueue {
  #waiting: Waiter[] = [];
  #most: number;
  #running = 0;
  #closed: EngineError | undefined;
  /** Of each turn that runs and wants to know. */
  #somebodyWaits = new Set<() => void>();

  /** `most` places in all. */
  constructor(most: number) {
    this.#most = most;
  }

  /** Resolves when it is this request's turn, in the order of the calls: when enough places are free. */
  turn(signal?: AbortSignal, places = 1): Promise<Turn> {
    return new Promise((resolve, reject) => {
      if (this.#closed !== undefined) return reject(this.#closed);
      if (signal?.aborted) return reject(abortError(signal, 'the request'));
      const abort = () => {
        this.#waiting = this.#waiting.filter((other) => other !== waiter);
        // Behind one that wants many places, others may have waited that want few.
        this.#startNext();
        reject(abortError(signal!, 'the request'));
      };
      const asked = performance.now();
      const waiter: Waiter = {
        places,
        start: () => {
          signal?.removeEventListener('abort', abort);
          this.#running += places;
          resolve(this.#newTurn(places, performance.now() - asked));
        },
        reject: (error) => {
          signal?.removeEventListener('abort', abort);
          reject(error);
        },
      };
      if (this.#waiting.length === 0 && this.#running + places <= this.#most) return waiter.start();
      signal?.addEventListener('abort', abort, { once: true });
      this.#waiting.push(waiter);
      for (const callback of this.#somebodyWaits) callback();
    });
  }

  /** Rejects what waits and what comes. */
  close(error: EngineError): void {
    this.#closed = error;
    for (const waiter of this.#waiting.splice(0)) waiter.reject(error);
  }

  #startNext(): void {
    for (let next = this.#waiting[0]; next !== undefined && this.#running + next.places <= this.#most; next = this.#waiting[0]) {
      this.#waiting.shift();
      next.start();
    }
  }

  #newTurn(places: number, waitedMs: number): Turn {
    let released = false;
    let somebodyWaits: (() => void) | undefined;
    return {
      waitedMs,
      release: () => {
        if (released) return;
        released = true;
        this.#running -= places;
        if (somebodyWaits !== undefined) this.#somebodyWaits.delete(somebodyWaits);
        this.#startNext();
      },
      onWaiting: (callback) => {
        if (released) return;
        somebodyWaits = callback;
        this.#somebodyWaits.add(callback);
        if (this.#waiting.length > 0) callback();
      },
    };
  }
}
