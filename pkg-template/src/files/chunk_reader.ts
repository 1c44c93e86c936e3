// Chunks of kept files, read from the origin private file system and digested in a worker of their own: `crypto.subtle.digest` copies its
// input on the thread that calls it, and the thread of a load has enough to do. The bytes are moved to it, not copied.

import { EngineError } from '../errors.js';
import { FILE_SYSTEM_SECONDS, openOpfs } from './opfs_store.js';
import { sha256 } from './segments.js';
import { TimeLimit } from './time_limit.js';

/** A part of a file, and its SHA-256. */
export interface DigestedChunk {
  bytes: Uint8Array<ArrayBuffer>;
  digest: string;
}

export interface ChunkReader {
  /** Bytes of a value; undefined if it is missing or shorter. Rejects with an EngineError only after `free`. */
  read(key: string, range: { offset: number; length: number }): Promise<DigestedChunk | undefined>;
  /** Ends it; what waits rejects. */
  free(): void;
}

type ToReader = { id: number; key: string; range: { offset: number; length: number } };
/** Without an id: the worker failed. */
type FromReader = { id: number; chunk: DigestedChunk | undefined } | { id: number; message: string } | { id?: undefined; message: string };

interface Waiting {
  resolve(chunk: DigestedChunk | undefined): void;
  reject(thrown: unknown): void;
}

/** A reader at the other end of a port. */
export class PortChunkReader implements ChunkReader {
  #port: MessagePort;
  #waiting = new Map<number, Waiting>();
  #next = 0;
  #limit = new TimeLimit(FILE_SYSTEM_SECONDS);
  /** Why it reads no more. */
  #ended: unknown;

  constructor(port: MessagePort) {
    this.#port = port;
    port.onmessage = ({ data }: MessageEvent<FromReader>) => {
      if (data.id === undefined) return this.#end(new Error(data.message));
      const waiting = this.#waiting.get(data.id);
      this.#waiting.delete(data.id);
      if ('message' in data) waiting?.reject(new Error(data.message));
      else waiting?.resolve(data.chunk);
    };
  }

  read(key: string, range: { offset: number; length: number }): Promise<DigestedChunk | undefined> {
    const asked = () =>
      new Promise<DigestedChunk | undefined>((resolve, reject) => {
        if (this.#ended !== undefined) return reject(this.#ended);
        const id = this.#next++;
        this.#waiting.set(id, { resolve, reject });
        this.#port.postMessage({ id, key, range } satisfies ToReader);
      });
    return this.#limit.run('the worker that reads the cache', asked);
  }

  free(): void {
    this.#end(new EngineError('aborted', 'reading the cache has ended'));
    this.#port.close();
  }

  #end(thrown: unknown): void {
    this.#ended ??= thrown;
    for (const { reject } of this.#waiting.values()) reject(this.#ended);
    this.#waiting.clear();
  }
}

/** Answers a PortChunkReader. */
export function serveChunks(port: MessagePort): void {
  const opening = openOpfs();
  opening.catch(() => {});
  port.onmessage = async ({ data: { id, key, range } }: MessageEvent<ToReader>) => {
    try {
      const bytes = await (await opening).read(key, range);
      const chunk = bytes && { bytes, digest: await sha256(bytes) };
      port.postMessage({ id, chunk } satisfies FromReader, chunk === undefined ? [] : [chunk.bytes.buffer]);
    } catch (thrown) {
      port.postMessage({ id, message: String(thrown) } satisfies FromReader);
    }
  };
}
