// Which failures of requests are passing, so that the same request may succeed later, and which are final. It sends nothing and waits for
// nothing.

import { EngineError } from '../errors.js';

/** Why a request is sent again: it failed or broke off, the server was silent for too long, or it answered with a status that passes. */
export type RetryReason = 'network' | 'stalled' | 'status';

/** Statuses after which the same request may succeed (RFC 9110, 8470 and 6585). */
const PASSING = [408, 425, 429, 500, 502, 503, 504];

/** A request that got no answer, or not all of it. */
export class ConnectionError extends EngineError {
  readonly reason: Exclude<RetryReason, 'status'>;

  constructor(reason: ConnectionError['reason'], message: string, options?: ErrorOptions) {
    super('network', message, options);
    this.reason = reason;
  }
}

/** The server answered with a status of failure. What it means is for the caller to say. */
export class RefusedError extends Error {
  readonly refused: { status: number; statusText: string; errorCode?: string };
  /** How long the server asks to wait. Those of other origins have to expose the header. */
  readonly retryAfterMs: number | undefined;

  constructor(url: string, { status, statusText, headers }: Response) {
    super(`${url}: the server answered ${status}`);
    const errorCode = headers.get('x-error-code');
    this.refused = { status, statusText, ...(errorCode === null ? {} : { errorCode }) };
    const now = Date.parse(headers.get('date') ?? '');
    this.retryAfterMs = retryAfterMs(headers.get('retry-after'), Number.isNaN(now) ? Date.now() : now);
  }
}

/** Why the request may succeed when it is sent again; undefined for what is final. */
export function passingReason(thrown: unknown): RetryReason | undefined {
  if (thrown instanceof ConnectionError) return thrown.reason;
  return thrown instanceof RefusedError && isPassingStatus(thrown.refused.status) ? 'status' : undefined;
}

export function isPassingStatus(status: number): boolean {
  return PASSING.includes(status);
}

/** True for what attempts in a row ended in: it may be over when the load is tried later. */
export function wasPassing(thrown: unknown): boolean {
  return thrown instanceof EngineError && passingReason(thrown.cause) !== undefined;
}

/** What a refusal ends in, for callers that know nothing of refusals. */
export function refusedAsError(thrown: unknown): unknown {
  if (!(thrown instanceof RefusedError)) return thrown;
  const { status, statusText } = thrown.refused;
  const advice =
    status === 429
      ? 'too many requests: try again later, or with an access token if the server takes one'
      : isPassingStatus(status)
        ? 'try again later'
        : 'check the address and the server';
  return new EngineError('http', `${thrown.message}${statusText && ` ${statusText}`}; ${advice}`, { cause: thrown });
}

/** The value of Retry-After (RFC 9110, section 10.2.3), seconds or a date, in milliseconds from `now`; undefined if it is neither. */
export function retryAfterMs(value: string | null, now: number): number | undefined {
  const text = value?.trim() ?? '';
  if (/^\d+$/.test(text)) return Number(text) * 1000;
  // `Date.parse` takes much for a date that is none. The oldest form of a date has no zone, and means GMT too.
  if (!/^(mon|tue|wed|thu|fri|sat|sun)[a-z]*,? /i.test(text)) return undefined;
  const date = Date.parse(/GMT$/.test(text) ? text : `${text} GMT`);
  return Number.isNaN(date) ? undefined : Math.max(0, date - now);
}
