// What a loaded model answers. Made from the Rust structs by `npm run types`: change those.

/**
 * `stop`: the model ended its turn, or what `stop` or `stop_token_ids` names came. `tool_calls`: the same, with whole calls in the answer.
 * `length`: the most tokens, or the end of the context. `cancelled`: by the caller; an extension.
 */
export type FinishReason = 'stop' | 'tool_calls' | 'length' | 'cancelled';

/** Tokens that a request took. */
export interface Usage {
  /** Of the whole prompt, cached or not. With `n` answers it counts once. */
  prompt_tokens: number;
  /** Of all answers, with the tokens that ended them. */
  completion_tokens: number;
  /** Prompt and answers. */
  total_tokens: number;
  /** Where the prompt's tokens came from. */
  prompt_tokens_details: PromptTokensDetails;
  /** What the tokens of the answers are. */
  completion_tokens_details: CompletionTokensDetails;
}

/** Of the prompt's tokens. */
export interface PromptTokensDetails {
  /** Those that were still in the KV cache. */
  cached_tokens: number;
}

/** Of the answer's tokens. */
export interface CompletionTokensDetails {
  /** Those that are reasoning, with its markers. */
  reasoning_tokens: number;
}

/** How long a request took. An extension of OpenAI's shapes. */
export interface Timings {
  /** From the start to the first token. */
  prompt_ms: number;
  /** Tokens of the prompt in each second of `prompt_ms`, without the cached ones. */
  prompt_tokens_per_s: number;
  /** From the first token to the last. */
  decode_ms: number;
  /** Tokens after the first one of each answer, in each second of `decode_ms`. */
  tokens_per_s: number;
  /** Tokens of the prompt that were still in the KV cache. */
  cached_prompt_tokens: number;
  /** With `speculation`: tokens of drafts that were verified. */
  draft_tokens?: number;
  /** With `speculation`: tokens of drafts that were right. */
  accepted_draft_tokens?: number;
  /** With `context_shift`: how often the context was full. */
  context_shifts?: number;
  /** With `context_shift`: tokens of the prompt and the answer that were dropped to make room. */
  dropped_tokens?: number;
  /** Under a grammar: tokens that it left no choice about. */
  forced_tokens?: number;
  /** Under a grammar: steps that ran ahead with a wrong mask, and were done again. */
  missed_masks?: number;
  /** Under a grammar: steps that ran for nothing because of that. */
  dropped_steps?: number;
}

/** A piece of the text of one choice. The last one of each says why it is the last, and the last one of all has usage and timings. */
export interface Chunk {
  /** Which of the choices. */
  index: number;
  /** More of the answer, without reasoning and calls. */
  text: string;
  /** More of the reasoning. */
  reasoning?: string;
  /** Calls that begin or go on. */
  tool_calls?: ToolCallDelta[];
  /** Texts that look like calls and can't be read as such. */
  malformed_tool_calls?: MalformedToolCall[];
  /** The tokens that came since the last chunk. A part of their text may come later. */
  token_ids: number[];
  /** Where they were asked for, one for each of `token_ids`. */
  logprobs?: TokenLogprobs[];
  /** In the last chunk of a choice. */
  finish_reason?: FinishReason;
  /** What of the request ended the answer. */
  stop_reason?: StopReason;
  /** In the last chunk of all. */
  usage?: Usage;
  /** In the last chunk of all. */
  timings?: Timings;
}

/** What a chunk says of one of its tokens. */
export interface TokenLogprobs {
  /** The most probable tokens, the most probable first. The chosen one need not be among them. */
  top: TokenLogprob[];
  /** Where the token's text begins in the answer, in UTF-16 code units as JavaScript counts. Stop strings count as part of it. */
  offset: number;
  /** The token's number in the vocabulary. */
  id: number;
  /** U+FFFD stands for what is part of a character; a control token is as it is written. */
  token: string;
  /** The token's bytes in UTF-8. */
  bytes: number[];
  /** Natural logarithm of its probability, at least -9999. */
  logprob: number;
}

/** A token and how probable the model found it. */
export interface TokenLogprob {
  /** The token's number in the vocabulary. */
  id: number;
  /** U+FFFD stands for what is part of a character; a control token is as it is written. */
  token: string;
  /** The token's bytes in UTF-8. */
  bytes: number[];
  /** Natural logarithm of its probability, at least -9999. */
  logprob: number;
}

/** What of a request ended an answer, as vLLM says it. */
export type StopReason = string | number;

/** A piece of a call: the first one of each `index` has the id and the name, and the pieces of `arguments` together are JSON. */
export interface ToolCallDelta {
  /** Which of the answer's calls. */
  index: number;
  /** In the first piece: names the call, so that a `tool` message can answer it. */
  id?: string;
  /** In the first piece. */
  type?: 'function';
  /** What this piece adds to the call. */
  function: FunctionDelta;
}

/** The function that is called. */
export interface FunctionDelta {
  /** In the first piece. */
  name?: string;
  /** The next piece of JSON. */
  arguments: string;
}

/** What looked like a call and is none. Its text is in `content`. */
export interface MalformedToolCall {
  /** The call whose beginning was streamed already, and which is not to be made. */
  index?: number;
  /** What the model wrote. */
  text: string;
  /** Why it is no call, in words for people. */
  reason: string;
}

/** What embedding took. */
export interface EmbeddingUsage {
  /** With the tokens that the model wants around a text, such as `[CLS]` and `[SEP]`. */
  prompt_tokens: number;
  /** The same number: embeddings generate nothing. */
  total_tokens: number;
}
