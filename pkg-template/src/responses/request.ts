// A request of the Responses API cut up: what of it is the request of a chat, what comes back with the response, and what is refused. Fields
// that it doesn't know go on to the chat, which has rillm's extensions and refuses the rest.

import { describe, refuse } from '../arguments.js';
import { objectOf } from '../json.js';
import { isReasoningEffort, REASONING_EFFORTS } from '../reasoning_effort.js';
import { arrayAt, booleanAt, type Json, objectAt, oneOf, onlyFields, textAt, wholeNumberAt } from './fields.js';
import type { EchoedTool, ModelResponse, ResponseTextFormat, ResponseToolChoice } from './types.js';

/** What of the request the response repeats. */
export type Echo = Pick<
  ModelResponse,
  | 'instructions'
  | 'previous_response_id'
  | 'store'
  | 'tools'
  | 'tool_choice'
  | 'parallel_tool_calls'
  | 'text'
  | 'reasoning'
  | 'max_output_tokens'
  | 'max_tool_calls'
  | 'temperature'
  | 'top_p'
  | 'top_logprobs'
  | 'truncation'
  | 'metadata'
  | 'background'
>;

export interface ReadRequest {
  /** Of the chat, all but its messages. */
  chat: Json;
  input: unknown;
  echo: Echo;
  logprobs: boolean;
}

/** Fields of chats, and what they are called here. */
const OF_CHATS: Record<string, string> = {
  messages: 'input',
  max_tokens: 'max_output_tokens',
  max_completion_tokens: 'max_output_tokens',
  response_format: 'text.format',
  reasoning_effort: 'reasoning.effort',
  logprobs: 'include: ["message.output_text.logprobs"]',
  verbosity: 'text.verbosity',
};

/** What a server of OpenAI's does and this one can't. */
const NOT_HERE: Record<string, string> = {
  conversation: 'conversations are not kept as such: use previous_response_id',
  prompt: 'there are no prompt templates: send instructions and input',
  n: 'a response has one answer',
  context_management: 'nothing is compacted: use truncation',
  moderation: 'nothing is moderated',
  image: 'the engine writes text only',
  modalities: 'the engine writes text only',
  add_generation_prompt: 'a response begins an answer',
  continue_final_message: 'a response begins an answer',
  access_programs: 'it is of a service',
  prompt_cache_options: 'it is of a service',
  prompt_cache_retention: 'it is of a service',
};

const INCLUDABLE = [
  'message.output_text.logprobs',
  // There is nothing of these here: no such tool runs, no image is read, and reasoning comes as plain text.
  'reasoning.encrypted_content',
  'file_search_call.results',
  'web_search_call.results',
  'web_search_call.action.sources',
  'message.input_image.image_url',
  'computer_call_output.output.image_url',
  'code_interpreter_call.outputs',
] as const;

/** The request as data of our own, which the caller can't change any more. */
export function dataOf(request: unknown): Json {
  return objectOf('a request', '{input: "…"}', request);
}

