// An answer as its chunks add up. It knows nothing of React.

import { wholeCalls } from '../openai.js';
import type { ChatCompletionChunkChoice, ChatMessage, ToolCallResult } from '../types.js';

/** What a model has answered, as a message of the conversation. */
export interface Answer extends ChatMessage {
  role: 'assistant';
  /** Empty where there is nothing but calls or reasoning. */
  content: string;
  reasoning_content?: string;
  tool_calls?: ToolCallResult[];
}

export class GrowingAnswer {
  #content = '';
  #reasoning = '';
  /** What tells of calls. */
  #parts: Parameters<typeof wholeCalls>[0] = [];
  #isEmpty = true;

  /** Whether nothing was said yet. */
  get isEmpty(): boolean {
    return this.#isEmpty;
  }

  add({ delta: { content = '', reasoning_content = '', tool_calls }, malformed_tool_calls }: ChatCompletionChunkChoice): void {
    this.#content += content;
    this.#reasoning += reasoning_content;
    if (tool_calls !== undefined) this.#parts.push({ tool_calls });
    if (malformed_tool_calls !== undefined) this.#parts.push({ malformed_tool_calls });
    if (content !== '' || reasoning_content !== '' || tool_calls !== undefined) this.#isEmpty = false;
  }

  /** A new object for each call: who keeps one has what was said by then. */
  message(): Answer {
    const calls = wholeCalls(this.#parts);
    return {
      role: 'assistant',
      content: this.#content,
      ...(this.#reasoning === '' ? {} : { reasoning_content: this.#reasoning }),
      ...(calls.length === 0 ? {} : { tool_calls: calls }),
    };
  }
}
