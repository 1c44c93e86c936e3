// What a loaded model can be asked. Made from the Rust structs by `npm run types`: change those.

import type { ChatMessage, Tool, ToolChoice } from '../messages.js';

/**
 * How a token is chosen. These fields apply in the order `top_n_sigma`, `temperature` (or `dynatemp_range`), `top_k`, `top_p`,
 * `min_p`, `typical_p`, XTC, each to the tokens that the one before kept; in llama.cpp temperature is last. Tokens exactly as
 * likely as the last one kept stay too. At temperature 0 none of them has an effect.
 */
export interface SamplingFields {
  /** 0 to 2; 0 always takes the most likely token. Default: 1. */
  temperature?: number | null | undefined;
  /** Choose only from tokens at least this times as likely as the most likely one; 0 (the default) keeps all. An extension. */
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
   * 2: cut tokens off so that their surprise stays near `mirostat_tau`. It replaces all cuts above, which may not be set
   * then. 0 (the default) is off; the first version is not offered. Tokens that a grammar forces don't move the threshold.
   * An extension.
   */
  mirostat?: 0 | 2 | null | undefined;
  /** Mirostat's target, in bits. Above 0, at most 100. Default: 5. */
  mirostat_tau?: number | null | undefined;
  /** How fast mirostat follows the surprise of the tokens that came. Above 0, at most 1. Default: 0.1. */
  mirostat_eta?: number | null | undefined;
  /**
   * The same seed, prompt and settings give the same text on the same adapter. A request with a seed takes from the KV cache
   * only what other prompts left there, and no answers, because single tokens are rounded differently. If other requests run
   * beside it (`maxSequences`), its text can still differ where two tokens are almost equally likely. Default: random.
   */
  seed?: number | null | undefined;
}

/**
 * What makes tokens more or less likely, in this order: `logit_bias`, `repetition_penalty`, `frequency_penalty` and
 * `presence_penalty`, DRY, and last the bans. Not with `speculation`. Values that are out of range or contradict each other reject
 * with `invalid_request`, which names the fields.
 */
export interface PenaltyFields {
  /** What is added to the logits of tokens, by their ids: -100 to 100. */
  logit_bias?: Record<string, number> | null | undefined;
  /** Ids of tokens that are never chosen. An extension, with transformers' name. */
  suppress_tokens?: number[] | null | undefined;
  /**
   * Texts (at most 256) that are not written, also not inside longer words: when the text ends with all tokens of one but the last,
   * that last token is banned. The tokens are the tokenizer's own for the text at the beginning, after a space and after anything
   * else; the same letters in other tokens are not seen. An extension, with vLLM's name.
   */
  bad_words?: string[] | null | undefined;
  /**
   * The fewest tokens of the answer. Before that, no token ends it (end of text, end of turn, `stop_token_ids`), and no text of
   * `stop` that is complete by then: such a text stays in the answer. An extension, with vLLM's name.
   */
  min_tokens?: number | null | undefined;
  /**
   * Divides the positive logits of tokens that are in the prompt or the answer, and multiplies the negative ones. Above 0, at most
   * 100. Default: 1, which changes nothing. An extension, with vLLM's name.
   */
  repetition_penalty?: number | null | undefined;
  /** Subtracted from a token's logit once for each time that the answer has the token, -2 to 2. Default: 0. */
  frequency_penalty?: number | null | undefined;
  /** Subtracted from a token's logit if the answer has the token at all, -2 to 2. Default: 0. */
  presence_penalty?: number | null | undefined;
  /**
   * How many tokens at the end of the text these three penalties look at: 0 none, -1 all. Default: -1. An extension, with
   * llama.cpp's name (there the default is 64).
   */
  repeat_last_n?: number | null | undefined;
  /**
   * DRY: a token that would continue a repetition of n ≥ `dry_allowed_length` tokens, in prompt and answer, loses
   * `dry_multiplier` · `dry_base` ** (n - `dry_allowed_length`). Default: 0, which is off; 0.8 is usual. This and the next four
   * fields are extensions, with the names of llama.cpp's server.
   */
  dry_multiplier?: number | null | undefined;
  /** How fast the penalty grows with the repetition, 1 to 100. Default: 1.75. */
  dry_base?: number | null | undefined;
  /** The shortest repetition that is penalised, 1 to 1024 tokens. Default: 2. */
  dry_allowed_length?: number | null | undefined;
  /** How many tokens at the end of the text DRY looks at: 0 none, -1 all. Default: -1. */
  dry_penalty_last_n?: number | null | undefined;
  /**
   * Texts (at most 256) that no repetition reaches across. A text counts inside a token, or if it begins in one and continues in the
   * tokens that the model's tokenizer writes for its rest. A text that can't be written rejects. Default: `["\n", ":", "\"", "*"]`.
   */
  dry_sequence_breakers?: string[] | null | undefined;
}

