// What becomes of calls when a wasm of the package traps. It knows no glue.

import { EngineError, toEngineError } from './errors.js';

/** How a wasm is called. */
export interface Guarded {
  /** True after a trap: nothing can be called any more. */
  isBroken(): boolean;
  /**
   * Calls `listener` at the trap, unless what it returns is called before. The wasm stays as long as its thread, so a promise would keep whatever waits
   * for it.
   */
  onTrap(listener: (error: EngineError) => void): () => void;
  /** Runs `work` and converts what it throws. Rejects also when the wasm traps in a callback, where no promise would settle. */
  guard<T>(work: () => T | Promise<T>): Promise<Awaited<T>>;
  /** Runs `work`, which returns at once, and converts what it throws. */
  call<T>(work: () => T): T;
}

/**
 * Whether a wasm is in a stack, by the names of its files: others of the page may trap too, and others of the package. Where a bundler renamed the
 * files, a trap of any of the package counts.
 */
function isIn(name: string, stack: string): boolean {
  const named = stack.match(/rillm(_cpu|_grammar|_tensor|_train)?(?=_bg|\.js)/g);
  return named === null ? stack.includes('rillm') : named.includes(name);
}

/**
 * A trap leaves the instance in an unknown state, so everything that runs and everything that is asked later is rejected.
 * Inside an async function of Rust the trap surfaces as an uncaught error of the thread, never as a rejection: without the
 * listener below its promise would stay open forever.
 */
export function guardedAgainstTraps(name: 'rillm' | 'rillm_cpu' | 'rillm_tensor' | 'rillm_train', advice: string): Guarded {
  let trapped: EngineError | undefined;
  const pending = new Set<(error: EngineError) => void>();
  const listeners = new Set<(error: EngineError) => void>();

  function trap(error: WebAssembly.RuntimeError): EngineError {
    trapped ??= new EngineError('internal', `the WebAssembly module stopped with "${error.message}": this is a fault of rillm; ${advice}`, {
      cause: error,
    });
    for (const reject of pending) reject(trapped);
    pending.clear();
    for (const listener of listeners) listener(trapped);
    listeners.clear();
    return trapped;
  }

  // Not every runtime outside of browsers has it.
  globalThis.addEventListener?.('error', (event) => {
    if (event.error instanceof WebAssembly.RuntimeError && isIn(name, event.error.stack ?? name)) trap(event.error);
  });

  return {
    isBroken: () => trapped !== undefined,
    onTrap(listener) {
      if (trapped !== undefined) listener(trapped);
      else listeners.add(listener);
      return () => listeners.delete(listener);
    },
    call<T>(work: () => T): T {
      if (trapped !== undefined) throw trapped;
      try {
        return work();
      } catch (thrown) {
        if (thrown instanceof WebAssembly.RuntimeError) throw trap(thrown);
        throw toEngineError(thrown);
      }
    },
    async guard<T>(work: () => T | Promise<T>): Promise<Awaited<T>> {
      if (trapped !== undefined) throw trapped;
      let reject: ((error: EngineError) => void) | undefined;
      const trapping = new Promise<never>((_, rejectTrapping) => {
        reject = rejectTrapping;
        pending.add(rejectTrapping);
      });
      trapping.catch(() => {});
      try {
        return await Promise.race([work(), trapping]);
      } catch (thrown) {
        if (thrown instanceof WebAssembly.RuntimeError) throw trap(thrown);
        throw toEngineError(thrown);
      } finally {
        if (reject !== undefined) pending.delete(reject);
      }
    },
  };
}

/** A new instance in place of one that has trapped, or nothing; as `wasmLoader` asks for it. */
export function renewal<T extends Guarded>(reset: () => void, instance: () => T): (wasm: T) => T | undefined {
  return (wasm) => {
    if (!wasm.isBroken()) return undefined;
    reset();
    return instance();
  };
}
