// The endpoint of the Responses API on the chats of an engine: one request from its reading to what is kept of its response.

import { anything, type Checks, readOptions, refuse, text } from '../arguments.js';
import { EngineError, toEngineError } from '../errors.js';
import { newId, type Shapes } from '../openai.js';
import type { CompletionStream } from '../stream.js';
import type { ChatMessage, RequestOptions } from '../types.js';
import { ResponseEvents } from './events.js';
import { oneOf, textAt, wholeNumberAt } from './fields.js';
import { itemsOf, messagesOf, withoutOldest } from './input.js';
import { dataOf, readRequest } from './request.js';
import type { ResponseStore } from './store.js';
import type { ModelResponse, ResponseItem, ResponseItemList, ResponseRequest, ResponseStreamEvent } from './types.js';

/** Which page of items. */
export interface InputItemsQuery {
  /** Default: `desc`, the newest first. */
  order?: 'asc' | 'desc' | undefined;
  /** 1 to 100. Default: 20. */
  limit?: number | undefined;
  /** The id of the last item of the page before. */
  after?: string | undefined;
}

const QUERY: Checks<InputItemsQuery> = { order: anything, limit: anything, after: text };

/** Responses that are kept. */
export interface KeptResponses {
  /** A response that is kept; rejects with code `not_found` if it isn't. */
  retrieve(id: string): Promise<ModelResponse>;
  /** Keeps it no longer. Conversations that go on from a later response keep its items. */
  delete(id: string): Promise<void>;
  /** What responses were given. */
  readonly inputItems: {
    /** What the model was given for a response that is kept, earlier responses of its conversation included. */
    list(id: string, query?: InputItemsQuery): Promise<ResponseItemList>;
  };
}

/** OpenAI's Responses API. */
export interface Responses extends KeptResponses {
  /** Answers a conversation. With `stream: true` it resolves to a stream of events. */
  create(request: ResponseRequest & { stream: true }, options?: RequestOptions): Promise<CompletionStream<ResponseStreamEvent>>;
  /** Answers a conversation. With `stream: true` it resolves to a stream of events. */
  create(request: ResponseRequest & { stream?: false | null | undefined }, options?: RequestOptions): Promise<ModelResponse>;
  /** Answers a conversation. With `stream: true` it resolves to a stream of events. */
  create(request: ResponseRequest, options?: RequestOptions): Promise<ModelResponse | CompletionStream<ResponseStreamEvent>>;
}

/** Generates the answer of a chat in some shapes. */
export type ChatGenerator = (
  request: object,
  shapes: () => Shapes<ModelResponse, ResponseStreamEvent>,
  options: unknown,
) => Promise<ModelResponse | CompletionStream<ResponseStreamEvent>>;

/** `create` for a model, with responses kept in a store. */
export function creatorOf(model: string, store: ResponseStore, generate: ChatGenerator) {
  return (request: unknown, options: unknown) => create(request, options, model, store, generate);
}

/** What is kept in a store. `check` throws when it is no longer there. */
export function keptIn(store: ResponseStore, check: () => void): KeptResponses {
  return {
    async retrieve(id) {
      check();
      return store.response(textAt('the id of a response', id));
    },
    async delete(id) {
      check();
      store.delete(textAt('the id of a response', id));
    },
    inputItems: {
      async list(id, query) {
        check();
        const read = readOptions<InputItemsQuery>('the options of a list', query, QUERY);
        return pageOf(store.input(textAt('the id of a response', id)), read);
      },
    },
  };
}

async function create(
  request: unknown,
  options: unknown,
  model: string,
  store: ResponseStore,
  generate: ChatGenerator,
): Promise<ModelResponse | CompletionStream<ResponseStreamEvent>> {
  const { chat, input, echo, logprobs } = readRequest(dataOf(request));
  const earlier = echo.previous_response_id === null ? [] : store.conversation(echo.previous_response_id);
  if (input === undefined && earlier.length === 0) refuse('input is missing: a text, or an array of items');
  const items = [...earlier, ...itemsOf(input ?? [], (id) => store.item(id))];
  if (items.length === 0) refuse('input is empty, wanted at least one item');

  const head: ModelResponse = {
    id: newId('resp_'),
    object: 'response',
    created_at: Math.floor(Date.now() / 1000),
    completed_at: null,
    status: 'in_progress',
    error: null,
    incomplete_details: null,
    model,
    output: [],
    output_text: '',
    ...echo,
  };
  const keep = (response: ModelResponse, malformed: ReadonlySet<string>) => {
    if (!echo.store) return;
    const output = response.output.filter(({ id }) => !malformed.has(id)) as ResponseItem[];
    store.put(response, items, structuredClone(output));
  };
  const shapes = () => new ResponseEvents(structuredClone(head), { summary: echo.reasoning.summary !== null, logprobs, onEnd: keep });
  let messages: ChatMessage[] | undefined = messagesOf(echo.instructions, items);
  for (;;) {
    try {
      return await generate({ ...chat, messages }, shapes, options);
    } catch (thrown) {
      const error = toEngineError(thrown);
      messages = error.code === 'context_length_exceeded' && echo.truncation === 'auto' ? withoutOldest(messages) : undefined;
      if (messages === undefined) throw error;
    }
  }
}

/** A page of the items that a response was made from, with the query of a URL or of a program. */
export function pageOf(items: ResponseItem[], { order = 'desc', limit = 20, after }: InputItemsQuery): ResponseItemList {
  oneOf('order', order, ['asc', 'desc']);
  wholeNumberAt('limit', limit, 1, 100);
  const all = order === 'asc' ? items : [...items].reverse();
  const last = after === undefined ? -1 : all.findIndex(({ id }) => id === after);
  if (after !== undefined && last === -1) throw new EngineError('invalid_request', `after is "${after}", which is no item of the response`);
  const data = all.slice(last + 1, last + 1 + limit);
  return {
    object: 'list',
    data,
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
    has_more: last + 1 + limit < all.length,
  };
}
