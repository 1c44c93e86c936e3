// An answer that goes on when its host is lost: it is generated again there, with the same seed, and what was handed out is left out. If it comes
// out otherwise, which sums of floats in another order can do, its tokens so far are given to the engine, which goes on after them.

import type { Chunk, Generation, LoadedHost, ReplayData } from '../protocol.js';
import { choicesOf } from './choices.js';
import type { Hosts } from './hosts.js';
import { Diverged, Replay } from './replay.js';
import { randomSeed } from './seed.js';

type Start = (host: LoadedHost, replay: ReplayData) => Promise<Generation>;

/** A generation on the host that runs it. */
interface Current {
  host: LoadedHost;
  generation: Generation;
}

export class RecoveringGeneration implements Generation {
  #hosts: Hosts;
  #start: Start;
  #choices: number;
  #known: ReplayData;
  #replay = new Replay();
  #current: Current | undefined;
  /** A host has taken the request, so it does no harm. */
  #isAccepted = false;
  /** The last chunks of an answer that was cancelled while no host ran it. */
  #last: (Chunk | undefined)[] | undefined;
  #isCancelled = false;
  #isReleased = false;
  /** Resolves when nobody waits for the next host any more. */
  #stopped: Promise<undefined>;
  #stop!: () => void;
  #onEnd: () => void;

  constructor(hosts: Hosts, start: Start, request: object, replay: ReplayData | undefined, onEnd: () => void) {
    this.#hosts = hosts;
    this.#start = start;
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
        if (fresh !== undefined) return fresh;
      } catch (thrown) {
        await this.#failed(current, thrown);
      }
    }
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
      this.#replay.restart();
      try {
        const generation = await this.#start(host, this.#known);
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
      await current.generation.release();
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
  }

  /** Without the totals, which nobody has counted. */
  #stoppedWaiting(): undefined {
    this.#last = this.#isReleased ? [undefined] : [...this.#replay.cancelled(this.#choices), undefined];
  }
}
