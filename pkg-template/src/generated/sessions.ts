// What is saved of a conversation. Made from the Rust structs by `npm run types`: change those.

import type { ChatFields } from './requests.js';

/** A conversation that was saved. */
export interface Session {
  /** What it was saved for. */
  conversation: ChatFields;
  /** How many tokens need not be taken in again. The last few of the conversation may be left out. */
  tokens: number;
  /** When it was saved, in seconds since 1970. */
  created: number;
  /** The model that it is of; no other can restore it. */
  model: SessionModel;
  /** The adapters that it was saved with, which have to be loaded to restore it. Requests with these scales go on from it. */
  adapters?: SessionAdapter[];
}

/** The model of a session. */
export interface SessionModel {
  /** The name that the file gives itself. */
  name?: string;
  /** As GGUF files call it. */
  architecture: string;
  /** The type that most bytes of the matrices have. */
  quantization: string;
  /** How keys and values are stored. */
  kv_cache: string;
  /** Of the weights and the rope: those of other models, also of the same kind, differ. */
  fingerprint: string;
}

/** An adapter of a session. */
export interface SessionAdapter {
  /** What it was called. */
  name: string;
  /** Its scale. */
  scale: number;
  /** Of its numbers: another adapter of this name has another one. */
  fingerprint: string;
}
