// A file of a server that comes in by segments, several at once, and can be read while it does. With a store it is kept and comes in
// whole, whoever reads; without one it comes as far ahead of its reader as memory allows.

import { abortError, EngineError, toEngineError } from '../errors.js';
import type { Digester } from './digester.js';
import type { Arrived, FileEvent } from './events.js';
import type { FileStream } from './file_stream.js';
import type { KeptFile, Writing } from './kept_file.js';
import type { Ranges } from './ranges.js';
import { CHUNK_BYTES, SEGMENT_BYTES, segmentLength, segmentsOf, sha256 } from './segments.js';

/** Segments in memory besides those that are coming in: what the reader is at, and what is not yet digested. */
const EXTRA_SEGMENTS = 2;
/** Of a server without ranges nothing can be asked for again, so more is held: a header with a large vocabulary has 30 MB. */
const SEGMENTS_OF_ONE_PASS = 16;
/** Segments that may wait for their digests before the next ones come in. */
const MAX_FINISHING = 4;
/** Chunks that are read from the store before they are asked for. */
const CHUNKS_AHEAD = 6;

export interface DownloadOptions {
  ranges: Ranges;
  /** Requests at the same time. */
  connections: number;
  /** Where it is kept. */
  kept?: KeptFile | undefined;
  /** What its SHA-256 should be, and what computes it. */
  expected?: { sha256: string; digester: Digester } | undefined;
  /** All of it in order, of a server without ranges. */
  onePass?: FileStream | undefined;
  /** Ends what is checked before it lasts. */
  signal?: AbortSignal | undefined;
  onBytes: (arrived: Arrived) => void;
  onEvent: (event: FileEvent) => void;
}

/** A file that is there after the load too. */
export interface LastingFile {
  readonly size: number;
  read(offset: number, length: number): Promise<Uint8Array>;
}

interface Segment {
  bytes: Uint8Array<ArrayBuffer>;
  filled: number;
  isDone: boolean;
  /** It came in and is being kept. */
  isFinishing: boolean;
}

export class Download {
  readonly name: string;
  readonly size: number;
  #ranges: Ranges;
  #connections: number;
  #kept: KeptFile | undefined;
  #isKeeping: boolean;
  /** All of it came in before this load. */
  #wasWhole: boolean;
  #aborted: AbortSignal | undefined;
  #onBytes: (arrived: Arrived) => void;
  #onEvent: (event: FileEvent) => void;

  #segments = new Map<number, Segment>();
  /** Those that came in, whether they are still in memory or not. */
  #done: boolean[];
  #left: number;
  #wanted = new Set<number>();
  #active = 0;
  /** Segments that came in and are being kept. */
  #finishing = 0;
  /** The segment that was last read. */
  #position = 0;
  #onePass: FileStream | undefined;

  #error: EngineError | undefined;
  #isClosed = false;
  #changed: { promise: Promise<void>; resolve(): void } = newSignal();

  #expected: { sha256: string; digester: Digester } | undefined;
  #digested = 0;
  #digesting: Promise<void> = Promise.resolve();
  #repairing: Promise<unknown> = Promise.resolve();
  #chunks = new Map<number, Promise<Uint8Array<ArrayBuffer>>>();
  #isAwaited = false;
  /** Nobody reads it any more. */
  #isRead = false;
  /** Settles when the whole of it was checked. */
  #checked: Promise<void> | undefined;

  constructor(options: DownloadOptions) {
    const { ranges, kept, onePass } = options;
    const { name, size } = ranges;
    this.name = name;
    this.size = size;
    this.#ranges = ranges;
    this.#onePass = onePass;
    this.#connections = options.connections;
    this.#kept = kept;
    this.#isKeeping = kept !== undefined;
    this.#wasWhole = kept?.record.whole ?? false;
    this.#aborted = options.signal;
    this.#onBytes = options.onBytes;
    this.#onEvent = options.onEvent;
    this.#done = Array.from({ length: segmentsOf(size) }, (_, index) => kept?.has(index) ?? false);
    this.#left = this.#done.filter((done) => !done).length;
    if (!kept?.record.whole) this.#expected = options.expected;
    else options.expected?.digester.free();
    if (kept !== undefined) this.#onBytes({ bytes: kept.bytes(), from: 'cache' });
    if (onePass === undefined) this.#pump();
    else void this.#pass(onePass);
    this.#digestMore();
  }