/** A field that is null is as one that is left out. */
export function readRequest(data: Json): ReadRequest {
  const fields: Json = Object.fromEntries(Object.entries(data).filter(([, value]) => value !== null));
  for (const [name, reason] of Object.entries(NOT_HERE)) if (name in fields) refuse(`${name} is not supported: ${reason}`);
  for (const [name, here] of Object.entries(OF_CHATS)) if (name in fields) refuse(`${name} is a field of chats: here it is ${here}`);
  /** Takes a field out of the request. */
  const take = <T>(name: string, read: (at: string, value: unknown) => T): T | undefined => {
    const value = fields[name];
    delete fields[name];
    return value === undefined ? undefined : read(name, value);
  };
  const input = take('input', (_, value) => value);
  if (take('background', booleanAt) === true) refuse('background is true, and nothing runs on when the page is gone: leave it out');
  take('stream_options', (at, value) => onlyFields(at, objectAt(at, value), ['include_obfuscation']));
  // One after the other, so that the first field that is wrong is named.
  const instructions = take('instructions', textAt) ?? null;
  const previous_response_id = take('previous_response_id', textAt) ?? null;
  const store = take('store', booleanAt) ?? true;
  const tools = take('tools', toolsAt) ?? [];
  const tool_choice = take('tool_choice', (at, value) => toolChoiceAt(at, value, tools)) ?? 'auto';
  const text = take('text', textConfigAt) ?? { format: { type: 'text' } };
  const reasoning = take('reasoning', reasoningAt) ?? { effort: null, summary: null };
  const include = take('include', (at, value) => arrayAt(at, value).map((name, index) => oneOf(`${at}[${index}]`, name, INCLUDABLE))) ?? [];
  const logprobs = include.includes('message.output_text.logprobs');
  const top_logprobs = take('top_logprobs', (at, value) => wholeNumberAt(at, value, 0, 20)) ?? 0;
  const max_output_tokens = take('max_output_tokens', (at, value) => wholeNumberAt(at, value, 1)) ?? null;
  const parallel_tool_calls = take('parallel_tool_calls', booleanAt) ?? true;
  const echo: Echo = {
    instructions,
    previous_response_id,
    store,
    tools,
    tool_choice,
    parallel_tool_calls,
    text,
    reasoning,
    max_output_tokens,
    max_tool_calls: take('max_tool_calls', (at, value) => wholeNumberAt(at, value, 1)) ?? null,
    temperature: (fields.temperature as number | undefined) ?? 1,
    top_p: (fields.top_p as number | undefined) ?? 1,
    top_logprobs,
    truncation: take('truncation', (at, value) => oneOf(at, value, ['auto', 'disabled'])) ?? 'disabled',
    metadata: take('metadata', metadataAt) ?? {},
    background: false,
  };
  // What is left are temperature, top_p, the client's fields and extensions, which the chat checks.
  const chat: Json = {
    ...fields,
    ...chatTools(tools, tool_choice, parallel_tool_calls),
    ...(text.format.type === 'text' ? {} : { response_format: chatFormat(text.format) }),
    ...(reasoning.effort === null ? {} : { reasoning_effort: reasoning.effort }),
    ...(max_output_tokens === null ? {} : { max_tokens: max_output_tokens }),
    ...(logprobs ? { logprobs, top_logprobs } : {}),
  };
  return { chat, input, echo, logprobs };
}

function metadataAt(at: string, value: unknown): Record<string, string> {
  const metadata = objectAt(at, value);
  for (const [name, text] of Object.entries(metadata)) textAt(`${at}.${name}`, text);
  return metadata as Record<string, string>;
}

function toolsAt(at: string, value: unknown): EchoedTool[] {
  return arrayAt(at, value).map((value, index) => {
    const place = `${at}[${index}]`;
    const { type, ...tool } = objectAt(place, value);
    if (type !== 'function') {
      refuse(`${place}.type is ${describe(type)}: a model here calls functions only, and tools that a server runs are not there`);
    }
    const { async, defer_loading, allowed_callers, ...fields } = tool;
    if (async === true) refuse(`${place}.async is true: calls end the answer here`);
    if (defer_loading === true) refuse(`${place}.defer_loading is true: the model is told of all tools at once`);
    if (Array.isArray(allowed_callers) && !allowed_callers.includes('direct')) {
      refuse(`${place}.allowed_callers has no "direct": no program calls functions here`);
    }
    onlyFields(place, fields, ['name', 'description', 'parameters', 'strict']);
    textAt(`${place}.name`, fields.name);
    if (fields.strict !== undefined && fields.strict !== null) booleanAt(`${place}.strict`, fields.strict);
    return { type, ...fields, parameters: fields.parameters ?? null, strict: fields.strict ?? null } as EchoedTool;
  });
}

function toolChoiceAt(at: string, value: unknown, tools: EchoedTool[]): ResponseToolChoice {
  if (typeof value === 'string') return oneOf(at, value, ['none', 'auto', 'required']);
  const choice = objectAt(at, value);
  const known = (place: string, entry: Json) => {
    if (entry.type !== 'function') refuse(`${place}.type is ${describe(entry.type)}: there are functions only`);
    const name = textAt(`${place}.name`, entry.name);
    if (!tools.some((tool) => tool.name === name)) refuse(`${place}.name is "${name}", which is none of tools`);
    return { type: 'function', name } as const;
  };
  if (choice.type !== 'allowed_tools') return known(at, choice);
  const mode = oneOf(`${at}.mode`, choice.mode, ['auto', 'required']);
  const allowed = arrayAt(`${at}.tools`, choice.tools).map((entry, index) =>
    known(`${at}.tools[${index}]`, objectAt(`${at}.tools[${index}]`, entry)),
  );
  return { type: 'allowed_tools', mode, tools: allowed };
}

