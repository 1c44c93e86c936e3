// The Responses API beside the types of the `openai` package, as `openai.ts` does it for the older endpoints. It is compiled and not run.

import type {
  EasyInputMessage,
  Response,
  ResponseCreateParamsBase,
  ResponseFormatTextConfig,
  ResponseFunctionToolCall,
  ResponseInputItem,
  ResponseInputText,
  ResponseItem,
  ResponseOutputItem,
  ResponseOutputMessage,
  ResponseOutputText,
  ResponseReasoningItem,
  ResponseStreamEvent,
  ResponseUsage,
  FunctionTool,
  ToolChoiceFunction,
} from 'openai/resources/responses/responses';
import type { ResponseItemList } from 'openai/resources/responses/input-items';
import type { Reasoning } from 'openai/resources/shared';

import type { Engine } from '../../pkg-template/src/engine.js';
import type * as ours from '../../pkg-template/src/types.js';

/** Doesn't compile where `Ours` can't stand for `Theirs`. */
type Fits<Theirs, Ours extends Theirs> = [Theirs, Ours];
type Fields<T> = keyof Required<T>;
/** `T` with some fields of another type. */
type With<T, Other> = Omit<T, keyof Other> & Other;

/** Of their service, and always there in answers. */
type OfService = { access_programs: null };
type Whole = ours.ModelResponse & OfService;
type Event = ours.ResponseStreamEvent extends infer One
  ? One extends { response: ours.ModelResponse }
    ? With<One, { response: Whole }>
    : One
  : never;

export type Answers = [
  Fits<Response, Whole>,
  Fits<ResponseStreamEvent, Event>,
  Fits<ResponseUsage, ours.ResponseUsage>,
  Fits<ResponseOutputItem, ours.ResponseOutputItem>,
  Fits<ResponseOutputMessage, ours.OutputMessage>,
  Fits<ResponseOutputText, ours.OutputText>,
  Fits<ResponseReasoningItem, ours.ReasoningItem>,
  Fits<ResponseFunctionToolCall, ours.FunctionCall>,
  // A page without items has no ids.
  Fits<With<ResponseItemList, { data: unknown[]; first_id: string | null; last_id: string | null }>, ours.ResponseItemList>,
  // @ts-expect-error what is kept may be shorter than what they give, such as an output without its status
  Fits<ResponseItem, ours.ResponseItem>,
];

/** Refused by name. */
type NotTaken =
  | 'access_programs'
  | 'context_management'
  | 'conversation'
  | 'image'
  | 'moderation'
  | 'prompt'
  | 'prompt_cache_options'
  | 'prompt_cache_retention';

/** Text, calls of functions and their outputs, reasoning, references. */
type Text<Message extends { content?: unknown }> = With<Message, { content: string | ResponseInputText[] }>;
type Item =
  | Text<EasyInputMessage>
  | Text<ResponseInputItem.Message>
  | With<ResponseOutputMessage, { content: ResponseOutputText[] }>
  | With<ResponseFunctionToolCall, object>
  | With<ResponseInputItem.FunctionCallOutput, { call_id: string; output: string | ResponseInputText[] }>
  | Omit<ResponseReasoningItem, 'encrypted_content'>
  | With<ResponseInputItem.ItemReference, { type: 'item_reference' }>;

type Narrowed = With<
  Omit<ResponseCreateParamsBase, NotTaken>,
  {
    input: string | Item[];
    background?: false | null;
    tools?: Pick<FunctionTool, 'type' | 'name' | 'parameters' | 'strict' | 'description'>[];
    tool_choice?: 'none' | 'auto' | 'required' | ToolChoiceFunction;
    text?: { format?: ResponseFormatTextConfig; verbosity?: 'low' | 'medium' | 'high' | null };
    reasoning?: Pick<Reasoning, 'effort' | 'summary'> | null;
  }
>;

export type Requests = [
  Fits<ours.ResponseRequest, Narrowed>,
  Fits<Parameters<Engine['responses']['create']>[0], Narrowed & { stream: true }>,
  // What an answer has said can be handed back.
  Fits<ours.ResponseRequest['input'], ours.ModelResponse['output']>,
  // What is not taken is no field of ours, and what is taken is one.
  Fits<never, NotTaken & Fields<ours.ResponseRequest>>,
  Fits<Fields<ours.ResponseRequest>, Exclude<Fields<ResponseCreateParamsBase>, NotTaken>>,
  // @ts-expect-error images are not read
  Fits<ours.ResponseInputItem, EasyInputMessage>,
];
