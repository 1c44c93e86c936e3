// One file in a store: its segments, and a record with what it is and the digests of its chunks. Knows nothing of servers.

import { EngineError } from '../errors.js';
import type { ChunkReader, DigestedChunk } from './chunk_reader.js';
import { CHUNK_BYTES, CHUNKS_PER_SEGMENT, chunkDigests, SEGMENT_BYTES, segmentLength, segmentsOf, sha256 } from './segments.js';
import type { Appender, Store } from './store.js';

const VERSION = 1;
/** So much is written at once: each write has its cost, and what was not written comes again after a tab dies. */
const WRITE_BYTES = 512 << 10;

/** What is known of a file, kept beside its segments. */
export interface FileRecord {
  version: typeof VERSION;
  url: string;
  size: number;
  entityTag?: string;
  /** The entity tag or the date that the server gave. */
  modified?: string;
  /** What the whole file should have. */
  sha256?: string;
  /** All of it is there, and if `sha256` is known it was compared. */
  whole: boolean;
  /** Of each segment that is there, the SHA-256 of its chunks. */
  digests: (string[] | null)[];
}

export type FileFacts = Pick<FileRecord, 'url' | 'size' | 'entityTag' | 'modified' | 'sha256'>;

/** A segment that is being written. */
export interface Writing {
  /** The bytes that were there already; they are in the buffer. */
  filled: number;
  /** The next bytes, which are in the buffer by now. */
  write(bytes: Uint8Array): void;
  /** Keeps the whole segment, which is in the buffer by now, with its digests. */
  finish(): Promise<void>;
  /** Keeps what was written, for another time. */
  close(): void;
}

export class KeptFile {
  readonly id: string;
  readonly record: FileRecord;
  #store: Store;
  #reader: ChunkReader | undefined;

  /** The file as it was left, if it was begun and is still the same. */
  static async find(store: Store, id: string): Promise<KeptFile | undefined> {
    const bytes = await store.read(`files/${id}/record.json`);
    const record = bytes && parseRecord(bytes);
    return record && new KeptFile(store, id, record);
  }

  static begin(store: Store, id: string, facts: FileFacts): KeptFile {
    const digests = new Array<null>(segmentsOf(facts.size)).fill(null);
    return new KeptFile(store, id, { version: VERSION, whole: false, digests, ...facts });
  }

  private constructor(store: Store, id: string, record: FileRecord) {
    this.#store = store;
    this.id = id;
    this.record = record;
  }

  has(index: number): boolean {
    return this.record.digests[index] != null;
  }

  /** Bytes that are there, in whole segments. */
  bytes(): number {
    return this.record.digests.reduce((sum, digests, index) => sum + (digests === null ? 0 : segmentLength(this.record.size, index)), 0);
  }

