// The messages between a tab's seat and the leader, which loads and runs the model for all. Types, and what they are checked by.

import { EngineError, type ErrorData } from '../errors.js';
import type { FileEvent } from '../files/events.js';
import type { Chunk, GenerationKind, HostCalls, ReplayData } from '../protocol.js';
import type { RecoveryEvent } from '../recovery/events.js';
import type { LoadProgress, MemoryPressure, ModelInfo } from '../types.js';

/** Counted up with every change of what is said here, chunks and information of the engine included: tabs of other versions share nothing. */
export const PROTOCOL = 4;

/** What is one question and one answer, and can be asked again. */
export interface SharedCalls
  extends Pick<HostCalls, 'tokenize' | 'detokenize' | 'embed' | 'score' | 'saveSession' | 'restoreSession' | 'sync' | 'stats'> {
  info(): Promise<ModelInfo>;
}

/** Whether they wait in the queue of requests. */
const METHODS: Record<keyof SharedCalls, boolean> = {
  tokenize: false,
  detokenize: false,
  embed: true,
  score: true,
  saveSession: true,
  restoreSession: true,
  sync: false,
  stats: false,
  info: false,
};

export function isSharedMethod(method: unknown): method is keyof SharedCalls {
  return typeof method === 'string' && Object.hasOwn(METHODS, method);
}

/** Whether it is a request, which waits for those before it. */
export function isQueued(method: keyof SharedCalls): boolean {
  return METHODS[method];
}

/** What is asked, as it is now: it may be asked again when its owner has changed it. */
export function copyOf<T>(asked: T): T {
  try {
    return structuredClone(asked);
  } catch (thrown) {
    throw new EngineError('invalid_request', `the request cannot be sent to another tab: ${String(thrown)}`, { cause: thrown });
  }
}

/** On the channel of all tabs. */
export type Announcement =
  /** A seat has found the leader. */
  | { type: 'hello'; seat: string }
  /** There is a new leader: whoever has a seat looks who it is. */
  | { type: 'leader' };

/** From the leader to a seat, on the seat's own channel. */
export type FromLeader =
  | { type: 'progress'; progress: LoadProgress }
  | { type: 'event'; event: FileEvent | RecoveryEvent }
  | { type: 'memory'; event: MemoryPressure }
  /** The model is loaded, and can be asked. */
  | { type: 'ready' }
  /** The model can't be loaded, or no longer be run: the leader gives up. */
  | { type: 'failed'; error: ErrorData }
  | { type: 'result'; id: number; value: unknown }
  | { type: 'error'; id: number; error: ErrorData }
  /** Undefined after the last one. */
  | { type: 'chunk'; id: number; attempt: number; chunk: Chunk | undefined };

/** From a seat to the leader, on the seat's own channel. */
export type ToLeader =
  | { type: 'call'; id: number; method: keyof SharedCalls; args: unknown[] }
  | { type: 'generate'; id: number; kind: GenerationKind; request: object; replay: ReplayData; attempt: number; credit: number }
  /** The tab took `count` chunks, so the leader may run ahead by as many more. */
  | { type: 'credit'; id: number; count: number }
  | { type: 'cancel'; id: number }
  /** Nobody wants the answer any more. */
  | { type: 'release'; id: number }
  | { type: 'bye' };
