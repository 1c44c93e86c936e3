// OpenAI's shapes: what is taken out of a request before the engine sees it, and what an answer looks like. It knows
// nothing of workers, wasm or the queue.

import { describe } from './arguments.js';
import { EngineError } from './errors.js';
import type { TimedChunk as Chunk } from './generation.js';
import { objectOf } from './json.js';
import type { TokenLogprob, TokenLogprobs } from './protocol.js';
import type {
  ChatCompletion,
  ChatCompletionChunk,
  ChatLogprobs,
  Completion,
  CompletionChunk,
  CompletionFinishReason,
  CompletionLogprobs,
  FinishReason,
  MalformedToolCall,
  Timings,
  ToolCallResult,
  Usage,
} from './types.js';

/** A request cut in two: what the engine generates from, and how its answer is handed out. */
export interface SplitRequest {
  /** For the engine: everything but the fields below. It rejects what it doesn't know. */
  generation: object;
  stream: boolean;
  includeUsage: boolean;
  /** How many answers are asked for; the engine says whether that is too many. */
  choices: number;
}

/** More are refused by the engine. */
const MOST_CHOICES = 128;

/** A request for text as data of our own. */
export function requestOf(request: unknown): Record<string, unknown> {
  return objectOf('a request', '{messages: […]}', request);
}

export function splitRequest(request: unknown): SplitRequest {
  const { stream, stream_options, ...generation } = withoutClientFields(requestOf(request));
  if (stream !== undefined && stream !== null && typeof stream !== 'boolean') {
    throw new EngineError('invalid_request', `stream is true or false, got ${describe(stream)}`);
  }
  const { n } = generation;
  const choices = Number.isInteger(n) && (n as number) > 0 ? Math.min(n as number, MOST_CHOICES) : 1;
  return { generation, stream: stream === true, includeUsage: includeUsage(stream_options, stream === true), choices };
}

/**
 * What clients of OpenAI's send along and what changes nothing for an engine on this device: checked for its type, and left out. Null
 * counts as left out.
 */
const CLIENT_FIELDS = {
  model: 'a string',
  user: 'a string',
  store: 'true or false',
  metadata: 'an object',
  service_tier: 'a string',
  prompt_cache_key: 'a string',
  safety_identifier: 'a string',
  prediction: 'an object',
  verbosity: 'a string',
} as const;

const TYPES = { 'a string': 'string', 'true or false': 'boolean', 'an object': 'object' } as const;

function withoutClientFields({ modalities, ...fields }: Record<string, unknown>): Record<string, unknown> {
  for (const [name, wanted] of Object.entries(CLIENT_FIELDS)) {
    const value = fields[name];
    if (value !== undefined && value !== null && (typeof value !== TYPES[wanted] || Array.isArray(value))) {
      throw new EngineError('invalid_request', `${name} is ${wanted}, got ${describe(value)}`);
    }
    delete fields[name];
  }
  const isText = Array.isArray(modalities) && modalities.every((modality) => modality === 'text');
  if (modalities !== undefined && modalities !== null && !isText) {
    throw new EngineError('invalid_request', `modalities is ["text"], got ${describe(modalities)}: the engine writes text only`);
  }
  return fields;
}

function includeUsage(options: unknown, stream: boolean): boolean {
  if (options === undefined || options === null) return false;
  if (!stream) throw new EngineError('invalid_request', 'stream_options is for stream: true only: leave it out or stream');
  if (typeof options !== 'object' || Array.isArray(options)) {
    throw new EngineError('invalid_request', `stream_options is an object such as {include_usage: true}, got ${describe(options)}`);
  }
  const { include_usage, ...unknown } = options as Record<string, unknown>;
  const names = Object.keys(unknown);
  if (names.length > 0) throw new EngineError('invalid_request', `stream_options has include_usage only, got ${names.join(', ')}`);
  if (include_usage !== undefined && typeof include_usage !== 'boolean') {
    throw new EngineError('invalid_request', `stream_options.include_usage is true or false, got ${describe(include_usage)}`);
  }
  return include_usage === true;
}

/** What all chunks and the answer of one request have in common. */
interface Head {
  id: string;
  created: number;
  model: string;
}

