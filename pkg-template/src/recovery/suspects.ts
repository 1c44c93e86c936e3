// Which of the requests under way is likely the cause if an engine is lost again and again. It knows nothing of what they ask.

import { EngineError } from '../errors.js';
import type { LoadedHost } from '../protocol.js';

/** A request that runs. */
export interface Suspect {
  /** A host is lost: how often in a row one was lost with this request and without anything new of it, this time included; 0 if that is not its host. */
  lostWith(host: LoadedHost): number;
}

/** Fewer losses in a row could be chance. */
const LEAST = 2;

export class Suspects {
  /** In the order in which they began. */
  #all = new Set<Suspect>();
  #blamed = new WeakMap<LoadedHost, { suspect: Suspect; error: EngineError }>();
  #losses: number;

  /** `most` recoveries there may be. The last of them is for those that did no harm. */
  constructor(most: number) {
    this.#losses = Math.max(LEAST, most - 1);
  }

  get size(): number {
    return this.#all.size;
  }

  add(suspect: Suspect): void {
    this.#all.add(suspect);
  }

  delete(suspect: Suspect): void {
    this.#all.delete(suspect);
  }

  /** A host is lost. At most one is blamed: of several the one that began last, since the others ran before it came. */
  lost(host: LoadedHost, { code, message }: EngineError): void {
    const suspects = [...this.#all].map((suspect) => ({ suspect, losses: suspect.lostWith(host) }));
    const last = suspects.filter(({ losses }) => losses >= this.#losses).at(-1);
    if (last === undefined) return;
    const error = `${message}; the engine was lost ${last.losses} times in a row while this request ran and gave nothing new, so it is not asked again`;
    this.#blamed.set(host, { suspect: last.suspect, error: new EngineError(code, error) });
  }

  /** The error of a request with which this host was lost, if that one is blamed. */
  blameOf(suspect: Suspect, host: LoadedHost): EngineError | undefined {
    const blamed = this.#blamed.get(host);
    return blamed?.suspect === suspect ? blamed.error : undefined;
  }
}
