// Where bytes stay from one visit to the next. Types only; `opfs_store.ts`, `memory_store.ts` and `own_store.ts` are the places.

/**
 * A place of an application's own for models, as the option `cache`. Keys are paths such as `files/3f…/0`; values have up to 16 MiB.
 * Calls may come before earlier ones are answered, never two at once for one key.
 * A call that takes more than 120 seconds counts as failed: the load goes on without the cache.
 */
export interface ModelStore {
  /** The bytes that were last put under the key; undefined or null if there are none. */
  get(key: string): Promise<Uint8Array | ArrayBuffer | Blob | null | undefined> | Uint8Array | ArrayBuffer | Blob | null | undefined;
  /** Keeps bytes under a key, in place of what was there. They belong to the store. A rejection means that it is full. */
  put(key: string, bytes: Uint8Array): Promise<void> | void;
  /** Forgets a key. It is no error if there was none. */
  delete(key: string): Promise<void> | void;
}

/** A value that grows: what was appended stays if the tab dies. */
export interface Appender {
  append(bytes: Uint8Array): void;
  close(): void;
}

/** A place as the package uses it. Every method may reject: the place can be full, forbidden or gone. */
export interface Store {
  /** Bytes of a value; undefined if it is missing or shorter. Without a range, all of it. */
  read(key: string, range?: { offset: number; length: number }): Promise<Uint8Array<ArrayBuffer> | undefined>;
  put(key: string, bytes: Uint8Array<ArrayBuffer>): Promise<void>;
  delete(key: string): Promise<void>;
  /** Forgets all keys that begin with `prefix/`, of which there are at most `count`: `prefix/0`, `prefix/1` and so on. */
  deleteAll(prefix: string, count: number): Promise<void>;
  /** The length of a value, 0 if there is none. Undefined if only whole values are kept. */
  length?(key: string): Promise<number>;
  /** Goes on with a value after its first `at` bytes. */
  append?(key: string, at: number): Promise<Appender>;
}
