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

export type { CompletionTokensDetails, FinishReason, FunctionDelta, PromptTokensDetails, Usage } from './generated/answers.js';

/** How long a request took. An extension of OpenAI's shapes. */
export interface Timings extends EngineTimings {
  /** Milliseconds that the request waited for others before it began. */
  queue_ms: number;
}

/** A completion calls nothing. */
export type CompletionFinishReason = Exclude<FinishReason, 'tool_calls'>;

/** A token and how probable the model found it. */
export type TokenLogprob = Omit<EngineTokenLogprob, 'id'>;

/** How probable the tokens of an answer were. */
export interface ChatLogprobs {
  /** One for each of `token_ids`. */
  content: (TokenLogprob & {
    /** The most probable tokens, the most probable first. The chosen one need not be among them. */
    top_logprobs: TokenLogprob[];
  })[];
  /** Always null: nothing is refused. */
  refusal: null;
}

/** One entry for each of `token_ids`. Where a token is part of a character, its text is written as `bytes:\x…`. */
export interface CompletionLogprobs {
  /** The texts of the tokens. */
  tokens: string[];
  /** Natural logarithms, at least -9999. */
  token_logprobs: number[];
  /** The most probable tokens by their text, and the chosen one. */
  top_logprobs: Record<string, number>[];
  /** Where each token's text begins in the choice's `text` (of all chunks), as JavaScript counts: `text.slice(offset)`. */
  text_offset: number[];
}

/** A whole answer to a chat. */
export interface ChatCompletion {
  /** Names it among the others. */
  id: string;
  /** OpenAI's name of the shape. */
  object: 'chat.completion';
  /** Unix time in seconds. */
  created: number;
  /** The name of the model: `info.name`, or its architecture. */
  model: string;
  /** `n` answers, one by default. */
  choices: ChatCompletionChoice[];
  /** How many tokens were taken in and made. */
  usage: Usage;
  /** How long it took. An extension. */
  timings: Timings;
}

/** One of the answers to a chat. */
export interface ChatCompletionChoice {
  /** Which of the answers it is, from 0. */
  index: number;
  /** What the model said. */
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
  /** How the answer ended. */
  finish_reason: FinishReason;
  /** Which of `stop` or `stop_token_ids` ended the answer, if one did. An extension. */
  stop_reason: string | number | null;
  /** An extension. */
  malformed_tool_calls?: MalformedToolCall[];
  /** The ids of the new tokens. An extension. */
  token_ids: number[];
}

/** A piece of a streamed answer to a chat: what has come since the last one. */
export interface ChatCompletionChunk {
  /** Names it among the others. */
  id: string;
  /** OpenAI's name of the shape. */
  object: 'chat.completion.chunk';
  /** Unix time in seconds. */
  created: number;
  /** The name of the model: `info.name`, or its architecture. */
  model: string;
  /** Pieces of one or several of the answers; none in the chunk that `include_usage` adds. */
  choices: ChatCompletionChunkChoice[];
  /** On the last chunk; with `include_usage`, null on all others. */
  usage?: Usage | null;
  /** On the last chunk. */
  timings?: Timings;
}

/** A piece of one of the answers to a chat. */
export interface ChatCompletionChunkChoice {
  /** Which of the answers it is, from 0. */
  index: number;
  /** What is added to the message: append the texts, and the `arguments` of calls by their `index`. */
  delta: { role?: 'assistant'; content?: string; reasoning_content?: string; tool_calls?: ToolCallDelta[] };
  /** Of the tokens of this chunk. */
  logprobs: ChatLogprobs | null;
  /** How the answer ended; null before its last chunk. */
  finish_reason: FinishReason | null;
  /** Which of `stop` or `stop_token_ids` ended the answer, if one did. An extension. */
  stop_reason?: string | number;
  /** What looks like calls and is none, with the reasons. An extension. */
  malformed_tool_calls?: MalformedToolCall[];
  /** The ids of the new tokens. An extension. */
  token_ids: number[];
}

/** The shape of both an answer and, when streaming, of each chunk. */
export interface Completion {
  /** Names it among the others. */
  id: string;
  /** OpenAI's name of the shape. */
  object: 'text_completion';
  /** Unix time in seconds. */
  created: number;
  /** The name of the model: `info.name`, or its architecture. */
  model: string;
  /** `n` continuations, one by default. */
  choices: CompletionChoice<CompletionFinishReason>[];
  /** How many tokens were taken in and made. */
  usage: Usage;
  /** How long it took. An extension. */
  timings: Timings;
}

/** A piece of a streamed completion. */
export interface CompletionChunk {
  /** Names it among the others. */
  id: string;
  /** OpenAI's name of the shape. */
  object: 'text_completion';
  /** Unix time in seconds. */
  created: number;
  /** The name of the model: `info.name`, or its architecture. */
  model: string;
  /** Pieces of one or several of the continuations. */
  choices: CompletionChoice<CompletionFinishReason | null>[];
  /** On the last chunk; with `include_usage`, null on all others. */
  usage?: Usage | null;
  /** On the last chunk. */
  timings?: Timings;
}

/** One of the continuations of a text, or a piece of it. */
export interface CompletionChoice<Reason> {
  /** Which of the answers it is, from 0. */
  index: number;
  /** The text, without the prompt. */
  text: string;
  /** Null unless they were asked for. */
  logprobs: CompletionLogprobs | null;
  /** How the answer ended; null in a chunk before the last. */
  finish_reason: Reason;
  /** Which of `stop` or `stop_token_ids` ended the answer, if one did. An extension. */
  stop_reason?: string | number;
  /** The ids of the new tokens. An extension. */
  token_ids: number[];
}
