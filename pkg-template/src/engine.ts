// What callers use: loads a model into a host and offers OpenAI's endpoints on it. It decides the order of requests and the
// meaning of options; how a model runs, and on which thread, is the host's.

import { embeddingsResponse, splitEmbeddingRequest } from './embeddings.js';
import { abortError, EngineError, noWebGpu, toEngineError } from './errors.js';
import { LOAD_OPTIONS, type LoadOptions as LoadData } from './generated/loading.js';
import { RunningGeneration } from './generation.js';
import { type Served, serve } from './http.js';
import { ProcessorCalls } from './logits_processor.js';
import { chatShapes, completionShapes, type Shapes, splitRequest } from './openai.js';
import type { GenerationKind, Host, HostLoadOptions } from './protocol.js';
import { RequestQueue, type Turn } from './queue.js';
import { resolveSource, resolveUrl } from './source.js';
import { CompletionStream } from './stream.js';
import { Tensor } from './tensor.js';
import type {
  ChatCompletion,
  ChatCompletionChunk,
  ChatCompletionRequest,
  Completion,
  CompletionChunk,
  CompletionRequest,
  EmbeddingsRequest,
  EmbeddingsResponse,
  EngineStats,
  InspectOptions,
  Inspection,
  KernelUse,
  LoadOptions,
  ModelInfo,
  ModelSource,
  RequestOptions,
  TokenizeOptions,
  Warning,
} from './types.js';
import { WorkerHost } from './worker_host.js';

export interface ChatCompletions {
  create(request: ChatCompletionRequest & { stream: true }, options?: RequestOptions): Promise<CompletionStream<ChatCompletionChunk>>;
  create(request: ChatCompletionRequest & { stream?: false | null | undefined }, options?: RequestOptions): Promise<ChatCompletion>;
  create(request: ChatCompletionRequest, options?: RequestOptions): Promise<ChatCompletion | CompletionStream<ChatCompletionChunk>>;
}

export interface Completions {
  create(request: CompletionRequest & { stream: true }, options?: RequestOptions): Promise<CompletionStream<CompletionChunk>>;
  create(request: CompletionRequest & { stream?: false | null | undefined }, options?: RequestOptions): Promise<Completion>;
  create(request: CompletionRequest, options?: RequestOptions): Promise<Completion | CompletionStream<CompletionChunk>>;
}

export interface EmbeddingsEndpoint {
  create(request: EmbeddingsRequest & { encoding_format: 'base64' }, options?: RequestOptions): Promise<EmbeddingsResponse<string>>;
  create(request: EmbeddingsRequest & { encoding_format?: 'float' | undefined }, options?: RequestOptions): Promise<EmbeddingsResponse>;
  create(request: EmbeddingsRequest, options?: RequestOptions): Promise<EmbeddingsResponse<number[] | string>>;
}

/** A loaded model. Every method that fails rejects with an EngineError. */
export class Engine {
  /** What was loaded, and on which adapter it runs. */
  readonly info: ModelInfo;
  /** Answers to a conversation, in the shapes of OpenAI's chat completions. */
  readonly chat: { readonly completions: ChatCompletions };
  /** Continuations of a text, in the shapes of OpenAI's completions. */
  readonly completions: Completions;
  /**
   * Vectors of texts, of length 1, in the shapes of OpenAI's embeddings. For encoders, and for other models whose files say how the
   * vectors of their tokens become one (`info.embeds`); others reject with code `invalid_request`.
   */
  readonly embeddings: EmbeddingsEndpoint;
  /**
   * A `fetch` that answers as a server of OpenAI's API: `/v1/models`, `/v1/chat/completions`, `/v1/completions` and `/v1/embeddings`,
   * whatever the origin. It is what clients of that API take for their option `fetch`; nothing leaves the page. What goes wrong is an
   * answer with a status and OpenAI's error body; an aborted signal rejects, as it does with the browser's `fetch`.
   *
   * ```js
   * const client = new OpenAI({ baseURL: 'http://rillm/v1', apiKey: '-', fetch: engine.fetch, dangerouslyAllowBrowser: true });
   * ```
   */
  readonly fetch: (input: RequestInfo | URL, init?: RequestInit) => Promise<Response>;

  #host: Host;
  #queue: RequestQueue;
  #disposed: EngineError | undefined;

