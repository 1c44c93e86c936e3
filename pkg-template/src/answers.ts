// Answers, whole and in chunks, in OpenAI's shapes.

import type {
  FinishReason,
  MalformedToolCall,
  Timings as EngineTimings,
  TokenLogprob as EngineTokenLogprob,
  ToolCallDelta,
  Usage,
} from './generated/answers.js';
import type { ToolCallResult } from './messages.js';

export type { FinishReason, Usage } from './generated/answers.js';

/** How long a request took. An extension of OpenAI's shapes. */
export interface Timings extends EngineTimings {
  /** Milliseconds that the request waited for others before it began. */
  queue_ms: number;
}

/** A completion calls nothing. */
export type CompletionFinishReason = Exclude<FinishReason, 'tool_calls'>;

/** A token and how probable the model found it. */
export type TokenLogprob = Omit<EngineTokenLogprob, 'id'>;

export interface ChatLogprobs {
  /** One for each of `token_ids`. */
  content: (TokenLogprob & {
    /** The most probable tokens, the most probable first. The chosen one need not be among them. */
    top_logprobs: TokenLogprob[];
  })[];
  refusal: null;
}

/** One entry for each of `token_ids`. Where a token is part of a character, its text is written as `bytes:\x…`. */
export interface CompletionLogprobs {
  tokens: string[];
  /** Natural logarithms, at least -9999. */
  token_logprobs: number[];
  /** The most probable tokens by their text, and the chosen one. */
  top_logprobs: Record<string, number>[];
  /** Where each token's text begins in the choice's `text` (of all chunks), as JavaScript counts: `text.slice(offset)`. */
  text_offset: number[];
}

export interface ChatCompletion {
  id: string;
  object: 'chat.completion';
  /** Unix time in seconds. */
  created: number;
  model: string;
  choices: ChatCompletionChoice[];
  usage: Usage;
  timings: Timings;
}

export interface ChatCompletionChoice {
  index: number;
  message: {
    role: 'assistant';
    /** Null where there is nothing but calls or reasoning. */
    content: string | null;
    refusal: null;
    /** What the model thought before it answered, where it did. An extension. */
    reasoning_content?: string;
    tool_calls?: ToolCallResult[];
  };
  /** Null unless they were asked for. */
  logprobs: ChatLogprobs | null;
  finish_reason: FinishReason;
  /** Which of `stop` or `stop_token_ids` ended the answer, if one did. An extension. */
  stop_reason: string | number | null;
  /** An extension. */
  malformed_tool_calls?: MalformedToolCall[];
  /** The ids of the new tokens. An extension. */
  token_ids: number[];
}

export interface ChatCompletionChunk {
  id: string;
  object: 'chat.completion.chunk';
  created: number;
  model: string;
  choices: ChatCompletionChunkChoice[];
  /** On the last chunk; with `include_usage`, null on all others. */
  usage?: Usage | null;
  /** On the last chunk. */
  timings?: Timings;
}

export interface ChatCompletionChunkChoice {
  index: number;
  delta: { role?: 'assistant'; content?: string; reasoning_content?: string; tool_calls?: ToolCallDelta[] };
  /** Of the tokens of this chunk. */
  logprobs: ChatLogprobs | null;
  finish_reason: FinishReason | null;
  stop_reason?: string | number;
  malformed_tool_calls?: MalformedToolCall[];
  token_ids: number[];
}

/** The shape of both an answer and, when streaming, of each chunk. */
export interface Completion {
  id: string;
  object: 'text_completion';
  created: number;
  model: string;
  choices: CompletionChoice<CompletionFinishReason>[];
  usage: Usage;
  timings: Timings;
}

export interface CompletionChunk {
  id: string;
  object: 'text_completion';
  created: number;
  model: string;
  choices: CompletionChoice<CompletionFinishReason | null>[];
  usage?: Usage | null;
  timings?: Timings;
}

export interface CompletionChoice<Reason> {
  index: number;
  text: string;
  logprobs: CompletionLogprobs | null;
  finish_reason: Reason;
  stop_reason?: string | number;
  token_ids: number[];
}
