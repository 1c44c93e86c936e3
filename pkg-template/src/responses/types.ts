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

export interface InputText {
  type: 'input_text';
  text: string;
}

/** A token of a message and the most probable ones in its place, the most probable first. */
export interface OutputTextLogprob extends TokenLogprob {
  top_logprobs: TokenLogprob[];
}

export interface OutputText {
  type: 'output_text';
  text: string;
  /** Always empty: nothing is searched here. */
  annotations: never[];
  /** If `include` asks for `message.output_text.logprobs`. */
  logprobs?: OutputTextLogprob[];
}

/** What somebody says to the model, or what it said itself. */
export interface InputMessage {
  type?: 'message' | undefined;
  id?: string | undefined;
  role: 'user' | 'assistant' | 'system' | 'developer';
  /** A text, or parts: `output_text` of the assistant's, `input_text` of others. */
  content: string | (InputText | Omit<OutputText, 'annotations' | 'logprobs'>)[];
  status?: ItemStatus | null | undefined;
}

export interface OutputMessage {
  type: 'message';
  id: string;
  role: 'assistant';
  status: ItemStatus;
  content: OutputText[];
}

/** A call. `arguments` is JSON as text; `call_id` is what its output names. */
export interface FunctionCall {
  type: 'function_call';
  id?: string;
  call_id: string;
  name: string;
  arguments: string;
  status?: ItemStatus;
}

/** What a call gave. */
export interface FunctionCallOutput {
  type: 'function_call_output';
  id?: string | null | undefined;
  call_id: string;
  output: string | InputText[];
  status?: ItemStatus | null | undefined;
}

/** What the model thought: in `content`, or in `summary` if the request asks for one. */
export interface ReasoningItem {
  type: 'reasoning';
  id: string;
  summary: { type: 'summary_text'; text: string }[];
  content?: { type: 'reasoning_text'; text: string }[];
  status?: ItemStatus;
}

/** Stands for an item of a response that is kept, by its id. */
export interface ItemReference {
  type: 'item_reference';
  id: string;
}

export type ResponseInputItem = InputMessage | OutputMessage | FunctionCall | FunctionCallOutput | ReasoningItem | ItemReference;
export type ResponseOutputItem = OutputMessage | (FunctionCall & { id: string; status: ItemStatus }) | ReasoningItem;
/** An item that was taken in: each has an id. */
export type ResponseItem = (InputMessage | OutputMessage | FunctionCall | FunctionCallOutput | ReasoningItem) & { id: string };

export interface ResponseItemList {
  object: 'list';
  data: ResponseItem[];
  first_id: string | null;
  last_id: string | null;
  has_more: boolean;
}

// ── Requests ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

/** A function that the model may call, as `Tool`, with the names one level up. */
export interface ResponseTool {
  type: 'function';
  name: string;
  description?: string | null | undefined;
  parameters?: Record<string, unknown> | null | undefined;
  /** Taken and not looked at: arguments obey the schema anyway. */
  strict?: boolean | null | undefined;
}

/** A tool as the response repeats it. */
export interface EchoedTool {
  type: 'function';
  name: string;
  description?: string | null;
  parameters: Record<string, unknown> | null;
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
  tools?: ResponseTool[] | null | undefined;
  tool_choice?: ResponseToolChoice | null | undefined;
  parallel_tool_calls?: boolean | null | undefined;
  text?: { format?: ResponseTextFormat | null | undefined; verbosity?: 'low' | 'medium' | 'high' | null | undefined } | null | undefined;
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
  stream?: boolean | null | undefined;
  stream_options?: { include_obfuscation?: boolean | undefined } | null | undefined;
  /** Taken for the sake of OpenAI's clients and not looked at, like the fields below. */
  model?: string | null | undefined;
  background?: false | null | undefined;
  max_tool_calls?: number | null | undefined;
  user?: string | null | undefined;
  service_tier?: string | null | undefined;
  prompt_cache_key?: string | null | undefined;
  safety_identifier?: string | null | undefined;
}

// ── Answers ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

export interface ResponseUsage {
  /** Of the whole prompt, cached or not. */
  input_tokens: number;
  input_tokens_details: {
    /** Tokens that the KV cache or the prompt cache still had. */
    cached_tokens: number;
    /** Always 0: what is written to the cache is not counted. */
    cache_write_tokens: number;
  };
  output_tokens: number;
  output_tokens_details: { reasoning_tokens: number };
  total_tokens: number;
}

/** `cancelled` is told by the last event of a stream that was cancelled. */
export type ResponseStatus = 'in_progress' | 'completed' | 'incomplete' | 'failed' | 'cancelled';

export interface ModelResponse {
  id: string;
  object: 'response';
  /** Unix time in seconds. */
  created_at: number;
  completed_at: number | null;
  status: ResponseStatus;
  error: { code: 'server_error'; message: string } | null;
  /** With the status `incomplete`. */
  incomplete_details: { reason: 'max_output_tokens' } | null;
  model: string;
  output: ResponseOutputItem[];
  /** The texts of all messages of `output`. */
  output_text: string;
  usage?: ResponseUsage;
  instructions: string | null;
  previous_response_id: string | null;
  store: boolean;
  tools: EchoedTool[];
  tool_choice: ResponseToolChoice;
  parallel_tool_calls: boolean;
  text: { format: ResponseTextFormat; verbosity?: 'low' | 'medium' | 'high' };
  reasoning: { effort: ReasoningEffort | null; summary: 'auto' | 'concise' | 'detailed' | null };
  max_output_tokens: number | null;
  max_tool_calls: number | null;
  temperature: number;
  top_p: number;
  top_logprobs: number;
  truncation: 'auto' | 'disabled';
  metadata: Record<string, string>;
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
