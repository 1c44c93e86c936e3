// OpenAI's HTTP API on an engine, without a server: what a client hands to `fetch` is answered here. It knows paths, status codes and
// server-sent events, and nothing of how answers come about. Source: OpenAI's API reference; events as in the HTML standard, section 9.2.

import { type ErrorCode, EngineError, toEngineError } from './errors.js';

/** What of an engine is served. */
export interface Served {
  /** The id in the list of models. */
  id: string;
  /** Unix time in seconds. */
  created: number;
  chat: Create;
  completions: Create;
  embeddings: Create;
}

type Create = (request: unknown, options: { signal: AbortSignal }) => Promise<object | AsyncIterator<object, undefined>>;

/** Errors that are not the request's fault are of the server: 500, or 503 if the same request may go well later or elsewhere. */
const STATUS: Partial<Record<ErrorCode, number>> = {
  invalid_request: 400,
  context_length_exceeded: 400,
  chat_template: 400,
  out_of_memory: 503,
  device_lost: 503,
  disposed: 503,
};

/** What went wrong, as an answer: of the API itself, or of the engine. */
class Refusal {
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
}

const ENDPOINTS = 'GET /v1/models, POST /v1/chat/completions, POST /v1/completions, POST /v1/embeddings';

/**
 * Answers a request as a server of OpenAI's API would. What goes wrong is an answer with a status and OpenAI's error body; only an
 * aborted signal rejects, as it does with the browser's `fetch`.
 */
export async function serve(served: Served, input: RequestInfo | URL, init?: RequestInit): Promise<Response> {
  const request = new Request(input, init);
  const { signal } = request;
  signal.throwIfAborted();
  try {
    const { pathname } = new URL(request.url);
    const [, path] = /\/v1\/(.+?)\/?$/.exec(pathname) ?? [];
    if (path === 'models' || path?.startsWith('models/')) return models(served, path.slice('models/'.length), request.method);
    const create = endpoint(served, path);
    if (create === undefined) throw new Refusal(404, 'not_found', `there is no ${request.method} ${pathname}: there are ${ENDPOINTS}`);
    if (request.method !== 'POST') throw wrongMethod(request.method, pathname, 'POST');
    const answer = await create(await bodyOf(request), { signal });
    return Symbol.asyncIterator in answer ? eventStream(answer as AsyncIterator<object, undefined>, signal) : Response.json(answer);
  } catch (thrown) {
    if (signal.aborted) throw signal.reason;
    const refusal = refusalOf(thrown);
    return Response.json(bodyOfError(refusal), { status: refusal.status, headers: refusal.headers });
  }
}

function endpoint(served: Served, path: string | undefined): Create | undefined {
  switch (path) {
    case 'chat/completions':
      return served.chat;
    case 'completions':
      return served.completions;
    case 'embeddings':
      return served.embeddings;
    default:
      return undefined;
  }
}

function wrongMethod(method: string, path: string, wanted: string): Refusal {
  return new Refusal(405, 'method_not_allowed', `${path} takes ${wanted}, got ${method}`, { allow: wanted });
}

function models({ id, created }: Served, asked: string, method: string): Response {
  if (method !== 'GET') throw wrongMethod(method, '/v1/models', 'GET');
  const model = { id, object: 'model', created, owned_by: 'rillm' };
  if (asked === '') return Response.json({ object: 'list', data: [model] });
  if (asked === encodeURIComponent(id) || asked === id) return Response.json(model);
  throw new Refusal(404, 'model_not_found', `there is no model "${asked}": there is "${id}"`);
}

async function bodyOf(request: Request): Promise<unknown> {
  const text = await request.text();
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

/** The parts of an answer as server-sent events. A reader that stops, and an aborted signal, stop the generation. */
function eventStream(parts: AsyncIterator<object, undefined>, signal: AbortSignal): Response {
  const encoder = new TextEncoder();
  const event = (data: string) => encoder.encode(`data: ${data}\n\n`);
  let stop = () => {};
  const body = new ReadableStream<Uint8Array>(
    {
      start(controller) {
        const abort = () => {
          controller.error(signal.reason);
          void parts.return?.();
        };
        signal.addEventListener('abort', abort, { once: true });
        stop = () => signal.removeEventListener('abort', abort);
        // The signal may have aborted while the answer began.
        if (signal.aborted) abort();
      },
      async pull(controller) {
        try {
          const { done, value } = await parts.next();
          if (signal.aborted) return;
          if (done !== true) return controller.enqueue(event(JSON.stringify(value)));
          controller.enqueue(event('[DONE]'));
        } catch (thrown) {
          if (signal.aborted) return;
          // The status has been sent, so clients look for an error in an event.
          controller.enqueue(event(JSON.stringify(bodyOfError(refusalOf(thrown)))));
        }
        stop();
        controller.close();
      },
      async cancel() {
        stop();
        await parts.return?.();
      },
    },
    // As far ahead as the reader asks: the engine is as patient as its reader.
    { highWaterMark: 0 },
  );
  return new Response(body, { headers: { 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-cache' } });
}
