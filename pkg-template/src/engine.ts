// What callers use: loads a model into a host and offers OpenAI's endpoints on it. It decides the order of requests and the
// meaning of options; how a model runs, and on which thread, is the host's.

import { unlessAborted } from './abort.js';
import { type Adapters, adapterSources, adaptersOf } from './adapters.js';
import { abortSignal, anything, callable, checkArgument, type Checks, numbersOf, readOptions, text as aText, truth } from './arguments.js';
import { embeddingsResponse, splitEmbeddingRequest } from './embeddings.js';
import { abortError, EngineError, toEngineError } from './errors.js';
import { unkept } from './files/options.js';
import { RunningGeneration } from './generation.js';
import { checkWorker, hostOf } from './host_choice.js';
import { checkLength } from './json.js';
import { loadOptions, SMOOTHNESS } from './load_options.js';
import { hostLoad, hostOptionsOf, loadHost, warner } from './load_host.js';
import { loadServices, modelName, persist } from './load_services.js';
import { type FallbackOptions, fetchOf } from './fallback.js';
import type { Endpoints, Served } from './http.js';
import { ProcessorCalls } from './logits_processor.js';
import { chatShapes, completionShapes, requestOf, type Shapes, splitRequest } from './openai.js';
import type { GenerationKind, LoadedHost, ScoreKind } from './protocol.js';
import { RequestQueue, type Turn } from './queue.js';
import { recommend, type Recommendation, type RecommendOptions } from './recommend.js';
import { withReasoningEffort } from './reasoning_effort.js';
import { creatorOf, keptIn, type Responses } from './responses/endpoint.js';
import { ResponseStore } from './responses/store.js';
import { SCORED, splitClassifyRequest, splitRerankRequest, type SplitScoreRequest } from './scores.js';
import { type Sessions, sessionsOf } from './sessions/endpoint.js';
import { shareModel, type SharedOptions } from './shared/share.js';
import { resolveSource } from './source.js';
import { CompletionStream } from './stream.js';
import { type Training, trainingOf } from './train/endpoint.js';
import { Tensor } from './engine_tensor.js';
import type {
  AdapterOptions,
  ChatCompletion,
  ChatCompletionChunk,
  ChatCompletionRequest,
  ClassifyRequest,
  ClassifyResponse,
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
  RerankRequest,
  RerankResponse,
  Smoothness,
  TokenizeOptions,
} from './types.js';
import type { EngineWasm } from './wasm_source.js';

/** Answers to conversations. */
export interface ChatCompletions {
  /**
   * Answers a conversation. With `stream: true` it resolves, as soon as the prompt was taken in, to a stream of chunks.
   *
   * @throws EngineError `invalid_request` for a field that is unknown, of another type or out of its range; `context_length_exceeded` for a prompt that
   *   doesn't fit; `chat_template` if the template fails; `out_of_memory`; `aborted` by the signal; `disposed`.
   */
  create(request: ChatCompletionRequest & { stream: true }, options?: RequestOptions): Promise<CompletionStream<ChatCompletionChunk>>;
  create(request: ChatCompletionRequest & { stream?: false | null | undefined }, options?: RequestOptions): Promise<ChatCompletion>;
  create(request: ChatCompletionRequest, options?: RequestOptions): Promise<ChatCompletion | CompletionStream<ChatCompletionChunk>>;
}

/** Continuations of texts. */
export interface Completions {
  /**
   * Continues a text, or answers it by an encoder-decoder. With `stream: true` it resolves to a stream of chunks.
   *
   * @throws EngineError As {@link ChatCompletions.create}, but `chat_template`.
   */
  create(request: CompletionRequest & { stream: true }, options?: RequestOptions): Promise<CompletionStream<CompletionChunk>>;
  create(request: CompletionRequest & { stream?: false | null | undefined }, options?: RequestOptions): Promise<Completion>;
  create(request: CompletionRequest, options?: RequestOptions): Promise<Completion | CompletionStream<CompletionChunk>>;
}