/** What ends an answer. */
export interface EndingFields {
  /** The most tokens of the answer. Default: what the context has room for; with `context_shift` no limit. */
  max_tokens?: number | null | undefined;
  /** OpenAI's newer name of `max_tokens`. */
  max_completion_tokens?: number | null | undefined;
  /** Texts (at most 4, each of at most 16,384 bytes) that end the answer and are not part of it. They also count in reasoning and calls. */
  stop?: Stop | null | undefined;
  /**
   * Tokens (at most 64) that end the answer; their text is not part of it. This and the next field are extensions, with vLLM's
   * names.
   */
  stop_token_ids?: number[] | null | undefined;
  /** Keep what matched `stop` or `stop_token_ids` in the answer. Default: false. */
  include_stop_str_in_output?: boolean | null | undefined;
  /** Continue after the model's end-of-text token. For benchmarks; an extension. Default: false. */
  ignore_eos?: boolean | null | undefined;
}

/** One text or several. */
export type Stop = string | string[];

/** The form of the answer. */
export interface StructuredFields {
  /**
   * Holds the answer to a JSON schema, or to any JSON object. The first such request of an engine fetches a second wasm and makes a
   * table of the model's tokens (about half a second for 150,000). A schema that is not supported rejects with `invalid_request`
   * before anything is generated. The answer is complete if `finish_reason` is `stop`, and cut if it is `length`. Not with
   * `ignore_eos`.
   *
   * Each token is chosen from those that the schema allows in its place; `top_k`, `top_p` and the like come after that. What is
   * learned of a schema is kept, so later requests with the same schema are faster.
   */
  response_format?: ResponseFormat | null | undefined;
  /** The same, also for regular expressions, choices and grammars. An extension, with vLLM's name. */
  structured_outputs?: StructuredOutputs | null | undefined;
}

/**
 * `text` (the default): any text. `json_object`: any JSON object. `json_schema`: JSON that the schema allows. JSON comes with a space
 * after each comma and colon and no other white space, unless the schema has `x-guidance`, llguidance's own options
 * (`{"x-guidance": {"whitespace_flexible": true}}`).
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
  /** Not used: the schema always holds. */
  strict?: boolean | null | undefined;
}

/** Exactly one of these fields must be set. */
export interface StructuredOutputs {
  /** A JSON schema, or its text. */
  json?: object | boolean | string | null | undefined;
  /** A regular expression that the whole answer matches, in the syntax of Rust's `regex`, without look-around. */
  regex?: string | null | undefined;
  /** The answer is one of these texts. */
  choice?: string[] | null | undefined;
  /** A context-free grammar in llguidance's variant of Lark; its first rule is `start`. */
  grammar?: string | null | undefined;
  /** True: any JSON object. */
  json_object?: boolean | null | undefined;
}

/** Several tokens from one pass. */
export interface SpeculationFields {
  /**
   * Draft tokens and verify several in one pass. Only with `temperature: 0`, whose answer stays the same. `prompt_lookup` is faster
   * if answers repeat their prompt or themselves, `draft_model` if a much smaller model often says the same; otherwise both are
   * slower. `mtp` drafts with the model's own head for multi-token prediction, and stops where that does not pay. Default: off. An
   * extension.
   */
  speculation?: SpeculationRequest | null | undefined;
}

/**
 * `prompt_lookup` finds the last tokens earlier in the prompt or the answer, and drafts what followed them there. `draft_model` drafts
 * with the engine's draft model (`draft` of the load). `mtp` drafts with the model's own head (`multiTokenPrediction` of the load).
 */
