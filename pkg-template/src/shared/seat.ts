// A tab's place among those that share an engine: it looks for the leader, hears it, and stands for election all the while. Who gets the lock
// is the leader. It knows nothing of what is asked.

import { newId } from '../openai.js';
import { SharedChannel } from './channel.js';
import { Leader, leaderName, type LoadModel, seatName } from './leader.js';
import { heldSuffix, type HeldLock, holdLock } from './locks.js';
import type { Announcement, FromLeader, ToLeader } from './messages.js';

export interface SeatEvents {
  /** Who runs the model: this tab, or another one. Called whenever there is another leader. */
  onLeader(isOwn: boolean): void;
  onMessage(message: FromLeader): void;
}

export class Seat {
  #id = newId('');
  #name: string;
  #events: SeatEvents;
  #hall: SharedChannel<Announcement, Announcement> | undefined;
  #channel: SharedChannel<FromLeader, ToLeader> | undefined;
  #lock: HeldLock | undefined;
  #standing = new AbortController();
  #hasLeft = false;
  /** The leader that is heard; what others say, also earlier ones that were late, is not. */
  #leader: string | undefined;
  /** The leader, if it is this tab. */
  #own: Leader | undefined;

  constructor(name: string, load: LoadModel, events: SeatEvents) {
    this.#name = name;
    this.#events = events;
    void this.#sit(load);
  }

  post(message: ToLeader): void {
    if (this.#leader !== undefined) this.#channel?.post(message, this.#leader);
  }

  /** Leaves the others. If this tab leads and others stay, it goes on leading; if nobody does, resolves when the engine is gone. */
  async leave(): Promise<void> {
    if (this.#hasLeft) return;
    this.#hasLeft = true;
    this.#standing.abort();
    if (this.#own === undefined) this.post({ type: 'bye' });
    const removed = this.#own?.remove(this.#id);
    this.#hall?.close();
    this.#channel?.close();
    this.#lock?.release();
    await removed;
  }

  async #sit(load: LoadModel): Promise<void> {
    // The leader waits for this lock: when it is free, the tab is gone.
    const lock = await holdLock(seatName(this.#name, this.#id), this.#standing.signal).catch(() => undefined);
    if (lock === undefined || this.#hasLeft) return lock?.release();
    this.#lock = lock;
    this.#channel = new SharedChannel(seatName(this.#name, this.#id), (message, leader) => this.#receive(message, leader));
    this.#hall = new SharedChannel(this.#name, ({ type }) => {
      if (type === 'leader') void this.#look();
    });
    void this.#look();
    void this.#stand(load);
  }

  /** Looks who leads, and says hello if that is somebody new. If nobody does, the next leader announces itself. */
  async #look(): Promise<void> {
    const leader = await heldSuffix(leaderName(this.#name, ''));
    // What was asked before this tab came to lead is out of date.
    if (leader === undefined || leader === this.#leader || this.#own !== undefined || this.#hasLeft) return;
    this.#follow(leader);
    this.#hall?.post({ type: 'hello', seat: this.#id }, leader);
  }

  async #stand(load: LoadModel): Promise<void> {
    const lock = await holdLock(this.#name, this.#standing.signal).catch(() => undefined);
    if (lock === undefined || this.#hasLeft) return lock?.release();
    this.#own = new Leader(this.#name, this.#id, load);
    this.#follow(this.#own.id);
    await this.#own.ended;
    this.#own = undefined;
    lock.release();
  }

  #receive(message: FromLeader, leader: string): void {
    if (leader === this.#leader) this.#events.onMessage(message);
  }

  #follow(leader: string): void {
    this.#leader = leader;
    this.#events.onLeader(this.#own?.id === leader);
  }
}
