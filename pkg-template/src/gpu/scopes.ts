// Which tensors a piece of work made, to dispose of those that nobody keeps.

import { Tensor } from './tensor.js';

/** The open scopes of a device. */
export class Scopes {
  #open: Set<Tensor>[] = [];

  /** A tensor that was made now. */
  add(tensor: Tensor): void {
    this.#open.at(-1)?.add(tensor);
  }

  /** Runs `work` and disposes of what was made until it ended, but for what it returns. */
  tidied<T>(work: () => T): T {
    const scope = this.#begin();
    let result: T;
    try {
      result = work();
    } catch (error) {
      this.#end(scope, undefined);
      throw error;
    }
    if (!(result instanceof Promise)) {
      this.#end(scope, result);
      return result;
    }
    const ended = result.then(
      (value: unknown) => {
        this.#end(scope, value);
        return value;
      },
      (error: unknown) => {
        this.#end(scope, undefined);
        throw error;
      },
    );
    return ended as T;
  }

  /** Runs `work` like {@link Scopes.tidied} and tells besides which of the tensors that it returned it made itself. */
  madeBy<T>(work: () => T): { result: T; made: Tensor[] } {
    const scope = this.#begin();
    let result: T | undefined;
    try {
      result = work();
      const kept = tensorsIn(result);
      return { result, made: [...scope].filter((tensor) => kept.has(tensor) && !tensor.disposed) };
    } finally {
      this.#end(scope, result);
    }
  }

  #begin(): Set<Tensor> {
    const scope = new Set<Tensor>();
    this.#open.push(scope);
    return scope;
  }

  #end(scope: Set<Tensor>, result: unknown): void {
    this.#open.splice(this.#open.lastIndexOf(scope), 1);
    const kept = tensorsIn(result);
    const outer = this.#open.at(-1);
    for (const tensor of scope) {
      if (!kept.has(tensor)) tensor.dispose();
      else if (!tensor.disposed) outer?.add(tensor);
    }
  }
}

/** The tensors that a value is or holds: an array or an object of them, and so on. */
function tensorsIn(value: unknown, found: Set<Tensor> = new Set(), seen: Set<unknown> = new Set()): Set<Tensor> {
  if (value instanceof Tensor) {
    found.add(value);
  } else if (typeof value === 'object' && value !== null && !seen.has(value)) {
    seen.add(value);
    if (Array.isArray(value)) for (const part of value) tensorsIn(part, found, seen);
    else if (Object.getPrototypeOf(value) === Object.prototype) tensorsIn(Object.values(value), found, seen);
  }
  return found;
}
