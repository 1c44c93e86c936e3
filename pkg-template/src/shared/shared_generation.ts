// A generation that another tab runs, as the engine of this tab reads it. It may be begun again by another leader: what was handed out already
// is left out then.

import { ChunkQueue, RUN_AHEAD_CHUNKS } from '../chunk_queue.js';
import { type EngineError, toEngineError } from '../errors.js';
import type { Chunk, Generation, GenerationKind, ReplayData } from '../protocol.js';
import { choicesOf } from '../recovery/choices.js';
import { Diverged, Replay } from '../recovery/replay.js';
import { randomSeed } from '../recovery/seed.js';
import { copyOf, type ToLeader } from './messages.js';

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
  #known: ReplayData = { seed: randomSeed() };
  /** How often it was sent: chunks of earlier times may still arrive. */
  #attempt = 0;
  #replay = new Replay();
  #chunks: ChunkQueue;
  #isCancelled = false;
  #isEnded = false;

  constructor(id: number, kind: GenerationKind, request: object, post: (message: ToLeader) => boolean, onEnd: () => void) {
    this.#id = id;
    this.#kind = kind;
    this.#request = copyOf(request);
    this.#post = post;
    this.#onEnd = onEnd;
    this.#chunks = new ChunkQueue((count) => post({ type: 'credit', id, count }));
    this.accepted = new Promise((resolve, reject) => {
      this.#accept = resolve;
      this.#refuse = reject;
    });
    // Nobody may wait for it any more when it fails.
    this.accepted.catch(() => {});
  }

  /** Asks the leader, or the next one once more. */
  send(): void {
    this.#attempt += 1;
    this.#replay.restart();
    this.#chunks.restart();
    const [request, replay, attempt] = [this.#request, this.#known, this.#attempt];
    this.#post({ type: 'generate', id: this.#id, kind: this.#kind, request, replay, attempt, credit: RUN_AHEAD_CHUNKS });
  }

  #sendKnown(diverged: Diverged): void {
    try {
      this.#known = this.#replay.known(choicesOf(this.#request), this.#known, diverged);
      this.send();
    } catch (thrown) {
      this.fail(toEngineError(thrown));
    }
  }

  settle(): void {
    this.#accept();
  }

  receive(chunk: Chunk | undefined, attempt: number): void {
    if (attempt !== this.#attempt) return;
    try {
      const fresh = chunk && this.#replay.fresh(chunk);
      if (chunk === undefined) this.#end();
      if (chunk === undefined || fresh !== undefined) this.#chunks.push(fresh);
      else this.#chunks.took();
    } catch (thrown) {
      this.#post({ type: 'release', id: this.#id });
      if (!(thrown instanceof Diverged)) this.fail(toEngineError(thrown));
      // Sums of floats in another order can do that. The engine is told the tokens, and goes on after them.
      else this.#sendKnown(thrown);
    }
  }

  fail(error: EngineError): void {
    this.#end();
    this.#refuse(error);
    this.#chunks.fail(error);
  }

  next(): Promise<Chunk | undefined> {
    return this.#chunks.next();
  }

  cancel(): void {
    this.#isCancelled = true;
    if (!this.#post({ type: 'cancel', id: this.#id })) this.lost();
  }

  /** The leader is gone. What was cancelled doesn't wait for the next one: it ends here, without the totals that nobody has counted. */
  lost(): void {
    if (!this.#isCancelled || this.#isEnded) return;
    this.#end();
    for (const chunk of this.#replay.cancelled(choicesOf(this.#request))) this.#chunks.push(chunk);
    this.#chunks.push(undefined);
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
}