  /** The same, with what is there of segments that were begun. */
  async bytesBegun(): Promise<number> {
    let bytes = this.bytes();
    if (this.#store.length === undefined) return bytes;
    for (const [index, digests] of this.record.digests.entries()) {
      if (digests === null) bytes += Math.min(await this.#store.length(this.#key(index)), segmentLength(this.record.size, index));
    }
    return bytes;
  }

  /** A chunk of a segment; undefined if it is missing or not what it was when it was kept. */
  async chunk(index: number, chunk: number): Promise<Uint8Array<ArrayBuffer> | undefined> {
    const digest = this.record.digests[index]?.[chunk];
    if (digest === undefined) return undefined;
    const offset = chunk * CHUNK_BYTES;
    const length = Math.min(CHUNK_BYTES, segmentLength(this.record.size, index) - offset);
    const found = await this.#read(this.#key(index), { offset, length });
    return found?.digest === digest ? found.bytes : undefined;
  }

  /** Some bytes of a file that is there as a whole. They are not compared with a digest, of which there is one for each chunk. */
  async read(offset: number, length: number): Promise<Uint8Array<ArrayBuffer>> {
    const bytes = new Uint8Array(length);
    for (let filled = 0; filled < length; ) {
      const at = offset + filled;
      const start = at % SEGMENT_BYTES;
      const part = Math.min(length - filled, SEGMENT_BYTES - start);
      const found = await this.#store.read(this.#key(Math.floor(at / SEGMENT_BYTES)), { offset: start, length: part });
      if (found === undefined) {
        throw new EngineError(
          'read',
          `${this.record.url}: its bytes are no longer kept; they were deleted while the model is in use: load it again`,
        );
      }
      bytes.set(found, filled);
      filled += part;
    }
    return bytes;
  }

  /** Lets a reader read the chunks. */
  readBy(reader: ChunkReader): void {
    this.#reader = reader;
  }

  async #read(key: string, range: { offset: number; length: number }): Promise<DigestedChunk | undefined> {
    try {
      if (this.#reader !== undefined) return await this.#reader.read(key, range);
    } catch (thrown) {
      if (thrown instanceof EngineError) throw thrown;
      // Its worker failed: from now on they are read here.
      this.#reader = undefined;
    }
    const bytes = await this.#store.read(key, range);
    return bytes && { bytes, digest: await sha256(bytes) };
  }

  isChunk(index: number, chunk: number, digest: string): boolean {
    return this.record.digests[index]?.[chunk] === digest;
  }

  /** A segment was damaged: it is written again, from chunks that are right. */
  async rewrite(index: number, chunk: number, bytes: Uint8Array): Promise<void> {
    const segment = new Uint8Array(segmentLength(this.record.size, index));
    for (let other = 0; other * CHUNK_BYTES < segment.length; other++) {
      const part = other === chunk ? bytes : await this.chunk(index, other);
      // Two chunks of it are damaged; the other one is repaired when it is read.
      const offset = other * CHUNK_BYTES;
      const length = Math.min(CHUNK_BYTES, segment.length - offset);
      const kept = part ?? (await this.#store.read(this.#key(index), { offset, length }));
      if (kept !== undefined) segment.set(kept, offset);
    }
    await this.#store.put(this.#key(index), segment);
  }

  /** Begins a segment, or goes on with it: what is there is read into `buffer`, unless it is to be written anew. */
  async write(index: number, buffer: Uint8Array<ArrayBuffer>, isAnew = false): Promise<Writing> {
    const key = this.#key(index);
    if (this.#store.append === undefined || this.#store.length === undefined) {
      return {
        filled: 0,
        write: () => {},
        finish: async () => {
          // A copy: the buffer is still read, and the store keeps what it is given.
          await this.#store.put(key, buffer.slice());
          await this.#keep(index, buffer);
        },
        close: () => {},
      };
    }
    const there = isAnew ? 0 : Math.min(await this.#store.length(key), buffer.length);
    const bytes = there > 0 ? await this.#store.read(key, { offset: 0, length: there }) : undefined;
    if (bytes !== undefined) buffer.set(bytes);
    const filled = bytes?.length ?? 0;
    let appender: Appender | undefined = filled < buffer.length ? await this.#store.append(key, filled) : undefined;
    let [written, came] = [filled, filled];
    const flush = () => {
      if (came > written) appender?.append(buffer.subarray(written, came));
      written = came;
    };
    const close = () => {
      try {
        flush();
      } finally {
        appender?.close();
        appender = undefined;
      }
    };
    return {
      filled,
      write: (bytes) => {
        came += bytes.length;
        if (came - written >= WRITE_BYTES) flush();
      },
      finish: async () => {
        close();
        await this.#keep(index, buffer);
      },
      close,
    };
  }

  async #keep(index: number, segment: Uint8Array<ArrayBuffer>): Promise<void> {
    this.record.digests[index] = await chunkDigests(segment);
    await this.save();
  }

  /** Records that all of it is there and right. */
  async setWhole(): Promise<void> {
    this.record.whole = true;
    await this.save();
  }

  #saving: Promise<void> = Promise.resolve();
  #saveAgain = false;

  /** Writes the record. Calls that come while it is being written share the next write. */
  async save(): Promise<void> {
    if (this.#saveAgain) return this.#saving;
    this.#saveAgain = true;
    this.#saving = this.#saving
      .catch(() => {})
      .then(() => {
        this.#saveAgain = false;
        return this.#store.put(`files/${this.id}/record.json`, new TextEncoder().encode(JSON.stringify(this.record)));
      });
    return this.#saving;
  }

  /** Forgets the file. */
  async delete(): Promise<void> {
    await this.#store.delete(`files/${this.id}/record.json`);
    await this.#store.deleteAll(`files/${this.id}`, segmentsOf(this.record.size));
  }

  #key(index: number): string {
    return `files/${this.id}/${index}`;
  }
}

/** A record, if it is one: a store may give anything. */
function parseRecord(bytes: Uint8Array): FileRecord | undefined {
  let record: FileRecord;
  try {
    record = JSON.parse(new TextDecoder().decode(bytes)) as FileRecord;
  } catch {
    return undefined;
  }
  const isRecord =
    record?.version === VERSION &&
    typeof record.url === 'string' &&
    Number.isSafeInteger(record.size) &&
    Array.isArray(record.digests) &&
    record.digests.length === segmentsOf(record.size) &&
    record.digests.every(
      (digests, index) =>
        digests === null ||
        (Array.isArray(digests) &&
          digests.length === Math.ceil(segmentLength(record.size, index) / CHUNK_BYTES) &&
          digests.length <= CHUNKS_PER_SEGMENT),
    );
  return isRecord ? record : undefined;
}
