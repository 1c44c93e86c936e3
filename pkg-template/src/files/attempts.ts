// Attempts at one thing of a server: after a passing failure it waits and lets the caller try again, until too many in a row brought
// nothing. What is passing is `failures.ts`'s to say.

import { onAbort } from '../abort.js';
import { EngineError } from '../errors.js';
import { passingReason, type RetryReason, RefusedError, refusedAsError } from './failures.js';

/** The pause before the first retry, in milliseconds; it doubles each time. */
const PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 30_000;
export const DEFAULT_STALL_TIMEOUT_MS = 15_000;
export const DEFAULT_RETRIES = 5;
/** What a server may ask to wait for. */
const LONGEST_RETRY_AFTER_MS = 60_000;

export interface RetryPolicy {
  /** How often in a row something that brought nothing is tried again. */
  retries: number;
  /** How long a server may send nothing, in milliseconds; Infinity is for ever. */
  stallTimeoutMs: number;
  onRetry(retry: Retry): void;
}

/** What is told of a request that will be sent again. */
export interface Retry {
  url: string;
  offset: number;
  attempt: number;
  waitMs: number;
  reason: RetryReason;
  message: string;
}

/** How much of a file came in, over all requests that are under way for it. */
export interface Progress {
  bytes: number;
}

export class Attempts {
  #url: string;
  #policy: RetryPolicy;
  #signals: (AbortSignal | undefined)[];
  #progress: Progress;
  /** What had come in at the last failure. */
  #seen = 0;
  /** Failures in a row here, and those of them since when no request of the file brought anything. */
  #failures = 0;
  #vain = 0;

  constructor(url: string, policy: RetryPolicy, signals: (AbortSignal | undefined)[], progress: Progress = { bytes: 0 }) {
    this.#url = url;
    this.#policy = policy;
    this.#signals = signals;
    this.#progress = progress;
  }

  /** Does the work until it succeeds. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await work();
      } catch (thrown) {
        await this.failed(thrown);
      }
    }
  }

  /** To be called when there is more than ever before: failures are counted anew. */
  progressed(bytes: number): void {
    this.#failures = 0;
    this.#progress.bytes += bytes;
  }

  /** Resolves when it is time to try again from the byte `offset`; rejects with what it ends in. */
  async failed(thrown: unknown, offset = 0): Promise<void> {
    const reason = passingReason(thrown);
    if (reason === undefined) throw thrown;
    const asked = (thrown instanceof RefusedError ? thrown.retryAfterMs : undefined) ?? 0;
    // A server may serve one request of several at a time, and refuse the others meanwhile.
    if (this.#progress.bytes !== this.#seen) this.#vain = 0;
    this.#seen = this.#progress.bytes;
    if (this.#vain >= this.#policy.retries || asked > LONGEST_RETRY_AFTER_MS) throw this.#last(thrown, offset, asked);
    this.#vain += 1;
    this.#failures += 1;
    const waitMs = Math.max(pauseMs(this.#failures), asked);
    const { message } = refusedAsError(thrown) as EngineError;
    this.#policy.onRetry({ url: this.#url, offset, attempt: this.#failures, waitMs, reason, message });
    await this.#wait(waitMs, reason);
  }

  /** Waits; a network that comes back ends it, unless the server said how long it should be. */
  async #wait(ms: number, reason: RetryReason): Promise<void> {
    let done!: () => void;
    const waited = new Promise<void>((resolve) => (done = resolve));
    const timer = setTimeout(done, ms);
    const release = onAbort(this.#signals, done);
    const target = globalThis as Partial<EventTarget>;
    if (reason !== 'status') target.addEventListener?.('online', done);
    await waited;
    clearTimeout(timer);
    release();
    target.removeEventListener?.('online', done);
    if (this.#signals.some((signal) => signal?.aborted)) throw new EngineError('aborted', `${this.#url}: the caller aborted`);
  }

  #last(thrown: unknown, offset: number, asked: number): EngineError {
    const { code, message } = refusedAsError(thrown) as EngineError;
    const parts = [message];
    if (this.#vain > 0) parts.push(`${this.#vain + 1} attempts in a row failed${offset > 0 ? ` at byte ${offset}` : ''}`);
    if (asked > LONGEST_RETRY_AFTER_MS) {
      parts.push(
        `the server asks to wait ${Math.ceil(asked / 1000)} seconds, and no more than ${LONGEST_RETRY_AFTER_MS / 1000} are waited`,
      );
    }
    if (globalThis.navigator?.onLine === false) parts.push('the browser says that it is offline');
    return new EngineError(code, parts.join('; '), { cause: thrown });
  }
}

/** The pause after a number of failures in a row. Chance keeps many clients of one server apart. */
export function pauseMs(failures: number, chance = Math.random()): number {
  const longest = Math.min(PAUSE_MS * 2 ** (failures - 1), LONGEST_PAUSE_MS);
  return Math.round((longest * (1 + chance)) / 2);
}
