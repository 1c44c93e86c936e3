// Reads ranges of a file of a server into memory, and asks again where the connection breaks.
//
// Invariant: all parts come from one state of the file. Size and strong entity tag of each answer are compared with those of the
// first, because mixed parts of two files would load and compute nonsense.

import { EngineError } from '../errors.js';
import { type Body, type HttpFile, mayPass } from './http.js';

/** How often in a row a request may fail before the read does. */
const MAX_RETRIES = 3;
/** The pause before the first retry, in milliseconds; it doubles each time. */
const RETRY_PAUSE_MS = 250;

export interface RangesOptions {
  http: HttpFile;
  size: number;
  entityTag?: string | undefined;
  /** An answer that is there already, with a part from the start of the file. */
  first?: Body | undefined;
}

export class Ranges {
  readonly name: string;
  readonly size: number;
  #http: HttpFile;
  #entityTag: string | undefined;
  #first: Body | undefined;
  #bodies = new Set<Body>();
  #isClosed = false;

  constructor({ http, size, entityTag, first }: RangesOptions) {
    this.name = http.url;
    this.size = size;
    this.#http = http;
    this.#entityTag = entityTag;
    this.#first = first;
  }

  /** Fills `into` from `filled`; its first byte is that at `offset` of the file. */
  async fill(offset: number, into: Uint8Array, filled = 0, onBytes: (bytes: Uint8Array, filled: number) => void = () => {}): Promise<void> {
    let failures = 0;
    while (filled < into.length) {
      let body: Body | undefined;
      try {
        body = await this.#body(offset + filled, into.length - filled);
        this.#bodies.add(body);
        while (filled < into.length) {
          const bytes = await body.next();
          if (bytes === undefined) break;
          if (this.#isClosed) throw this.#ended();
          const part = bytes.subarray(0, into.length - filled);
          into.set(part, filled);
          filled += part.length;
          failures = 0;
          onBytes(part, filled);
        }
      } catch (thrown) {
        if (this.#isClosed) throw this.#ended();
        if (!mayPass(thrown)) throw thrown;
        failures += 1;
        if (failures > MAX_RETRIES) throw this.#broken(offset + filled, thrown);
        await new Promise((resolve) => setTimeout(resolve, RETRY_PAUSE_MS << (failures - 1)));
      } finally {
        body?.end();
        if (body !== undefined) this.#bodies.delete(body);
      }
    }
  }

  /** Ends all requests; what waits for them rejects. */
  close(): void {
    this.#isClosed = true;
    this.#first?.end();
    for (const body of this.#bodies) body.end();
  }

  #ended(): EngineError {
    return new EngineError('aborted', `${this.name}: reading it has ended`);
  }

  #broken(at: number, thrown: unknown): unknown {
    if (!(thrown instanceof EngineError)) return thrown;
    const tried = `the connection broke at byte ${at} of ${this.size} and ${MAX_RETRIES} new requests did not help`;
    return new EngineError(thrown.code, `${tried}: ${thrown.message}`, { cause: thrown });
  }

  /** The body of an answer with these bytes. */
  async #body(offset: number, length: number): Promise<Body> {
    if (this.#isClosed) throw this.#ended();
    const first = this.#first;
    this.#first = undefined;
    if (first !== undefined && offset === first.range.start && first.range.end <= offset + length) return first;
    first?.end();
    const answer = await this.#http.get({ offset, length });
    if (answer.kind === 'missing') throw new EngineError('http', `${this.name}: the server answered 404 or 410, and had the file before`);
    try {
      if (answer.kind === 'whole') {
        throw new EngineError(
          'range_not_supported',
          `${this.name}: the server answered 200 to a range request after it had answered 206; it does not serve ranges rightly, pass a File`,
        );
      }
      this.#compare(answer.body);
      return answer.body;
    } catch (thrown) {
      answer.body.end();
      throw thrown;
    }
  }

  #compare({ range, entityTag }: Body): void {
    const replaced = (then: string, now: string) =>
      new EngineError(
        'invalid_file',
        `${this.name}: the file had ${then} when it was opened and has ${now} now; it was replaced on the server, load it again`,
      );
    if (range.size !== undefined && range.size !== this.size) throw replaced(`${this.size} bytes`, `${range.size} bytes`);
    if (this.#entityTag !== undefined && entityTag !== undefined && entityTag !== this.#entityTag) {
      throw replaced(`the entity tag ${this.#entityTag}`, entityTag);
    }
  }
}
