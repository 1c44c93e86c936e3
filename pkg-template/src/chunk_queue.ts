// The chunks of an answer that runs elsewhere: they arrive by themselves and are taken one after the other. What was taken is reported,
// so that the other side may send more (`RUN_AHEAD_CHUNKS`).

import type { EngineError } from './errors.js';
import type { Chunk } from './protocol.js';

/** How many chunks the other side may be ahead of a slow reader. */
export const RUN_AHEAD_CHUNKS = 32;

export class ChunkQueue {
  #report: (count: number) => void;
  #arrived: (Chunk | undefined)[] = [];
  #error: EngineError | undefined;
  #waiting: { resolve(chunk: Chunk | undefined): void; reject(error: EngineError): void } | undefined;
  /** Chunks taken and not yet reported; reporting them in halves of the window saves messages. */
  #taken = 0;

  /** `report` is told how many chunks were taken since the last time. */
  constructor(report: (count: number) => void) {
    this.#report = report;
  }

  /** Chunks are sent anew, to the other side's full window. */
  restart(): void {
    this.#taken = 0;
  }

  /** A chunk arrived; undefined is the end. */
  push(chunk: Chunk | undefined): void {
    const reader = this.#waiting;
    this.#waiting = undefined;
    if (reader === undefined) {
      this.#arrived.push(chunk);
      return;
    }
    this.took();
    reader.resolve(chunk);
  }

  /** What arrived before can still be taken. */
  fail(error: EngineError): void {
    this.#error = error;
    this.#waiting?.reject(error);
    this.#waiting = undefined;
  }

  next(): Promise<Chunk | undefined> {
    if (this.#arrived.length > 0) {
      this.took();
      return Promise.resolve(this.#arrived.shift());
    }
    if (this.#error !== undefined) return Promise.reject(this.#error);
    return new Promise((resolve, reject) => (this.#waiting = { resolve, reject }));
  }

  /** Counts a chunk as taken. To be called for one that nobody is handed. */
  took(): void {
    this.#taken += 1;
    if (this.#taken < RUN_AHEAD_CHUNKS / 2) return;
    this.#report(this.#taken);
    this.#taken = 0;
  }
}
