// Reads ranges of a file of a server into memory.

import { EngineError } from '../errors.js';
import { type FileState, FileStream } from './file_stream.js';
import type { Body, HttpFile } from './http.js';

/** What is skipped, for a range, of an answer with all of the file. More would be to download it many times over. */
const MOST_SKIPPED = 64 << 20;

export interface RangesOptions {
  http: HttpFile;
  state: FileState;
  /** An answer that is there already, with a part from the start of the file. */
  first?: Body | undefined;
}

export class Ranges {
  readonly name: string;
  readonly size: number;
  #http: HttpFile;
  #state: FileState;
  #first: Body | undefined;
  #streams = new Set<FileStream>();
  #isClosed = false;

  constructor({ http, state, first }: RangesOptions) {
    this.name = http.url;
    this.size = state.size;
    this.#http = http;
    this.#state = state;
    this.#first = first;
  }

  /** Fills `into` from `filled`; its first byte is that at `offset` of the file. */
  async fill(offset: number, into: Uint8Array, filled = 0, onBytes: (bytes: Uint8Array, filled: number) => void = () => {}): Promise<void> {
    if (this.#isClosed) throw this.#ended();
    const stream = this.#stream(offset + filled, offset + into.length);
    this.#streams.add(stream);
    let at = filled;
    try {
      for (let bytes = await stream.next(); bytes !== undefined; bytes = await stream.next()) {
        if (this.#isClosed) throw this.#ended();
        into.set(bytes, at);
        at += bytes.length;
        onBytes(bytes, at);
      }
    } finally {
      stream.end();
      this.#streams.delete(stream);
    }
  }

  /** Ends all requests; what waits for them rejects. */
  close(): void {
    this.#isClosed = true;
    this.#first?.end();
    for (const stream of this.#streams) stream.end();
  }

  #ended(): EngineError {
    return new EngineError('aborted', `${this.name}: reading it has ended`);
  }

  #stream(offset: number, end: number): FileStream {
    const first = this.#first;
    this.#first = undefined;
    const isOfIt = first !== undefined && offset === first.range.start && first.range.end <= end;
    if (!isOfIt) first?.end();
    return new FileStream({
      http: this.#http,
      state: this.#state,
      offset,
      end,
      first: isOfIt ? first : undefined,
      mostSkipped: MOST_SKIPPED,
    });
  }
}
