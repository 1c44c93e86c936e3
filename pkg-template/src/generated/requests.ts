// What a loaded model can be asked. Made from the Rust structs by `npm run types`: change those.

import type { ChatMessage, Tool, ToolChoice } from '../messages.js';

/**
 * Which tokens are chosen from. The order is `top_n_sigma`, `temperature` (or `dynatemp_range`), `top_k`, `top_p`, `min_p`,
 * `typical_p`, XTC, each of what the one before it kept; in llama.cpp temperature is last. Tokens exactly as likely as the last one
 * kept stay too. At temperature 0 none of them has an effect.
 */
export interface SamplingFields {
  /** 0 always takes the most likely token; at most 2. Default: 1. */
  temperature?: number | null | undefined;
  /** Choose only from tokens at least this times as likely as the most likely one; 0 keeps all. An extension. */
  min_p?: number | null | undefined;
  /** Choose only from the most likely tokens that together reach this probability (above 0; 1 keeps all). */
  top_p?: number | null | undefined;
  /** Choose only from this number of the most likely tokens; 0 keeps all, 1 is greedy. An extension. */
  top_k?: number | null | undefined;
  /**
   * A temperature for each token, in place of `temperature`: between that less this and that plus this, low if the model is sure
   * of what comes and high if not. 0 (the default) to 2; 0 is off. Not with temperature 0. An extension, in llama.cpp's words.
   */
  dynatemp_range?: number | null | undefined;
  /** How the temperature follows the entropy: its power. Above 0. Default: 1. */
  dynatemp_exponent?: number | null | undefined;
  /**
   * Choose only from tokens whose logit is at most this many standard deviations below the largest, before temperature; 0 to
   * 100, where 0 (the default) keeps all and 1 is usual. Not with mirostat. An extension, in llama.cpp's words.
   */
  top_n_sigma?: number | null | undefined;
  /**
   * Choose only from the tokens whose surprise is nearest to the entropy, as many as reach this probability together (locally
   * typical sampling; above 0, 1 keeps all). An extension.
   */
  typical_p?: number | null | undefined;
  /**
   * XTC: with this probability, 0 to 1, at each token, all that reach `xtc_threshold` except the least likely of them are left
   * out. Not with temperature 0. An extension.
   */
  xtc_probability?: number | null | undefined;
  /** 0 to 1; above 0.5 XTC has no effect. Default: 0.1. An extension. */
  xtc_threshold?: number | null | undefined;
  /**
   * 2: tokens are cut off so that their surprise stays near `mirostat_tau`, in place of all of the above, of which none may
   * be set then. 0 (the default) is off; the first version is not offered. Tokens that a grammar forces do not move the
   * threshold. An extension.
   */
  mirostat?: 0 | 2 | null | undefined;
  /** The target, in bits. Above 0, at most 100. Default: 5. */
  mirostat_tau?: number | null | undefined;
  /** How fast what is allowed follows what came. Above 0, at most 1. Default: 0.1. */
  mirostat_eta?: number | null | undefined;
  /**
   * The same seed, prompt and settings give the same text on the same adapter. A request with a seed takes only those parts of
   * its prompt from the KV cache that other prompts left there, and not answers, because single tokens round otherwise.
   * Beside other requests (`maxSequences`) a text can differ from the one alone if two tokens come within rounding of each
   * other.
   */
  seed?: number | null | undefined;
}

/**
 * What makes tokens more or less likely before one is chosen, in this order: `logit_bias`, `repetition_penalty`, `frequency_penalty`
 * and `presence_penalty`, DRY, and last the bans. Not with `speculation`. Values out of range and contradictions reject with
 * `invalid_request`, naming the fields.
 */
