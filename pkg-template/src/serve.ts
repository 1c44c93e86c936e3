// Several models behind one `fetch`: the `model` of a request says which of them answers. Which engines are loaded is the pool's.

import { anything, type Checks, describe, readOptions, reading } from './arguments.js';
import { Engine, endpointsOf } from './engine.js';
import { EnginePool, type ModelState, type PooledModel } from './engine_pool.js';
import { EngineError } from './errors.js';
import { FALLBACK_OPTIONS, type FallbackOptions, fetchOf } from './fallback.js';
import { type Endpoints, type Lease, type ServedModel, unknownModel } from './http.js';
import { loadOptions } from './load_options.js';
import { keptIn } from './responses/endpoint.js';
import { ResponseStore } from './responses/store.js';
import type { LoadOptions, ModelSource } from './types.js';

/** What is served: where a model is loaded from when it is first asked for, or an engine. */
export type ServedSource = Engine | ModelSource | { source: ModelSource; options?: LoadOptions | undefined };

/** How several models are served. */
export interface ServeOptions extends FallbackOptions {
  /**
   * Bytes of weights and KV caches on the GPU, of all engines together. If they are more, engines that no request uses are disposed of, the
   * least recently used first, and loaded again when they are asked for. Above the budget are only engines that requests use. A model that
   * doesn't fit by itself rejects with `out_of_memory`. Engines that were handed in count, and are never disposed of. Default: no limit.
   */
  budgetBytes?: number | undefined;
}

const SERVE: Checks<ServeOptions> = { ...FALLBACK_OPTIONS, budgetBytes: anything };

/** Models behind one `fetch`. */
export interface ModelServer {
  /**
   * As `engine.fetch`; the `model` of a request is a name of these models. A request waits while its model is loaded, and one model is loaded at
   * a time. If it is aborted, its waiting ends, and the load too unless another request waits for it.
   */
  readonly fetch: Engine['fetch'];
  /** The models, in the order in which they were given. */
  list(): ModelState[];
  /** Disposes of the engines that it has loaded; what runs on them rejects with code `disposed`. Engines that were handed in stay. */
  dispose(): Promise<void>;
}

/**
 * Serves models under names.
 *
 * ```js
 * const server = serve({ small: 'hf:owner/small', large: { source: '/large.gguf', options: { contextLength: 8192 } } }, { budgetBytes: 4e9 });
 * const client = new OpenAI({ baseURL: 'http://rillm/v1', apiKey: '-', fetch: server.fetch, dangerouslyAllowBrowser: true });
 * ```
 */
export function serve(models: Record<string, ServedSource>, options: ServeOptions = {}): ModelServer {
  const { budgetBytes = Number.POSITIVE_INFINITY, ...fallback } = readOptions('the options of serveModels', options, SERVE);
  if (typeof budgetBytes !== 'number' || !(budgetBytes > 0)) {
    throw new EngineError('invalid_request', `budgetBytes is a number above 0, got ${describe(budgetBytes)}`);
  }
  if (typeof models !== 'object' || models === null || reading('models', () => models instanceof Engine || Array.isArray(models))) {
    throw new EngineError(
      'invalid_request',
      `models are an object of names and sources, such as {small: "/small.gguf"}, got ${describe(models)}`,
    );
  }
  const sources = reading('models', () => ({ ...models }));
  const names = Object.keys(sources);
  if (names.length === 0) throw new EngineError('invalid_request', 'there is no model to serve: name at least one');
  const pool = new EnginePool(
    new Map(names.map((name) => [name, reading(`the model ${JSON.stringify(name)}`, () => pooled(name, sources[name]))])),
    budgetBytes,
  );
  const created = Math.floor(Date.now() / 1000);
  const listed: ServedModel[] = names.map((id) => ({ id, created }));
  // Conversations go on whichever model answers, and when an engine was disposed of.
  const store = new ResponseStore();
  const endpoints = new WeakMap<Engine, Map<string, Endpoints>>();
  const endpointsFor = (engine: Engine, name: string): Endpoints => {
    const known = endpoints.get(engine) ?? new Map<string, Endpoints>();
    endpoints.set(engine, known);
    if (!known.has(name)) known.set(name, endpointsOf(engine, name, store));
    return known.get(name)!;
  };
  const take = async (model: unknown, signal: AbortSignal): Promise<Lease> => {
    const { engine, name, release } = await taken(pool, listed, model, signal);
    return { endpoints: endpointsFor(engine, name), release };
  };
  return {
    fetch: fetchOf({ models: () => listed, take, kept: keptIn(store, () => pool.check()) }, fallback),
    list: () => pool.states(),
    dispose: async () => {
      await pool.dispose();
      store.clear();
    },
  };
}

async function taken(pool: EnginePool, listed: ServedModel[], model: unknown, signal: AbortSignal) {
  // With one model there is no choice.
  const name = (model === undefined || model === null) && listed.length === 1 ? listed[0]!.id : model;
  if (typeof name !== 'string') {
    const names = listed.map(({ id }) => JSON.stringify(id)).join(', ');
    throw new EngineError('invalid_request', `model is ${JSON.stringify(name) ?? 'missing'}, wanted one of ${names}`);
  }
  if (!listed.some(({ id }) => id === name)) throw unknownModel(name, listed);
  return { name, ...(await pool.take(name, signal)) };
}

function pooled(name: string, served: ServedSource | undefined): PooledModel {
  if (served instanceof Engine) return { engine: served };
  if (served === undefined || served === null) throw new EngineError('invalid_request', `the model ${JSON.stringify(name)} has no source`);
  if (typeof served !== 'string' && typeof served !== 'object') {
    throw new EngineError('invalid_request', `the model ${JSON.stringify(name)} is ${describe(served)}, wanted a source or an engine`);
  }
  if (typeof served === 'object' && 'source' in served && !('read' in served))
    return { source: served.source, options: loadOptions(`the model ${JSON.stringify(name)}`, served.options) };
  return { source: served as ModelSource, options: {} };
}