/** Vectors of texts. */
export interface EmbeddingsEndpoint {
  /**
   * Makes a vector of length 1 of each text: arrays of numbers, or with `encoding_format: 'base64'` texts.
   *
   * @throws EngineError `invalid_request` if the model makes no embeddings; `context_length_exceeded` for a text that is longer than the model takes,
   *   unless `truncate` is true; `aborted` by the signal.
   */
  create(request: EmbeddingsRequest & { encoding_format: 'base64' }, options?: RequestOptions): Promise<EmbeddingsResponse<string>>;
  create(request: EmbeddingsRequest & { encoding_format?: 'float' | undefined }, options?: RequestOptions): Promise<EmbeddingsResponse>;
  create(request: EmbeddingsRequest, options?: RequestOptions): Promise<EmbeddingsResponse<number[] | string>>;
}

/** Documents ranked by a query. */
export interface RerankEndpoint {
  /**
   * Scores each document and sorts them, the best first.
   *
   * @throws EngineError `invalid_request` if the model ranks nothing; `context_length_exceeded` for a pair that is longer than the model takes, unless
   *   `truncate` is true; `aborted` by the signal.
   */
  create(request: RerankRequest, options?: RequestOptions): Promise<RerankResponse>;
}

/** Labels of texts. */
export interface ClassifyEndpoint {
  /**
   * Labels each text or pair.
   *
   * @throws EngineError `invalid_request` if the model has no labels; otherwise as {@link RerankEndpoint.create}.
   */
  create(request: ClassifyRequest, options?: RequestOptions): Promise<ClassifyResponse>;
}

/** What a forward pass gives besides logits. */
export interface ForwardOptions {
  /** After how many layers hidden states are wanted: from 0, the input of the first layer, to the model's number of layers. */
  hiddenStates: readonly number[];
}

const TOKENIZE: Checks<TokenizeOptions> = { add_special: truth, parse_special: truth };
const FORWARD: Checks<ForwardOptions> = { hiddenStates: anything };
const REQUEST: Checks<RequestOptions> = { signal: abortSignal, logitsProcessor: callable };

/** What makes each engine's endpoints. */
const ENDPOINTS = new WeakMap<Engine, (name: string, store: ResponseStore) => Endpoints>();

/** The endpoints of an engine, under a name for its model and with responses kept in this store. @internal */
export function endpointsOf(engine: Engine, name: string, store: ResponseStore): Endpoints {
  return ENDPOINTS.get(engine)!(name, store);
}

/** A loaded model. Every method that fails rejects with an EngineError. */
export class Engine {
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
   * Documents ranked by a query, in the shape of Jina's and Cohere's rerank API. For rerankers (`info.reranks`); others reject with code
   * `invalid_request`.
   *
   * ```js
   * const { results } = await engine.rerank.create({ query: 'What floats?', documents: ['A boat.', 'A stone.'], top_n: 1 });
   * ```
   */
  readonly rerank: RerankEndpoint;
  /**
   * Labels of texts, in the shape of vLLM's `/classify`. For models with a head that labels texts (`info.labels`); others reject with code
   * `invalid_request`.
   */
  readonly classify: ClassifyEndpoint;
  /**
   * Answers to a conversation, in the shapes of OpenAI's Responses API. The newest responses are kept in memory, so that the next one can go
   * on from them (`previous_response_id`).
   *
   * ```js
   * const { id, output_text } = await engine.responses.create({ input: 'What is 12 plus 30?' });
   * const next = await engine.responses.create({ previous_response_id: id, input: 'And twice that?' });
   * ```
   */
  readonly responses: Responses;
  /**
   * Conversations that are saved with what the model made of them, and go on later without being taken in again.
   *
   * ```js
   * await engine.sessions.save(messages, { name: 'chat 1' });
   * const { conversation } = await engine.sessions.restore('chat 1'); // after a reload
   * ```
   */
  readonly sessions: Sessions;
  /**
   * Adapters (LoRA) beside the model's weights: loaded and unloaded while the engine runs, mixed by scales, and named by requests
   * (`adapters: {name: scale}`).
   */
  readonly adapters: Adapters;
  /**
   * Adapters (LoRA) that are trained here, beside the model's weights as they are. For an engine that was loaded with `training: true`, or enabled since
   * (`train.enable`).
   *
   * ```js
   * const { losses } = await engine.train.lora({ data: chats, name: 'game', onProgress: console.log });
   * ```
   */
  readonly train: Training;
  /**
   * A `fetch` that answers as a server of OpenAI's API: `/v1/models`, `/v1/chat/completions`, `/v1/completions`, `/v1/embeddings`,
   * `/v1/responses`, and besides `/v1/rerank` and `/v1/classify`, whatever the origin. It is what clients of that API take for their option
   * `fetch`; nothing leaves the page. What goes wrong is an answer with a status and OpenAI's error body; an aborted signal rejects, as it does with the browser's `fetch`.
   *
   * ```js
   * const client = new OpenAI({ baseURL: 'http://rillm/v1', apiKey: '-', fetch: engine.fetch, dangerouslyAllowBrowser: true });
   * ```
   */
  readonly fetch: (input: RequestInfo | URL, init?: RequestInit) => Promise<Response>;

