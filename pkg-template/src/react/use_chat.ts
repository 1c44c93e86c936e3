// A conversation with an engine as state of a component.

import { useEffect, useLayoutEffect, useState, useSyncExternalStore } from 'react';

import type { Engine } from '../engine.js';
import type { ChatMessage } from '../types.js';
import { type ChatFields, type ChatState, Conversation } from './conversation.js';
import type { Answer } from './growing_answer.js';

/** Fields of the requests, such as `temperature` and `tools`, of which those of the last render count. */
export interface ChatOptions extends ChatFields {
  /** What the conversation begins with, such as a system message. Those of the first render count. */
  initialMessages?: readonly ChatMessage[] | undefined;
}

export interface Chat extends ChatState {
  /**
   * Asks, by a text of the user's or by messages such as the results of tools. Resolves to the answer, or if it was stopped or failed to what had come
   * of it, and to undefined if that is nothing; it never rejects. While there is no engine, or another answer is under way, it does nothing.
   *
   * A question that got no answer, since it failed or was stopped, stays in `messages`, where `regenerate` finds it; the next one takes its place.
   */
  send: (question: string | ChatMessage | readonly ChatMessage[]) => Promise<Answer | undefined>;
  /** Asks once more for the last answer, or for one that failed; resolves as `send` does. */
  regenerate: () => Promise<Answer | undefined>;
  /** Ends the answer under way. What has come of it stays. */
  stop: () => void;
  /** Begins anew with other messages, and ends the answer under way. */
  setMessages: (messages: readonly ChatMessage[]) => void;
}

/** Before any effect of a component that may ask. A server has no effects, and React 18 warns there. */
const useEarlyEffect = typeof document === 'undefined' ? useEffect : useLayoutEffect;

/**
 * A chat with an engine. An answer under way ends when the component goes or gets another engine; the messages stay, and the next engine goes on
 * from them. The functions are the same in every render.
 *
 * ```jsx
 * const { engine } = useEngine('hf:owner/name');
 * const { messages, status, error, send, stop } = useChat(engine, { temperature: 0 });
 * ```
 */
export function useChat(engine: Engine | null | undefined, { initialMessages = [], ...fields }: ChatOptions = {}): Chat {
  const [conversation] = useState(() => new Conversation(initialMessages));
  const state = useSyncExternalStore(conversation.subscribe, conversation.state, conversation.state);
  useEarlyEffect(() => {
    conversation.fields = fields;
  });
  useEarlyEffect(() => {
    conversation.engine = engine;
    return () => {
      conversation.stop();
      conversation.engine = undefined;
    };
  }, [conversation, engine]);
  const { send, regenerate, stop, setMessages } = conversation;
  return { ...state, status: engine ? state.status : 'loading', send, regenerate, stop, setMessages };
}
