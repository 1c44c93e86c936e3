// Shapes as the wasm knows them: by a number, which is found here again without asking it. It knows nothing of tensors.

import type { CacheStats } from '../stats.js';

/** Shapes that are kept unless another number is set; the wasm keeps as many. @internal */
export const DEFAULT_SHAPES = 256;

/**
 * First in, first out, with the same limit as the wasm's cache. Only this asks the wasm for numbers, and only for shapes that
 * it has not: so both evict the same shape at the same time, and a number that is here is known there. @internal
 */
export class ShapeNumbers {
  #limit: number;
  #intern: (dims: Uint32Array) => number;
  #numbers = new Map<string, number>();
  #counts = { hits: 0, misses: 0, evictions: 0 };

  constructor(limit: number, intern: (dims: Uint32Array) => number) {
    this.#limit = limit;
    this.#intern = intern;
  }

  numberOf(dims: Uint32Array): number {
    const key = dims.join();
    const known = this.#numbers.get(key);
    if (known !== undefined) {
      this.#counts.hits += 1;
      return known;
    }
    const number = this.#intern(dims);
    this.#counts.misses += 1;
    if (this.#limit === 0) return number;
    if (this.#numbers.size === this.#limit) {
      // A Map gives its keys in the order in which they came.
      for (const oldest of this.#numbers.keys()) {
        this.#numbers.delete(oldest);
        break;
      }
      this.#counts.evictions += 1;
    }
    this.#numbers.set(key, number);
    return number;
  }

  stats(): CacheStats {
    return { ...this.#counts, entries: this.#numbers.size, bytes: 0 };
  }

  resetStats(): void {
    this.#counts = { hits: 0, misses: 0, evictions: 0 };
  }
}