/** The tools as a chat has them, and its choice. */
function chatTools(tools: EchoedTool[], choice: ResponseToolChoice, parallel: boolean): Json {
  const chatTool = ({ type, parameters, description, ...names }: EchoedTool) => ({
    type,
    function: {
      ...names,
      ...(description === undefined || description === null ? {} : { description }),
      ...(parameters === null ? {} : { parameters }),
    },
  });
  // Not sent without tools: a choice that asks for a call is then the chat's to refuse.
  const parallelCalls = parallel ? {} : { parallel_tool_calls: false };
  if (typeof choice === 'string') {
    const chosen = choice === 'auto' ? {} : { tool_choice: choice };
    return { ...(tools.length === 0 ? {} : { tools: tools.map(chatTool) }), ...chosen, ...parallelCalls };
  }
  if (choice.type === 'function') {
    return { tools: tools.map(chatTool), tool_choice: { type: 'function', function: { name: choice.name } }, ...parallelCalls };
  }
  const allowed = tools.filter(({ name }) => choice.tools.some((entry) => entry.name === name));
  if (allowed.length === 0) return choice.mode === 'required' ? refuse('tool_choice.tools is empty, and a call is required') : {};
  return { tools: allowed.map(chatTool), tool_choice: choice.mode, ...parallelCalls };
}

function textConfigAt(at: string, value: unknown): ModelResponse['text'] {
  const config = objectAt(at, value);
  onlyFields(at, config, ['format', 'verbosity']);
  const format = config.format ?? { type: 'text' };
  const verbosity = config.verbosity ?? undefined;
  return {
    format: formatAt(`${at}.format`, format),
    ...(verbosity === undefined ? {} : { verbosity: oneOf(`${at}.verbosity`, verbosity, ['low', 'medium', 'high']) }),
  };
}

function formatAt(at: string, value: unknown): ResponseTextFormat {
  const format = objectAt(at, value);
  const type = oneOf(`${at}.type`, format.type, ['text', 'json_object', 'json_schema']);
  if (type !== 'json_schema') return { type };
  onlyFields(at, format, ['type', 'name', 'schema', 'description', 'strict']);
  const { name, schema, description = null, strict = null } = format;
  return {
    type,
    name: textAt(`${at}.name`, name),
    schema: objectAt(`${at}.schema`, schema),
    ...(description === null ? {} : { description: textAt(`${at}.description`, description) }),
    ...(strict === null ? {} : { strict: booleanAt(`${at}.strict`, strict) }),
  };
}

function chatFormat(format: ResponseTextFormat): Json {
  if (format.type !== 'json_schema') return { type: format.type };
  const { type, ...json_schema } = format;
  return { type, json_schema };
}

function reasoningAt(at: string, value: unknown): ModelResponse['reasoning'] {
  const { generate_summary, context, mode, ...reasoning } = objectAt(at, value);
  onlyFields(at, reasoning, ['effort', 'summary']);
  if (context !== undefined && context !== null && context !== 'auto') {
    refuse(`${at}.context is ${describe(context)}: the chat template decides which reasoning the model sees again, which is "auto"`);
  }
  if (mode !== undefined && mode !== null && mode !== 'standard') refuse(`${at}.mode is ${describe(mode)}: there is "standard" only`);
  const effort = reasoning.effort ?? null;
  if (effort !== null && !isReasoningEffort(effort)) refuse(`${at}.effort is ${describe(effort)}, wanted one of ${REASONING_EFFORTS}`);
  const summary = reasoning.summary ?? generate_summary ?? null;
  return {
    effort: effort as ModelResponse['reasoning']['effort'],
    summary: summary === null ? null : oneOf(`${at}.summary`, summary, ['auto', 'concise', 'detailed']),
  };
}
