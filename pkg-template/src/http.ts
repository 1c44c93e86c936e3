// OpenAI's HTTP API on engines, without a server: what a client hands to `fetch` is answered here. It knows paths, status codes and
// server-sent events, and nothing of how answers come about. Source: OpenAI's API reference; events as in the HTML standard, section 9.2.

import { reading } from './arguments.js';
import { type ErrorCode, EngineError, textOf, toEngineError } from './errors.js';
import type { KeptResponses } from './responses/endpoint.js';

type Create = (request: unknown, options: { signal: AbortSignal }) => Promise<object | AsyncIterator<object, undefined>>;

/** The endpoints of one model. */
export interface Endpoints {
  chat: Create;
  completions: Create;
  embeddings: Create;
  rerank: Create;
  classify: Create;
  responses: Create;
}

/** A model as a client sees it in the list. */
export interface ServedModel {
  id: string;
  /** Unix time in seconds. */
  created: number;
}

export interface Lease {
  endpoints: Endpoints;
  release(thrown?: unknown): void;
}

/** What is served. */
export interface Served {
  models(): ServedModel[];
  /** The endpoints of the model that a request names, until `release` is called, which is done once, with what went wrong. */
  take(model: unknown, signal: AbortSignal): Promise<Lease>;
  /** Of all models. */
  kept: KeptResponses;
}

/** Errors that are not the request's fault are of the server: 500, or 503 if the same request may go well later or elsewhere. */
const STATUS: Partial<Record<ErrorCode, number>> = {
  invalid_request: 400,
  context_length_exceeded: 400,
  chat_template: 400,
  not_found: 404,
  out_of_memory: 503,
  device_lost: 503,
  worker_lost: 503,
  disposed: 503,
};

/** What went wrong, as an answer: of the API itself, or of the engine. */
export class Refusal {
  readonly status: number;
  readonly code: string;
  readonly message: string;
  readonly headers: Record<string, string>;

  constructor(status: number, code: string, message: string, headers: Record<string, string> = {}) {
    this.status = status;
    this.code = code;
    this.message = message;
    this.headers = headers;
  }

  /** For the application's functions, which know errors of the package only. */
  toError(): EngineError {
    return new EngineError(this.status === 404 ? 'not_found' : 'invalid_request', this.message);
  }
}

/** A request that was read. */
export interface HttpRequest {
  method: string;
  url: URL;
  /** Of the path, what stands after `/v1/`, without a slash at its end. */
  path: string | undefined;
  headers: Headers;
  /** The body as it came. */
  text: string;
  signal: AbortSignal;
  /** A page is opened, also by a form of another site, which a service worker gets to see. */
  isNavigation: boolean;
}

const MODEL_ENDPOINTS: Record<string, keyof Endpoints> = {
  'chat/completions': 'chat',
  completions: 'completions',
  embeddings: 'embeddings',
  rerank: 'rerank',
  classify: 'classify',
  responses: 'responses',
};

const ENDPOINTS =
  'GET /v1/models, POST /v1/chat/completions, POST /v1/completions, POST /v1/embeddings, POST /v1/rerank, POST /v1/classify, ' +
  'POST /v1/responses, GET and DELETE /v1/responses/{id}, GET /v1/responses/{id}/input_items';

/** Reads what `fetch` was given. An aborted signal rejects, as it does with the browser's `fetch`. */
export async function readRequest(input: RequestInfo | URL, init?: RequestInit): Promise<HttpRequest> {
  const request = reading('the request of fetch', () => new Request(input, init));
  // A copy may be of another mode.
  const isNavigation = reading('the request of fetch', () => input instanceof Request && input.mode === 'navigate');
  const { method, headers, signal } = request;
  signal.throwIfAborted();
  const url = new URL(request.url);
  const [, path] = /\/v1\/(.+?)\/?$/.exec(url.pathname) ?? [];
  const text = await request.text().catch((thrown: unknown) => {
    signal.throwIfAborted();
    throw new EngineError('invalid_request', `the body of the request can't be read: ${textOf(thrown)}`, { cause: thrown });
  });
  signal.throwIfAborted();
  return { method, url, path, headers, text, signal, isNavigation };
}