export type SpeculationRequest =
  | {
      type: 'prompt_lookup';
      /** The most tokens of a draft, 1 to 7. Default: 5. */
      max_tokens?: number | null | undefined;
      /** How many of the last tokens must have stood there, at least: 1 to 16. Default: 2. */
      min_ngram?: number | null | undefined;
    }
  | {
      type: 'draft_model';
      /** The most tokens of a draft, 1 to 7. Default: 5. */
      max_tokens?: number | null | undefined;
    }
  | {
      type: 'mtp';
      /** The most tokens of a draft, 1 to 7. Default: 2. */
      max_tokens?: number | null | undefined;
    };

/** What happens when the context is full. */
export interface ContextFields {
  /**
   * Go on when the context is full, instead of ending with `length`. The first `sinks` tokens stay, the older half of the rest is
   * dropped, and the others move up (StreamingLLM). The model forgets what was dropped; `timings` say how often and how much. A
   * prompt still has to fit the context. The next request finds only the sinks in the KV cache. Not for models with learned
   * positions (GPT-2). Default: false. An extension.
   */
  context_shift?: ContextShiftRequest | null | undefined;
}

/** Whether the context shifts. An object also says how many tokens stay. */
export type ContextShiftRequest = boolean | Sinks;

/** The beginning of the context, which stays when it shifts. */
export interface Sinks {
  /** How many tokens stay, 0 to half of the context. Default: 4. */
  sinks?: number | null | undefined;
}

/** The number of answers. */
export interface ChoicesFields {
  /**
   * How many answers to the prompt, 1 to 128. Default: 1. Answer i uses the seed + i. `maxSequences` says how many are generated at
   * the same time. The prompt is taken in once, and counts once in `usage`.
   */
  n?: number | null | undefined;
}

/** Adapters of a request. */
export interface AdapterFields {
  /**
   * The scale of each adapter (LoRA), by its name; those that are not named are off, so `{}` is the model alone. Default: the scales
   * that were set when the adapters were loaded or since. An extension.
   */
  adapters?: Record<string, number> | null | undefined;
}

/** The messages of a chat, its tools and its template. */
export interface ChatFields {
  /** The conversation, oldest message first; at least one. A `content` is a text, or parts of type `text`. */
  messages: ChatMessage[];
  /**
   * Functions that the model may call (at most 128). Calls are read in the format of the model's family, which follows from its chat
   * template. A grammar (the second wasm) holds them to the functions' schemas. With `ignore_eos` there is no grammar: `auto` goes
   * without, and a `tool_choice` that asks for a call rejects.
   */
  tools?: Tool[] | null | undefined;
  /** Default: `auto`. */
  tool_choice?: ToolChoice | null | undefined;
  /** Allow several calls in one answer. If false, the answer ends after the first one. Default: true. */
  parallel_tool_calls?: boolean | null | undefined;
  /** A chat template in Jinja, in place of the model's own. This and the next three fields are extensions, with vLLM's names. */
  chat_template?: string | null | undefined;
  /** Variables for the chat template, such as `{enable_thinking: false}`. */
  chat_template_kwargs?: Record<string, unknown> | null | undefined;
  /** Whether the template begins an answer after the messages. Default: true, but false with `continue_final_message`. */
  add_generation_prompt?: boolean | null | undefined;
  /** The answer continues the last message, which must be the assistant's, and comes without what that already says. Default: false. */
  continue_final_message?: boolean | null | undefined;
}

/** What happens with reasoning, which a model writes before it answers. */
export interface ReasoningFields {
  /**
   * `auto` and `deepseek` return reasoning as `reasoning_content`. `none` leaves it in `content`, with its markers. Default: `auto`.
   * An extension, with llama.cpp's name.
   */
  reasoning_format?: ReasoningFormat | null | undefined;
  /** False leaves the reasoning out. Default: true. This and the next field are extensions, with vLLM's names. */
  include_reasoning?: boolean | null | undefined;
  /** The most tokens of reasoning. After them, the text that ends reasoning is forced, and the answer goes on. 0 ends it at once. */
  thinking_token_budget?: number | null | undefined;
}

/** Where reasoning goes. */
export type ReasoningFormat = 'auto' | 'deepseek' | 'none';

/** How probable the tokens of an answer to a chat are. */
export interface ChatLogprobsFields {
  /**
   * Return how probable each of `token_ids` was, also the one that ends the answer. These are always the model's own probabilities
   * (softmax of its logits), before temperature, truncation, bias and penalties, as by default in vLLM and llama.cpp. Default:
   * false.
   */
  logprobs?: boolean | null | undefined;
  /** With `logprobs`: how many of the most probable tokens come with each token, 0 to 20. Default: 0. */
  top_logprobs?: number | null | undefined;
}