export interface PenaltyFields {
  /** From a token's id to what is added to its logit, -100 to 100. */
  logit_bias?: Record<string, number> | null | undefined;
  /** Ids of tokens that never come. An extension, in transformers' words. */
  suppress_tokens?: number[] | null | undefined;
  /**
   * Texts (at most 256) that are not written, as the model's tokens write them at the start of a text, after a space and after
   * anything else: the last token of one is banned where the text ends with the others, also within longer words. The same letters
   * in other tokens are not seen. An extension, in vLLM's words.
   */
  bad_words?: string[] | null | undefined;
  /**
   * The answer does not end before it has this many tokens: neither with a token (end of text, end of turn, `stop_token_ids`), nor
   * with a text of `stop` that these tokens complete. Such a text is part of the answer; one that they begin and later tokens
   * complete counts. An extension, in vLLM's words.
   */
  min_tokens?: number | null | undefined;
  /**
   * Logits of tokens that stand in the prompt or the answer are divided by it if they are positive, and multiplied by it if not.
   * Above 0, at most 100; 1 (the default) changes nothing. An extension, in vLLM's words.
   */
  repetition_penalty?: number | null | undefined;
  /** Subtracted for each time that a token stands in the answer, -2 to 2. */
  frequency_penalty?: number | null | undefined;
  /** Subtracted if a token stands in the answer at all, -2 to 2. */
  presence_penalty?: number | null | undefined;
  /**
   * How many tokens at the end of the text these three look at: -1 (the default) all of them, 0 none. An extension, in llama.cpp's
   * words (whose default is 64).
   */
  repeat_last_n?: number | null | undefined;
  /**
   * DRY: a token that would go on with a repetition of n ≥ `dry_allowed_length` tokens, in prompt and answer, loses
   * `dry_multiplier` · `dry_base` ** (n - `dry_allowed_length`). 0 (the default) is off; 0.8 is usual. An extension, as the four
   * below, in the words of llama.cpp's server.
   */
  dry_multiplier?: number | null | undefined;
  /** 1 to 100. Default: 1.75. */
  dry_base?: number | null | undefined;
  /** 1 to 1024. Default: 2. */
  dry_allowed_length?: number | null | undefined;
  /** As `repeat_last_n`, for DRY. */
  dry_penalty_last_n?: number | null | undefined;
  /**
   * Texts that no repetition reaches across (at most 256): where one stands in a token, or begins in one and goes on in those that
   * the model's tokenizer writes for the rest of it. One that can't be written is rejected. Default: `["\n", ":", "\"", "*"]`.
   */
  dry_sequence_breakers?: string[] | null | undefined;
}

/** What ends an answer. */
export interface EndingFields {
  /** The most new tokens. Default: what the context has room for; with `context_shift` no limit. */
  max_tokens?: number | null | undefined;
  /** OpenAI's newer name of `max_tokens`. */
  max_completion_tokens?: number | null | undefined;
  /**
   * Texts (at most 4) that end the answer; they are not part of it. Looked for in all that the model writes, reasoning and calls
   * too.
   */
  stop?: Stop | null | undefined;
  /** Tokens (at most 64) that end the answer; their text is not part of it. An extension, as the next one, in vLLM's words. */
  stop_token_ids?: number[] | null | undefined;
  /** What `stop` or `stop_token_ids` found is part of the answer. Default: false. */
  include_stop_str_in_output?: boolean | null | undefined;
  /** Go on after the model's end-of-text token. For benchmarks; an extension. Default: false. */
  ignore_eos?: boolean | null | undefined;
}

/** One text or several. */
export type Stop = string | string[];

/** What form the answer has. */
export interface StructuredFields {
  /**
   * Holds the answer to a JSON schema, or to JSON. The first such request of an engine fetches a second wasm and makes a table of the
   * model's tokens (about half a second for 150,000). What can't be done rejects with `invalid_request`, before anything is
   * generated. The answer is complete when `finish_reason` is `stop`; `length` cuts it. Not with `speculation` or `ignore_eos`.
   *
   * Every token is chosen from what the schema allows at its place, before `top_k`, `top_p` and their like have a say. What is
   * learned of a schema is kept for the next requests with the same one, so their answers come faster than the first.
   */
  response_format?: ResponseFormat | null | undefined;
  /** The same for regular expressions, choices and grammars, too. An extension, in vLLM's words. */
  structured_outputs?: StructuredOutputs | null | undefined;
}

