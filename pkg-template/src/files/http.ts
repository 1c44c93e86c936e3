// One file on a web server: sends requests by ranges (RFC 9110, section 14), checks what the answers say of themselves and reads
// their bodies. A token goes to its own origin only. If a request was redirected, later ones go directly to the new address; such
// addresses expire, and then the first one is asked again.

import { EngineError } from '../errors.js';

/** A file as the wasm asks for it. */
export interface RemoteRequest {
  url: string;
  /** An access token, and the origin that it is for. */
  token?: string;
  tokenOrigin?: string;
  /** What a listing says of the file: 64 hexadecimal digits, and bytes. */
  sha256?: string;
  size?: number;
  /** The most bytes that the file may have. If this is given, the file is wanted whole. */
  limit?: number;
}

/** The server answered with a status of failure. What it means is for the caller to say. */
export class RefusedError extends Error {
  readonly refused: { status: number; statusText: string; errorCode?: string };

  constructor(url: string, response: Response) {
    super(`${url}: the server answered ${response.status}`);
    const errorCode = response.headers.get('x-error-code');
    this.refused = { status: response.status, statusText: response.statusText, ...(errorCode === null ? {} : { errorCode }) };
  }
}

/** How long a server may send nothing while it is waited for. */
const STALL_MS = 30_000;
/** Statuses after which the same request may succeed (RFC 9110 and 6585). */
const PASSING = [408, 425, 429, 500, 502, 503, 504];

/** True for what may be over when the request is sent again. */
export function mayPass(error: unknown): boolean {
  if (error instanceof RefusedError) return PASSING.includes(error.refused.status);
  return error instanceof EngineError && error.code === 'network';
}

/** What a download ends in, for callers that know nothing of refusals. */
export function refusedAsError(thrown: unknown): unknown {
  if (!(thrown instanceof RefusedError)) return thrown;
  const { statusText } = thrown.refused;
  const advice = mayPass(thrown) ? 'try again later' : 'check the address and the server';
  return new EngineError('http', `${thrown.message} ${statusText}; ${advice}`, { cause: thrown });
}

/** A part of a file: bytes `start` to `end` (exclusive). `size` is the file's. */
export interface Range {
  start: number;
  end: number;
  size: number | undefined;
}

export type Answer = { kind: 'part' | 'whole'; body: Body } | { kind: 'missing' };

export class HttpFile {
  readonly url: string;
  #request: RemoteRequest;
  #signal: AbortSignal | undefined;
  #cache: RequestCache;
  /** The address that the last request was redirected to. */
  #direct: string | undefined;

  /** `cache` is what the browser's own cache does, which would keep a second copy of what is kept. */
  constructor(request: RemoteRequest, signal: AbortSignal | undefined, cache: RequestCache = 'default') {
    this.url = request.url;
    this.#request = request;
    this.#signal = signal;
    this.#cache = cache;
  }

  /** Asks for `length` bytes (at least one) from `offset`, or for the whole file. Resolves when the headers have arrived. */
  async get(range?: { offset: number; length: number }): Promise<Answer> {
    if (this.#direct !== undefined) {
      const sent = await this.#send(this.#direct, range);
      if (sent.response.ok) return this.#answer(sent, range);
      sent.pending.end();
      this.#direct = undefined;
    }
    const sent = await this.#send(this.url, range);
    if (sent.response.ok && sent.response.redirected) this.#direct = sent.response.url;
    return this.#answer(sent, range);
  }

