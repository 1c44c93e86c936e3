// OpenAI's shapes: what is taken out of a request before the engine sees it, and what an answer looks like. It knows
// nothing of workers, wasm or the queue.

import { EngineError } from './errors.js';
import type { Chunk } from './protocol.js';
import type {
  ChatCompletion,
  ChatCompletionChunk,
  Completion,
  CompletionChunk,
  FinishReason,
  Timings,
  Usage,
} from './types.js';

/** A request cut in two: what the engine generates from, and how its answer is handed out. */
export interface SplitRequest {
  /** For the engine: everything but the fields below. It rejects what it doesn't know. */
  generation: object;
  stream: boolean;
  includeUsage: boolean;
}

export function splitRequest(request: unknown): SplitRequest {
  if (typeof request !== 'object' || request === null) {
    throw new EngineError('invalid_request', `a request is an object such as {messages: […]}, got ${describe(request)}`);
  }
  const { model, stream, stream_options, ...rest } = request as Record<string, unknown>;
  if (model !== undefined && typeof model !== 'string') {
    throw new EngineError('invalid_request', `model is a string, got ${describe(model)}`);
  }
  if (stream !== undefined && stream !== null && typeof stream !== 'boolean') {
    throw new EngineError('invalid_request', `stream is true or false, got ${describe(stream)}`);
  }
  // A field set to undefined is an absent field, as in JSON.
  const generation = Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== undefined));
  return { generation, stream: stream === true, includeUsage: includeUsage(stream_options, stream === true) };
}

function includeUsage(options: unknown, stream: boolean): boolean {
  if (options === undefined || options === null) return false;
  if (!stream) throw new EngineError('invalid_request', 'stream_options is for stream: true only: leave it out or stream');
  if (typeof options !== 'object') {
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

function describe(value: unknown): string {
  return value === null ? 'null' : Array.isArray(value) ? 'an array' : `${typeof value} ${JSON.stringify(value) ?? ''}`.trim();
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
}

function head(prefix: string, model: string): Head {
  // Not crypto.randomUUID: pages that are not served securely don't have it.
  const random = crypto.getRandomValues(new Uint8Array(12));
  const id = prefix + Array.from(random, (byte) => byte.toString(16).padStart(2, '0')).join('');
  return { id, created: Math.floor(Date.now() / 1000), model };
}

function ending(chunks: Chunk[]): { finish_reason: FinishReason; usage: Usage; timings: Timings } {
  const { finish_reason, usage, timings } = chunks.at(-1) ?? {};
  if (finish_reason === undefined || usage === undefined || timings === undefined) {
    throw new EngineError('internal', 'the generation ended without a finish_reason, usage and timings: this is a fault of rillm');
  }
  return { finish_reason, usage, timings };
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

export function chatShapes(model: string): Shapes<ChatCompletion, ChatCompletionChunk> {
  const common = head('chatcmpl-', model);
  const part = (choice: Omit<ChatCompletionChunk['choices'][number], 'index' | 'logprobs'>): ChatCompletionChunk => ({
    ...common,
    object: 'chat.completion.chunk',
    choices: [{ index: 0, logprobs: null, ...choice }],
  });
  return {
    opening: () => [part({ delta: { role: 'assistant', content: '' }, finish_reason: null, token_ids: [] })],
    part(chunk, includeUsage) {
      const delta = chunk.text === '' ? {} : { content: chunk.text };
      const shaped = part({ delta, finish_reason: chunk.finish_reason ?? null, token_ids: chunk.token_ids });
      return withUsage(shaped, chunk, includeUsage);
    },
    whole(chunks) {
      const { finish_reason, usage, timings } = ending(chunks);
      const message = { role: 'assistant', content: chunks.map(({ text }) => text).join(''), refusal: null } as const;
      const token_ids = chunks.flatMap((chunk) => chunk.token_ids);
      return {
        ...common,
        object: 'chat.completion',
        choices: [{ index: 0, message, logprobs: null, finish_reason, token_ids }],
        usage,
        timings,
      };
    },
  };
}

export function completionShapes(model: string): Shapes<Completion, CompletionChunk> {
  const common = { ...head('cmpl-', model), object: 'text_completion' } as const;
  return {
    opening: () => [],
    part(chunk, includeUsage) {
      const { text, token_ids, finish_reason = null } = chunk;
      const shaped: CompletionChunk = { ...common, choices: [{ index: 0, text, logprobs: null, finish_reason, token_ids }] };
      return withUsage(shaped, chunk, includeUsage);
    },
    whole(chunks) {
      const { finish_reason, usage, timings } = ending(chunks);
      const text = chunks.map((chunk) => chunk.text).join('');
      const token_ids = chunks.flatMap((chunk) => chunk.token_ids);
      return { ...common, choices: [{ index: 0, text, logprobs: null, finish_reason, token_ids }], usage, timings };
    },
  };
}