/** Refuses what any site may send without asking: whoever opens a page or sends a form reads no answer, and would make the model work. */
export function checkSender({ isNavigation, url }: HttpRequest): void {
  if (isNavigation) throw new Refusal(403, 'invalid_request', `${url.pathname} is no page: ask it with fetch()`);
}

/** Answers a request as a server of OpenAI's API would. Rejects with what goes wrong: `errorResponse` makes an answer of it. */
export async function answer(served: Served, request: HttpRequest): Promise<Response> {
  const { path, method, url, signal } = request;
  if (path === 'models' || path?.startsWith('models/')) return models(served.models(), path.slice('models/'.length), method);
  const endpoint = path !== undefined && Object.hasOwn(MODEL_ENDPOINTS, path) ? MODEL_ENDPOINTS[path] : undefined;
  if (endpoint === undefined) {
    const kept = /^responses\/([^/]+)(?:\/(input_items|cancel))?$/.exec(path ?? '');
    if (kept !== null) return keptResponse(served.kept, kept[1]!, kept[2], method, url);
    throw new Refusal(404, 'not_found', `there is no ${method} ${url.pathname}: there are ${ENDPOINTS}`);
  }
  if (method !== 'POST') throw wrongMethod(method, url.pathname, 'POST');
  const body = bodyOf(request);
  const { endpoints, release } = await served.take((body as { model?: unknown } | null)?.model, signal);
  let answered: object | AsyncIterator<object, undefined>;
  try {
    answered = await endpoints[endpoint](body, { signal });
  } catch (thrown) {
    release(thrown);
    throw thrown;
  }
  if (Symbol.asyncIterator in answered) {
    const parts = answered as AsyncIterator<object, undefined>;
    return eventStream(parts, endpoint === 'responses' ? NAMED_EVENTS : PLAIN_EVENTS, signal, release);
  }
  release();
  return Response.json(answered);
}

/** Answers with the status and OpenAI's error body. */
export function errorResponse(thrown: unknown): Response {
  return refusalResponse(refusalOf(thrown));
}

/** The same of an error that is nobody's here. */
export function refusalResponse(refusal: Refusal): Response {
  return Response.json(bodyOfError(refusal), { status: refusal.status, headers: refusal.headers });
}

function wrongMethod(method: string, path: string, wanted: string): Refusal {
  return new Refusal(405, 'method_not_allowed', `${path} takes ${wanted}, got ${method}`, { allow: wanted });
}

function models(served: ServedModel[], asked: string, method: string): Response {
  if (method !== 'GET') throw wrongMethod(method, '/v1/models', 'GET');
  const data = served.map(({ id, created }) => ({ id, object: 'model', created, owned_by: 'rillm' }));
  if (asked === '') return Response.json({ object: 'list', data });
  const model = data.find(({ id }) => asked === encodeURIComponent(id) || asked === id);
  if (model !== undefined) return Response.json(model);
  throw unknownModel(asked, served);
}

/** The error of a model that is not served. */
export function unknownModel(asked: string, served: ServedModel[]): Refusal {
  const names = served.map(({ id }) => JSON.stringify(id)).join(', ');
  return new Refusal(404, 'model_not_found', `there is no model ${JSON.stringify(asked)}: there is ${names}`);
}

