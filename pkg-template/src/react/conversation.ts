// A conversation with an engine, whose state others may watch. It knows of the engine its chat endpoint alone, and nothing of React.

import type { Engine } from '../engine.js';
import { type EngineError, toEngineError } from '../errors.js';
import type { ChatCompletionChunk, ChatCompletionRequest, ChatMessage } from '../types.js';
import { type Answer, GrowingAnswer } from './growing_answer.js';

/** `loading`: there is no engine. `submitted`: nothing has come of the answer yet. `error`: the last answer failed; the chat can go on. */
export type ChatStatus = 'loading' | 'ready' | 'submitted' | 'streaming' | 'error';

/** Fields of the requests, such as `temperature` and `tools`. */
export type ChatFields = Omit<ChatCompletionRequest, 'messages' | 'n' | 'stream' | 'stream_options'>;

export interface ChatState {
  /** The conversation, and at its end the answer as far as it has come. */
  messages: readonly ChatMessage[];
  status: ChatStatus;
  error: EngineError | undefined;
  /** The newest chunk of the last answer; at its end the one with `finish_reason`, `usage` and `timings`. */
  chunk: ChatCompletionChunk | undefined;
}

export class Conversation {
  engine: Engine | null | undefined;
  fields: ChatFields = {};
  #state: ChatState;
  #listeners = new Set<() => void>();
  #running: AbortController | undefined;
  /** Whether nothing has come of the last answer. */
  #isUnanswered = false;

  constructor(messages: readonly ChatMessage[]) {
    this.#state = { messages: [...messages], status: 'ready', error: undefined, chunk: undefined };
  }

  readonly state = (): ChatState => this.#state;

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  readonly send = async (question: string | ChatMessage | readonly ChatMessage[]): Promise<Answer | undefined> => {
    const asked = typeof question === 'string' ? [{ role: 'user' as const, content: question }] : [question].flat();
    const { messages } = this.#state;
    // Templates want turns, and what failed once, such as a text that is too long, would fail again.
    const isReplaced = this.#isUnanswered && messages.at(-1)?.role === 'user';
    return this.#ask([...messages.slice(0, isReplaced ? -1 : undefined), ...asked]);
  };

  readonly regenerate = async (): Promise<Answer | undefined> => {
    const asked = [...this.#state.messages];
    while (asked.at(-1)?.role === 'assistant') asked.pop();
    const { role } = asked.at(-1) ?? {};
    return role === 'user' || role === 'tool' ? this.#ask(asked) : undefined;
  };

  readonly stop = (): void => {
    this.#end(this.#running, { status: 'ready' });
  };

  readonly setMessages = (messages: readonly ChatMessage[]): void => {
    this.stop();
    this.#isUnanswered = false;
    this.#set({ messages: [...messages], status: 'ready', error: undefined, chunk: undefined });
  };

  async #ask(messages: ChatMessage[]): Promise<Answer | undefined> {
    const { engine, fields } = this;
    if (!engine || this.#running !== undefined) return undefined;
    const running = new AbortController();
    const answer = new GrowingAnswer();
    let chunk: ChatCompletionChunk | undefined;
    const withAnswer = () => ({ messages: [...messages, answer.message()], chunk });
    this.#running = running;
    this.#isUnanswered = true;
    this.#set({ messages, status: 'submitted', error: undefined, chunk });
    try {
      const stream = await engine.chat.completions.create({ ...fields, messages, stream: true }, { signal: running.signal });
      for await (chunk of stream) {
        if (running.signal.aborted) break;
        for (const choice of chunk.choices) if (choice.index === 0) answer.add(choice);
        if (answer.isEmpty) continue;
        this.#isUnanswered = false;
        this.#set({ ...withAnswer(), status: 'streaming' });
      }
      if (running.signal.aborted) return answer.isEmpty ? undefined : answer.message();
      this.#isUnanswered = false;
      this.#end(running, { ...withAnswer(), status: 'ready' });
      return answer.message();
    } catch (thrown) {
      this.#end(running, { status: 'error', error: toEngineError(thrown) });
      return answer.isEmpty ? undefined : answer.message();
    }
  }

  /** Ends what runs, unless it was ended before. */
  #end(running: AbortController | undefined, change: Partial<ChatState>): void {
    if (running === undefined || running !== this.#running) return;
    this.#running = undefined;
    running.abort();
    this.#set(change);
  }

  #set(change: Partial<ChatState>): void {
    this.#state = { ...this.#state, ...change };
    for (const listener of this.#listeners) listener();
  }
}
