// A `fetch` that sends what this device can't do to a server of the same API. It knows no engines.

import { address, anything, callable, type Checks, describe, readOptions, reading, text, texts } from './arguments.js';
import { type ErrorCode, EngineError, toEngineError } from './errors.js';
import { answer, checkSender, errorResponse, type HttpRequest, readRequest, Refusal, refusalResponse, type Served } from './http.js';

/** Says who answered: `local` or `remote`. */
const BACKEND_HEADER = 'x-rillm-backend';

/** A request as the application's functions see it. */
export interface FallbackRequest {
  /** Such as `POST`. */
  method: string;
  /** Such as `/v1/chat/completions`. */
  path: string;
  /** Of the body. */
  model?: string;
  /** What the JSON of the body says; undefined without a body, or if it is no JSON. */
  body: unknown;
}

/** A request that goes to the server. */
export interface FallbackEvent extends FallbackRequest {
  /** Where it goes. */
  url: string;
  /** Why, if it was tried here. */
  error?: EngineError;
}

/** A server of OpenAI's API. */
export interface Fallback {
  /** Such as `https://llm.example/v1`. */
  baseURL: string | URL;
  /** Sent as `Authorization: Bearer …`. The key that a client was given stays here. */
  apiKey?: string | undefined;
  /** Sent besides `content-type` and `accept`; no other header of the client's is. */
  headers?: Record<string, string> | undefined;
  /** What the server calls the models. Names that are not here are sent as they are. */
  models?: Record<string, string> | undefined;
  /**
   * Asked twice: before a request is tried here, without an error, and if it went wrong, with the error. True sends it to the server, besides
   * what goes there anyway.
   */
  when?: ((request: FallbackRequest, error: EngineError | undefined) => boolean | Promise<boolean>) | undefined;
}

/** Where requests go that this device can't do. */
export interface FallbackOptions {
  /**
   * Where requests go that this device can't do: because there is no WebGPU or no adapter, because the adapter or its memory is too small, or
   * because the model is of a kind that is not supported; also those about responses that are not kept here. Default: nowhere.
   */
  fallback?: Fallback | undefined;
  /** Called before a request goes to the server. */
  onFallback?: ((event: FallbackEvent) => void) | undefined;
}

const FALLBACK: Checks<Fallback> = { baseURL: address, apiKey: text, headers: texts, models: texts, when: callable };

/** The checks of what `createFetch` takes. */
export const FALLBACK_OPTIONS: Checks<FallbackOptions> = { fallback: anything, onFallback: callable };

const CANNOT_RUN: readonly ErrorCode[] = [
  'webgpu_unavailable',
  'adapter_unavailable',
  'adapter_limits',
  'out_of_memory',
  'unsupported_architecture',
  'unsupported_tensor_type',
  'unsupported_tokenizer',
  'unsupported_gguf_version',
];

/** What goes wrong is an answer with a status and OpenAI's error body; an aborted signal rejects, as it does with the browser's `fetch`. */
export function fetchOf(served: Served, options?: FallbackOptions): (input: RequestInfo | URL, init?: RequestInit) => Promise<Response> {
  const { fallback, onFallback } = readOptions('the options of createFetch', options, FALLBACK_OPTIONS);
  const remote = fallback === undefined ? undefined : new Remote(fallback, onFallback);
  return async (input, init) => {
    const request = await readRequest(input, init);
    try {
      checkSender(request);
      return await answerOrPass(served, remote, request);
    } catch (thrown) {
      if (request.signal.aborted) throw request.signal.reason;
      return marked(errorResponse(thrown), 'local');
    }
  };
}

async function answerOrPass(served: Served, remote: Remote | undefined, request: HttpRequest): Promise<Response> {
  if (remote !== undefined && request.path !== undefined) {
    if (await remote.wants(request, undefined)) return remote.send(request, undefined);
    const id = responseId(request);
    if (id !== undefined && !(await isKept(served, id))) return remote.send(request, undefined);
  }
  try {
    return marked(await answer(served, request), 'local');
  } catch (thrown) {
    if (request.signal.aborted || remote === undefined || request.path === undefined) throw thrown;
    const error = thrown instanceof Refusal ? thrown.toError() : toEngineError(thrown);
    if (!CANNOT_RUN.includes(error.code) && !(await remote.wants(request, error))) throw thrown;
    return remote.send(request, error);
  }
}

