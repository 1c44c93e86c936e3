// What `create({stream: true})` resolves to. It knows nothing of where its parts come from.

import { type EngineError, toEngineError } from './errors.js';
import type { RunningGeneration } from './generation.js';
import type { Shapes } from './openai.js';

/**
 * An async iterable of chunks. `break`ing out of the loop, `return()` or `cancel()` stop the generation; so does aborting
 * the request's signal.
 */
export class CompletionStream<Part> implements AsyncIterableIterator<Part, undefined> {
  #generation: RunningGeneration;
  #shapes: Shapes<unknown, Part>;
  #includeUsage: boolean;
  #ready: Part[];
  #error: EngineError | undefined;

  /** @internal */
  constructor(generation: RunningGeneration, shapes: Shapes<unknown, Part>, includeUsage: boolean) {
    this.#generation = generation;
    this.#shapes = shapes;
    this.#includeUsage = includeUsage;
    this.#ready = shapes.opening();
  }

  /** The next chunk, when there is one. Rejects once if the generation failed. */
  async next(): Promise<IteratorResult<Part, undefined>> {
    while (this.#ready.length === 0) {
      if (this.#error !== undefined) throw this.#error;
      try {
        const chunk = await this.#generation.next();
        if (chunk === undefined) return { done: true, value: undefined };
        this.#ready.push(...this.#shapes.part(chunk, this.#includeUsage));
      } catch (thrown) {
        this.#error = toEngineError(thrown);
        this.#generation.discard();
        this.#ready.push(...(this.#shapes.failed?.(this.#error) ?? []));
      }
    }
    return { done: false, value: this.#ready.shift()! };
  }

  /** Stops the generation and ends the iteration. `for await` calls it on `break`. */
  async return(): Promise<IteratorResult<Part, undefined>> {
    this.#generation.discard();
    this.#ready = [];
    this.#error = undefined;
    return { done: true, value: undefined };
  }

  /** Stops the generation; the iteration goes on to its last chunk, which has `finish_reason: "cancelled"`, or a response's last event. */
  cancel(): void {
    this.#generation.cancel();
  }

  /** The stream itself: it can be read once. */
  [Symbol.asyncIterator](): this {
    return this;
  }
}
