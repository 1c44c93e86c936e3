// A generation of an engine on this thread.

import { EngineError } from './errors.js';
import type { Chunk, Generation } from './protocol.js';
import type { Wasm, WasmGeneration } from './wasm.js';

type Ask = <T>(work: () => T | Promise<T>) => Promise<Awaited<T>>;

/** A generation whose steps never overlap its end: the wasm object is borrowed while a step runs. */
export class EngineGeneration implements Generation {
  readonly released: Promise<void>;
  #wasm: Wasm;
  #generation: WasmGeneration;
  #ask: Ask;
  #step: Promise<unknown> = Promise.resolve();
  #ended: EngineError | undefined;
  /** Gives up what the caller's functions were asked for. */
  #stop: () => void;
  #resolveReleased!: () => void;

  constructor(wasm: Wasm, generation: WasmGeneration, ask: Ask, stop: () => void) {
    this.#wasm = wasm;
    this.#ask = ask;
    this.#generation = generation;
    this.#stop = stop;
    this.released = new Promise((resolve) => (this.#resolveReleased = resolve));
  }

  async next(): Promise<Chunk | undefined> {
    if (this.#ended !== undefined) throw this.#ended;
    const step = this.#ask(() => this.#generation.next());
    this.#step = step.catch(() => {});
    const chunk = await step;
    if (this.#ended !== undefined) throw this.#ended;
    return chunk;
  }

  cancel(): void {
    try {
      if (this.#ended === undefined && !this.#wasm.isBroken()) this.#wasm.call(() => this.#generation.cancel());
    } catch {
      // A trap, of which whoever reads hears.
    }
    this.#stop();
  }

  /** Ends it for its reader with this error; resolves when no step runs any more. */
  async end(error: EngineError): Promise<void> {
    this.cancel();
    this.#ended ??= error;
    await this.#step;
  }

  async release(): Promise<void> {
    await this.end(disposed());
    try {
      if (!this.#wasm.isBroken()) this.#wasm.call(() => this.#generation.free());
    } finally {
      this.#resolveReleased();
    }
  }
}

/** What a call of an engine rejects with that was disposed of. */
export function disposed(): EngineError {
  return new EngineError('disposed', 'the engine was disposed of: load the model again with Engine.load()');
}