  #host: LoadedHost;
  #info: ModelInfo;
  #queue: RequestQueue;
  #store = new ResponseStore();
  #served: Served;
  #disposed: EngineError | undefined;

  /**
   * Loads a model: a GGUF file, or a Hugging Face folder with safetensors, from wherever it is (see `ModelSource`).
   *
   * ```js
   * const engine = await Engine.load('/models/model.gguf', { onProgress: ({ loaded, total }) => … });
   * const other = await Engine.load('hf:owner/name:Q4_K_M');
   * ```
   */
  static async load(source: ModelSource, given: LoadOptions = {}): Promise<Engine> {
    const options = loadOptions('Engine.load', given);
    const { signal } = options;
    const adapters = adapterSources(options.adapters);
    const [place, hostOptions] = await unlessAborted(hostLoad(source, options), signal, 'loading the model');
    await unlessAborted(persist(options), signal, 'loading the model');
    const { host, info } = await loadHost(place, hostOptions, options);
    const engine = new Engine(host, info, options, undefined, hostOptions.wasm);
    try {
      for (const { source: adapter, ...fields } of adapters) {
        await engine.adapters.load(adapter, { ...ofFiles(options), ...fields });
      }
    } catch (thrown) {
      await engine.dispose().catch(() => {});
      throw thrown;
    }
    return engine;
  }

  /**
   * One engine for all tabs of an origin that name the same source and the same options of the engine: one of them loads and runs the model,
   * the others ask it. When that tab is closed, another takes over, and answers under way go on where they stood. `dispose()` leaves the
   * others; the engine is gone with the last one.
   *
   * ```js
   * const engine = await Engine.shared('hf:owner/name', { onEvent: ({ type }) => console.log(type) });
   * ```
   *
   * Files and other objects of one tab can't be shared, nor can what a single tab holds: `forward`, `setSmoothness`, `setProfiling`,
   * `resetStats`, `kernelTimes` and `logitsProcessor` reject with code `invalid_request`. Where tabs can't find each other (a page that isn't served
   * securely), it is an engine of this tab's own, and `onEvent` hears `unshared`.
   */
  static async shared(source: ModelSource, given: SharedOptions = {}): Promise<Engine> {
    const options = loadOptions('Engine.shared', given) as SharedOptions;
    const { signal } = options;
    const [place, hostOptions] = await unlessAborted(hostLoad(source, options), signal, 'loading the model');
    if (options.adapters !== undefined) {
      throw new EngineError('invalid_request', 'an engine that tabs share takes no adapters: load one with Engine.load()');
    }
    if (options.training === true) {
      throw new EngineError('invalid_request', 'an engine that tabs share trains nothing: train with one of Engine.load()');
    }
    checkWorker(options.worker);
    const sharing = await shareModel(place, hostOptions, options, (report, ending) =>
      loadHost(place, hostOptions, { ...options, ...report, signal: ending }, false),
    );
    if (sharing === undefined) return Engine.load(source, options);
    if (signal?.aborted) throw abortError(signal, 'loading the model');
    await persist(options);
    const host = sharing();
    try {
      return new Engine(host, await host.info(signal), options, Number.POSITIVE_INFINITY);
    } catch (thrown) {
      await host.dispose();
      throw thrown;
    }
  }

