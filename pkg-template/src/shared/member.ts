// The leader's side of one tab: answers its calls and runs its generations on the engine, as far ahead of it as it allows. When the tab is
// gone, so is everything of it.

import { EngineError, errorData, toEngineError } from '../errors.js';
import { RunningGeneration } from '../generation.js';
import type { LoadedHost } from '../protocol.js';
import type { RequestQueue } from '../queue.js';
import type { ModelInfo } from '../types.js';
import { SharedChannel } from './channel.js';
import { holdLock } from './locks.js';
import { choicesOf } from '../recovery/choices.js';
import { type FromLeader, isQueued, isSharedMethod, type ToLeader } from './messages.js';

/** The loaded engine, and the order of the requests of all tabs. */
export interface Service {
  host: LoadedHost;
  info: ModelInfo;
  queue: RequestQueue;
  /** Told of every error of the engine. */
  onError(error: EngineError): void;
}

/** A request of the tab's, from its arrival to its end. */
interface Running {
  /** Aborted when nobody wants it any more. */
  controller: AbortController;
  generation: RunningGeneration | undefined;
  isCancelled: boolean;
  credit: number;
  wake: () => void;
}

export class Member {
  #leader: string;
  #channel: SharedChannel<ToLeader, FromLeader>;
  #watching = new AbortController();
  #service: Service | undefined;
  #running = new Map<number, Running>();
  #isGone = false;
  #onGone: () => void;

  /** `seat` is the name of the tab's channel, and of the lock that it holds while it lives. */
  constructor(seat: string, leader: string, onGone: () => void) {
    this.#leader = leader;
    this.#onGone = onGone;
    this.#channel = new SharedChannel(seat, (message, to) => to === leader && this.#receive(message));
    holdLock(seat, this.#watching.signal).then(
      (lock) => {
        lock.release();
        this.leave();
      },
      () => {},
    );
  }

  ready(service: Service): void {
    this.#service = service;
    this.post({ type: 'ready' });
  }

  post(message: FromLeader): void {
    if (!this.#isGone) this.#channel.post(message, this.#leader);
  }

  /** The tab wants nothing more. */
  leave(): void {
    if (this.#isGone) return;
    this.#isGone = true;
    this.#watching.abort();
    this.#channel.close();
    for (const id of [...this.#running.keys()]) this.#release(id);
    this.#onGone();
  }

  #receive(message: ToLeader): void {
    switch (message.type) {
      case 'call':
        void this.#answer(message);
        break;
      case 'generate':
        void this.#generate(message);
        break;
      case 'credit': {
        const running = this.#running.get(message.id);
        if (running !== undefined && message.count > 0) {
          running.credit += message.count;
          running.wake();
        }
        break;
      }
      case 'cancel': {
        const running = this.#running.get(message.id);
        if (running !== undefined) running.isCancelled = true;
        running?.generation?.cancel();
        break;
      }
      case 'release':
        this.#release(message.id);
        break;
      case 'bye':
        this.leave();
        break;
    }
  }

  async #answer({ id, method, args }: ToLeader & { type: 'call' }): Promise<void> {
    await this.#run(id, 0, async (service, running) => {
      if (!isSharedMethod(method) || !Array.isArray(args)) {
        throw new EngineError('invalid_request', `an engine that tabs share has no ${String(method)}`);
      }
      const { host, info, queue } = service;
      if (method === 'info') return this.#result(id, host.loaded ?? info);
      // TypeScript cannot see that `args` belongs to `method` once both come out of the union.
      const ask = host[method] as (...args: unknown[]) => Promise<unknown>;
      if (!isQueued(method)) return this.#result(id, await ask.apply(host, args));
      const { signal } = running.controller;
      const turn = await queue.turn(signal);
      try {
        this.#result(id, await ask.apply(host, [...args, signal]));
      } finally {
        turn.release();
      }
    });
  }

  async #generate({ id, kind, request, replay, attempt, credit }: ToLeader & { type: 'generate' }): Promise<void> {
    await this.#run(id, credit, async ({ host, info, queue }, running) => {
      const turn = await queue.turn(running.controller.signal, Math.min(choicesOf(request), info.max_sequences));
      let generation: RunningGeneration;
      try {
        generation = new RunningGeneration(await host.generate(kind, request, undefined, replay), turn, undefined, undefined);
      } catch (thrown) {
        turn.release();
        throw thrown;
      }
      running.generation = generation;
      try {
        if (running.isCancelled) generation.cancel();
        this.#result(id, undefined);
        for (;;) {
          while (running.credit <= 0 && this.#running.has(id)) await new Promise<void>((resolve) => (running.wake = resolve));
          if (!this.#running.has(id)) return;
          const chunk = await generation.next();
          if (!this.#running.has(id)) return;
          running.credit -= 1;
          this.post({ type: 'chunk', id, attempt, chunk });
          if (chunk === undefined) return;
        }
      } finally {
        generation.discard();
      }
    });
  }

  /** Does the work of a request, and tells the tab what goes wrong unless it wants nothing more of it. */
  async #run(id: number, credit: number, work: (service: Service, running: Running) => Promise<void>): Promise<void> {
    const service = this.#service;
    // A tab asks when the model is loaded, and everything once.
    if (service === undefined || this.#running.has(id)) return;
    const running: Running = { controller: new AbortController(), generation: undefined, isCancelled: false, credit, wake: () => {} };
    this.#running.set(id, running);
    try {
      await work(service, running);
    } catch (thrown) {
      const error = toEngineError(thrown);
      // First of all: a tab that hears of an engine that is gone does not ask it again.
      if (!this.#isGone) service.onError(error);
      if (this.#running.has(id)) this.post({ type: 'error', id, error: errorData(error) });
    } finally {
      this.#running.delete(id);
    }
  }

  #result(id: number, value: unknown): void {
    if (this.#running.has(id)) this.post({ type: 'result', id, value });
  }

  #release(id: number): void {
    const running = this.#running.get(id);
    this.#running.delete(id);
    running?.controller.abort();
    running?.generation?.discard();
    running?.wake();
  }
}