/**
 * `json_object`: any JSON object. `json_schema`: JSON that the schema admits. JSON comes with a space after each comma and colon and no
 * other white space, unless the schema has `x-guidance`, llguidance's own options (`{"x-guidance": {"whitespace_flexible": true}}`).
 */
export type ResponseFormat =
  | { type: 'text' }
  | { type: 'json_object' }
  | {
      type: 'json_schema';
      /** What the answer is held to. */
      json_schema: NamedSchema;
    };

/** A schema as OpenAI's API names it. */
export interface NamedSchema {
  /** Not used. */
  name?: string | null | undefined;
  /** Not used: tell the model in a message what you want. */
  description?: string | null | undefined;
  /** The JSON schema. */
  schema: object | boolean;
  /** Not looked at: the schema is kept whatever it says. */
  strict?: boolean | null | undefined;
}

/** One of these. */
export interface StructuredOutputs {
  /** A JSON schema, or its text. */
  json?: object | boolean | string | null | undefined;
  /** A regular expression (in the syntax of Rust's `regex`; no look-around) that the whole answer matches. */
  regex?: string | null | undefined;
  /** The answer is one of these texts. */
  choice?: string[] | null | undefined;
  /** A context-free grammar in llguidance's variant of Lark; its first rule is `start`. */
  grammar?: string | null | undefined;
  /** True: any JSON object. */
  json_object?: boolean | null | undefined;
}

/** Several tokens by one pass. */
export interface SpeculationFields {
  /**
   * Several tokens by one pass where a draft is right; only with `temperature: 0`, whose answer stays the same. `prompt_lookup` is
   * faster where answers repeat their prompt or themselves, `draft_model` where a much smaller model says the same; both are slower
   * elsewhere, so they are off by default. An extension.
   */
  speculation?: SpeculationRequest | null | undefined;
}

/**
 * `prompt_lookup` drafts the next tokens from what followed the last ones where they stood before, in the prompt or in the answer, and lets
 * one pass verify them (prompt lookup decoding). `draft_model` lets the engine's draft model (`draft` of the load) draft them.
 */
export type SpeculationRequest =
  | {
      type: 'prompt_lookup';
      /** The most tokens of a draft, 1 to 7. Default: 5. */
      max_tokens?: number | null | undefined;
      /** This many of the last tokens, or more, must have stood before, 1 to 16. Default: 2. */
      min_ngram?: number | null | undefined;
    }
  | {
      type: 'draft_model';
      /** The most tokens of a draft, 1 to 7. Default: 5. */
      max_tokens?: number | null | undefined;
    };

/** What happens when the context is full. */
export interface ContextFields {
  /**
   * Go on where the context is full, instead of ending with `length`: the first `sinks` tokens stay, the older half of the rest is
   * dropped, and the others move up, with their keys turned to their new positions (StreamingLLM). The model forgets what was
   * dropped; `timings` say how often and how much. A prompt still has to fit the context. The next request finds no more than the
   * sinks in the KV cache. Not for models with learned positions (GPT-2). Default: false. An extension.
   */
  context_shift?: ContextShiftRequest | null | undefined;
}

/** Whether the context shifts, or with how many tokens that stay. */
export type ContextShiftRequest = boolean | Sinks;

/** The beginning of the context, which stays when it shifts. */
export interface Sinks {
  /** How many tokens stay, 0 to half of the context. Default: 4. */
  sinks?: number | null | undefined;
}

/** How many answers. */
export interface ChoicesFields {
  /**
   * The number of answers to the prompt, 1 (the default) to 128. Answer i draws its tokens with the seed + i. With `maxSequences`
   * they are generated together, as many as that allows; otherwise one after another. The prompt is taken in once, and counts
   * once in `usage`.
   */
  n?: number | null | undefined;
}