  /**
   * Reads the headers of a model and says what it is, what it needs and whether this adapter's limits allow it. Nothing is uploaded.
   *
   * ```js
   * const { architecture, weight_bytes, kv_cache_bytes, problem } = await Engine.inspect('hf:owner/name');
   * ```
   */
  static async inspect(source: ModelSource, given: InspectOptions = {}): Promise<Inspection> {
    const options = loadOptions('Engine.inspect', given);
    const { signal, worker } = options;
    const what = 'inspecting the model';
    const place = await unlessAborted(resolveSource(source, options.file, options.hub), signal, what);
    const hostOptions = await unlessAborted(hostOptionsOf(options, unkept(modelName(place), options)), signal, what);

    const host = hostOf(worker);
    const services = loadServices({}, hostOptions.wasm);
    try {
      return await host.inspect(place, hostOptions, services, signal);
    } catch (thrown) {
      throw signal?.aborted ? abortError(signal, 'inspecting the model') : toEngineError(thrown);
    } finally {
      services.end();
      await host.dispose().catch(() => {});
    }
  }

  /**
   * Says of each model whether this device can run it and about how fast, the best first: of those that are fast enough the largest. Headers
   * are read, and what would run them is measured, for 200 ms the GPU's bandwidth or for 100 ms the CPU; nothing is loaded.
   *
   * ```js
   * const [best] = await Engine.recommend(['hf:owner/small', 'hf:owner/large']);
   * if (best?.fits) console.log(best.source, best.reason);
   * ```
   *
   * @throws EngineError `webgpu_unavailable` or `adapter_unavailable` where `device: 'gpu'` has no GPU, `wasm_unavailable` where nothing can run. A model
   * that can't be read is in the list.
   */
  static async recommend(sources: ModelSource[], options: RecommendOptions = {}): Promise<Recommendation[]> {
    return recommend(sources, options, (source, more) => Engine.inspect(source, more));
  }

