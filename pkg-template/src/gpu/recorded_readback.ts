// A read-back whose copies are recorded with other commands, and are read when the caller likes.

import { EngineError } from '../errors.js';
import type { Tensor } from './tensor.js';
import type { TensorValues } from './types.js';

/** Numbers for each of some tensors. */
export type ValuesOf<T extends readonly Tensor[]> = { -readonly [K in keyof T]: TensorValues };

/** What was recorded, to its device. @internal */
export interface Recorded<T extends readonly Tensor[]> {
  start(): Promise<ValuesOf<T>>;
  free(): void;
}

/**
 * Tensors as they were when {@link Device.recordReadback} was called, whatever was recorded since. The copies go with the next submit of
 * the device; until then they cost nothing.
 */
export class RecordedReadback<T extends readonly Tensor[] = readonly Tensor[]> {
  #recorded: Recorded<T> | undefined;
  #values: Promise<ValuesOf<T>> | undefined;

  /** @internal */
  constructor(recorded: Recorded<T>) {
    this.#recorded = recorded;
  }

  /**
   * The numbers. Submits what was recorded if the copies are still among it. Calling it twice gives the same.
   *
   * @throws EngineError `disposed` after {@link RecordedReadback.dispose}, or when the device was destroyed.
   */
  async values(): Promise<ValuesOf<T>> {
    if (this.#values === undefined) {
      if (this.#recorded === undefined) throw new EngineError('disposed', 'the read-back was disposed of: record another one');
      this.#values = this.#recorded.start();
      this.dispose();
    }
    return this.#values;
  }

  /** Gives up what is not read yet. Calling it twice is harmless, and so is calling it after `values()`. */
  dispose(): void {
    this.#recorded?.free();
    this.#recorded = undefined;
  }
}