/** What a chat is made of. */
export interface ChatFields {
  /** The conversation, oldest message first; at least one. A `content` is a text, or parts of type `text`. */
  messages: ChatMessage[];
  /**
   * Functions that the model may call (at most 128). Calls are read in the format of the model's family, which its chat template
   * tells, and held to the functions' schemas by a grammar (the second wasm), except with `speculation`, `ignore_eos` or a logits
   * processor, where only `tool_choice` decides: `auto` goes without, the others reject.
   */
  tools?: Tool[] | null | undefined;
  /** Default: `auto`. */
  tool_choice?: ToolChoice | null | undefined;
  /** Several calls in one answer. Default: true; with false the answer ends after the first one. */
  parallel_tool_calls?: boolean | null | undefined;
  /** Another chat template than the model's, in Jinja. An extension, as the three below, in vLLM's words. */
  chat_template?: string | null | undefined;
  /** Variables for the chat template, such as `{enable_thinking: false}`. */
  chat_template_kwargs?: Record<string, unknown> | null | undefined;
  /** Whether the template begins an answer after the messages. Default: true, unless `continue_final_message` is. */
  add_generation_prompt?: boolean | null | undefined;
  /**
   * The answer goes on with the last message, which is the assistant's and is not finished; it comes without what is there already.
   * Default: false.
   */
  continue_final_message?: boolean | null | undefined;
}

/** What becomes of what a model thinks before it answers. */
export interface ReasoningFields {
  /**
   * `auto` and `deepseek`: what the model thinks before it answers comes as `reasoning_content`. `none`: it stays in `content`, with
   * its markers. Default: `auto`. An extension, in llama.cpp's words.
   */
  reasoning_format?: ReasoningFormat | null | undefined;
  /** False leaves the reasoning out. Default: true. An extension, as the next one, in vLLM's words. */
  include_reasoning?: boolean | null | undefined;
  /**
   * The most tokens of reasoning: then the text that ends it is forced, and the answer goes on. 0 ends it at once. Such a request
   * decodes by itself. Not with `speculation`.
   */
  thinking_token_budget?: number | null | undefined;
}

/** Where reasoning goes. */
export type ReasoningFormat = 'auto' | 'deepseek' | 'none';

/** How probable the tokens of an answer to a chat are. */
export interface ChatLogprobsFields {
  /**
   * Say how probable the tokens are: one entry for each of `token_ids`, the one that ends the answer too. Always those of the model
   * (softmax of its logits), whatever temperature, truncation, bias or penalties make of them. (So it is with vLLM's default and
   * llama.cpp's; OpenAI does not say.) Default: false.
   */
  logprobs?: boolean | null | undefined;
  /** With `logprobs`: how many of the most probable tokens come with each token, 0 (the default) to 20. */
  top_logprobs?: number | null | undefined;
}

/** What a completion goes on with. */
export interface CompletionFields {
  /** A text, or its token ids. */
  prompt: Prompt;
}

/** A text, or its token ids. */
export type Prompt = string | number[];

/** How probable the tokens of a completion are. */
export interface CompletionLogprobsFields {
  /**
   * Say how probable the tokens are, and how many of the most probable ones come with each, 0 to 20: as `logprobs` of chats, in
   * another shape.
   */
  logprobs?: number | null | undefined;
}

/** A request for embeddings. */
export interface EmbeddingRequest {
  /** One text or several (at most 2048), or their token ids. Texts get the tokens around them that the model wants. */
  input: Input;
  /** Keep only this number of each vector's first numbers, scaled to length 1. For models that were trained for it. */
  dimensions?: number | null | undefined;
  /** Cut a text that is too long at its end, instead of rejecting with `context_length_exceeded`. Default: false. An extension. */
  truncate?: boolean | null | undefined;
}

/** One or more texts, or their token ids. */
export type Input = string | string[] | number[] | number[][];

/** How a text is cut into tokens. */
export interface TokenizeOptions {
  /** Add the tokens that the model wants around a text, such as the begin-of-text token. Default: false. */
  add_special?: boolean | undefined;
  /** Read `<|…|>` and the like as the special tokens they name. Default: true. */
  parse_special?: boolean | undefined;
}