  /** `most` requests run at the same time here; those of a host that has a queue itself wait there. */
  private constructor(
    host: LoadedHost,
    info: ModelInfo,
    { onWarning }: Pick<LoadOptions, 'onWarning'>,
    most = info.max_sequences,
    wasm?: EngineWasm,
  ) {
    this.#host = host;
    this.#info = info;
    this.#queue = new RequestQueue(most);
    info.warnings.forEach(warner(onWarning));
    const model = info.name ?? info.architecture;
    const endpoints = this.#endpoints(model, this.#store);
    this.chat = { completions: { create: endpoints.chat } };
    this.completions = { create: endpoints.completions };
    this.embeddings = { create: endpoints.embeddings };
    this.rerank = { create: endpoints.rerank };
    this.classify = { create: endpoints.classify };
    this.responses = { create: endpoints.responses, ...keptIn(this.#store, () => this.#check()) };
    this.adapters = adaptersOf({ host, wasm, check: () => this.#check() });
    this.train = trainingOf({ host, check: () => this.#check() });
    this.sessions = sessionsOf({
      store: this.#store,
      check: () => this.#check(),
      inTurn: (work, signal) => this.#inTurn(() => work(host), signal),
    });
    const created = Math.floor(Date.now() / 1000);
    this.#served = {
      models: () => [{ id: model, created }],
      take: async () => ({ endpoints: endpoints as Endpoints, release: () => {} }),
      kept: this.responses,
    };
    this.fetch = fetchOf(this.#served);
    ENDPOINTS.set(this, (name, store) => this.#endpoints(name, store) as Endpoints);
  }

  /**
   * The same as `fetch`, but what this device can't do, or `when` says, goes to a server of OpenAI's API.
   *
   * ```js
   * const fetch = engine.createFetch({ fallback: { baseURL: 'https://llm.example/v1', apiKey }, onFallback: console.log });
   * ```
   */
  createFetch(options: FallbackOptions = {}): Engine['fetch'] {
    return fetchOf(this.#served, options);
  }

  /**
   * The token ids of a text.
   *
   * @throws EngineError `invalid_request` for a text of more than 67 million characters, which no request takes either.
   */
  async tokenize(text: string, options: TokenizeOptions = {}): Promise<Uint32Array> {
    this.#check();
    checkArgument('the text of tokenize', text, aText);
    checkLength('the text of tokenize', text);
    return this.#host.tokenize(text, readOptions('the options of tokenize', options, TOKENIZE));
  }

  /** The text of token ids. */
  async detokenize(ids: ArrayLike<number>): Promise<string> {
    this.#check();
    return this.#host.detokenize(numbersOf('token ids', ids));
  }

  /** One forward pass over the tokens, beginning with an empty context: logits, float32 [n_tokens, n_vocab]. */
  async forward(ids: ArrayLike<number>): Promise<Tensor>;
  /**
   * The same with hidden states, float32 [n_tokens, embedding_length] each: 0 is the input of the first layer, `i` the residual stream after `i`
   * layers, before the last norm.
   *
   * @throws EngineError `out_of_range` for more layers than the model has.
   */
  async forward(ids: ArrayLike<number>, options: ForwardOptions): Promise<{ logits: Tensor; hiddenStates: Tensor[] }>;
  async forward(ids: ArrayLike<number>, options?: ForwardOptions): Promise<Tensor | { logits: Tensor; hiddenStates: Tensor[] }> {
    this.#check();
    const checked = numbersOf('token ids', ids);
    const wanted = options === undefined ? [] : readOptions('the options of forward', options, FORWARD).hiddenStates;
    const layers = numbersOf('the numbers of layers in hiddenStates', wanted);
    const [logits, ...hiddenStates] = await this.#inTurn(async () =>
      (await this.#host.forward(checked, layers)).map((data) => new Tensor(this.#host, data)),
    );
    return options === undefined ? logits! : { logits: logits!, hiddenStates };
  }

  /**
   * Vectors of texts, as {@link Engine.embeddings} makes them, in a tensor [inputs, dimensions] that stays on the GPU. The request is the same, without
   * `encoding_format`.
   */
  async embedTensor(request: Omit<EmbeddingsRequest, 'encoding_format'>): Promise<Tensor> {
    this.#check();
    const { embedding } = splitEmbeddingRequest(request);
    return this.#inTurn(async () => new Tensor(this.#host, await this.#host.embedTensor(embedding)));
  }

  /**
   * What was loaded, and on which adapter it runs. After a recovery it is what was loaded then: a GPU with less room may have given a shorter
   * `context_length`, of which `onWarning` hears.
   */
  get info(): ModelInfo {
    return this.#host.loaded ?? this.#info;
  }

  /**
   * The GPUDevice of an engine on this thread (`worker: false`), to share its tensors with `rillm/tensor` or with passes of the application. It stays
   * the engine's, which destroys it. Undefined in a worker.
   */
  get gpuDevice(): GPUDevice | undefined {
    this.#check();
    return this.#host.gpuDevice?.();
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
   * Changes what counts for more from now on, `frames` of pages or `throughput`, also while answers are under way: the option `smoothness` of
   * the load. An engine that tabs share keeps what it was loaded with.
   */
  async setSmoothness(smoothness: Smoothness): Promise<void> {
    this.#check();
    checkArgument('the argument of setSmoothness', smoothness, SMOOTHNESS);
    await this.#host.setSmoothness(smoothness);
  }

  /**
   * Switches the timing of kernels on or off. While it is on, each dispatch has a compute pass of its own, so that the whole
   * takes longer than it does otherwise.
   *
   * @throws EngineError `adapter_limits` where the adapter has no `timestamp-query`.
   */
  async setProfiling(on: boolean): Promise<void> {
    this.#check();
    checkArgument('the argument of setProfiling', on, truth);
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
    this.#store.clear();
    await this.#host.dispose();
  }

  /** The endpoints under a name for the model, with responses kept in a store. */
  #endpoints(model: string, store: ResponseStore) {
    const chat = async (request: unknown, options: unknown) => {
      this.#check();
      return this.#create('chat', (choices) => chatShapes(model, choices), withReasoningEffort(requestOf(request)), options);
    };
    const completions = (request: unknown, options: unknown) =>
      this.#create('completion', (choices) => completionShapes(model, choices), request, options);
    const embeddings = async (request: unknown, options: unknown) => {
      this.#check();
      const { signal } = readOptions('the options of a request', options, REQUEST);
      const { embedding, format } = splitEmbeddingRequest(request);
      const working = this.#inTurn(() => this.#host.embed(embedding, signal), signal);
      // What runs keeps its turn to its end.
      const data = await unlessAborted(working, signal, 'the embedding');
      return embeddingsResponse(data, format, model);
    };
    const score =
      <Kind extends ScoreKind>(kind: Kind, split: (request: unknown) => SplitScoreRequest<Kind>) =>
      async (request: unknown, options: unknown) => {
        this.#check();
        const { signal } = readOptions('the options of a request', options, REQUEST);
        const { fields, answer } = split(request);
        const scoring = this.#inTurn(() => this.#host.score(kind, fields, signal), signal);
        return answer(await unlessAborted(scoring, signal, SCORED[kind]), model);
      };
    const responses = creatorOf(model, store, async (request, shapes, options) =>
      this.#create('chat', shapes, withReasoningEffort(request), options),
    );
    return {
      chat: chat as ChatCompletions['create'],
      completions: completions as Completions['create'],
      embeddings: embeddings as EmbeddingsEndpoint['create'],
      rerank: score('rerank', splitRerankRequest) as RerankEndpoint['create'],
      classify: score('classify', splitClassifyRequest) as ClassifyEndpoint['create'],
      responses: (async (request: unknown, options: unknown) => {
        this.#check();
        return responses(request, options);
      }) as Responses['create'],
    };
  }

  async #create<Whole, Part>(
    kind: GenerationKind,
    newShapes: (choices: number) => Shapes<Whole, Part>,
    request: unknown,
    options: unknown,
  ): Promise<Whole | CompletionStream<Part>> {
    this.#check();
    const { signal, logitsProcessor } = readOptions('the options of a request', options, REQUEST);
    const { generation: fields, stream, includeUsage, choices } = splitRequest(request);
    const processor = logitsProcessor === undefined ? undefined : new ProcessorCalls(logitsProcessor);
    const shapes = newShapes(choices);
    const turn = await this.#turn(signal, Math.min(choices, this.info.max_sequences));
    const accepting = this.#host.generate(kind, fields, processor?.call, undefined, signal);
    let running: RunningGeneration;
    try {
      running = new RunningGeneration(await unlessAborted(accepting, signal, 'the generation'), turn, signal, processor);
    } catch (thrown) {
      // One that is accepted when nobody waits for it any more ends at once.
      const release = () => turn.release();
      void accepting.then((generation) => generation.release()).then(release, release);
      throw toEngineError(thrown);
    }
    if (stream) return new CompletionStream(running, shapes, includeUsage);
    const next = () => unlessAborted(running.next(), signal, 'the generation');
    const chunks = [];
    try {
      for (let chunk = await next(); chunk !== undefined; chunk = await next()) chunks.push(chunk);
    } catch (thrown) {
      // Nobody waits for the step that runs, but the turn is given back after it.
      running.discard();
      throw thrown;
    }
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

/** What an adapter's load takes of a model's: how files are fetched and kept, but for their digests, which are the model's. */
function ofFiles({ hub, signal, cache, update, connections, stallTimeoutMs, retries, onEvent }: LoadOptions): AdapterOptions {
  return { hub, signal, cache, update, connections, stallTimeoutMs, retries, onEvent };
}
