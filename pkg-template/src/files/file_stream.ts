// A part of a file of a server, in order and each byte once, over as many requests as it takes: where one breaks off, the next goes on at
// its byte. A server without ranges sends all of it again, and what is there already is skipped.
//
// Invariant: all bytes come from one state of the file, because mixed parts of two files would load and compute nonsense. Size, entity tag
// and date of each answer are compared with those of the first.

import { EngineError } from '../errors.js';
import type { Attempts } from './attempts.js';
import { ConnectionError } from './failures.js';
import type { Body, HttpFile } from './http.js';

/** By what two states of a file are told apart. */
export interface FileState {
  size: number;
  /** A strong entity tag, of which the same bytes can be expected. */
  entityTag?: string | undefined;
  /** An entity tag of any kind, or else a date. */
  version?: string | undefined;
}

export interface FileStreamOptions {
  http: HttpFile;
  state: FileState;
  /** Its bytes, from `offset` to `end` (exclusive). */
  offset: number;
  end: number;
  /** An answer that is there already and begins with them. */
  first?: Body | undefined;
  /** What may be skipped of an answer with all of the file. */
  mostSkipped: number;
}

export class FileStream {
  #http: HttpFile;
  #state: FileState;
  #at: number;
  #end: number;
  #body: Body | undefined;
  #mostSkipped: number;
  #left = 0;
  #ended = new AbortController();
  #attempts: Attempts;

  constructor({ http, state, offset, end, first, mostSkipped }: FileStreamOptions) {
    this.#http = http;
    this.#state = state;
    this.#at = offset;
    this.#end = end;
    this.#body = first;
    this.#mostSkipped = mostSkipped;
    this.#attempts = http.attempts({ ended: this.#ended.signal });
  }

  /** The next bytes, at least one; undefined at the end. */
  async next(): Promise<Uint8Array | undefined> {
    while (this.#at < this.#end) {
      try {
        this.#body ??= await this.#open();
        const bytes = await this.#body.next();
        if (bytes !== undefined) {
          const skipped = Math.min(this.#left, bytes.length);
          this.#left -= skipped;
          const part = bytes.subarray(skipped, skipped + this.#end - this.#at);
          if (part.length === 0) continue;
          this.#at += part.length;
          this.#attempts.progressed(part.length);
          return part;
        }
        const { start, end } = this.#body.range;
        this.#body = undefined;
        // An answer whose length nobody knew may be too short.
        if (end <= start)
          throw new ConnectionError('network', `${this.#http.url}: the answer ended at byte ${this.#at} of ${this.#state.size}`);
      } catch (thrown) {
        this.#body?.end();
        this.#body = undefined;
        if (this.#ended.signal.aborted) throw this.#over();
        this.#http.forgetDirect();
        await this.#attempts.failed(thrown, this.#at).catch((last: unknown) => {
          throw this.#ended.signal.aborted ? this.#over() : last;
        });
      }
    }
    this.end();
    return undefined;
  }

  /** Ends what is under way; who waits for it gets an error with the code `aborted`. */
  end(): void {
    this.#ended.abort();
    this.#body?.end();
  }

  #over(): EngineError {
    return new EngineError('aborted', `${this.#http.url}: reading it has ended`);
  }

  async #open(): Promise<Body> {
    const { url } = this.#http;
    const answer = await this.#http.get({ offset: this.#at, length: this.#end - this.#at }, this.#ended.signal);
    if (answer.kind === 'missing') throw new EngineError('http', `${url}: the server answered ${answer.status}, and had the file before`);
    const { kind, body } = answer;
    try {
      compare(url, this.#state, body);
      this.#left = kind === 'whole' ? this.#at : 0;
      if (this.#left > this.#mostSkipped) {
        throw new EngineError(
          'range_not_supported',
          `${url}: the server answered 200 to a request for bytes from ${this.#at} after it had answered 206; it does not serve ranges ` +
            'rightly, pass a File',
        );
      }
      return body;
    } catch (thrown) {
      body.end();
      throw thrown;
    }
  }
}

/** Throws if an answer is of another state of the file. What an answer does not say is taken to be the same. */
function compare(url: string, state: FileState, { range, entityTag, version }: Body): void {
  if (range.size !== undefined && range.size !== state.size) throw replaced(url, `${state.size} bytes`, `${range.size} bytes`);
  if (entityTag !== undefined && entityTag === state.entityTag) return;
  const [then, now] = [state.entityTag ?? state.version, entityTag ?? version];
  if (then === undefined || now === undefined || isTag(then) !== isTag(now) || opaque(then) === opaque(now)) return;
  throw replaced(url, `the ${isTag(then) ? 'entity tag' : 'date'} ${then}`, now);
}

function replaced(url: string, then: string, now: string): EngineError {
  return new EngineError(
    'invalid_file',
    `${url}: the file had ${then} when it was opened and has ${now} now; it was replaced on the server, load it again`,
  );
}

function isTag(version: string): boolean {
  return /^(W\/)?"/.test(version);
}

/** A weak tag and a strong one of the same state differ in their mark only. */
function opaque(version: string): string {
  return version.replace(/^W\//, '');
}
