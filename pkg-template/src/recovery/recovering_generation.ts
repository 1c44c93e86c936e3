// An answer that goes on when its host is lost: it is generated again there, with the same seed, and what was handed out is left out. If it comes
// out otherwise, which sums of floats in another order can do, its tokens so far are given to the engine, which goes on after them.

import type { Chunk, Generation, LoadedHost, ReplayData } from '../protocol.js';
import { choicesOf } from './choices.js';
import type { Hosts } from './hosts.js';
import type { Suspect } from './suspects.js';
import { Diverged, Replay } from './replay.js';
import { randomSeed } from './seed.js';

/** How a request is asked of a host. */
export interface Asking {
  /** Gives a host what it lacks for this request. Undefined if it lacks nothing, and then it may be asked at once. */
  supply(host: LoadedHost): Promise<true> | undefined;
  start(host: LoadedHost, replay: ReplayData): Promise<Generation>;
}

/** Tokens that a host may have computed and that nobody has read. */
const RUN_AHEAD_TOKENS = 64;

/** A generation on the host that runs it. */
interface Current {
  host: LoadedHost;
  generation: Generation;
}

export class RecoveringGeneration implements Generation, Suspect {
  #hosts: Hosts;
  #asking: Asking;
  #choices: number;
  #known: ReplayData;
  #replay = new Replay();
  #current: Current | undefined;
  /** A host has taken the request, so it does no harm. */
  #isAccepted = false;
  /** The host that was asked last. */
  #asked: LoadedHost | undefined;
  #fruitless = 0;
  #hasProgressed = false;
  /** The last chunks of an answer that was cancelled while no host ran it. */
  #last: (Chunk | undefined)[] | undefined;
  #isCancelled = false;
  #isReleased = false;
  /** Resolves when nobody waits for the next host any more. */
  #stopped: Promise<undefined>;
  #stop!: () => void;
  #onEnd: () => void;

  constructor(hosts: Hosts, asking: Asking, request: object, replay: ReplayData | undefined, onEnd: () => void) {
    this.#hosts = hosts;
    this.#asking = asking;
    this.#choices = choicesOf(request);
    this.#known = replay ?? { seed: randomSeed() };
    this.#onEnd = onEnd;
    this.#stopped = new Promise((resolve) => (this.#stop = () => resolve(undefined)));
  }

  /** Resolves when a host has accepted the request. */
  async begin(signal: AbortSignal | undefined): Promise<void> {
    try {
      await this.#begin(signal);
    } catch (thrown) {
      this.#onEnd();
      throw thrown;
    }
  }

  async next(): Promise<Chunk | undefined> {
    for (;;) {
      if (this.#last !== undefined) return this.#last.shift();
      const current = this.#current ?? (await this.#begin(undefined));
      // Cancelled, or given back.
      if (current === undefined) continue;
      try {
        const chunk = await current.generation.next();
        if (chunk === undefined) {
          this.#onEnd();
          return undefined;
        }
        const fresh = this.#replay.fresh(chunk);
        if (fresh === undefined) continue;
        this.#hasProgressed = true;
        return fresh;
      } catch (thrown) {
        await this.#failed(current, thrown);
      }
    }
  }

  /** An answer that had not come back to where it stood before is not what ended it again. */
  lostWith(host: LoadedHost): number {
    if (host !== this.#asked) return 0;
    if (this.#hasProgressed) this.#fruitless = 0;
    this.#hasProgressed = false;
    if (this.#replay.missing() <= RUN_AHEAD_TOKENS) this.#fruitless += 1;
    return this.#fruitless;
  }

  cancel(): void {
    this.#isCancelled = true;
    if (this.#current === undefined) this.#stop();
    else this.#current.generation.cancel();
  }

  async release(): Promise<void> {
    this.#isReleased = true;
    this.#stop();
    this.#onEnd();
    await this.#current?.generation.release();
  }

  /** Starts it on the host that answers now, or the next one. Undefined if it was cancelled or released meanwhile. */
  async #begin(signal: AbortSignal | undefined): Promise<Current | undefined> {
    for (;;) {
      const host = await Promise.race([this.#hosts.current(signal, 'the request'), this.#stopped]);
      if (host === undefined) return this.#stoppedWaiting();
      try {
        for (let supplying = this.#asking.supply(host); supplying !== undefined; supplying = this.#asking.supply(host)) {
          if ((await Promise.race([supplying, this.#stopped])) === undefined) return this.#stoppedWaiting();
        }
        this.#replay.restart();
        this.#asked = host;
        const generation = await this.#asking.start(host, this.#known);
        this.#current = { host, generation };
      } catch (thrown) {
        this.#lost(host, thrown);
        const trap = this.#hosts.trapOf(host);
        if (trap !== undefined && !this.#isAccepted) throw trap;
        continue;
      }
      this.#isAccepted = true;
      if (this.#isReleased) await this.#current.generation.release();
      else if (this.#isCancelled) this.#current.generation.cancel();
      return this.#current;
    }
  }

  /** Looks whether it can go on after a failure; throws if not. */
  async #failed(current: Current, thrown: unknown): Promise<void> {
    if (this.#isReleased) throw thrown;
    if (thrown instanceof Diverged) {
      this.#known = this.#replay.known(this.#choices, this.#known, thrown);
      this.#current = undefined;
      // If its host goes away meanwhile, there is nothing to release.
      await current.generation.release().catch(() => {});
      return;
    }
    this.#lost(current.host, thrown);
    this.#current = undefined;
    // It can't do harm any more, and a worker's is gone already.
    void current.generation.release().catch(() => {});
    if (this.#isCancelled) this.#stop();
  }

  /** Throws what was thrown unless the host is lost. */
  #lost(host: LoadedHost, thrown: unknown): void {
    const isLost = this.#hosts.isLost(host, thrown);
    if (this.#hosts.gone !== undefined) throw this.#hosts.gone;
    if (!isLost) throw thrown;
    const blame = this.#hosts.blameOf(this, host);
    if (blame !== undefined && !this.#isCancelled) throw blame;
  }

  /** Without the totals, which nobody has counted. */
  #stoppedWaiting(): undefined {
    this.#last = this.#isReleased ? [undefined] : [...this.#replay.cancelled(this.#choices), undefined];
  }
}