/** Turns the engine's chunks into the shapes of one endpoint, for one request. */
export interface Shapes<Whole, Part> {
  /** Sent before the first chunk of text. */
  opening(): Part[];
  part(chunk: Chunk, includeUsage: boolean): Part[];
  whole(chunks: Chunk[]): Whole;
  /** What is sent of an error before the iteration rejects with it; nothing without. */
  failed?(error: EngineError): Part[];
}

/** An id that no other object has. */
export function newId(prefix: string): string {
  // Not crypto.randomUUID: pages that are not served securely don't have it.
  const random = crypto.getRandomValues(new Uint8Array(12));
  return prefix + Array.from(random, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

function head(prefix: string, model: string): Head {
  return { id: newId(prefix), created: Math.floor(Date.now() / 1000), model };
}

function totals(chunks: Chunk[]): { usage: Usage; timings: Timings } {
  const { usage, timings } = chunks.at(-1) ?? {};
  if (usage === undefined || timings === undefined) {
    throw new EngineError('internal', 'the generation ended without usage and timings: this is a fault of rillm');
  }
  return { usage, timings };
}

/** What the chunks of one choice say together. */
interface WholeChoice {
  index: number;
  text: string;
  reasoning: string;
  tool_calls: ToolCallResult[];
  malformed_tool_calls: MalformedToolCall[];
  token_ids: number[];
  logprobs: TokenLogprobs[] | undefined;
  finish_reason: FinishReason;
  stop_reason: string | number | null;
}

function wholeChoices(chunks: Chunk[], choices: number): WholeChoice[] {
  return Array.from({ length: choices }, (_, index) => {
    const own = chunks.filter((chunk) => chunk.index === index);
    const finish_reason = own.at(-1)?.finish_reason;
    if (finish_reason === undefined) {
      throw new EngineError('internal', `choice ${index} ended without a finish_reason: this is a fault of rillm`);
    }
    return {
      index,
      text: own.map(({ text }) => text).join(''),
      reasoning: own.map(({ reasoning = '' }) => reasoning).join(''),
      tool_calls: wholeCalls(own),
      malformed_tool_calls: own.flatMap(({ malformed_tool_calls = [] }) => malformed_tool_calls),
      token_ids: own.flatMap((chunk) => chunk.token_ids),
      logprobs: own[0]?.logprobs && own.flatMap((chunk) => chunk.logprobs ?? []),
      finish_reason,
      stop_reason: own.at(-1)?.stop_reason ?? null,
    };
  });
}

/** The calls of one choice, without those that turned out to be none. */
export function wholeCalls(chunks: Pick<Chunk, 'tool_calls' | 'malformed_tool_calls'>[]): ToolCallResult[] {
  const calls = new Map<number, ToolCallResult>();
  for (const { index, id, function: part } of chunks.flatMap(({ tool_calls = [] }) => tool_calls)) {
    const call = calls.get(index);
    if (call === undefined)
      calls.set(index, { id: id ?? '', type: 'function', function: { name: part.name ?? '', arguments: part.arguments } });
    else call.function.arguments += part.arguments;
  }
  for (const { index } of chunks.flatMap(({ malformed_tool_calls = [] }) => malformed_tool_calls)) {
    if (index !== undefined) calls.delete(index);
  }
  return [...calls.values()];
}

export function chatLogprobs(logprobs: TokenLogprobs[] | undefined): ChatLogprobs | null {
  if (logprobs === undefined) return null;
  const shaped = ({ token, bytes, logprob }: TokenLogprob) => ({ token, bytes, logprob });
  return { content: logprobs.map((of) => ({ ...shaped(of), top_logprobs: of.top.map(shaped) })), refusal: null };
}

function completionLogprobs(logprobs: TokenLogprobs[] | undefined): CompletionLogprobs | null {
  if (logprobs === undefined) return null;
  return {
    tokens: logprobs.map(tokenName),
    token_logprobs: logprobs.map(({ logprob }) => logprob),
    // The chosen token last, where it is not among the most probable ones.
    top_logprobs: logprobs.map((of) => Object.fromEntries([...of.top, of].map((token) => [tokenName(token), token.logprob]))),
    text_offset: logprobs.map(({ offset }) => offset),
  };
}

/** Part of a character is written by its bytes, as OpenAI does it, so that no two tokens have one name. */
function tokenName({ token, bytes }: TokenLogprob): string {
  if (!token.includes('\ufffd')) return token;
  return `bytes:${bytes.map((byte) => `\\x${byte.toString(16).padStart(2, '0')}`).join('')}`;
}

/** `usage` and `timings` of a chunk that has them, and OpenAI's extra chunk where it was asked for. */
function withUsage<Part extends { choices: unknown[]; usage?: Usage | null; timings?: Timings }>(
  part: Part,
  { usage, timings }: Chunk,
  includeUsage: boolean,
): Part[] {
  if (timings !== undefined) part.timings = timings;
  if (!includeUsage) {
    if (usage !== undefined) part.usage = usage;
    return [part];
  }
  part.usage = null;
  return usage === undefined ? [part] : [part, { ...part, choices: [], usage }];
}

export function chatShapes(model: string, choices: number): Shapes<ChatCompletion, ChatCompletionChunk> {
  const common = head('chatcmpl-', model);
  const part = (choice: ChatCompletionChunk['choices'][number]): ChatCompletionChunk => ({
    ...common,
    object: 'chat.completion.chunk',
    choices: [choice],
  });
  return {
    opening: () =>
      Array.from({ length: choices }, (_, index) =>
        part({ index, delta: { role: 'assistant', content: '' }, logprobs: null, finish_reason: null, token_ids: [] }),
      ),
    part(chunk, includeUsage) {
      const { index, text, reasoning, tool_calls, malformed_tool_calls, finish_reason = null, stop_reason, token_ids } = chunk;
      const delta = {
        ...(reasoning === undefined ? {} : { reasoning_content: reasoning }),
        ...(text === '' ? {} : { content: text }),
        ...(tool_calls === undefined ? {} : { tool_calls }),
      };
      const shaped = part({
        index,
        delta,
        logprobs: chatLogprobs(chunk.logprobs),
        finish_reason,
        ...(stop_reason === undefined ? {} : { stop_reason }),
        ...(malformed_tool_calls === undefined ? {} : { malformed_tool_calls }),
        token_ids,
      });
      return withUsage(shaped, chunk, includeUsage);
    },
    whole(chunks) {
      const shaped = wholeChoices(chunks, choices).map(({ text, reasoning, tool_calls, malformed_tool_calls, logprobs, ...choice }) => {
        const message = {
          role: 'assistant',
          content: text === '' && (tool_calls.length > 0 || reasoning !== '') ? null : text,
          refusal: null,
          ...(reasoning === '' ? {} : { reasoning_content: reasoning }),
          ...(tool_calls.length === 0 ? {} : { tool_calls }),
        } as const;
        const malformed = malformed_tool_calls.length === 0 ? {} : { malformed_tool_calls };
        return { ...choice, ...malformed, message, logprobs: chatLogprobs(logprobs) };
      });
      return { ...common, object: 'chat.completion', choices: shaped, ...totals(chunks) };
    },
  };
}

/** Calls are looked for in chats only. */
function completionFinish(reason: FinishReason): CompletionFinishReason {
  return reason === 'tool_calls' ? 'stop' : reason;
}

export function completionShapes(model: string, choices: number): Shapes<Completion, CompletionChunk> {
  const common = { ...head('cmpl-', model), object: 'text_completion' } as const;
  return {
    opening: () => [],
    part(chunk, includeUsage) {
      const { index, text, token_ids, stop_reason } = chunk;
      const logprobs = completionLogprobs(chunk.logprobs);
      const finish_reason = chunk.finish_reason === undefined ? null : completionFinish(chunk.finish_reason);
      const stopped = stop_reason === undefined ? {} : { stop_reason };
      const shaped: CompletionChunk = { ...common, choices: [{ index, text, logprobs, finish_reason, ...stopped, token_ids }] };
      return withUsage(shaped, chunk, includeUsage);
    },
    whole(chunks) {
      const whole = wholeChoices(chunks, choices);
      const shaped = whole.map(({ index, text, token_ids, logprobs, finish_reason, stop_reason }) => {
        const stopped = stop_reason === null ? {} : { stop_reason };
        return {
          index,
          text,
          logprobs: completionLogprobs(logprobs),
          finish_reason: completionFinish(finish_reason),
          ...stopped,
          token_ids,
        };
      });
      return { ...common, choices: shaped, ...totals(chunks) };
    },
  };
}
