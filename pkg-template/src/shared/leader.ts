// The tab that runs the model: loads it once, and answers every seat that says hello, its own too. It ends when all have left.

import { BROKEN, type EngineError, errorData, toEngineError } from '../errors.js';
import { newId } from '../openai.js';
import type { FileEvent } from '../files/events.js';
import { isLoss } from '../recovery/losses.js';
import type { LoadedModel } from '../recovery/recovery.js';
import type { RecoveryEvent } from '../recovery/events.js';
import { RequestQueue } from '../queue.js';
import type { LoadProgress, MemoryPressure } from '../types.js';
import { SharedChannel } from './channel.js';
import { watchPage } from './lifecycle.js';
import { type HeldLock, holdLock } from './locks.js';
import { Member, type Service } from './member.js';
import type { Announcement, FromLeader } from './messages.js';

/** Loads the model with the options of this tab. */
export type LoadModel = (
  report: {
    onProgress(progress: LoadProgress): void;
    onEvent(event: FileEvent | RecoveryEvent): void;
    onMemoryPressure(event: MemoryPressure): void;
  },
  signal: AbortSignal,
) => Promise<LoadedModel>;

export class Leader {
  /** When it leads no more, and nothing of the model is left. */
  readonly ended: Promise<void>;
  readonly id = newId('');
  #name: string;
  #channel: SharedChannel<Announcement, Announcement>;
  #members = new Map<string, Member>();
  #loading = new AbortController();
  #load: Promise<void>;
  #service: Service | undefined;
  #badge: HeldLock | undefined;
  #hasFailed = false;
  #isEnded = false;
  #resolveEnded!: () => void;
  #unwatch: () => void;

  /** `seat` is that of this tab. */
  constructor(name: string, seat: string, load: LoadModel) {
    this.#name = name;
    this.ended = new Promise((resolve) => (this.#resolveEnded = resolve));
    this.#channel = new SharedChannel(name, (message, leader) => {
      if (leader === this.id && message.type === 'hello' && typeof message.seat === 'string') this.#welcome(message.seat);
    });
    this.#welcome(seat);
    // A page that stands still or goes can't wait for the GPU: the next leader begins at once.
    this.#unwatch = watchPage(() => this.#abandon());
    this.#load = this.#run(load);
  }

  /** A seat of this tab leaves; resolves when the leader has ended, if that was the last one. */
  async remove(seat: string): Promise<void> {
    this.#members.get(seat)?.leave();
    if (this.#isEnded) await this.ended;
  }

  #welcome(seat: string): void {
    if (this.#isEnded || this.#hasFailed || this.#members.has(seat)) return;
    const member = new Member(seatName(this.#name, seat), this.id, () => {
      this.#members.delete(seat);
      if (this.#members.size === 0) void this.#close();
    });
    this.#members.set(seat, member);
    if (this.#service !== undefined) member.ready(this.#service);
  }

  async #run(load: LoadModel): Promise<void> {
    try {
      // By this lock the others know it, and it is gone when the tab is, as no message tells.
      this.#badge = await holdLock(leaderName(this.#name, this.id));
      if (this.#isEnded) return this.#badge.release();
      this.#channel.post({ type: 'leader' }, this.id);
      const report = {
        onProgress: (progress: LoadProgress) => this.#tell({ type: 'progress', progress }),
        onEvent: (event: FileEvent | RecoveryEvent) => this.#tell({ type: 'event', event }),
        onMemoryPressure: (event: MemoryPressure) => this.#tell({ type: 'memory', event }),
      };
      const { host, info } = await load(report, this.#loading.signal);
      if (this.#isEnded) return await host.dispose().catch(() => {});
      const queue = new RequestQueue(info.max_sequences);
      const onError = (error: EngineError) => {
        // A host that comes back from losses tells when it does not, and may end one request for them.
        const isOfOne = host.ended !== undefined && isLoss(error);
        if (BROKEN.includes(error.code) && !isOfOne) this.#fail(error);
      };
      const service = { host, info, queue, onError };
      this.#service = service;
      // Also when nobody asks anything: whoever asks next gets a new engine.
      void host.ended?.then((error) => this.#fail(error));
      for (const member of this.#members.values()) member.ready(service);
    } catch (thrown) {
      this.#fail(toEngineError(thrown));
    }
  }

  #tell(message: FromLeader): void {
    for (const member of this.#members.values()) member.post(message);
  }

  /** Tells all tabs why there is no engine. They leave, and with the last one the leader ends. */
  #fail(error: EngineError): void {
    if (this.#hasFailed || this.#isEnded) return;
    this.#hasFailed = true;
    // Who comes now waits for the next one.
    this.#badge?.release();
    this.#tell({ type: 'failed', error: errorData(error) });
  }

  async #close(): Promise<void> {
    if (this.#isEnded) return;
    this.#stop();
    await this.#load;
    await this.#service?.host.dispose().catch(() => {});
    this.#end();
  }

  #abandon(): void {
    if (!this.#isEnded) {
      this.#stop();
      for (const member of [...this.#members.values()]) member.leave();
      void this.#service?.host.dispose().catch(() => {});
    }
    this.#end();
  }

  #stop(): void {
    this.#isEnded = true;
    this.#channel.close();
    this.#loading.abort();
  }

  #end(): void {
    this.#unwatch();
    this.#badge?.release();
    this.#resolveEnded();
  }
}

/** The name of the lock by which a leader is known. */
export function leaderName(name: string, leader: string): string {
  return `${name}:leader:${leader}`;
}

/** The name of the channel of a seat, and of the lock that it holds. */
export function seatName(name: string, seat: string): string {
  return `${name}:seat:${seat}`;
}