  /**
   * Loads a model: a GGUF file, or a Hugging Face folder with safetensors, from wherever it is (see `ModelSource`).
   *
   * ```js
   * const engine = await Engine.load('/models/model.gguf', { onProgress: ({ loaded, total }) => … });
   * const other = await Engine.load('hf:owner/name:Q4_K_M');
   * ```
   */
  static async load(source: ModelSource, options: LoadOptions = {}): Promise<Engine> {
    const { onProgress, signal, worker = true, draft, grammarWasmUrl } = options;
    const place = await resolveSource(source, options.file, options.hub);
    const hostOptions = hostOptionsOf(options);
    if (draft !== undefined) hostOptions.draft = await resolveSource(draft, undefined, options.hub);
    if (grammarWasmUrl !== undefined) hostOptions.grammarWasmUrl = resolveUrl(grammarWasmUrl, 'grammarWasmUrl');
    if (signal?.aborted) throw abortError(signal, 'loading the model');

    const host = await hostOf(worker);
    try {
      const engine = new Engine(host, await host.load(place, hostOptions, reporter(onProgress), signal));
      const warn = reporter(options.onWarning ?? (({ message }: Warning) => console.warn(`rillm: ${message}`)));
      engine.info.warnings.forEach(warn);
      return engine;
    } catch (thrown) {
      await host.dispose().catch(() => {});
      // A signal may carry any reason, such as a TimeoutError; the caller knows one code for all of them.
      throw signal?.aborted ? abortError(signal, 'loading the model') : toEngineError(thrown);
    }
  }

  /**
   * Reads the headers of a model and says what it is, what it needs and whether this adapter's limits allow it. Nothing is uploaded.
   *
   * ```js
   * const { architecture, weight_bytes, kv_cache_bytes, problem } = await Engine.inspect('hf:owner/name');
   * ```
   */
  static async inspect(source: ModelSource, options: InspectOptions = {}): Promise<Inspection> {
    const { signal, worker = true } = options;
    const place = await resolveSource(source, options.file, options.hub);
    const hostOptions = hostOptionsOf(options);
    if (signal?.aborted) throw abortError(signal, 'inspecting the model');

    const host = await hostOf(worker);
    try {
      return await host.inspect(place, hostOptions, signal);
    } catch (thrown) {
      throw signal?.aborted ? abortError(signal, 'inspecting the model') : toEngineError(thrown);
    } finally {
      await host.dispose().catch(() => {});
    }
  }