/** What the model continues. */
export interface CompletionFields {
  /** A text, or its token ids. What the encoder of an encoder-decoder reads (T5, BART, NLLB, Marian). */
  prompt: Prompt;
  /**
   * Of an encoder-decoder whose tokenizer writes the language of a text beside it: the language of `prompt`, which has to be a text (NLLB:
   * `"fra_Latn"`). The text of a token. The name is that of transformers; the default is the language of the model's files, mostly
   * English. An extension.
   */
  src_lang?: string | null | undefined;
  /**
   * Of an encoder-decoder: the token with which the answer begins after the decoder's start, such as that of the language to translate to
   * (NLLB: `"deu_Latn"`). A text that is one token, or its id. It is not part of the answer. The name is that of transformers; the
   * default is what the model's files say. An extension.
   */
  forced_bos_token_id?: ForcedBos | null | undefined;
}

/** A text, or its token ids. */
export type Prompt = string | number[];

/** A token, by its text or its id. */
export type ForcedBos = string | number;

/** How probable the tokens of a completion are. */
export interface CompletionLogprobsFields {
  /**
   * Return how probable the tokens were: the same as for chats, in another shape. The number, 0 to 20, says how many of the most
   * probable tokens come with each.
   */
  logprobs?: number | null | undefined;
}

/** A request for embeddings. */
export interface EmbeddingRequest {
  /** One text or several (at most 2048), or their token ids. Texts get the tokens that the model wants around them. */
  input: Input;
  /**
   * Keep only this many numbers of each vector, the first ones, scaled to length 1. For models that were trained for it. Default:
   * all.
   */
  dimensions?: number | null | undefined;
  /** Cut the end of a text that is too long, instead of rejecting with `context_length_exceeded`. Default: false. An extension. */
  truncate?: boolean | null | undefined;
}

/** One or more texts, or their token ids. */
export type Input = string | string[] | number[] | number[][];

/** A request to rank documents. */
export interface RerankRequest {
  /** What the documents are compared with. */
  query: string;
  /** The texts to rank, 1 to 2048. */
  documents: RerankDocument[];
  /** Return only this many of the best. Default: all. */
  top_n?: number | null | undefined;
  /**
   * What the model is to look for. For models whose prompt has a place for it (Qwen3-Reranker). Default: what the model was trained
   * with. An extension.
   */
  instruction?: string | null | undefined;
  /**
   * Cut a pair that is too long, first the longer one of query and document, instead of rejecting with `context_length_exceeded`.
   * Default: false. An extension.
   */
  truncate?: boolean | null | undefined;
  /**
   * With false the scores are logits. Default: true: what the model's files say, mostly shares between 0 and 1. An extension, as in
   * vLLM.
   */
  use_activation?: boolean | null | undefined;
}

/** A text to rank. */
export type RerankDocument = string | DocumentText;

/** A text with a name. */
export interface DocumentText {
  /** The text. */
  text: string;
}

/** A request for labels. */
export interface ClassifyRequest {
  /** One text or several (at most 2048), pairs of texts, or token ids. Texts get the tokens that the model wants around them. */
  input: ClassifyInput;
  /**
   * Cut a text that is too long at its end, and of a pair first the longer one, instead of rejecting with
   * `context_length_exceeded`. Default: false. An extension.
   */
  truncate?: boolean | null | undefined;
  /** With false `probs` are logits. Default: true. As in vLLM. */
  use_activation?: boolean | null | undefined;
}

/** One or more texts or pairs, or their token ids. */
export type ClassifyInput = string | TextPair | ClassifyText[] | number[];

/** A text to label. */
export type ClassifyText = string | TextPair | number[];

/** Two texts as one input, such as a premise and a hypothesis. As in transformers' pipelines. */
export interface TextPair {
  /** The first text. */
  text: string;
  /** The second text. */
  text_pair: string;
}

/** How a text becomes tokens. */
export interface TokenizeOptions {
  /** Add the tokens that the model wants around a text, such as the begin-of-text token. Default: false. */
  add_special?: boolean | undefined;
  /** Read `<|…|>` and the like as the special tokens they name. Default: true. */
  parse_special?: boolean | undefined;
}
