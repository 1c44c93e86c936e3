// A caller's logits processor as the engine calls it: checked, and what it throws is kept, because it can't travel through a worker.

import { EngineError, isEngineError, textOf, toEngineError } from './errors.js';
import type { LogitsProcessor } from './types.js';

/** What an engine's host calls: the logits to choose from. They belong to the host from then on. */
export type ProcessorCall = (logits: Float32Array, tokens: Uint32Array, step: number) => Promise<Float32Array>;

export class ProcessorCalls {
  #process: LogitsProcessor;
  #failed: { thrown: unknown } | undefined;

  constructor(process: unknown) {
    if (typeof process !== 'function') {
      throw new EngineError('invalid_request', `logitsProcessor is a function, got ${process === null ? 'null' : typeof process}`);
    }
    this.#process = process as LogitsProcessor;
  }

  readonly call: ProcessorCall = async (logits, tokens, step) => {
    try {
      const processed: unknown = await this.#process(logits, tokens, step);
      if (processed === undefined || processed === logits) return logits;
      if (processed instanceof Float32Array) return processed.slice();
      throw new EngineError(
        'logits_processor',
        `the logits processor gave ${processed === null ? 'null' : typeof processed}, wanted a Float32Array, or nothing if it changed the one it got`,
      );
    } catch (thrown) {
      this.#failed ??= { thrown };
      if (isEngineError(thrown)) throw thrown;
      throw new EngineError('logits_processor', `the logits processor threw: ${textOf(thrown)}`, { cause: thrown });
    }
  };

  /** The error of a generation; where the processor threw, with what it threw as its cause. */
  explain(thrown: unknown): EngineError {
    const error = toEngineError(thrown);
    if (this.#failed === undefined || error.code !== 'logits_processor') return error;
    const { thrown: cause } = this.#failed;
    return isEngineError(cause) ? cause : new EngineError('logits_processor', `the logits processor threw: ${textOf(cause)}`, { cause });
  }
}
