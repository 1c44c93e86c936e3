// The Responses API: what a request, an answer and the events of a stream look like, in OpenAI's shapes. Types only.

import type { Timings, TokenLogprob } from '../answers.js';
import type { MalformedToolCall } from '../generated/answers.js';
import type {
  ChatFields,
  ContextFields,
  EndingFields,
  PenaltyFields,
  ReasoningFields,
  SamplingFields,
  SpeculationFields,
  StructuredFields,
} from '../generated/requests.js';
import type { ReasoningEffort } from '../requests.js';

// ── Items ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

/** `incomplete`: the answer ended before the item did. A call that is incomplete should not be made. */
export type ItemStatus = 'in_progress' | 'completed' | 'incomplete';

/** A text of the user, or of the system. */
export interface InputText {
  /** What it is. */
  type: 'input_text';
  /** The text. */
  text: string;
}

/** A token of a message and the most probable ones in its place, the most probable first. */
export interface OutputTextLogprob extends TokenLogprob {
  /** The most probable tokens, the most probable first. */
  top_logprobs: TokenLogprob[];
}

/** A text of the model. */
export interface OutputText {
  /** What it is. */
  type: 'output_text';
  /** The text. */
  text: string;
  /** Always empty: nothing is searched here. */
  annotations: never[];
  /** If `include` asks for `message.output_text.logprobs`. */
  logprobs?: OutputTextLogprob[];
}

/** What somebody says to the model, or what it said itself. */
export interface InputMessage {
  /** What it is. */
  type?: 'message' | undefined;
  /** Names it among the others. */
  id?: string | undefined;
  /** Who says it. */
  role: 'user' | 'assistant' | 'system' | 'developer';
  /** A text, or parts: `output_text` of the assistant's, `input_text` of others. */
  content: string | (InputText | Omit<OutputText, 'annotations' | 'logprobs'>)[];
  /** Whether all of it is there. */
  status?: ItemStatus | null | undefined;
}

/** What the model said. */
export interface OutputMessage {
  /** What it is. */
  type: 'message';
  /** Names it among the others. */
  id: string;
  /** Who says it. */
  role: 'assistant';
  /** Whether all of it is there. */
  status: ItemStatus;
  /** Its texts. */
  content: OutputText[];
}

/** A call. `arguments` is JSON as text; `call_id` is what its output names. */
export interface FunctionCall {
  /** What it is. */
  type: 'function_call';
  /** Names it among the others. */
  id?: string;
  /** What the output of the call names. */
  call_id: string;
  /** Its name. */
  name: string;
  /** JSON as text. */
  arguments: string;
  /** Whether all of it is there. */
  status?: ItemStatus;
}

/** What a call gave. */
export interface FunctionCallOutput {
  /** What it is. */
  type: 'function_call_output';
  /** Names it among the others. */
  id?: string | null | undefined;
  /** What the output of the call names. */
  call_id: string;
  /** What it gave, for the model to read. */
  output: string | InputText[];
  /** Whether all of it is there. */
  status?: ItemStatus | null | undefined;
}

/** What the model thought: in `content`, or in `summary` if the request asks for one. */
export interface ReasoningItem {
  /** What it is. */
  type: 'reasoning';
  /** Names it among the others. */
  id: string;
  /** The thoughts, if the request asks for a summary; else empty. */
  summary: { type: 'summary_text'; text: string }[];
  /** The thoughts. */
  content?: { type: 'reasoning_text'; text: string }[];
  /** Whether all of it is there. */
  status?: ItemStatus;
}

/** Stands for an item of a response that is kept, by its id. */
export interface ItemReference {
  /** What it is. */
  type: 'item_reference';
  /** Names it among the others. */
  id: string;
}

/** What a conversation may consist of. */
export type ResponseInputItem = InputMessage | OutputMessage | FunctionCall | FunctionCallOutput | ReasoningItem | ItemReference;
/** What a response consists of. */
export type ResponseOutputItem = OutputMessage | (FunctionCall & { id: string; status: ItemStatus }) | ReasoningItem;
/** An item that was taken in: each has an id. */
export type ResponseItem = (InputMessage | OutputMessage | FunctionCall | FunctionCallOutput | ReasoningItem) & { id: string };

/** A page of items. */
export interface ResponseItemList {
  /** OpenAI's name of the shape. */
  object: 'list';
  /** The items. */
  data: ResponseItem[];
  /** Of the first item; null if there is none. */
  first_id: string | null;
  /** Of the last item: `after` of the next page. */
  last_id: string | null;
  /** There is a next page. */
  has_more: boolean;
}

// ── Requests ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

/** A function that the model may call, as `Tool`, with the names one level up. */
export interface ResponseTool {
  /** What it is. */
  type: 'function';
  /** Its name. */
  name: string;
  /** What the function does, for the model. */
  description?: string | null | undefined;
  /** A JSON schema of its arguments, an object. Default: no arguments. */
  parameters?: Record<string, unknown> | null | undefined;
  /** Taken and not looked at: arguments obey the schema anyway. */
  strict?: boolean | null | undefined;
}