async function keptResponse(
  kept: Served['kept'],
  id: string,
  part: string | undefined,
  method: string,
  { pathname, searchParams }: URL,
): Promise<Response> {
  if (part === 'cancel') {
    if (method !== 'POST') throw wrongMethod(method, pathname, 'POST');
    await kept.retrieve(id);
    throw new EngineError('invalid_request', 'a response can be cancelled that runs in the background, and none does: abort its request');
  }
  if (part === 'input_items') {
    if (method !== 'GET') throw wrongMethod(method, pathname, 'GET');
    const [order, limit, after] = ['order', 'limit', 'after'].map((name) => searchParams.get(name) ?? undefined);
    const query = { order: order as 'asc' | 'desc' | undefined, after, limit: limit === undefined ? undefined : Number(limit) };
    return Response.json(await kept.inputItems.list(id, query));
  }
  if (method === 'DELETE') {
    await kept.delete(id);
    return Response.json({ id, object: 'response', deleted: true });
  }
  if (method !== 'GET') throw wrongMethod(method, pathname, 'GET, DELETE');
  const response = await kept.retrieve(id);
  if (searchParams.get('stream') === 'true') {
    throw new EngineError(
      'invalid_request',
      'a response can be streamed again that ran in the background, and none does: leave stream out',
    );
  }
  return Response.json(response);
}

function bodyOf({ text }: HttpRequest): unknown {
  try {
    return JSON.parse(text);
  } catch (thrown) {
    const found = text === '' ? 'it is empty' : String((thrown as Error).message);
    throw new EngineError('invalid_request', `the body of the request is no JSON: ${found}`, { cause: thrown });
  }
}

/** Whatever was thrown, with its status. */
function refusalOf(thrown: unknown): Refusal {
  if (thrown instanceof Refusal) return thrown;
  const { code, message } = toEngineError(thrown);
  return new Refusal(STATUS[code] ?? 500, code, message);
}

function bodyOfError({ status, code, message }: Refusal): object {
  const type = status < 500 ? 'invalid_request_error' : 'server_error';
  return { error: { message, type, param: null, code } };
}

/** How an endpoint writes its events. */
interface EventFormat {
  part(part: object): string;
  error(refusal: Refusal, events: number): string;
  end: string;
}

/** The older endpoints: data without names, and a last word. */
const PLAIN_EVENTS: EventFormat = {
  part: (part) => `data: ${JSON.stringify(part)}\n\n`,
  // The status has been sent, so clients look for an error in an event.
  error: (refusal) => `data: ${JSON.stringify(bodyOfError(refusal))}\n\n`,
  end: 'data: [DONE]\n\n',
};

/** The Responses API: events have names and numbers. */
const NAMED_EVENTS: EventFormat = {
  part: (part) => `event: ${(part as { type: string }).type}\ndata: ${JSON.stringify(part)}\n\n`,
  error: ({ code, message }, events) =>
    `event: error\ndata: ${JSON.stringify({ type: 'error', code, message, param: null, sequence_number: events })}\n\n`,
  end: '',
};

/** The parts of an answer as server-sent events. A reader that stops, and an aborted signal, stop the generation. */
function eventStream(
  parts: AsyncIterator<object, undefined>,
  format: EventFormat,
  signal: AbortSignal,
  release: Lease['release'],
): Response {
  const encoder = new TextEncoder();
  let events = 0;
  let ended = false;
  let abort = () => {};
  const end = (thrown?: unknown) => {
    if (ended) return;
    ended = true;
    signal.removeEventListener('abort', abort);
    release(thrown);
  };
  const body = new ReadableStream<Uint8Array>(
    {
      start(controller) {
        abort = () => {
          controller.error(signal.reason);
          end();
          void parts.return?.();
        };
        signal.addEventListener('abort', abort, { once: true });
        // The signal may have aborted while the answer began.
        if (signal.aborted) abort();
      },
      async pull(controller) {
        try {
          const { done, value } = await parts.next();
          if (signal.aborted) return;
          if (done !== true) {
            events += 1;
            return controller.enqueue(encoder.encode(format.part(value)));
          }
          if (format.end !== '') controller.enqueue(encoder.encode(format.end));
        } catch (thrown) {
          if (signal.aborted) return;
          controller.enqueue(encoder.encode(format.error(refusalOf(thrown), events)));
          end(thrown);
        }
        end();
        controller.close();
      },
      async cancel() {
        end();
        await parts.return?.();
      },
    },
    // As far ahead as the reader asks: the engine is as patient as its reader.
    { highWaterMark: 0 },
  );
  return new Response(body, { headers: { 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-cache' } });
}
