// The order of one engine's requests: as many generations run at once as the engine was loaded for, the others wait for their
// turn. It knows nothing of what runs.

import { abortError, EngineError } from './errors.js';

/** Held by the request that runs; given back exactly once. */
export interface Turn {
  release(): void;
  /** Called when another request begins to wait, at once if one waits already. */
  onWaiting(callback: () => void): void;
}

interface Waiter {
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

  /** `most` turns at once. */
  constructor(most: number) {
    this.#most = most;
  }

  /** Resolves when it is this request's turn, in the order of the calls. */
  turn(signal?: AbortSignal): Promise<Turn> {
    return new Promise((resolve, reject) => {
      if (this.#closed !== undefined) return reject(this.#closed);
      if (signal?.aborted) return reject(abortError(signal, 'the request'));
      const abort = () => {
        this.#waiting = this.#waiting.filter((other) => other !== waiter);
        reject(abortError(signal!, 'the request'));
      };
      const waiter: Waiter = {
        start: () => {
          signal?.removeEventListener('abort', abort);
          this.#running += 1;
          resolve(this.#newTurn());
        },
        reject: (error) => {
          signal?.removeEventListener('abort', abort);
          reject(error);
        },
      };
      if (this.#running < this.#most) return waiter.start();
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

  #newTurn(): Turn {
    let released = false;
    let somebodyWaits: (() => void) | undefined;
    return {
      release: () => {
        if (released) return;
        released = true;
        this.#running -= 1;
        if (somebodyWaits !== undefined) this.#somebodyWaits.delete(somebodyWaits);
        this.#waiting.shift()?.start();
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
