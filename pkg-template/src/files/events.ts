// What happens to files while a model is loaded. Types only.

import type { RetryReason } from './failures.js';

export type { RetryReason };

/** Why the load goes another way than it should. */
export type FallbackReason = 'unavailable' | 'quota' | 'failed' | 'offline';

/** Something about the files of a model that a page may want to show or to log. */
export type FileEvent =
  /** A download that was broken off before goes on: `bytes` of `total` are there. */
  | { type: 'resumed'; url: string; bytes: number; total: number }
  /** The SHA-256 of a whole file was compared with the one that it should have. */
  | { type: 'verified'; url: string; sha256: string }
  /** A part of a kept file was damaged and was fetched again. */
  | { type: 'repaired'; url: string; offset: number; bytes: number }
  /**
   * A request failed for a cause that may pass and is sent again in `waitMs`, from the byte `offset`: the `attempt`-th time in a row without
   * a byte that was not there before. `message` says why.
   */
  | { type: 'retrying'; url: string; offset: number; attempt: number; waitMs: number; reason: RetryReason; message: string }
  /** Another tab is downloading the file; this one waits for it. */
  | { type: 'joined'; url: string }
  /** Files are not kept, or no longer, or (`offline`) those of before are loaded; the load goes on. `message` says why. */
  | { type: 'fallback'; reason: FallbackReason; message: string };

/** Bytes that came in. */
export interface Arrived {
  bytes: number;
  from: 'network' | 'cache';
}
