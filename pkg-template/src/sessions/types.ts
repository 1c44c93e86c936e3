// What is saved of conversations, and what is told of it. Types only.

import type { Session as SessionData, SessionModel } from '../generated/sessions.js';
import type { ChatFields } from '../generated/requests.js';
import type { ChatMessage } from '../messages.js';
import type { ReasoningEffort } from '../requests.js';
import type { ModelResponse } from '../responses/types.js';

export type { SessionModel } from '../generated/sessions.js';

/** The fields of a chat request that shape the prompt. Requests that come later reuse most if they have the same ones. */
export interface ConversationFields extends ChatFields {
  /** What it tells the chat template; the budget is the later request's own. */
  reasoning_effort?: ReasoningEffort | null | undefined;
}

/** A conversation of the Responses API: the response that ends it, which must be kept (`store`), and what its requests said of the template. */
export interface ResponseConversation extends Pick<ChatFields, 'chat_template' | 'chat_template_kwargs'> {
  /** The id of the response. */
  response: string;
}

/** Messages, or messages with tools and what else shapes the prompt, or a response. */
export type Conversation = ChatMessage[] | ConversationFields | ResponseConversation;

/** How a conversation is saved. */
export interface SaveSessionOptions {
  /**
   * Keep it in the browser too, in the origin private file system, for `restore(name)`. Any text of 1 to 120 bytes in UTF-8. What was kept by
   * that name is replaced when all of the new session is there. Default: nothing is kept.
   */
  name?: string | undefined;
  /** Aborting it rejects with code `aborted`; what was kept by the name stays. */
  signal?: AbortSignal | undefined;
}

/** How a conversation is restored. */
export interface RestoreSessionOptions {
  /** Aborting it rejects with code `aborted`. */
  signal?: AbortSignal | undefined;
}

/** A conversation that was saved. */
export interface Session extends SessionData {
  /** The response that it was saved by, which is kept again: `previous_response_id` goes on from it. */
  response?: ModelResponse;
}

interface KeptSession {
  name: string;
  /** Of the file. */
  bytes: number;
  /** When it was saved, in seconds since 1970. */
  created: number;
}

/** A session that is kept by its name. A damaged one, or one of another version, can only be deleted or saved anew. */
export type SavedSession =
  | (KeptSession & {
      damaged: false;
      /** How many tokens need not be taken in again. */
      tokens: number;
      model: SessionModel;
    })
  | (KeptSession & { damaged: true });