/** A tool as the response repeats it. */
export interface EchoedTool {
  /** What it is. */
  type: 'function';
  /** Its name. */
  name: string;
  /** What the function does, for the model. */
  description?: string | null;
  /** A JSON schema of its arguments, an object. Default: no arguments. */
  parameters: Record<string, unknown> | null;
  /** As it was given. */
  strict: boolean | null;
}

/** As `ToolChoice`. `allowed_tools`: only these of the tools, and whether one of them must be called. */
export type ResponseToolChoice =
  | 'none'
  | 'auto'
  | 'required'
  | { type: 'function'; name: string }
  | { type: 'allowed_tools'; mode: 'auto' | 'required'; tools: { type: 'function'; name: string }[] };

/** As `ResponseFormat`, with the schema one level up. */
export type ResponseTextFormat =
  | { type: 'text' }
  | { type: 'json_object' }
  | {
      type: 'json_schema';
      name: string;
      schema: Record<string, unknown>;
      description?: string;
      strict?: boolean | null;
    };

/** How much the model may think, and where its thoughts go. */
export interface ResponseReasoning {
  /** As `reasoning_effort` of a chat. */
  effort?: ReasoningEffort | null | undefined;
  /** Any but null: the reasoning comes as the item's `summary` in place of its `content`. It is the reasoning itself; nothing sums it up. */
  summary?: 'auto' | 'concise' | 'detailed' | null | undefined;
}

/** What of a chat's request means the same here, extensions of OpenAI's API. */
interface Extensions
  extends Omit<SamplingFields, 'temperature' | 'top_p'>,
    PenaltyFields,
    Omit<EndingFields, 'max_tokens' | 'max_completion_tokens'>,
    Omit<StructuredFields, 'response_format'>,
    SpeculationFields,
    ContextFields,
    Pick<ChatFields, 'chat_template' | 'chat_template_kwargs'>,
    ReasoningFields {}

/** A field that is null is as one that is left out. */
export interface ResponseRequest extends Extensions, Pick<SamplingFields, 'temperature' | 'top_p'> {
  /** A text of the user's, or items. */
  input: string | ResponseInputItem[];
  /** A system message in front of all others. It is not carried over to the next response. */
  instructions?: string | null | undefined;
  /** The conversation goes on after this response, which must be kept (see `store`). */
  previous_response_id?: string | null | undefined;
  /**
   * Keep the response and its input in the engine's memory, for `previous_response_id`, `item_reference` and `retrieve`. Default: true. The
   * newest 256 responses are kept, and of those as many as 32 MiB hold; they end with the engine.
   */
  store?: boolean | null | undefined;
  /** Functions that the model may call. */
  tools?: ResponseTool[] | null | undefined;
  /** Which of them it may or must call. Default: `auto`. */
  tool_choice?: ResponseToolChoice | null | undefined;
  /** Several calls in one answer. Default: true. */
  parallel_tool_calls?: boolean | null | undefined;
  /** The form of the answer; `verbosity` is not looked at. */
  text?: { format?: ResponseTextFormat | null | undefined; verbosity?: 'low' | 'medium' | 'high' | null | undefined } | null | undefined;
  /** How much the model may think. */
  reasoning?: ResponseReasoning | null | undefined;
  /** The most tokens of the answer, reasoning included. Default: what the context has room for. */
  max_output_tokens?: number | null | undefined;
  /** With `include: ['message.output_text.logprobs']`: how many of the most probable tokens come with each token, 0 to 20. */
  top_logprobs?: number | null | undefined;
  /** `message.output_text.logprobs`; the other names of OpenAI's are taken, and there is nothing of theirs to include. */
  include?: string[] | null | undefined;
  /** Comes back with the response. */
  metadata?: Record<string, string> | null | undefined;
  /**
   * `auto`: if the conversation doesn't fit the context, its oldest messages are left out, as many as needed; system messages at the
   * beginning and the last message stay. Default: `disabled`, which rejects with `context_length_exceeded`.
   */
  truncation?: 'auto' | 'disabled' | null | undefined;
  /** True: the answer comes as a stream of events. Default: false. */
  stream?: boolean | null | undefined;
  /** Taken and not looked at. */
  stream_options?: { include_obfuscation?: boolean | undefined } | null | undefined;
  /** Taken for the sake of OpenAI's clients and not looked at, like the fields below. */
  model?: string | null | undefined;
  /** Taken and not looked at. */
  background?: false | null | undefined;
  /** Taken and not looked at. */
  max_tool_calls?: number | null | undefined;
  /** Taken and not looked at. */
  user?: string | null | undefined;
  /** Taken and not looked at. */
  service_tier?: string | null | undefined;
  /** Taken and not looked at. */
  prompt_cache_key?: string | null | undefined;
  /** Taken and not looked at. */
  safety_identifier?: string | null | undefined;
}