  /** Bytes from `offset`. They may be a view of what others are given too. */
  async read(offset: number, length: number): Promise<Uint8Array<ArrayBuffer>> {
    const parts: Uint8Array<ArrayBuffer>[] = [];
    for (let at = offset; at < offset + length; ) {
      const index = Math.floor(at / SEGMENT_BYTES);
      const start = at - index * SEGMENT_BYTES;
      const end = Math.min(segmentLength(this.size, index), offset + length - index * SEGMENT_BYTES);
      const part = await this.#take(index, start, end);
      parts.push(part);
      at += part.length;
    }
    if (parts.length === 1) return parts[0]!;
    const bytes = new Uint8Array(length);
    let at = 0;
    for (const part of parts) {
      bytes.set(part, at);
      at += part.length;
    }
    return bytes;
  }

  /**
   * What is kept, for reads at any time after the load, of which `length` bytes from `offset` on are wanted: these are compared with their digests now, and a read
   * of a few bytes isn't. Null if it is not kept.
   */
  async lasting(offset: number, length: number): Promise<LastingFile | null> {
    this.#isAwaited = true;
    await this.whenKept();
    this.#isAwaited = false;
    const kept = this.#kept;
    if (this.#wasWhole) {
      const first = Math.floor(offset / CHUNK_BYTES) * CHUNK_BYTES;
      for (let at = first; at < offset + length; at += CHUNK_BYTES) {
        if (this.#aborted?.aborted) throw abortError(this.#aborted, `reading ${this.name}`);
        await this.read(Math.max(at, offset), 1);
      }
    }
    if (!this.#isKeeping || !kept?.record.whole) return null;
    return { size: this.size, read: (offset, length) => kept.read(offset, length) };
  }

  /** Whether somebody waits until all of it is kept. */
  get isAwaited(): boolean {
    return this.#isAwaited;
  }

  /** Resolves when all of it is kept and is what it should be, or when it is not kept any further. Its reader may go on. */
  whenKept(): Promise<void> {
    return this.#whenWhole();
  }

  /**
   * To be called when nobody reads any more. Resolves when all of it has come in and is what it should be; what is neither kept nor to be
   * checked may stay away.
   */
  async finish(): Promise<void> {
    this.#isRead = true;
    // Nothing is held for a reader.
    this.#position = Infinity;
    this.#pump();
    this.#signal();
    await this.#whenWhole();
    this.close();
  }

  async #whenWhole(): Promise<void> {
    while (this.#left > 0) {
      if (this.#error !== undefined) throw this.#error;
      if (this.#isClosed || !this.#isWanted()) return;
      await this.#changed.promise;
    }
    this.#checked ??= this.#check();
    await this.#checked;
  }

  /** Whether all of it has to come in: to be kept, or to be checked when its reader is done. */
  #isWanted(): boolean {
    return this.#isKeeping || (this.#isRead && this.#expected !== undefined);
  }

  async #check(): Promise<void> {
    await this.#digesting;
    if (this.#error !== undefined) throw this.#error;
    if (this.#isClosed) return;
    if (this.#expected !== undefined) await this.#verify(this.#expected);
    if (this.#isKeeping && !this.#kept!.record.whole) await this.#keep(() => this.#kept!.setWhole());
  }

  async #verify({ sha256, digester }: { sha256: string; digester: Digester }): Promise<void> {
    const found = await digester.digest();
    if (found === sha256) {
      this.#onEvent({ type: 'verified', url: this.name, sha256 });
      return;
    }
    await this.#kept?.delete().catch(() => {});
    throw this.#fail(
      new EngineError(
        'integrity_mismatch',
        `${this.name}: the file's SHA-256 is ${found}, wanted ${sha256}; it was damaged on its way or is another file: load it again, ` +
          'and check the digest if one was given with the option integrity',
      ),
    );
  }

  /** Ends what is under way. What was kept stays. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#expected?.digester.free();
    this.#onePass?.end();
    this.#ranges.close();
    this.#segments.clear();
    this.#chunks.clear();
    this.#signal();
  }

  #hasRanges(): boolean {
    return this.#onePass === undefined;
  }

  #signal(): void {
    this.#changed.resolve();
    this.#changed = newSignal();
  }

  #fail(thrown: unknown): EngineError {
    // What the caller is told names the status of a refusal, so that is passed on as it is.
    this.#error ??= thrown as EngineError;
    this.#signal();
    return this.#error;
  }

  /** Bytes `start` to `end` of a segment, or the first part of them. */
  async #take(index: number, start: number, end: number): Promise<Uint8Array<ArrayBuffer>> {
    if (index !== this.#position && this.#position !== Infinity) {
      this.#position = index;
      this.#evict();
      this.#pump();
      this.#signal();
    }
    for (;;) {
      const segment = this.#segments.get(index);
      if (segment !== undefined && segment.filled >= end) return segment.bytes.subarray(start, end);
      if (segment === undefined && this.#kept?.has(index)) return this.#fromStore(index, start, end);
      if (this.#error !== undefined) throw this.#error;
      if (this.#isClosed) throw new EngineError('aborted', `${this.name}: reading it has ended`);
      if (segment === undefined && this.#done[index]) this.#fetchAgain(index);
      else if (segment === undefined && this.#hasRanges()) {
        this.#wanted.add(index);
        this.#pump();
      }
      // Pumping may have put it there.
      if (!((this.#segments.get(index)?.filled ?? 0) >= end)) await this.#changed.promise;
    }
  }

  /** A segment that came in and is no longer in memory. */
  #fetchAgain(index: number): void {
    if (!this.#hasRanges()) {
      throw new EngineError(
        'range_not_supported',
        `${this.name}: the server does not serve ranges (it answered 200 and not 206), so the file can be read once from front to back, ` +
          `and the model asks for byte ${index * SEGMENT_BYTES} again; serve it with Accept-Ranges: bytes, or pass a File`,
      );
    }
    this.#done[index] = false;
    this.#left += 1;
    this.#wanted.add(index);
    this.#pump();
  }

  async #fromStore(index: number, start: number, end: number): Promise<Uint8Array<ArrayBuffer>> {
    const first = Math.floor(start / CHUNK_BYTES);
    const chunkOf = (chunk: number) => (index * SEGMENT_BYTES) / CHUNK_BYTES + chunk;
    const bytes = await this.#chunk(chunkOf(first));
    for (let ahead = 1; ahead <= CHUNKS_AHEAD; ahead++) void this.#chunk(chunkOf(first) + ahead).catch(() => {});
    const offset = first * CHUNK_BYTES;
    return bytes.subarray(start - offset, Math.min(end - offset, bytes.length));
  }

  /** A chunk of the file that is in the store. */
  #chunk(number: number): Promise<Uint8Array<ArrayBuffer>> {
    const index = Math.floor((number * CHUNK_BYTES) / SEGMENT_BYTES);
    const known = this.#chunks.get(number);
    if (known !== undefined) return known;
    if (!this.#kept?.has(index)) return Promise.reject(new EngineError('internal', `${this.name}: chunk ${number} is not kept`));
    const chunk = number - (index * SEGMENT_BYTES) / CHUNK_BYTES;
    const reading = this.#kept.chunk(index, chunk).then(
      (bytes) => bytes ?? this.#repair(index, chunk),
      (thrown) => this.#unreadable(thrown, index, chunk),
    );
    this.#chunks.set(number, reading);
    // Whoever reads on needs none of the oldest.
    for (const old of [...this.#chunks.keys()].slice(0, -2 * (CHUNKS_AHEAD + 1))) this.#chunks.delete(old);
    return reading;
  }

  /** The store fails: the chunk is fetched again, and nothing more is kept. */
  async #unreadable(thrown: unknown, index: number, chunk: number): Promise<Uint8Array<ArrayBuffer>> {
    // What a store gives wrongly is its maker's to know.
    if (thrown instanceof EngineError) throw thrown;
    this.#stopKeeping(thrown);
    return this.#fetchChunk(index, chunk);
  }

  /** Fetches a chunk that was damaged in the store; one after the other, since two may lie in one segment. */
  #repair(index: number, chunk: number): Promise<Uint8Array<ArrayBuffer>> {
    const repairing = this.#repairing.then(() => this.#repairNow(index, chunk));
    this.#repairing = repairing.catch(() => {});
    return repairing;
  }

  async #repairNow(index: number, chunk: number): Promise<Uint8Array<ArrayBuffer>> {
    const bytes = await this.#fetchChunk(index, chunk);
    // If they can't be written, the next load finds the damage again.
    await this.#kept!.rewrite(index, chunk, bytes).catch(() => {});
    this.#onEvent({ type: 'repaired', url: this.name, offset: offsetOf(index, chunk), bytes: bytes.length });
    return bytes;
  }

  /** Fetches a chunk that is kept and can't be used, and compares it with the digest of before. */
  async #fetchChunk(index: number, chunk: number): Promise<Uint8Array<ArrayBuffer>> {
    const offset = offsetOf(index, chunk);
    const bytes = new Uint8Array(Math.min(CHUNK_BYTES, this.size - offset));
    try {
      await this.#ranges.fill(offset, bytes);
    } catch (thrown) {
      if (!(thrown instanceof EngineError)) throw thrown;
      throw new EngineError(
        thrown.code,
        `${this.name}: ${bytes.length} bytes at ${offset} of the kept file are damaged and could not be fetched again: ${thrown.message}`,
        { cause: thrown },
      );
    }
    if (!this.#kept!.isChunk(index, chunk, await sha256(bytes))) {
      throw new EngineError(
        'integrity_mismatch',
        `${this.name}: ${bytes.length} bytes at ${offset} of the kept file are damaged, and the server has other ones: it has another ` +
          "version of the file; load it with {update: 'check'}, or delete the model and load it again",
      );
    }
    return bytes;
  }

  // ── what comes in ──

  /** The next segment to fetch, if there is one. */
  #next(): number | undefined {
    for (const index of this.#wanted) {
      this.#wanted.delete(index);
      if (!this.#done[index] && !this.#segments.has(index)) return index;
    }
    // Without a store and a digest, what lies before the reader came in already or is not wanted.
    const from = this.#isKeeping || this.#expected !== undefined ? 0 : this.#position;
    const index = this.#done.findIndex((done, index) => index >= from && !done && !this.#segments.has(index));
    if (index === -1 || (!this.#isKeeping && index > this.#position + this.#connections)) return undefined;
    // What the digester waits for makes room.
    const isNeeded = this.#expected !== undefined && index === this.#digested;
    return isNeeded || this.#segments.size < this.#connections + EXTRA_SEGMENTS ? index : undefined;
  }

  #pump(): void {
    if (!this.#hasRanges()) return;
    while (this.#active < this.#connections && this.#error === undefined && !this.#isClosed) {
      const index = this.#next();
      if (index === undefined) return;
      this.#active += 1;
      this.#fetch(index)
        .catch((thrown: unknown) => this.#fail(thrown))
        .finally(() => {
          this.#active -= 1;
          this.#evict();
          this.#pump();
        });
    }
  }

  async #fetch(index: number): Promise<void> {
    const segment = this.#begin(index);
    const writing = await this.#writing(index, segment);
    try {
      const arrived = (bytes: Uint8Array, filled: number) => this.#arrived(segment, writing, bytes, filled);
      await this.#ranges.fill(index * SEGMENT_BYTES, segment.bytes, segment.filled, arrived);
    } catch (thrown) {
      this.#leave(writing);
      throw thrown;
    }
    await this.#end(segment, index, writing);
  }

  /** Keeps what was written of a segment that did not come in. */
  #leave(writing: Writing | undefined): void {
    try {
      writing?.close();
    } catch {
      // It is read again from where it ends.
    }
  }

  #begin(index: number): Segment {
    const segment: Segment = { bytes: new Uint8Array(segmentLength(this.size, index)), filled: 0, isDone: false, isFinishing: false };
    this.#segments.set(index, segment);
    return segment;
  }

  async #writing(index: number, segment: Segment): Promise<Writing | undefined> {
    if (!this.#isKeeping) return undefined;
    const writing = await this.#keep(() => this.#kept!.write(index, segment.bytes));
    if (writing === undefined || writing.filled === 0) return writing;
    segment.filled = writing.filled;
    this.#onBytes({ bytes: writing.filled, from: 'cache' });
    this.#signal();
    return writing;
  }

  #arrived(segment: Segment, writing: Writing | undefined, bytes: Uint8Array, filled: number): void {
    segment.filled = filled;
    this.#onBytes({ bytes: bytes.length, from: 'network' });
    if (writing !== undefined && this.#isKeeping) {
      try {
        writing.write(bytes);
      } catch (thrown) {
        this.#stopKeeping(thrown);
      }
    }
    this.#signal();
  }

  async #end(segment: Segment, index: number, writing: Writing | undefined): Promise<void> {
    segment.isDone = true;
    this.#done[index] = true;
    if (writing !== undefined && this.#isKeeping) {
      // The connection goes on meanwhile.
      this.#finishing += 1;
      segment.isFinishing = true;
      const finishing = this.#keep(() => writing.finish()).then(() => {
        this.#finishing -= 1;
        segment.isFinishing = false;
        this.#left -= 1;
        this.#evict();
        this.#pump();
        this.#signal();
      });
      if (this.#finishing > MAX_FINISHING) await finishing;
    } else {
      this.#leave(writing);
      this.#left -= 1;
    }
    this.#digestMore();
    this.#signal();
  }

  /** A server without ranges: from front to back. */
  async #pass(stream: FileStream): Promise<void> {
    try {
      let rest: Uint8Array | undefined;
      for (let index = 0; index < this.#done.length; index++) {
        while (!this.#isKeeping && this.#segments.size >= SEGMENTS_OF_ONE_PASS) {
          if (this.#isClosed) return;
          this.#evict();
          if (this.#segments.size >= SEGMENTS_OF_ONE_PASS) await this.#changed.promise;
        }
        if (this.#isClosed) return;
        const segment = this.#begin(index);
        if (this.#done[index]) {
          rest = await this.#passInto(segment, stream, rest, undefined);
          segment.isDone = true;
        } else {
          // The server sends all of it again, so that a part of before is written anew.
          const writing = this.#isKeeping ? await this.#keep(() => this.#kept!.write(index, segment.bytes, true)) : undefined;
          try {
            rest = await this.#passInto(segment, stream, rest, writing);
          } catch (thrown) {
            this.#leave(writing);
            throw thrown;
          }
          await this.#end(segment, index, writing);
        }
        this.#evict();
      }
    } catch (thrown) {
      this.#fail(thrown);
    } finally {
      stream.end();
    }
  }

  /** Fills a segment from `rest` and the stream; what is left of the last chunk. */
  async #passInto(
    segment: Segment,
    stream: FileStream,
    rest: Uint8Array | undefined,
    writing: Writing | undefined,
  ): Promise<Uint8Array | undefined> {
    let left = rest;
    while (segment.filled < segment.bytes.length) {
      const bytes = left ?? (await stream.next());
      if (bytes === undefined) throw new EngineError('network', `${this.name}: the answer ended before its end`);
      const part = bytes.subarray(0, segment.bytes.length - segment.filled);
      left = part.length < bytes.length ? bytes.subarray(part.length) : undefined;
      segment.bytes.set(part, segment.filled);
      this.#arrived(segment, writing, part, segment.filled + part.length);
    }
    return left;
  }

  // ── what stays ──

  /** Does something with the store. If that fails the file is no longer kept, and the load goes on. */
  async #keep<T>(work: () => Promise<T>): Promise<T | undefined> {
    try {
      return await work();
    } catch (thrown) {
      this.#stopKeeping(thrown);
      return undefined;
    }
  }

  #stopKeeping(thrown: unknown): void {
    if (!this.#isKeeping) return;
    this.#isKeeping = false;
    const isFull = thrown instanceof DOMException && thrown.name === 'QuotaExceededError';
    this.#onEvent({
      type: 'fallback',
      reason: isFull ? 'quota' : 'failed',
      message: `${this.name} is not kept any further, ${isFull ? 'there is no room for it' : 'the cache failed'}: ${toEngineError(thrown).message}`,
    });
  }

  /** Hands finished segments to the digester, in order. */
  #digestMore(): void {
    const expected = this.#expected;
    if (expected === undefined) return;
    this.#digesting = this.#digesting.then(async () => {
      while (this.#digested < this.#done.length && this.#done[this.#digested] && !this.#isClosed && this.#error === undefined) {
        const segment = this.#segments.get(this.#digested);
        if (segment !== undefined) await expected.digester.update(segment.bytes.slice());
        else {
          const length = segmentLength(this.size, this.#digested);
          for (let start = 0; start < length; start += CHUNK_BYTES) {
            const chunk = await this.#chunk((this.#digested * SEGMENT_BYTES + start) / CHUNK_BYTES);
            await expected.digester.update(chunk.slice());
          }
        }
        this.#digested += 1;
      }
      this.#evict();
      this.#pump();
    });
    this.#digesting.catch((thrown: unknown) => this.#fail(thrown));
  }

  /** Forgets segments that nobody needs. */
  #evict(): void {
    const isBehind = (index: number) => this.#position === Infinity || index < this.#position || index > this.#position + this.#connections;
    for (const [index, segment] of this.#segments) {
      if (!segment.isDone || segment.isFinishing) continue;
      const isKept = this.#isKeeping && this.#kept!.has(index);
      if (!isKept && this.#expected !== undefined && index >= this.#digested) continue;
      if (isKept) {
        if (index !== this.#position) this.#segments.delete(index);
      } else if (isBehind(index) && (this.#hasRanges() || index < this.#position)) {
        // A header is read more than once: its segments stay while there is room.
        const room = this.#hasRanges() ? this.#connections + EXTRA_SEGMENTS : SEGMENTS_OF_ONE_PASS;
        if (this.#segments.size >= room || this.#position === Infinity) this.#segments.delete(index);
      }
    }
  }
}

/** Where a chunk of a segment begins in the file. */
function offsetOf(index: number, chunk: number): number {
  return index * SEGMENT_BYTES + chunk * CHUNK_BYTES;
}

function newSignal(): { promise: Promise<void>; resolve(): void } {
  let resolve!: () => void;
  const promise = new Promise<void>((resolved) => (resolve = resolved));
  return { promise, resolve };
}
