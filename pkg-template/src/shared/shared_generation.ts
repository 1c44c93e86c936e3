// A generation that another tab runs, as the engine of this tab reads it. It may be begun again by another leader: what was handed out already
// is left out then.

import { type EngineError, toEngineError } from '../errors.js';
import type { Chunk, Generation, GenerationKind } from '../protocol.js';
import { choicesOf, copyOf, type ToLeader } from './messages.js';
import { Replay } from './replay.js';

/** How many chunks the leader may be ahead of a slow reader. */
const RUN_AHEAD_CHUNKS = 32;

interface Waiting {
  resolve(chunk: Chunk | undefined): void;
  reject(error: EngineError): void;
}

export class SharedGeneration implements Generation {
  /** Resolves when the leader has accepted the request. */
  readonly accepted: Promise<void>;
  #id: number;
  #kind: GenerationKind;
  #request: object;
  /** False if nobody is there who hears it. */
  #post: (message: ToLeader) => boolean;
  /** Nothing more is to come, or wanted. */
  #onEnd: () => void;
  #accept!: () => void;
  #refuse!: (error: EngineError) => void;
  #replay = new Replay();
  #arrived: (Chunk | undefined)[] = [];
  #error: EngineError | undefined;
  #waiting: Waiting | undefined;
  /** Chunks taken and not yet reported; reporting them in halves of the window saves messages. */
  #taken = 0;
  #isCancelled = false;
  #isEnded = false;

  constructor(id: number, kind: GenerationKind, request: object, post: (message: ToLeader) => boolean, onEnd: () => void) {
    this.#id = id;
    this.#kind = kind;
    this.#request = replayable(request);
    this.#post = post;
    this.#onEnd = onEnd;
    this.accepted = new Promise((resolve, reject) => {
      this.#accept = resolve;
      this.#refuse = reject;
    });
    // Nobody may wait for it any more when it fails.
    this.accepted.catch(() => {});
  }

  /** Asks the leader, or the next one once more. */
  send(): void {
    this.#replay.restart();
    this.#taken = 0;
    this.#post({ type: 'generate', id: this.#id, kind: this.#kind, request: this.#request, credit: RUN_AHEAD_CHUNKS });
  }

  settle(): void {
    this.#accept();
  }

  receive(chunk: Chunk | undefined): void {
    try {
      const fresh = chunk && this.#replay.fresh(chunk);
      if (chunk === undefined) this.#end();
      if (chunk === undefined || fresh !== undefined) this.#hand(fresh);
      else this.#took();
    } catch (thrown) {
      this.#post({ type: 'release', id: this.#id });
      this.fail(toEngineError(thrown));
    }
  }

  #hand(chunk: Chunk | undefined): void {
    const reader = this.#waiting;
    this.#waiting = undefined;
    if (reader === undefined) this.#arrived.push(chunk);
    else {
      this.#took();
      reader.resolve(chunk);
    }
  }

  fail(error: EngineError): void {
    this.#end();
    this.#refuse(error);
    this.#error = error;
    this.#waiting?.reject(error);
    this.#waiting = undefined;
  }

  next(): Promise<Chunk | undefined> {
    if (this.#arrived.length > 0) {
      this.#took();
      return Promise.resolve(this.#arrived.shift());
    }
    if (this.#error !== undefined) return Promise.reject(this.#error);
    return new Promise((resolve, reject) => (this.#waiting = { resolve, reject }));
  }

  cancel(): void {
    this.#isCancelled = true;
    if (!this.#post({ type: 'cancel', id: this.#id })) this.lost();
  }

  /** The leader is gone. What was cancelled doesn't wait for the next one: it ends here, without the totals that nobody has counted. */
  lost(): void {
    if (!this.#isCancelled || this.#isEnded) return;
    this.#end();
    for (const index of this.#replay.unfinished(choicesOf(this.#request))) {
      this.#hand({ index, text: '', token_ids: [], finish_reason: 'cancelled' });
    }
    this.#hand(undefined);
  }

  /** The tab that runs it frees it by itself. */
  async release(): Promise<void> {
    this.#post({ type: 'release', id: this.#id });
    this.#end();
  }

  #end(): void {
    this.#isEnded = true;
    this.#onEnd();
  }

  #took(): void {
    this.#taken += 1;
    if (this.#taken < RUN_AHEAD_CHUNKS / 2) return;
    this.#post({ type: 'credit', id: this.#id, count: this.#taken });
    this.#taken = 0;
  }
}

/** A request that gives the same answer every time: one that samples gets a seed, as the engine would draw one. */
function replayable(given: object): object {
  const request = copyOf(given);
  const { seed, temperature, top_k } = request as { seed?: unknown; temperature?: unknown; top_k?: unknown };
  const isGreedy = temperature === 0 || top_k === 1;
  if (isGreedy || (seed !== undefined && seed !== null)) return request;
  return { ...request, seed: crypto.getRandomValues(new Uint32Array(1))[0] };
}
