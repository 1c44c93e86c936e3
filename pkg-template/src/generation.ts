// One generation between the queue and its reader: hands out chunks, cancels, and gives the turn back at the end, however
// it ends. It knows nothing of OpenAI's shapes, workers or wasm.

import type { Timings } from './answers.js';
import type { ProcessorCalls } from './logits_processor.js';
import type { Chunk, Generation } from './protocol.js';
import type { Turn } from './queue.js';

/** A chunk of the engine's; its timings also tell of the queue, of which the engine knows nothing. */
export interface TimedChunk extends Chunk {
  timings?: Timings;
}

export class RunningGeneration {
  #generation: Generation;
  #turn: Turn;
  #signal: AbortSignal | undefined;
  #processor: ProcessorCalls | undefined;
  #buffer: TimedChunk[] = [];
  #error: { thrown: unknown } | undefined;
  #reading: Promise<void> | undefined;
  #ended = false;
  #abort = () => this.cancel();

  constructor(generation: Generation, turn: Turn, signal: AbortSignal | undefined, processor: ProcessorCalls | undefined) {
    this.#generation = generation;
    this.#processor = processor;
    this.#turn = turn;
    this.#signal = signal;
    signal?.addEventListener('abort', this.#abort, { once: true });
    if (signal?.aborted) this.cancel();
    // A reader who stops reading must not hold up the next request, so whatever is left is read for them. Without
    // somebody waiting, the reader's pace is kept.
    turn.onWaiting(() => void this.#drain());
  }

  async next(): Promise<TimedChunk | undefined> {
    while (this.#buffer.length === 0) {
      if (this.#error !== undefined) throw this.#error.thrown;
      if (this.#ended) return undefined;
      await this.#read();
    }
    return this.#buffer.shift();
  }

  cancel(): void {
    if (!this.#ended) this.#generation.cancel();
  }

  /** Stops it and forgets what is left. */
  discard(): void {
    this.#end();
    this.#buffer = [];
  }

  /** Reads one chunk into the buffer. Callers at the same time share one read. */
  #read(): Promise<void> {
    this.#reading ??= this.#generation.next().then(
      (chunk) => {
        this.#reading = undefined;
        if (this.#ended) return;
        if (chunk === undefined) this.#end();
        else this.#buffer.push(this.#timed(chunk));
      },
      (thrown: unknown) => {
        this.#reading = undefined;
        if (this.#ended) return;
        this.#error = { thrown: this.#processor === undefined ? thrown : this.#processor.explain(thrown) };
        this.#end();
      },
    );
    return this.#reading;
  }

  #timed({ timings, ...chunk }: Chunk): TimedChunk {
    return timings === undefined ? chunk : { ...chunk, timings: { queue_ms: this.#turn.waitedMs, ...timings } };
  }

  async #drain(): Promise<void> {
    while (!this.#ended) await this.#read();
  }

  #end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#signal?.removeEventListener('abort', this.#abort);
    // A step may still run; the next request begins after it.
    void this.#generation.release().then(
      () => this.#turn.release(),
      () => this.#turn.release(),
    );
  }
}
