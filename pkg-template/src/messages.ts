// What a chat is made of: messages, tools and calls.

export type { MalformedToolCall, ToolCallDelta } from './generated/answers.js';

export interface TextPart {
  type: 'text';
  text: string;
}

export interface ChatMessage {
  role: 'system' | 'developer' | 'user' | 'assistant' | 'tool';
  /** May be left out of an assistant's message that calls tools or has reasoning. */
  content?: string | TextPart[] | null | undefined;
  name?: string | undefined;
  tool_calls?: ToolCall[] | undefined;
  tool_call_id?: string | undefined;
  /** What the assistant thought, for templates that want it of earlier messages. An extension. */
  reasoning_content?: string | null | undefined;
}

export interface ToolCall {
  id?: string | undefined;
  type: 'function';
  /** `arguments` is JSON as text, as OpenAI has it, or an object, as most templates want it. */
  function: { name: string; arguments: string | Record<string, unknown> };
}

/** A function that the model may call: its name (1 to 64 letters, digits, `_`, `-`, `.`), and a JSON schema of its arguments, an object. */
export interface Tool {
  type: 'function';
  function: {
    name: string;
    description?: string | undefined;
    parameters?: Record<string, unknown> | undefined;
    /** Taken as in OpenAI's API and not looked at: arguments obey the schema anyway. */
    strict?: boolean | null | undefined;
  };
}

/** `none`: the model calls nothing and is not told of the tools. `auto`: as it likes. `required`: at least one. Or: this one. */
export type ToolChoice = 'none' | 'auto' | 'required' | { type: 'function'; function: { name: string } };

/** A call in an answer. `arguments` is JSON as text. */
export interface ToolCallResult {
  id: string;
  type: 'function';
  function: { name: string; arguments: string };
}
