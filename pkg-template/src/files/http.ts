// One file on a web server: sends requests by ranges (RFC 9110, section 14), checks what the answers say of themselves and reads
// their bodies. A token goes to its own origin only. If a request was redirected, later ones go directly to the new address; such
// addresses expire, and then the first one is asked again.

import { EngineError } from '../errors.js';
import { Attempts, type Progress, type RetryPolicy } from './attempts.js';
import { ConnectionError, isPassingStatus, RefusedError } from './failures.js';
import { isHtml } from './html.js';
import { Pending } from './pending.js';

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

/** A part of a file: bytes `start` to `end` (exclusive). `size` is the file's. */
export interface Range {
  start: number;
  end: number;
  size: number | undefined;
}

export type Answer = { kind: 'part' | 'whole'; body: Body } | { kind: 'missing'; status: number };

export interface HttpOptions {
  policy: RetryPolicy;
  /** Any of them ends what is under way. */
  signals?: (AbortSignal | undefined)[];
  /** What the browser's own cache does, which would keep a second copy of what is kept. */
  cache?: RequestCache;
}

export class HttpFile {
  readonly url: string;
  #request: RemoteRequest;
  #policy: RetryPolicy;
  #signals: (AbortSignal | undefined)[];
  #cache: RequestCache;
  #progress: Progress = { bytes: 0 };
  /** The address that the last request was redirected to. */
  #direct: string | undefined;

  constructor(request: RemoteRequest, { policy, signals = [], cache = 'default' }: HttpOptions) {
    this.url = request.url;
    this.#request = request;
    this.#policy = policy;
    this.#signals = signals;
    this.#cache = cache;
  }

  /** Counts the attempts of a caller, who sends the requests. `retries` allows fewer than the options do. */
  attempts({ ended, retries = Infinity }: { ended?: AbortSignal; retries?: number } = {}): Attempts {
    const policy = { ...this.#policy, retries: Math.min(this.#policy.retries, retries) };
    return new Attempts(this.url, policy, [...this.#signals, ended], this.#progress);
  }

  /**
   * Asks for `length` bytes (at least one) from `offset`, or for the whole file. Resolves when the headers have arrived and, of the start of
   * the file, enough to tell that it is no page of HTML. `ended` ends it as well.
   */
  async get(range?: { offset: number; length: number }, ended?: AbortSignal): Promise<Answer> {
    const direct = this.#direct;
    if (direct !== undefined) {
      try {
        const sent = await this.#send(direct, range, ended);
        // An address that has expired is refused; a server that wants a pause gets it.
        if (sent.response.ok || isPassingStatus(sent.response.status)) return await this.#answer(sent, range);
        sent.pending.end();
      } catch (thrown) {
        this.forgetDirect();
        throw thrown;
      }
      this.forgetDirect();
    }
    const sent = await this.#send(this.url, range, ended);
    const answer = await this.#answer(sent, range);
    if (sent.response.ok && sent.response.redirected) this.#direct = sent.response.url;
    return answer;
  }

  /** The next request asks anew where the file is: the server that the last one was sent on to may be broken. */
  forgetDirect(): void {
    this.#direct = undefined;
  }

  async #send(url: string, range: { offset: number; length: number } | undefined, ended: AbortSignal | undefined): Promise<Sent> {
    const headers = new Headers();
    if (range !== undefined) headers.set('range', `bytes=${range.offset}-${range.offset + range.length - 1}`);
    const { token, tokenOrigin } = this.#request;
    if (token !== undefined && new URL(url).origin === tokenOrigin) headers.set('authorization', `Bearer ${token}`);
    const pending = new Pending(this.url, this.#policy.stallTimeoutMs, [...this.#signals, ended]);
    try {
      const response = await pending.wait(() => fetch(url, { headers, signal: pending.signal, cache: this.#cache }));
      return { response, pending };
    } catch (thrown) {
      pending.end();
      throw thrown;
    }
  }

  async #answer(sent: Sent, range: { offset: number; length: number } | undefined): Promise<Answer> {
    try {
      const answer = this.#answered(sent, range);
      if (answer.kind !== 'missing' && answer.body.range.start === 0 && (await answer.body.isHtml())) throw this.#html(sent.response);
      return answer;
    } catch (thrown) {
      sent.pending.end();
      throw thrown;
    }
  }

  #answered({ response, pending }: Sent, range: { offset: number; length: number } | undefined): Answer {
    switch (response.status) {
      case 206:
        if (range === undefined) {
          throw new EngineError('range_not_supported', `${this.url}: the server answered 206 to a request without a range; pass a File`);
        }
        return { kind: 'part', body: new Body(this.url, response, pending, partOf(this.url, response, range)) };
      case 200:
        return { kind: 'whole', body: new Body(this.url, response, pending, wholeOf(response)) };
      case 404:
      case 410:
        pending.end();
        return { kind: 'missing', status: response.status };
      default:
        throw new RefusedError(this.url, response);
    }
  }

  /** The error for a page in place of the file, by the code of what the file should be. */
  #html({ redirected, url }: Response): EngineError {
    const isText = this.#request.limit !== undefined || new URL(this.url).pathname.endsWith('.safetensors');
    // Without its query, which may hold secrets.
    const { origin, pathname } = new URL(url || this.url);
    const from = redirected ? ` (of ${origin}${pathname}, to which it was sent on)` : '';
    return new EngineError(
      isText ? 'invalid_file' : 'not_gguf',
      `${this.url}: the server answered with a page of HTML in place of the file${from}; check the address (on model hubs, take the download ` +
        'link and not the page) and whether it takes a login, and let the server answer 404 for files that are not there',
    );
  }
}

interface Sent {
  response: Response;
  pending: Pending;
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
  /** What was read to see what it is. */
  #head: Uint8Array | undefined;

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
    if (this.#reader === undefined && length !== 0) {
      throw dropped(url, `the server answered ${response.status} without a body`);
    }
  }

  /** Whether it is a page of HTML. Only what begins where the file does can tell. */
  async isHtml(): Promise<boolean> {
    const parts: Uint8Array[] = [];
    for (;;) {
      const bytes = await this.#read();
      if (bytes !== undefined) parts.push(bytes);
      const head = parts.length === 1 ? parts[0]! : new Uint8Array(await new Blob(parts as BlobPart[]).arrayBuffer());
      const found = isHtml(head, bytes === undefined);
      if (found === undefined) continue;
      if (head.length > 0) this.#head = head;
      return found;
    }
  }

  /** The next chunk, of at least one byte; undefined at the end. A body that ends before its length is a `network` error. */
  async next(): Promise<Uint8Array | undefined> {
    const head = this.#head;
    this.#head = undefined;
    return head ?? this.#read();
  }

  async #read(): Promise<Uint8Array | undefined> {
    if (this.#left === 0 || this.#reader === undefined) {
      this.end();
      return undefined;
    }
    for (;;) {
      const { done, value } = await this.#pending.wait(() => this.#reader!.read());
      if (done) {
        this.end();
        if (this.#left === undefined) return undefined;
        throw dropped(this.#url, `the answer ended ${this.#left} bytes before its end`);
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

function dropped(url: string, what: string): ConnectionError {
  return new ConnectionError('network', `${url}: ${what}`);
}
