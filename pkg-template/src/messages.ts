// What a chat is made of: messages, tools and calls.

export type { MalformedToolCall, ToolCallDelta } from './generated/answers.js';

/** A part of a message. */
export interface TextPart {
  /** What it is. */
  type: 'text';
  /** The text. */
  text: string;
}

/** A message of a conversation. */
export interface ChatMessage {
  /** Who says it. */
  role: 'system' | 'developer' | 'user' | 'assistant' | 'tool';
  /** May be left out of an assistant's message that calls tools or has reasoning. */
  content?: string | TextPart[] | null | undefined;
  /** Of who says it, for templates that write it. */
  name?: string | undefined;
  /** The calls of an assistant's message. */
  tool_calls?: ToolCall[] | undefined;
  /** Of a message with the role `tool`: the id of the call that it is the result of. */
  tool_call_id?: string | undefined;
  /** What the assistant thought, for templates that want it of earlier messages. An extension. */
  reasoning_content?: string | null | undefined;
}

/** A call in an earlier message of the assistant. */
export interface ToolCall {
  /** Names the call, for its result. */
  id?: string | undefined;
  /** What it is. */
  type: 'function';
  /** `arguments` is JSON as text, as OpenAI has it, or an object, as most templates want it. */
  function: { name: string; arguments: string | Record<string, unknown> };
}

/** A function that the model may call: its name (1 to 64 letters, digits, `_`, `-`, `.`), and a JSON schema of its arguments, an object. */
export interface Tool {
  /** What it is. */
  type: 'function';
  /** The function. */
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
  /** Names the call: `tool_call_id` of the message with its result. */
  id: string;
  /** What it is. */
  type: 'function';
  /** The name of the function, and its arguments as JSON. */
  function: { name: string; arguments: string };
}
