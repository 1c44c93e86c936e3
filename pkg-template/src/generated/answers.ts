// What a loaded model answers. Made from the Rust structs by `npm run types`: change those.

/**
 * Why an answer ended. `stop`: the model ended its turn, or `stop` or `stop_token_ids` matched. `tool_calls`: the same, and the answer
 * has complete calls. `length`: `max_tokens`, or the end of the context. `cancelled`: the caller cancelled; an extension.
 */
export type FinishReason = 'stop' | 'tool_calls' | 'length' | 'cancelled';

/** How many tokens a request took. */
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

/** Parts of `prompt_tokens`. */
export interface PromptTokensDetails {
  /** Tokens that the KV cache or the prompt cache still had, so that they were not computed again. */
  cached_tokens: number;
}

/** Parts of `completion_tokens`. */
export interface CompletionTokensDetails {
  /** Tokens of reasoning, with its markers. */
  reasoning_tokens: number;
}

/** How long a request took. An extension of OpenAI's shapes. */
export interface Timings {
  /** Milliseconds from the start to the first token. */
  prompt_ms: number;
  /** Tokens of the prompt in each second of `prompt_ms`, without the cached ones. */
  prompt_tokens_per_s: number;
  /** Milliseconds from the first token to the last. */
  decode_ms: number;
  /** Tokens after the first one of each answer, in each second of `decode_ms`. */
  tokens_per_s: number;
  /** The same as `cached_tokens` of `usage`. */
  cached_prompt_tokens: number;
  /** With `speculation`: drafted tokens that were verified. */
  draft_tokens?: number;
  /** With `speculation`: drafted tokens that were right. */
  accepted_draft_tokens?: number;
  /** With `context_shift`: how often the context was full. */
  context_shifts?: number;
  /** With `context_shift`: tokens of the prompt and the answer that were dropped to make room. */
  dropped_tokens?: number;
  /** With a grammar: tokens that were the only ones it allowed. */
  forced_tokens?: number;
  /** With a grammar: steps that ran ahead with a wrong mask and were done again. */
  missed_masks?: number;
  /** With a grammar: steps that were dropped because an earlier mask was wrong. */
  dropped_steps?: number;
}

/** A piece of one choice. The last piece of each choice has `finish_reason`; the last of all has `usage` and `timings`. */
export interface Chunk {
  /** Number of the choice, from 0. */
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
  /** If the request asks for them: one for each of `token_ids`. */
  logprobs?: TokenLogprobs[];
  /** In the last chunk of a choice. */
  finish_reason?: FinishReason;
  /** If `stop` or `stop_token_ids` ended the answer. */
  stop_reason?: StopReason;
  /** In the last chunk of all. */
  usage?: Usage;
  /** In the last chunk of all. */
  timings?: Timings;
}

/** A token of the answer, and what was most probable in its place. */
export interface TokenLogprobs {
  /** The most probable tokens, the most probable first. The chosen one need not be among them. */
  top: TokenLogprob[];
  /** Where the token's text begins in the answer, in UTF-16 code units as JavaScript counts. Stop strings are counted too. */
  offset: number;
  /** The token's number in the vocabulary. */
  id: number;
  /** Its text. U+FFFD stands for a part of a character; a control token shows its name. */
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
  /** Its text. U+FFFD stands for a part of a character; a control token shows its name. */
  token: string;
  /** The token's bytes in UTF-8. */
  bytes: number[];
  /** Natural logarithm of its probability, at least -9999. */
  logprob: number;
}

/** What matched and ended the answer: a text of `stop` or a token of `stop_token_ids`, as in vLLM. */
export type StopReason = string | number;

/** A piece of a call. The first piece of each `index` has id and name; the `arguments` of all its pieces together are JSON. */
export interface ToolCallDelta {
  /** Number of the call in its answer, from 0. */
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
  /** The next piece of the JSON text. */
  arguments: string;
}

/** Text that looks like a call but can't be read as one. It is in `content` too. */
export interface MalformedToolCall {
  /** The number of the call, if its beginning was already streamed. Don't make that call. */
  index?: number;
  /** What the model wrote. */
  text: string;
  /** Why it is no call, in words for people. */
  reason: string;
}

/** How many tokens a request for embeddings, scores or labels took. */
export interface EmbeddingUsage {
  /** Includes the tokens that the model wants around a text, such as `[CLS]` and `[SEP]`. */
  prompt_tokens: number;
  /** The same number: nothing is generated. */
  total_tokens: number;
}

/** Documents by how well they fit a query. */
export interface Ranking {
  /** The best first; of equal ones, the first of the request. */
  results: RankedDocument[];
  /** Of all documents, those left out by `top_n` too. */
  usage: EmbeddingUsage;
}

/** A document's place in a ranking. */
export interface RankedDocument {
  /** Its number in the request, from 0. */
  index: number;
  /** How relevant it is. */
  relevance_score: number;
}

/** Labels of texts. */
export interface Classification {
  /** In the order of the inputs. */
  data: ClassifiedText[];
  /** Of all inputs. */
  usage: EmbeddingUsage;
}

/** The labels of one input. */
export interface ClassifiedText {
  /** The number of the input, from 0. */
  index: number;
  /** The label with the highest score. */
  label: string;
  /** A score for each label, in the order of `info.labels`. */
  probs: number[];
  /** The number of labels. */
  num_classes: number;
}
