// What the package takes and gives beside the types of the `openai` package: answers are those of its API, and its requests are taken.
// It is compiled and not run. Each exception is named here with its reason, so that a new version of `openai` that has more, or a change
// of ours, shows.

import type {
  ChatCompletion,
  ChatCompletionAssistantMessageParam,
  ChatCompletionChunk,
  ChatCompletionContentPartRefusal,
  ChatCompletionContentPartText,
  ChatCompletionCreateParamsBase,
  ChatCompletionCreateParamsNonStreaming,
  ChatCompletionCreateParamsStreaming,
  ChatCompletionDeveloperMessageParam,
  ChatCompletionFunctionTool,
  ChatCompletionMessage,
  ChatCompletionMessageFunctionToolCall,
  ChatCompletionNamedToolChoice,
  ChatCompletionSystemMessageParam,
  ChatCompletionTokenLogprob,
  ChatCompletionToolMessageParam,
  ChatCompletionUserMessageParam,
} from 'openai/resources/chat/completions';
import type { Completion, CompletionCreateParamsBase, CompletionUsage } from 'openai/resources/completions';
import type { CreateEmbeddingResponse, EmbeddingCreateParams } from 'openai/resources/embeddings';
import type { ResponseFormatJSONObject, ResponseFormatJSONSchema, ResponseFormatText } from 'openai/resources/shared';

import type OpenAI from 'openai';

import type { Engine } from '../../pkg-template/src/engine.js';
import type * as ours from '../../pkg-template/src/types.js';

/** Doesn't compile where `Ours` can't stand for `Theirs`. */
type Fits<Theirs, Ours extends Theirs> = [Theirs, Ours];
type Fields<T> = keyof Required<T>;
/** `T` with some fields of another type. */
type With<T, Other> = Omit<T, keyof Other> & Other;

// ── Answers ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

/** Nobody can cancel an answer of the API but by hanging up: `cancelled` is our own. */
type NotCancelled<T> = T extends readonly (infer Item)[]
  ? NotCancelled<Item>[]
  : T extends object
    ? { [Name in keyof T]: Name extends 'finish_reason' ? Exclude<T[Name], 'cancelled'> : NotCancelled<T[Name]> }
    : T;

/** They have one type for an answer and for a chunk, which has no reason yet and `usage: null`, as in the API itself. */
type CompletionChunkOfTheirs = With<
  Completion,
  {
    usage?: CompletionUsage | null;
    choices: With<Completion['choices'][number], { finish_reason: Completion['choices'][number]['finish_reason'] | null }>[];
  }
>;

export type Answers = [
  Fits<ChatCompletion, NotCancelled<ours.ChatCompletion>>,
  Fits<ChatCompletionChunk, NotCancelled<ours.ChatCompletionChunk>>,
  Fits<Completion, NotCancelled<ours.Completion>>,
  Fits<CompletionChunkOfTheirs, NotCancelled<ours.CompletionChunk>>,
  Fits<CreateEmbeddingResponse, ours.EmbeddingsResponse>,
  Fits<ChatCompletionMessage, ours.ChatCompletionChoice['message']>,
  Fits<ChatCompletionMessageFunctionToolCall, ours.ToolCallResult>,
  Fits<ChatCompletionChunk.Choice.Delta.ToolCall, ours.ToolCallDelta>,
  Fits<ChatCompletionTokenLogprob[], ours.ChatLogprobs['content']>,
  Fits<ChatCompletion.Choice.Logprobs, ours.ChatLogprobs>,
  Fits<CompletionUsage, ours.Usage>,
  // @ts-expect-error `cancelled` is none of their reasons
  Fits<ChatCompletion, ours.ChatCompletion>,
  // @ts-expect-error a chunk is no answer
  Fits<ChatCompletion, ours.ChatCompletionChunk>,
];

// ── Requests ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

/** Models here read and write text only. */
type Sound = 'audio';
/** Of their own service: what is searched or moderated, and how long prompts are kept. */
type Service = 'moderation' | 'prompt_cache_options' | 'prompt_cache_retention' | 'web_search_options';
/** `tools` in its first form, deprecated. */
type Functions = 'function_call' | 'functions';
/** Refused by name. */
type NotTaken = Sound | Service | Functions;