  private constructor(host: Host, info: ModelInfo) {
    this.#host = host;
    this.info = info;
    this.#queue = new RequestQueue(info.max_sequences);
    const model = info.name ?? info.architecture;
    this.chat = {
      completions: {
        create: ((request: unknown, options?: RequestOptions) =>
          this.#create('chat', (choices) => chatShapes(model, choices), request, options)) as ChatCompletions['create'],
      },
    };
    this.completions = {
      create: ((request: unknown, options?: RequestOptions) =>
        this.#create('completion', (choices) => completionShapes(model, choices), request, options)) as Completions['create'],
    };
    this.embeddings = {
      create: (async (request: unknown, { signal }: RequestOptions = {}) => {
        const { embedding, format } = splitEmbeddingRequest(request);
        const data = await this.#inTurn(() => this.#host.embed(embedding), signal);
        if (signal?.aborted) throw abortError(signal, 'the embedding');
        return embeddingsResponse(data, format, model);
      }) as EmbeddingsEndpoint['create'],
    };
    const served: Served = {
      id: model,
      created: Math.floor(Date.now() / 1000),
      chat: this.chat.completions.create as Served['chat'],
      completions: this.completions.create as Served['completions'],
      embeddings: this.embeddings.create as Served['embeddings'],
    };
    this.fetch = (input, init) => serve(served, input, init);
  }

  /** The token ids of a text. */
  async tokenize(text: string, options: TokenizeOptions = {}): Promise<Uint32Array> {
    this.#check();
    return this.#host.tokenize(text, options);
  }

  /** The text of token ids. */
  async detokenize(ids: ArrayLike<number>): Promise<string> {
    this.#check();
    return this.#host.detokenize(tokenIds(ids));
  }

  /** One forward pass over the tokens, beginning with an empty context: logits, float32 [n_tokens, n_vocab]. */
  async forward(ids: ArrayLike<number>): Promise<Tensor> {
    const checked = tokenIds(ids);
    return this.#inTurn(async () => new Tensor(this.#host, await this.#host.forward(checked)));
  }

  /** Resolves when the GPU has done everything that was submitted so far. */
  async sync(): Promise<void> {
    this.#check();
    await this.#host.sync();
  }

  /** The GPU counters. */
  async stats(): Promise<EngineStats> {
    this.#check();
    return this.#host.stats();
  }

  /** Sets the counters to zero. */
  async resetStats(): Promise<void> {
    this.#check();
    await this.#host.resetStats();
  }

  /**
   * Switches the timing of kernels on or off. While it is on, each dispatch has a compute pass of its own, so that the whole
   * takes longer than it does otherwise.
   *
   * @throws EngineError `adapter_limits` where the adapter has no `timestamp-query`.
   */
  async setProfiling(on: boolean): Promise<void> {
    this.#check();
    await this.#host.setProfiling(on);
  }

  /** GPU times since the last call, by kernel and by the bytes that a dispatch has bound for reading. Browsers may round them. */
  async kernelTimes(): Promise<KernelUse[]> {
    this.#check();
    return this.#host.kernelTimes();
  }

  /** Frees the GPU memory and ends the worker. What runs is rejected with code `disposed`. Calling it twice is harmless. */
  async dispose(): Promise<void> {
    if (this.#disposed !== undefined) return;
    this.#disposed = new EngineError('disposed', 'the engine was disposed of: load the model again with Engine.load()');
    this.#queue.close(this.#disposed);
    await this.#host.dispose();
  }

  async #create<Whole, Part>(
    kind: GenerationKind,
    newShapes: (choices: number) => Shapes<Whole, Part>,
    request: unknown,
    { signal, logitsProcessor }: RequestOptions = {},
  ): Promise<Whole | CompletionStream<Part>> {
    const { generation: fields, stream, includeUsage, choices } = splitRequest(request);
    const processor = logitsProcessor === undefined ? undefined : new ProcessorCalls(logitsProcessor);
    const shapes = newShapes(choices);
    const turn = await this.#turn(signal, Math.min(choices, this.info.max_sequences));
    let running: RunningGeneration;
    try {
      running = new RunningGeneration(await this.#host.generate(kind, fields, processor?.call), turn, signal, processor);
    } catch (thrown) {
      turn.release();
      throw toEngineError(thrown);
    }
    if (stream) return new CompletionStream(running, shapes, includeUsage);
    const chunks = [];
    for (let chunk = await running.next(); chunk !== undefined; chunk = await running.next()) chunks.push(chunk);
    if (signal?.aborted && chunks.some((chunk) => chunk.finish_reason === 'cancelled')) throw abortError(signal, 'the generation');
    return shapes.whole(chunks);
  }

  async #inTurn<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const turn = await this.#turn(signal);
    try {
      return await work();
    } finally {
      turn.release();
    }
  }

  async #turn(signal?: AbortSignal, places = 1): Promise<Turn> {
    this.#check();
    return this.#queue.turn(signal, places);
  }

  #check(): void {
    if (this.#disposed !== undefined) throw this.#disposed;
  }
}

async function hostOf(worker: unknown): Promise<Host> {
  if (worker === false) return pageHost();
  if (worker === true || worker === null) return new WorkerHost();
  if (typeof worker === 'function') return new WorkerHost(worker as () => Worker);
  throw new EngineError('invalid_request', `the option worker is true, false or a function that makes a Worker, got ${typeof worker}`);
}

async function pageHost(): Promise<Host> {
  // A server that renders pages is neither a page nor a worker.
  const isBrowser = globalThis.document !== undefined || 'WorkerGlobalScope' in globalThis;
  if (!isBrowser && globalThis.navigator?.gpu === undefined) throw noWebGpu();
  // Imported only when it is wanted: with a worker, the page itself never loads the wasm's glue.
  const { EngineHost } = await import('./host.js');
  return new EngineHost();
}

/** Calls the caller's function; what it throws is the caller's and must not break the load. */
function reporter<T>(report: ((value: T) => void) | undefined): (value: T) => void {
  return (value) => {
    try {
      report?.(value);
    } catch (thrown) {
      reportError(thrown);
    }
  };
}

function tokenIds(ids: ArrayLike<number>): Uint32Array {
  const array = Array.from(ids);
  const wrong = array.findIndex((id) => !Number.isInteger(id) || id < 0 || id > 0xffffffff);
  if (wrong !== -1) {
    throw new EngineError('invalid_request', `token ids are whole numbers from 0, got ${String(array[wrong])} at position ${wrong}`);
  }
  return Uint32Array.from(array);
}

/** The options that the wasm reads, of those that were given. */
function dataOf(options: LoadData): LoadData {
  const given = LOAD_OPTIONS.filter((name) => options[name] !== undefined);
  return Object.fromEntries(given.map((name) => [name, options[name]]));
}

function hostOptionsOf({ wasmUrl, ...options }: InspectOptions): HostLoadOptions {
  return { ...dataOf(options), ...(wasmUrl === undefined ? {} : { wasmUrl: resolveUrl(wasmUrl, 'wasmUrl') }) };
}
