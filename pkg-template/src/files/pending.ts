// A request that is under way: it ends with its signals, and when the server has been silent for too long.
//
// Invariant: only time counts in which bytes could have come. A page that was frozen, a machine that slept and a thread that was busy find
// their timers late; such a gap counts for a part of the limit, whatever its length.

import { onAbort } from '../abort.js';
import { EngineError } from '../errors.js';
import { ConnectionError } from './failures.js';

/** How often the silence is looked at within the limit. */
const LOOKS = 10;
/** The part of the limit that one gap between two looks counts for at most. */
const LARGEST_GAP = 1 / 3;
/** Browsers call a timer with more at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

export class Pending {
  readonly signal: AbortSignal;
  #url: string;
  #stallMs: number;
  #outer: (AbortSignal | undefined)[];
  #controller = new AbortController();
  #release: () => void;
  #stalled = false;
  #timer: ReturnType<typeof setInterval> | undefined;
  #isWaiting = false;
  #silentMs = 0;
  /** Until when the silence is counted. */
  #counted = 0;

  constructor(url: string, stallMs: number, signals: (AbortSignal | undefined)[]) {
    this.#url = url;
    this.#stallMs = stallMs;
    this.#outer = signals;
    this.signal = this.#controller.signal;
    this.#release = onAbort(signals, () => this.#controller.abort());
  }

  /** Waits for something of the server's. */
  async wait<T>(work: () => Promise<T>): Promise<T> {
    this.#isWaiting = true;
    this.#silentMs = 0;
    this.#counted = performance.now();
    // One timer looks after many waits: chunks come by the thousand.
    if (this.#stallMs < Infinity) this.#timer ??= setInterval(() => this.#look(), Math.min(this.#stallMs / LOOKS, LONGEST_TIMER_MS));
    try {
      return await work();
    } catch (thrown) {
      if (this.#outer.some((signal) => signal?.aborted)) throw new EngineError('aborted', `${this.#url}: the caller aborted`);
      if (this.#stalled) throw new ConnectionError('stalled', `${this.#url}: the server sent nothing for ${this.#stallMs / 1000} seconds`);
      const advice = 'check the address and the connection; a server of another origin must send Access-Control-Allow-Origin';
      throw new ConnectionError('network', `${this.#url}: the request failed (${String(thrown)}); ${advice}`, { cause: thrown });
    } finally {
      // What the caller does in between takes as long as it takes.
      this.#isWaiting = false;
    }
  }

  /** Ends it; no effect on one that is complete. */
  end(): void {
    this.#release();
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#isWaiting = false;
    this.#controller.abort();
  }

  #look(): void {
    if (!this.#isWaiting) return;
    const now = performance.now();
    this.#silentMs += Math.min(now - this.#counted, this.#stallMs * LARGEST_GAP);
    this.#counted = now;
    if (this.#silentMs < this.#stallMs) return;
    this.#stalled = true;
    this.#controller.abort();
  }
}
