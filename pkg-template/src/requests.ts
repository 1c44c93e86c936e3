// What is asked of a loaded model: the fields that the engine reads, and those that only JavaScript knows.

import type { ClassifiedText, EmbeddingUsage, RankedDocument } from './generated/answers.js';
import type {
  AdapterFields,
  ChatFields,
  ChatLogprobsFields,
  ChoicesFields,
  ClassifyRequest as ClassifyFields,
  CompletionFields,
  CompletionLogprobsFields,
  ContextFields,
  EmbeddingRequest,
  EndingFields,
  PenaltyFields,
  ReasoningFields,
  RerankRequest as RerankFields,
  SamplingFields,
  SpeculationFields,
  SpeculationRequest,
  StructuredFields,
} from './generated/requests.js';

export type { ClassifiedText, EmbeddingUsage, RankedDocument } from './generated/answers.js';
export type {
  ChatFields,
  ClassifyInput,
  ClassifyText,
  ContextShiftRequest,
  DocumentText,
  ForcedBos,
  Input,
  Prompt,
  ReasoningFormat,
  RerankDocument,
  Sinks,
  Stop,
  TextPair,
  TokenizeOptions,
} from './generated/requests.js';

/**
 * Drafts the next tokens from what followed the last ones where they stood before, in the prompt or in the answer, and lets one
 * pass verify them (prompt lookup decoding).
 */
export type PromptLookup = Extract<SpeculationRequest, { type: 'prompt_lookup' }>;

/** Lets the engine's draft model (`draft` of the load) draft the next tokens, and one pass verify them. */
export type DraftModel = Extract<SpeculationRequest, { type: 'draft_model' }>;

/** Lets the model's own head (`multiTokenPrediction` of the load) draft the next tokens, and one pass verify them, as long as that pays. */
export type MultiTokenPrediction = Extract<SpeculationRequest, { type: 'mtp' }>;

/** What clients of OpenAI's send along. */
interface ClientFields {
  /** Taken for the sake of OpenAI's clients and not looked at: an engine holds one model. */
  model?: string | null | undefined;
  /** Not looked at. */
  user?: string | null | undefined;
}

/** What changes nothing for an engine on this device. It is checked for its type and not looked at. */
interface HostedFields {
  /** Taken and not looked at. */
  store?: boolean | null | undefined;
  /** Taken and not looked at. */
  metadata?: object | null | undefined;
  /** Taken and not looked at. */
  service_tier?: string | null | undefined;
  /** Taken and not looked at. */
  prompt_cache_key?: string | null | undefined;
  /** Taken and not looked at. */
  safety_identifier?: string | null | undefined;
  /** Taken and not looked at. */
  prediction?: object | null | undefined;
  /** Taken and not looked at. */
  verbosity?: string | null | undefined;
  /** The engine writes text. */
  modalities?: 'text'[] | null | undefined;
}

/** A field that is null is as one that is left out. */
interface GenerationRequest
  extends ClientFields,
    HostedFields,
    SamplingFields,
    PenaltyFields,
    Omit<EndingFields, 'max_completion_tokens'>,
    StructuredFields,
    SpeculationFields,
    ContextFields,
    ChoicesFields,
    AdapterFields {
  /** True: the answer comes as a stream of chunks. Default: false. */
  stream?: boolean | null | undefined;
  /** `{include_usage: true}`: `usage` comes as one more chunk without choices, as OpenAI does it. */
  stream_options?: { include_usage?: boolean } | null | undefined;
}

/** A chat to answer. */
export interface ChatCompletionRequest
  extends GenerationRequest,
    ChatFields,
    ReasoningFields,
    ChatLogprobsFields,
    Pick<EndingFields, 'max_completion_tokens'> {
  /**
   * How much the model may think before it answers: `none` not at all, `minimal`, `low`, `medium` and `high` at most 128, 512, 2048 and 8192
   * tokens (`thinking_token_budget`), `xhigh` and `max` as much as it likes. The chat template is told too, by the variables
   * `enable_thinking`, `thinking` and `reasoning_effort`. What `thinking_token_budget` and `chat_template_kwargs` say themselves goes
   * before it. A model that doesn't think answers as without. Default: what the template does by itself, without a budget.
   */
  reasoning_effort?: ReasoningEffort | null | undefined;
}

/** How much a model may think before it answers. */
export type ReasoningEffort = 'none' | 'minimal' | 'low' | 'medium' | 'high' | 'xhigh' | 'max';

/** A text to continue, or to answer by an encoder-decoder. */
export interface CompletionRequest extends GenerationRequest, CompletionFields, CompletionLogprobsFields {}

/** Texts to make vectors of. */
export interface EmbeddingsRequest extends ClientFields, EmbeddingRequest {
  /** `base64`: the numbers as float32 in little-endian order. Default: `float`, an array. */
  encoding_format?: 'float' | 'base64' | undefined;
}

/** Vectors of texts. */
export interface EmbeddingsResponse<Vector = number[]> {
  /** OpenAI's name of the shape. */
  object: 'list';
  /** In the order of the inputs. */
  data: Embedding<Vector>[];
  /** The name of the model: `info.name`, or its architecture. */
  model: string;
  /** How many tokens were taken in and made. */
  usage: EmbeddingUsage;
}

/** The vector of a text. */
export interface Embedding<Vector = number[]> {
  /** OpenAI's name of the shape. */
  object: 'embedding';
  /** Which of the inputs it is of, from 0. */
  index: number;
  /** `info.embedding_length` numbers, or `dimensions` of them, whose squares add up to 1. */
  embedding: Vector;
}

/** Documents to rank by a query. */
export interface RerankRequest extends ClientFields, RerankFields {
  /** Whether results have the documents' texts. Default: true. */
  return_documents?: boolean | null | undefined;
}

/** Documents in the order of their relevance. */
export interface RerankResponse {
  /** OpenAI's name of the shape. */
  object: 'list';
  /** The best first. */
  results: RerankResult[];
  /** The name of the model: `info.name`, or its architecture. */
  model: string;
  /** How many tokens were taken in and made. */
  usage: EmbeddingUsage;
}

/** A document and its score. */
export interface RerankResult extends RankedDocument {
  /** Not with `return_documents: false`. */
  document?: { text: string };
}

/** Texts to label. */
export interface ClassifyRequest extends ClientFields, ClassifyFields {}

/** The labels of texts. */
export interface ClassifyResponse {
  /** Names it among the others. */
  id: string;
  /** OpenAI's name of the shape. */
  object: 'list';
  /** Unix time in seconds. */
  created: number;
  /** The name of the model: `info.name`, or its architecture. */
  model: string;
  /** In the order of the inputs. */
  data: ClassifiedText[];
  /** How many tokens were taken in and made. */
  usage: EmbeddingUsage;
}

/** What a call takes besides its request. */
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
 * and is the error's `cause`; NaN or Infinity rejects with `numerical_error`. Not together with `speculation`.
 */
export type LogitsProcessor = (
  logits: Float32Array,
  tokens: Uint32Array,
  step: number,
  // biome-ignore lint/suspicious/noConfusingVoidType: a function that returns nothing is welcome, also an asynchronous one
) => void | Float32Array | Promise<void | Float32Array>;
