// What is asked of a loaded model.

import type { ChatMessage, Tool, ToolChoice } from './messages.js';
import type { PenaltyRequest, TruncationRequest } from './sampling.js';
import type { ResponseFormat, StructuredOutputs } from './structured.js';

/**
 * Drafts the next tokens from what followed the last ones where they stood before, in the prompt or in the answer, and lets one
 * pass verify them (prompt lookup decoding).
 */
export interface PromptLookup {
  type: 'prompt_lookup';
  /** The most tokens of a draft, 1 to 7. Default: 5. */
  max_tokens?: number | undefined;
  /** At least so many of the last tokens must have stood before, 1 to 16. Default: 2. */
  min_ngram?: number | undefined;
}

/** Lets the engine's draft model (`draft` of the load) draft the next tokens, and one pass verify them. */
export interface DraftModel {
  type: 'draft_model';
  /** The most tokens of a draft, 1 to 7. Default: 5. */
  max_tokens?: number | undefined;
}

/** A field that is null is as one that is left out. */
interface GenerationRequest extends PenaltyRequest, TruncationRequest {
  /** Taken for the sake of OpenAI's clients and not looked at: an engine holds one model. */
  model?: string;
  /** Not looked at. */
  user?: string;
  /** At most so many new tokens. Default: what the context has room for; with `context_shift` no limit. */
  max_tokens?: number | null | undefined;
  /** 0 always takes the most likely token. */
  temperature?: number | null | undefined;
  /**
   * The same seed, prompt and settings give the same text on the same adapter. Of what the KV cache still holds of the prompt only that
   * is used which other prompts left there, not answers, because single tokens round otherwise. Beside other requests
   * (`maxSequences`) a text can differ from the one alone where two tokens come within rounding of each other.
   */
  seed?: number | null | undefined;
  /**
   * So many answers to the prompt, 1 (the default) to 128. Answer i draws its tokens with the seed + i. With `maxSequences` they are
   * generated together, as many as that allows; otherwise one after another. The prompt is taken in once, and counts once in `usage`.
   */
  n?: number | null | undefined;
  /** Texts (at most 4) that end the answer; they are not part of it. Looked for in all that the model writes, reasoning and calls too. */
  stop?: string | string[] | null | undefined;
  /** Tokens (at most 64) that end the answer; their text is no part of it. With the next an extension, in vLLM's words. */
  stop_token_ids?: number[] | undefined;
  /** What `stop` or `stop_token_ids` found is part of the answer. */
  include_stop_str_in_output?: boolean | undefined;
  /** Go on after the model's end-of-text token. For benchmarks; an extension. */
  ignore_eos?: boolean | undefined;
  /**
   * Holds the answer to a JSON schema, or to JSON. The first such request of an engine fetches a second wasm and makes a table of the
   * model's tokens (about half a second for 150,000). What can't be done rejects with `invalid_request`, before anything is generated.
   * The answer is complete when `finish_reason` is `stop`; `length` cuts it. Not with `speculation` or `ignore_eos`.
   *
   * Every token is chosen from what the schema allows at its place, before `top_k`, `top_p` and their like have a say. What is learned of
   * a schema is kept for the next requests with the same one, so their answers come faster than the first.
   */
  response_format?: ResponseFormat | undefined;
  /** The same for regular expressions, choices and grammars, too. An extension, in vLLM's words. */
  structured_outputs?: StructuredOutputs | undefined;
  /**
   * Several tokens by one pass where a draft is right; only with `temperature: 0`, whose answer stays the same. `prompt_lookup` is faster
   * where answers repeat their prompt or themselves, `draft_model` where a much smaller model says the same; both are slower
   * elsewhere, so they are off by default. A request that speculates decodes by itself. An extension.
   */
  speculation?: PromptLookup | DraftModel | undefined;
  /**
   * Goes on where the context is full, instead of ending with `length`: the first `sinks` tokens stay (0 to half of the context;
   * default: 4), of the rest the older half is dropped, and the others move up, with their keys turned to where they stand then
   * (StreamingLLM). The model forgets what was dropped; `timings` say how often and how much. A prompt still has to fit the context.
   * The next request finds no more than the sinks in the KV cache. Not for models with learned positions (GPT-2), nor where a grammar
   * or a budget holds the answer. Default: false. An extension.
   */
  context_shift?: boolean | { sinks?: number | undefined } | undefined;
  /** `{include_usage: true}`: `usage` comes as one more chunk without choices, as OpenAI does it. */
  stream_options?: { include_usage?: boolean } | null | undefined;
}