  async #send(url: string, range: { offset: number; length: number } | undefined): Promise<Sent> {
    const headers = new Headers();
    if (range !== undefined) headers.set('range', `bytes=${range.offset}-${range.offset + range.length - 1}`);
    const { token, tokenOrigin } = this.#request;
    if (token !== undefined && new URL(url).origin === tokenOrigin) headers.set('authorization', `Bearer ${token}`);
    const pending = new Pending(this.url, this.#signal);
    try {
      const response = await pending.wait(() => fetch(url, { headers, signal: pending.signal, cache: this.#cache }));
      return { response, pending };
    } catch (thrown) {
      pending.end();
      throw thrown;
    }
  }

  #answer({ response, pending }: Sent, range: { offset: number; length: number } | undefined): Answer {
    try {
      switch (response.status) {
        case 206:
          if (range === undefined) throw network(this.url, 'the server answered 206 to a request without a range');
          return { kind: 'part', body: new Body(this.url, response, pending, partOf(this.url, response, range)) };
        case 200:
          return { kind: 'whole', body: new Body(this.url, response, pending, wholeOf(response)) };
        case 404:
        case 410:
          pending.end();
          return { kind: 'missing' };
        default:
          throw new RefusedError(this.url, response);
      }
    } catch (thrown) {
      pending.end();
      throw thrown;
    }
  }
}

interface Sent {
  response: Response;
  pending: Pending;
}

/** A request that is under way: it ends with the caller's signal, and if the server is silent for too long. */
class Pending {
  readonly signal: AbortSignal;
  #url: string;
  #outer: AbortSignal | undefined;
  #controller = new AbortController();
  #abort = () => this.#controller.abort();
  #stalled = false;
  #timer: ReturnType<typeof setInterval> | undefined;
  #waitingSince = Infinity;

  constructor(url: string, outer: AbortSignal | undefined) {
    this.#url = url;
    this.#outer = outer;
    this.signal = this.#controller.signal;
    outer?.addEventListener('abort', this.#abort);
    if (outer?.aborted) this.#abort();
  }

  /** Waits for something of the server's. */
  async wait<T>(work: () => Promise<T>): Promise<T> {
    // One timer looks after many waits: chunks come by the thousand.
    this.#waitingSince = performance.now();
    this.#timer ??= setInterval(() => {
      if (performance.now() - this.#waitingSince < STALL_MS) return;
      this.#stalled = true;
      this.#abort();
    }, STALL_MS / 10);
    try {
      const result = await work();
      // What the caller does in between takes as long as it takes.
      this.#waitingSince = Infinity;
      return result;
    } catch (thrown) {
      if (this.#outer?.aborted) throw new EngineError('aborted', `${this.#url}: the caller aborted`);
      if (this.#stalled) throw network(this.#url, `the server sent nothing for ${STALL_MS / 1000} seconds`);
      const advice = 'check the address and the connection; a server of another origin must send Access-Control-Allow-Origin';
      throw network(this.#url, `the request failed (${String(thrown)}); ${advice}`, thrown);
    }
  }

  /** Ends it; no effect on one that is complete. */
  end(): void {
    this.#outer?.removeEventListener('abort', this.#abort);
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#waitingSince = Infinity;
    this.#abort();
  }
}

/** The body of an answer. Whoever is done with it before its end has to `end` it. */
export class Body {
  readonly range: Range;
  /** The strong entity tag: a weak one may be the same for different bytes. */
  readonly entityTag: string | undefined;
  /** What the server says of the state of the file: its entity tag or its date. */
  readonly version: string | undefined;
  #url: string;
  #pending: Pending;
  #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  /** Bytes that are missing; undefined if the server does not say it. */
  #left: number | undefined;

  constructor(url: string, response: Response, pending: Pending, range: Range & { length: number | undefined }) {
    const { start, end, size, length } = range;
    this.#url = url;
    this.#pending = pending;
    this.range = { start, end, size };
    this.#left = length;
    const tag = response.headers.get('etag') ?? undefined;
    this.entityTag = tag?.startsWith('"') ? tag : undefined;
    this.version = tag ?? response.headers.get('last-modified') ?? undefined;
    this.#reader = response.body?.getReader();
    if (this.#reader === undefined && length !== 0) throw network(url, `the server answered ${response.status} without a body`);
  }

  /** The next chunk, of at least one byte; undefined at the end. A body that ends before its length is a `network` error. */
  async next(): Promise<Uint8Array | undefined> {
    if (this.#left === 0 || this.#reader === undefined) {
      this.end();
      return undefined;
    }
    for (;;) {
      const { done, value } = await this.#pending.wait(() => this.#reader!.read());
      if (done) {
        this.end();
        if (this.#left === undefined) return undefined;
        throw network(this.#url, `the answer ended ${this.#left} bytes before its end`);
      }
      if (this.#left !== undefined) {
        if (value.length > this.#left) {
          this.end();
          throw new EngineError('invalid_file', `${this.#url}: the server sent more bytes than it announced`);
        }
        this.#left -= value.length;
      }
      if (value.length > 0) return value;
    }
  }

  end(): void {
    this.#pending.end();
  }
}

/** The range of an answer 206. */
function partOf(url: string, response: Response, asked: { offset: number; length: number }): Range & { length: number } {
  const text = response.headers.get('content-range');
  // The header of another origin may be hidden from scripts; 206 still means that the range is the one that was asked for.
  if (text === null) return { start: asked.offset, end: asked.offset + asked.length, size: undefined, length: asked.length };
  const [, first, last, total] = /^\s*bytes\s+(\d+)\s*-\s*(\d+)\s*\/\s*(\d+|\*)\s*$/.exec(text) ?? [];
  const [start, end, size] = [Number(first), Number(last) + 1, total === '*' ? undefined : Number(total)];
  const isRange = [start, end].every(Number.isSafeInteger) && start < end && (size === undefined || end <= size);
  if (!isRange) {
    throw new EngineError(
      'range_not_supported',
      `${url}: the server sent Content-Range: ${JSON.stringify(text)}, wanted bytes FIRST-LAST/SIZE`,
    );
  }
  // A server may give less than it was asked for at the end of the file only.
  const wanted = Math.min(asked.offset + asked.length, size ?? Infinity);
  if (start !== asked.offset || end !== wanted) {
    throw new EngineError(
      'range_not_supported',
      `${url}: asked for bytes ${asked.offset} to ${wanted}, the server answered with bytes ${start} to ${end}; it does not serve ` +
        `ranges rightly, pass a File`,
    );
  }
  return { start, end, size, length: end - start };
}

function wholeOf(response: Response): Range & { length: number | undefined } {
  // With a content coding, the length is that of the encoded bytes.
  const coding = response.headers.get('content-encoding');
  const text = coding === null || coding === 'identity' ? response.headers.get('content-length') : null;
  const size = text !== null && /^\s*\d+\s*$/.test(text) ? Number(text) : undefined;
  return { start: 0, end: size ?? 0, size, length: size };
}

function network(url: string, what: string, cause?: unknown): EngineError {
  return new EngineError('network', `${url}: ${what}`, cause === undefined ? undefined : { cause });
}
