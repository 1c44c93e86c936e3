// What is said of an engine whose GPU or worker is lost. Types only.

import type { ErrorCode } from '../errors.js';

/** Something about an engine that is lost and comes back. */
export type RecoveryEvent =
  /** The GPU device or the worker is gone, or the wasm has stopped. `requests` is how many were under way; they wait. */
  | { type: 'lost'; code: ErrorCode; message: string; requests: number }
  /** The model is loaded again: for the `attempt`th time in ten minutes, of at most `most`. `onProgress` hears of it as of every load. */
  | { type: 'recovering'; attempt: number; most: number }
  /** The model is there again, after `ms` milliseconds, and `requests` of them go on. */
  | { type: 'recovered'; ms: number; requests: number };