// ── Answers ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

/** How many tokens were taken in and made. */
export interface ResponseUsage {
  /** Of the whole prompt, cached or not. */
  input_tokens: number;
  /** Of them. */
  input_tokens_details: {
    /** Tokens that the KV cache or the prompt cache still had. */
    cached_tokens: number;
    /** Always 0: what is written to the cache is not counted. */
    cache_write_tokens: number;
  };
  /** Of the answer, reasoning included. */
  output_tokens: number;
  /** Of them. */
  output_tokens_details: { reasoning_tokens: number };
  /** Both together. */
  total_tokens: number;
}

/** `cancelled` is told by the last event of a stream that was cancelled. */
export type ResponseStatus = 'in_progress' | 'completed' | 'incomplete' | 'failed' | 'cancelled';

/** A response, as far as it has come. */
export interface ModelResponse {
  /** `previous_response_id` of the next request. */
  id: string;
  /** OpenAI's name of the shape. */
  object: 'response';
  /** Unix time in seconds. */
  created_at: number;
  /** Unix time in seconds; null before the end. */
  completed_at: number | null;
  /** How it ended, or that it has not. */
  status: ResponseStatus;
  /** With the status `failed`. */
  error: { code: 'server_error'; message: string } | null;
  /** With the status `incomplete`. */
  incomplete_details: { reason: 'max_output_tokens' } | null;
  /** The name of the model: `info.name`, or its architecture. */
  model: string;
  /** Messages, calls and thoughts, in their order. */
  output: ResponseOutputItem[];
  /** The texts of all messages of `output`. */
  output_text: string;
  /** How many tokens were taken in and made. */
  usage?: ResponseUsage;
  /** As it was asked for. */
  instructions: string | null;
  /** As it was asked for. */
  previous_response_id: string | null;
  /** As it was asked for. */
  store: boolean;
  /** As it was asked for. */
  tools: EchoedTool[];
  /** As it was asked for. */
  tool_choice: ResponseToolChoice;
  /** As it was asked for. */
  parallel_tool_calls: boolean;
  /** As it was asked for. */
  text: { format: ResponseTextFormat; verbosity?: 'low' | 'medium' | 'high' };
  /** As it was asked for. */
  reasoning: { effort: ReasoningEffort | null; summary: 'auto' | 'concise' | 'detailed' | null };
  /** As it was asked for. */
  max_output_tokens: number | null;
  /** As it was asked for. */
  max_tool_calls: number | null;
  /** As it was asked for. */
  temperature: number;
  /** As it was asked for. */
  top_p: number;
  /** As it was asked for. */
  top_logprobs: number;
  /** As it was asked for. */
  truncation: 'auto' | 'disabled';
  /** As it was asked for. */
  metadata: Record<string, string>;
  /** As it was asked for. */
  background: false;
  /** An extension, with the last event. */
  timings?: Timings;
  /** Which of `stop` or `stop_token_ids` ended the answer, if one did. An extension. */
  stop_reason?: string | number;
  /** What looks like calls and is none. A call of `output` that turned out to be one of them is `incomplete`. An extension. */
  malformed_tool_calls?: MalformedToolCall[];
}

// ── Events ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

interface OfItem {
  output_index: number;
  item_id: string;
}

interface OfContent extends OfItem {
  content_index: number;
}

interface OfSummary extends OfItem {
  summary_index: number;
}

type ContentPart = OutputText | { type: 'reasoning_text'; text: string };

type EventBody =
  | { type: 'response.created' | 'response.in_progress'; response: ModelResponse }
  | { type: 'response.completed' | 'response.incomplete' | 'response.failed'; response: ModelResponse }
  | { type: 'response.output_item.added' | 'response.output_item.done'; output_index: number; item: ResponseOutputItem }
  | ({ type: 'response.content_part.added' | 'response.content_part.done'; part: ContentPart } & OfContent)
  | ({ type: 'response.output_text.delta'; delta: string; logprobs: OutputTextLogprob[] } & OfContent)
  | ({ type: 'response.output_text.done'; text: string; logprobs: OutputTextLogprob[] } & OfContent)
  | ({ type: 'response.reasoning_text.delta'; delta: string } & OfContent)
  | ({ type: 'response.reasoning_text.done'; text: string } & OfContent)
  | ({
      type: 'response.reasoning_summary_part.added' | 'response.reasoning_summary_part.done';
      part: { type: 'summary_text'; text: string };
    } & OfSummary)
  | ({ type: 'response.reasoning_summary_text.delta'; delta: string } & OfSummary)
  | ({ type: 'response.reasoning_summary_text.done'; text: string } & OfSummary)
  | ({ type: 'response.function_call_arguments.delta'; delta: string } & OfItem)
  | ({ type: 'response.function_call_arguments.done'; name: string; arguments: string } & OfItem);

/** The numbers of a stream's events begin with 0 and have no gaps. */
export type ResponseStreamEvent = EventBody & { sequence_number: number };
