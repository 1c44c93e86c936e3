// A stand-in for the package in tests of the page: answers what a test has planned, in the package's own types. It is served in place of rillm/dist/index.js, so
// that tests of the page wait for no model. `globalThis.stub` is what tests plan with.

import type {
  ChatCompletionChunk,
  ChatCompletionRequest,
  Engine as RealEngine,
  EngineStats,
  Inspection,
  InspectOptions,
  KeptModel,
  LoadOptions,
  LoadProgress,
  ModelInfo,
  ModelSource,
  models as realModels,
  Recommendation,
  RequestOptions,
} from '../../../pkg-template/src/index.js';

type Delta = ChatCompletionChunk['choices'][number]['delta'];
type Finish = NonNullable<ChatCompletionChunk['choices'][number]['finish_reason']>;

/**
 * An answer: pieces that come one after the other, and how it ends. `hold`: it stops before its last piece until `stub.go()`, or before the first with `holdPrompt`.
 * `pauseMs` lies before each piece.
 */
interface Plan {
  deltas?: Delta[];
  finish?: Finish;
  cached?: number;
  error?: { code: string; message: string };
  hold?: boolean;
  holdPrompt?: boolean;
  pauseMs?: number;
}

class Failure extends Error {
  readonly code: string;

  constructor({ code, message }: { code: string; message: string }) {
    super(message);
    this.code = code;
  }
}

const gates: (() => void)[] = [];

const stub = {
  plans: [] as Plan[],
  requests: [] as ChatCompletionRequest[],
  loads: [] as { source: ModelSource; options: LoadOptions }[],
  disposed: [] as string[],
  /** What the next load ends in, and what it says before. */
  loadError: undefined as { code: string; message: string } | undefined,
  loadProgress: [] as LoadProgress[],
  loadEvents: [] as Parameters<NonNullable<LoadOptions['onEvent']>>[0][],
  holdLoad: false,
  kept: [] as KeptModel[],
  /** What the next deletion ends in. */
  deleteError: undefined as { code: string; message: string } | undefined,
  inspection: undefined as Inspection | undefined,
  /** In place of that, by the source. */
  inspectionOf: undefined as ((source: string) => Inspection) | undefined,
  inspected: [] as { source: ModelSource; options: InspectOptions }[],
  holdInspection: false,
  recommendation: { fits: false, reason: 'nothing is known of it' } as Omit<Recommendation, 'source' | 'device'>,
  contextLength: 4096,
  /** Lets everything that is held go on. */
  go() {
    for (const open of gates.splice(0)) open();
  },
};

function held(signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    gates.push(resolve);
    if (signal?.aborted) resolve();
    signal?.addEventListener('abort', () => resolve(), { once: true });
  });
}

const counters = {
  dispatches: 0,
  passes: 0,
  submits: 0,
  maps: 0,
  syncs: 0,
  uniform_writes: 0,
  buffers_created: 0,
  bind_groups_created: 0,
  pipelines_created: 0,
};

function infoOf(name: string): ModelInfo {
  return {
    name,
    device: navigator.gpu === undefined ? 'cpu' : 'gpu',
    has_chat_template: true,
    architecture: 'llama',
    generates: true,
    is_encoder_decoder: false,
    embeds: false,
    multi_token_prediction: false,
    per_layer_embeddings: 'device',
    reranks: false,
    parameters: 14e6,
    layers: 2,
    context_length: stub.contextLength,
    max_sequences: 1,
    vocab_size: 512,
    embedding_length: 64,
    quantization: 'Q8_0',
    precision: 'exact',
    kv_cache: 'f32',
    weight_bytes: 14.9e6,
    weight_bytes_per_token: 14e6,
    kv_cache_bytes: 4e6,
    adapter: {
      vendor: 'google',
      architecture: 'swiftshader',
      device: '',
      description: navigator.gpu === undefined ? 'CPU' : 'stub',
      is_fallback: true,
      features: [],
      subgroup_matrices: [],
    },
    autotune: { state: 'software', kernels: [], left: 0, failed: [], milliseconds: 0 },
    warnings: [],
  };
}

class StubEngine implements Pick<RealEngine, 'info' | 'stats' | 'dispose' | 'chat'> {
  readonly info: ModelInfo;
  readonly chat: RealEngine['chat'];
  #isDisposed = false;

  constructor(name: string) {
    this.info = infoOf(name);
    const create = async (request: ChatCompletionRequest, { signal }: RequestOptions = {}) => this.#answer(request, signal);
    this.chat = { completions: { create: create as unknown as RealEngine['chat']['completions']['create'] } };
  }