/** Text only, and none that says the model refused. */
type Parts<Message extends { content?: unknown }> = With<Message, { content: string | ChatCompletionContentPartText[] }>;
type AssistantMessage = With<
  ChatCompletionAssistantMessageParam,
  {
    content?: Exclude<ChatCompletionAssistantMessageParam['content'], unknown[]> | ChatCompletionContentPartText[];
    tool_calls?: ChatCompletionMessageFunctionToolCall[];
  }
>;
/** Without the role of `function`, deprecated. */
type Message =
  | ChatCompletionDeveloperMessageParam
  | ChatCompletionSystemMessageParam
  | Parts<ChatCompletionUserMessageParam>
  | AssistantMessage
  | ChatCompletionToolMessageParam;

/** A schema may be left out there; here it is what the answer is held to. */
type JsonSchema = With<
  ResponseFormatJSONSchema,
  { json_schema: With<ResponseFormatJSONSchema['json_schema'], { schema: Record<string, unknown> }> }
>;

type Narrowed<Request> = With<
  Omit<Request, NotTaken>,
  {
    messages: Message[];
    /** Functions; custom tools take a text that no schema describes. */
    tools?: ChatCompletionFunctionTool[];
    tool_choice?: 'none' | 'auto' | 'required' | ChatCompletionNamedToolChoice;
    response_format?: ResponseFormatText | ResponseFormatJSONObject | JsonSchema;
    /** Text only. */
    modalities?: 'text'[] | null;
    /** Obfuscation hides the lengths of chunks on their way through a network. */
    stream_options?: { include_usage?: boolean } | null;
  }
>;

/** One prompt for each request, and no text besides the answer's. */
type PromptNotTaken = 'best_of' | 'echo' | 'suffix';
type NarrowedPrompt = With<
  Omit<CompletionCreateParamsBase, PromptNotTaken>,
  { prompt: string | number[]; stream_options?: { include_usage?: boolean } | null }
>;

/** Its client takes the engine's `fetch`. */
export type Client = Fits<NonNullable<ConstructorParameters<typeof OpenAI>[0]>['fetch'], Engine['fetch']>;

export type Requests = [
  Fits<ours.ChatCompletionRequest, Narrowed<ChatCompletionCreateParamsBase>>,
  Fits<
    Parameters<Engine['chat']['completions']['create']>[0] & { stream?: false | null | undefined },
    Narrowed<ChatCompletionCreateParamsNonStreaming>
  >,
  Fits<ours.ChatCompletionRequest & { stream: true }, Narrowed<ChatCompletionCreateParamsStreaming>>,
  Fits<ours.CompletionRequest, NarrowedPrompt>,
  Fits<ours.EmbeddingsRequest, EmbeddingCreateParams>,
  // An answer's message can be handed back.
  Fits<ours.ChatMessage, ours.ChatCompletionChoice['message']>,
  Fits<Message, ours.ChatCompletionChoice['message']>,
  // What is not taken is no field of ours, and what is taken is one.
  Fits<never, NotTaken & Fields<ours.ChatCompletionRequest>>,
  Fits<never, PromptNotTaken & Fields<ours.CompletionRequest>>,
  Fits<Fields<ours.ChatCompletionRequest>, Exclude<Fields<ChatCompletionCreateParamsBase>, NotTaken>>,
  Fits<Fields<ours.CompletionRequest>, Exclude<Fields<CompletionCreateParamsBase>, PromptNotTaken>>,
  // @ts-expect-error what a model refused to say is no text
  Fits<ours.ChatMessage, { role: 'assistant'; content: ChatCompletionContentPartRefusal[] }>,
  // @ts-expect-error images are not read
  Fits<ours.ChatMessage, ChatCompletionUserMessageParam>,
  // @ts-expect-error one prompt for each request
  Fits<ours.CompletionRequest, CompletionCreateParamsBase>,
];
