// How many recoveries there may be in a span of time.

/** Losses this far apart have nothing to do with each other. */
export const SPAN_MS = 10 * 60_000;

export class Allowance {
  readonly most: number;
  #taken: number[] = [];
  #now: () => number;

  constructor(most: number, now: () => number = () => performance.now()) {
    this.most = most;
    this.#now = now;
  }

  /** The number of this recovery among those of the last ten minutes; undefined if that would be one too many. */
  take(): number | undefined {
    const now = this.#now();
    this.#taken = this.#taken.filter((taken) => now - taken < SPAN_MS);
    if (this.#taken.length >= this.most) return undefined;
    return this.#taken.push(now);
  }
}