  async stats(): Promise<EngineStats> {
    if (this.#isDisposed) throw new Failure({ code: 'disposed', message: 'the engine was disposed of' });
    return { ...counters, live_bytes: 20e6, peak_bytes: 22e6, wasm_memory_bytes: 8e6 } as EngineStats;
  }

  async dispose(): Promise<void> {
    this.#isDisposed = true;
    stub.disposed.push(this.info.name!);
  }

  async #answer(request: ChatCompletionRequest, signal?: AbortSignal): Promise<AsyncGenerator<ChatCompletionChunk>> {
    stub.requests.push(structuredClone(request));
    const last = request.messages.at(-1)!;
    const plan = stub.plans.shift() ?? { deltas: [{ content: 'You said: ' }, { content: String(last.content) }], pauseMs: 10 };
    if (plan.holdPrompt) await held(signal);
    if (signal?.aborted) throw new Failure({ code: 'aborted', message: 'the generation was aborted' });
    if (plan.error !== undefined && plan.deltas === undefined) throw new Failure(plan.error);
    return this.#stream(plan, request, signal);
  }

  async *#stream(
    { deltas = [], finish = 'stop', cached = 0, error, hold, pauseMs }: Plan,
    { messages }: ChatCompletionRequest,
    signal?: AbortSignal,
  ): AsyncGenerator<ChatCompletionChunk> {
    const chunk = (delta: Delta, finish_reason: Finish | null, tokens: number): ChatCompletionChunk => ({
      id: 'chatcmpl-stub',
      object: 'chat.completion.chunk',
      created: 0,
      model: 'stub',
      choices: [{ index: 0, delta, finish_reason, logprobs: null, token_ids: Array.from({ length: tokens }, (_, i) => i) }],
    });
    const begin = performance.now();
    let tokens = 0;
    for (const [i, delta] of deltas.entries()) {
      if (hold && i === deltas.length - 1) await held(signal);
      if (signal?.aborted) break;
      // Each piece in a task of its own, as those of a worker.
      await new Promise((resolve) => setTimeout(resolve, pauseMs));
      tokens += 1;
      counters.dispatches += 14;
      counters.maps += 1;
      yield chunk(delta, null, 1);
    }
    if (error !== undefined) throw new Failure(error);
    const promptTokens = messages.length * 10;
    const ms = Math.max(1, performance.now() - begin);
    yield {
      ...chunk({}, signal?.aborted ? 'cancelled' : finish, 0),
      usage: {
        prompt_tokens: promptTokens,
        completion_tokens: tokens,
        total_tokens: promptTokens + tokens,
        prompt_tokens_details: { cached_tokens: cached },
        completion_tokens_details: { reasoning_tokens: 0 },
      },
      timings: {
        queue_ms: 0,
        prompt_ms: 1,
        prompt_tokens_per_s: 1000,
        decode_ms: ms,
        tokens_per_s: (tokens / ms) * 1000,
        cached_prompt_tokens: cached,
      },
    };
  }
}

async function load(source: ModelSource, options: LoadOptions = {}): Promise<StubEngine> {
  stub.loads.push({ source, options });
  const { signal } = options;
  for (const progress of stub.loadProgress) options.onProgress?.(progress);
  for (const event of stub.loadEvents) options.onEvent?.(event);
  if (stub.holdLoad) await held(signal);
  if (signal?.aborted) throw new Failure({ code: 'aborted', message: 'the load was aborted' });
  const error = stub.loadError;
  stub.loadError = undefined;
  if (error !== undefined) throw new Failure(error);
  const name = typeof source === 'string' ? source.split('/').at(-1)! : 'a file';
  return new StubEngine(name);
}

export const Engine: Pick<typeof RealEngine, 'load' | 'shared' | 'inspect' | 'recommend'> = {
  load: load as unknown as (typeof RealEngine)['load'],
  shared: load as unknown as (typeof RealEngine)['shared'],
  async inspect(source, options = {}) {
    stub.inspected.push({ source, options });
    if (stub.holdInspection) await held(undefined);
    if (stub.inspectionOf !== undefined) return stub.inspectionOf(String(source));
    if (stub.inspection === undefined) throw new Failure({ code: 'not_found', message: 'there is no such repository; check the name' });
    return stub.inspection;
  },
  recommend: async (sources) => sources.map((source) => ({ source, device: 'cpu', ...stub.recommendation })),
};

export const models: Pick<typeof realModels, 'list' | 'info' | 'delete'> = {
  // All that was loaded once is kept.
  info: async (name) => ({ name: String(name), complete: true, bytes: 1, size: 1, created: new Date(), lastUsed: new Date(), files: [] }),
  list: async () => stub.kept,
  async delete(name) {
    const error = stub.deleteError;
    stub.deleteError = undefined;
    if (error !== undefined) throw new Failure(error);
    const before = stub.kept.length;
    stub.kept = stub.kept.filter((model) => model.name !== String(name));
    return stub.kept.length < before;
  },
};

(globalThis as unknown as { stub: typeof stub }).stub = stub;
