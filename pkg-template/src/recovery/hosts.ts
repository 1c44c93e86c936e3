// What an answer knows of the hosts that generate it, one after the other.

import type { EngineError } from '../errors.js';
import type { LoadedHost } from '../protocol.js';
import type { Suspect } from './suspects.js';

export interface Hosts {
  /** The host that answers, or the next one. Rejects when none will come, and when the signal is aborted. */
  current(signal: AbortSignal | undefined, what: string): Promise<LoadedHost>;
  /** Whether something failed because this host is gone. If it was there until now, the next one begins to load. */
  isLost(host: LoadedHost, thrown: unknown): boolean;
  /** The error of a host whose wasm has trapped. What it had just begun is likely the cause. */
  trapOf(host: LoadedHost): EngineError | undefined;
  /** The error of what is not asked again, since this host and others before it were lost with it. */
  blameOf(suspect: Suspect, host: LoadedHost): EngineError | undefined;
  /** Why there will be no host any more, if that is so. */
  readonly gone: EngineError | undefined;
}
