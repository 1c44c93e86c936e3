// A store of the application's own, and the one in memory, as the package uses stores: whole values only.

import { EngineError } from '../errors.js';
import type { ModelStore, Store } from './store.js';
import { TimeLimit } from './time_limit.js';

/** The longest that an application's store may take for one call: it may lie on another machine. */
const LIMIT_SECONDS = 120;

export class OwnStore implements Store {
  #store: ModelStore;
  #limit = new TimeLimit(LIMIT_SECONDS);

  constructor(store: ModelStore) {
    this.#store = store;
  }

  async read(key: string, range?: { offset: number; length: number }): Promise<Uint8Array<ArrayBuffer> | undefined> {
    const value = await this.#limited('get', () => this.#store.get(key));
    if (value === undefined || value === null) return undefined;
    const { offset, length } = range ?? { offset: 0, length: value instanceof Blob ? value.size : value.byteLength };
    if (value instanceof Blob) {
      return offset + length > value.size ? undefined : new Uint8Array(await value.slice(offset, offset + length).arrayBuffer());
    }
    if (!(value instanceof Uint8Array || value instanceof ArrayBuffer)) {
      throw new EngineError('invalid_request', `get() of the cache gave ${typeof value}, wanted a Uint8Array, an ArrayBuffer or a Blob`);
    }
    if (offset + length > value.byteLength) return undefined;
    // A copy: what the store holds is the store's.
    return value instanceof ArrayBuffer ? new Uint8Array(value.slice(offset, offset + length)) : value.slice(offset, offset + length);
  }

  async put(key: string, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    await this.#limited('put', () => this.#store.put(key, bytes));
  }

  async delete(key: string): Promise<void> {
    await this.#limited('delete', () => this.#store.delete(key));
  }

  async deleteAll(prefix: string, count: number): Promise<void> {
    for (let index = 0; index < count; index++) await this.delete(`${prefix}/${index}`);
  }

  #limited<T>(method: keyof ModelStore, work: () => PromiseLike<T> | T): Promise<T> {
    return this.#limit.run(`${method}() of the cache`, work);
  }
}

/** Keeps models as long as the page lives. */
export class MemoryStore implements ModelStore {
  #values = new Map<string, Uint8Array>();

  async get(key: string): Promise<Uint8Array | undefined> {
    return this.#values.get(key);
  }

  async put(key: string, bytes: Uint8Array): Promise<void> {
    this.#values.set(key, bytes);
  }

  async delete(key: string): Promise<void> {
    this.#values.delete(key);
  }
}

/** Of this thread, for every load with `cache: 'memory'`. */
export const memoryStore = new MemoryStore();