function marked(response: Response, backend: 'local' | 'remote'): Response {
  response.headers.set(BACKEND_HEADER, backend);
  return response;
}

/** The id of the earlier response that a request is about. */
function responseId({ path, text }: HttpRequest): string | undefined {
  if (path === 'responses') {
    const id = (parsed(text) as { previous_response_id?: unknown } | null | undefined)?.previous_response_id;
    return typeof id === 'string' ? id : undefined;
  }
  return /^responses\/([^/]+)/.exec(path ?? '')?.[1];
}

async function isKept(served: Served, id: string): Promise<boolean> {
  return served.kept.retrieve(id).then(
    () => true,
    (thrown) => toEngineError(thrown).code !== 'not_found',
  );
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The server behind. */
class Remote {
  #fallback: Fallback;
  #onFallback: FallbackOptions['onFallback'];
  #base: string;

  constructor(given: Fallback, onFallback: FallbackOptions['onFallback']) {
    const fallback = readOptions('the options of fallback', given, FALLBACK);
    const { baseURL, headers = {} } = fallback;
    if (!URL.canParse(String(baseURL))) {
      throw new EngineError(
        'invalid_request',
        `fallback.baseURL is ${describe(baseURL)}, wanted an absolute URL such as https://llm.example/v1`,
      );
    }
    reading('fallback.headers', () => new Headers(headers));
    this.#fallback = fallback;
    this.#onFallback = onFallback;
    this.#base = String(baseURL).replace(/\/+$/, '');
  }

  async wants(request: HttpRequest, error: EngineError | undefined): Promise<boolean> {
    return (await this.#fallback.when?.(described(request), error)) === true;
  }

  async send(request: HttpRequest, error: EngineError | undefined): Promise<Response> {
    const { method, signal } = request;
    signal.throwIfAborted();
    const url = `${this.#base}/${request.path}${request.url.search}`;
    try {
      this.#onFallback?.({ ...described(request), url, ...(error === undefined ? {} : { error }) });
    } catch (thrown) {
      reportError(thrown);
    }
    const init: RequestInit = { method, headers: this.#headers(request), signal };
    if (method !== 'GET' && method !== 'HEAD' && request.text !== '') init.body = this.#body(request.text);
    let response: Response;
    try {
      response = await fetch(url, init);
    } catch (thrown) {
      signal.throwIfAborted();
      const here = error === undefined ? '' : `; here: ${error.code}: ${error.message}`;
      const refusal = new Refusal(502, 'network', `the fallback ${this.#base} could not be reached: ${String(thrown)}${here}`);
      return marked(refusalResponse(refusal), 'remote');
    }
    const headers = new Headers(response.headers);
    // The body comes decoded.
    for (const name of ['content-encoding', 'content-length']) headers.delete(name);
    return marked(new Response(response.body, { status: response.status, statusText: response.statusText, headers }), 'remote');
  }

  #headers({ headers: given }: HttpRequest): Headers {
    const { apiKey, headers } = this.#fallback;
    const sent = new Headers();
    for (const name of ['content-type', 'accept']) {
      const value = given.get(name);
      if (value !== null) sent.set(name, value);
    }
    if (apiKey !== undefined) sent.set('authorization', `Bearer ${apiKey}`);
    for (const [name, value] of Object.entries(headers ?? {})) sent.set(name, value);
    return sent;
  }

  /** As it came, but for the name of the model if the server has another. */
  #body(text: string): string {
    const body = parsed(text);
    const model = modelOf(body);
    const { models = {} } = this.#fallback;
    if (model === undefined || !Object.hasOwn(models, model)) return text;
    return JSON.stringify({ ...(body as object), model: models[model] });
  }
}

function described({ method, path, text }: HttpRequest): FallbackRequest {
  const body = parsed(text);
  const model = modelOf(body);
  return { method, path: `/v1/${path}`, body, ...(model === undefined ? {} : { model }) };
}

function modelOf(body: unknown): string | undefined {
  const model = (body as { model?: unknown } | null | undefined)?.model;
  return typeof model === 'string' ? model : undefined;
}