export interface ChatCompletionRequest extends GenerationRequest {
  messages: ChatMessage[];
  /**
   * Functions that the model may call (at most 128). Calls are read in the format of the model's family, which its chat template tells, and
   * held to the functions' schemas by a grammar (the second wasm), but with `speculation`, `ignore_eos` or a logits processor, where
   * only `tool_choice` decides: `auto` goes without, the others reject.
   */
  tools?: Tool[] | undefined;
  /** Default: `auto`. */
  tool_choice?: ToolChoice | undefined;
  /** Several calls in one answer. Default: true; with false it ends behind the first one. */
  parallel_tool_calls?: boolean | undefined;
  /**
   * `auto` and `deepseek`: what the model thinks before it answers comes as `reasoning_content`. `none`: it stays in `content`, with its
   * markers. Default: `auto`. An extension, in llama.cpp's words.
   */
  reasoning_format?: 'auto' | 'deepseek' | 'none' | undefined;
  /** False leaves the reasoning out. Default: true. With the next an extension, in vLLM's words. */
  include_reasoning?: boolean | undefined;
  /**
   * The most tokens of reasoning: then the text that ends it is forced, and the answer goes on. 0 ends it at once. Such a request decodes
   * by itself. Not with `speculation`.
   */
  thinking_token_budget?: number | undefined;
  /** Another chat template than the model's, in Jinja. With the three below an extension, in vLLM's words. */
  chat_template?: string | undefined;
  /** Variables for the chat template, such as `{enable_thinking: false}`. */
  chat_template_kwargs?: Record<string, unknown> | undefined;
  /** Whether the template begins an answer behind the messages. Default: true, unless `continue_final_message` is. */
  add_generation_prompt?: boolean | undefined;
  /** The answer goes on with the last message, which is the assistant's and is not finished; it comes without what is there already. */
  continue_final_message?: boolean | undefined;
  /**
   * Say how probable the tokens are: one entry for each of `token_ids`, the one that ends the answer too. Always those of the
   * model (softmax of its logits), whatever temperature, truncation, bias or penalties make of them. (So it is with vLLM's default and
   * llama.cpp's; OpenAI does not say.)
   */
  logprobs?: boolean | null | undefined;
  /** With `logprobs`: so many of the most probable tokens too, 0 (the default) to 20. */
  top_logprobs?: number | null | undefined;
  /** OpenAI's newer name of `max_tokens`. */
  max_completion_tokens?: number | null | undefined;
  stream?: boolean | null | undefined;
}

export interface CompletionRequest extends GenerationRequest {
  /** A text, or its token ids. */
  prompt: string | number[];
  /** How probable the tokens are, and so many of the most probable ones with them, 0 to 20: as `logprobs` of chats, in another shape. */
  logprobs?: number | null | undefined;
  stream?: boolean | null | undefined;
}

export interface EmbeddingsRequest {
  /** Taken for the sake of OpenAI's clients and not looked at: an engine holds one model. */
  model?: string;
  /** Not looked at. */
  user?: string;
  /** One text or several (at most 2048), or their token ids. Texts get the tokens around them that the model wants. */
  input: string | string[] | number[] | number[][];
  /** Keep only so many numbers of each vector, the first ones. For models that were trained for it. */
  dimensions?: number | undefined;
  /** `base64`: the numbers as float32 in little-endian order. Default: `float`, an array. */
  encoding_format?: 'float' | 'base64' | undefined;
  /** Cut a text that is too long at its end, instead of rejecting with `context_length_exceeded`. An extension. */
  truncate?: boolean | undefined;
}

export interface EmbeddingUsage {
  /** With the tokens that the model wants around a text. */
  prompt_tokens: number;
  total_tokens: number;
}

export interface EmbeddingsResponse<Vector = number[]> {
  object: 'list';
  /** In the order of the inputs. */
  data: Embedding<Vector>[];
  model: string;
  usage: EmbeddingUsage;
}

export interface Embedding<Vector = number[]> {
  object: 'embedding';
  index: number;
  /** `info.embedding_length` numbers, or `dimensions` of them, whose squares add up to 1. */
  embedding: Vector;
}

export interface RequestOptions {
  /**
   * Aborting it stops the generation. A promise rejects with code `aborted`; a stream that has begun ends early, and its
   * last chunk has `finish_reason: "cancelled"`.
   */
  signal?: AbortSignal | undefined;
  /** Changes the logits before each token is chosen. */
  logitsProcessor?: LogitsProcessor | undefined;
}

/**
 * Changes the model's logits before bias, penalties and truncation apply to them and a token is chosen. It changes `logits` (one
 * float32 for each token of the vocabulary) or returns others; -Infinity bans a token. `tokens` are the prompt and the answer so
 * far, `step` of them of the answer. It may return a promise. With `n`, the answers call it in turns.
 *
 * Every token then waits for all logits to come back from the GPU, for the function, and for them to go there again, so this is
 * slow (some milliseconds a token, more with large vocabularies). What it throws rejects the request with code `logits_processor`
 * and is the error's `cause`; NaN or Infinity rejects with `numerical_error`. Not together with `speculation` or structured output.
 */
export type LogitsProcessor = (
  logits: Float32Array,
  tokens: Uint32Array,
  step: number,
  // biome-ignore lint/suspicious/noConfusingVoidType: a function that returns nothing is welcome, also an asynchronous one
) => void | Float32Array | Promise<void | Float32Array>;

export interface TokenizeOptions {
  /** Add the tokens that the model wants around a text, such as the begin-of-text token. Default: false. */
  add_special?: boolean | undefined;
  /** Read `<|…|>` and the like as the special tokens they name. Default: true. */
  parse_special?: boolean | undefined;
}
