// The adapters of an engine (LoRA): loaded from wherever models are, one after the other, and named by requests.

import { unlessAborted } from './abort.js';
import { checkArgument, type Checks, finite, isArray, isRecord, readOptions, reading, text } from './arguments.js';
import { abortError, EngineError, toEngineError } from './errors.js';
import type { CacheOptions } from './files/options.js';
import type { LoadedAdapter } from './generated/loading.js';
import { ADAPTER } from './load_options.js';
import { filesOf, loadServices, persist } from './load_services.js';
import { wellFormed } from './json.js';
import type { HubOptions, ModelSource } from './model_source.js';
import type { AdapterData, LoadedHost } from './protocol.js';
import { resolveSource } from './source.js';
import type { EngineWasm } from './wasm_source.js';
import type { LoadProgress } from './files/progress.js';

export type { AdapterFormat, LoadedAdapter } from './generated/loading.js';

/** What an adapter is called and how much it counts. */
export interface NamedAdapter {
  /** What requests call it. Default: the name of its file or folder. */
  name?: string | undefined;
  /** How much it counts in requests that say nothing of adapters: 1 as it was trained, 0 not at all; also in between, above and below 0. Default: 1. */
  scale?: number | undefined;
  /** Of a folder with several adapters, the file that is meant. */
  file?: string | undefined;
}

/** An adapter that is loaded with a model. */
export interface AdapterSource extends NamedAdapter {
  /** A folder that PEFT saved, or a GGUF file; wherever models may be. */
  source: ModelSource;
}

/** How an adapter is loaded. */
export interface AdapterOptions extends NamedAdapter, CacheOptions {
  /** How the Hugging Face hub is asked, for `hf:…`. */
  hub?: HubOptions | undefined;
  /** Called with the bytes loaded, many times. */
  onProgress?: ((progress: LoadProgress) => void) | undefined;
  /** Aborting it rejects the load with code `aborted`; the engine stays as it was. */
  signal?: AbortSignal | undefined;
}

/** Adapters of low rank (LoRA) beside the model's weights. */
export interface Adapters {
  /**
   * Loads an adapter: a folder that PEFT saved (`adapter_config.json` and safetensors), or a GGUF file as llama.cpp's converter makes it. Answers
   * under way go on meanwhile. At most 16 adapters are there at one time.
   *
   * ```js
   * await engine.adapters.load('hf:owner/pirate-lora', { name: 'pirate', scale: 0 });
   * await engine.chat.completions.create({ messages, adapters: { pirate: 0.8 } });
   * ```
   *
   * @throws EngineError `adapter_mismatch` if it is of another model; `unsupported_adapter` for what adapters can't change here; `invalid_file`;
   *   `invalid_request` if there is one of this name; `out_of_memory`; `aborted` by the signal.
   */
  load(source: ModelSource, options?: AdapterOptions): Promise<LoadedAdapter>;
  /**
   * Sets the scale of an adapter in requests that say nothing of adapters; 0 is off. It costs nothing. Requests that run keep theirs.
   *
   * @throws EngineError `unknown_adapter` if there is none of this name.
   */
  setScale(name: string, scale: number): Promise<void>;
  /**
   * Unloads an adapter. Requests that run with it go on with it to their end; then its memory is free.
   *
   * @throws EngineError `unknown_adapter` if there is none of this name.
   */
  unload(name: string): Promise<void>;
  /** The adapters that are loaded, in the order in which they were. */
  list(): Promise<LoadedAdapter[]>;
}

/** What an engine offers for its adapters. */
export interface AdapterEngine {
  host: LoadedHost;
  /** For workers that compute digests. */
  wasm: EngineWasm | undefined;
  /** Throws when the engine was disposed of. */
  check(): void;
}

const LOADING = 'loading the adapter';
/** As many as the wasm takes. */
const MOST_ADAPTERS = 16;

const ADAPTER_SOURCE: Checks<Omit<AdapterSource, 'source'>> = { name: text, scale: finite, file: text };

export function adaptersOf({ host, wasm, check }: AdapterEngine): Adapters {
  /** A host reads for one load at a time. */
  let last: Promise<unknown> = Promise.resolve();
  const inTurn = <T>(signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> => {
    const before = last;
    // Who gives up while waiting is told at once; the next still waits for the load that runs.
    const working = unlessAborted(before, signal, LOADING).then(work);
    last = Promise.allSettled([before, working]);
    return working;
  };
  return {
    async load(source, given) {
      check();
      const options = readOptions('the options of adapters.load', given, ADAPTER);
      const { file, hub, signal, name, scale } = options;
      const place = await unlessAborted(resolveSource(source, file, hub), signal, LOADING);
      const data: AdapterData = { files: filesOf(place, options) };
      if (name !== undefined) data.name = wellFormed(name);
      if (scale !== undefined) data.scale = scale;
      await unlessAborted(persist(options), signal, LOADING);
      return inTurn(signal, async () => {
        check();
        const services = loadServices(options, wasm);
        try {
          const adapter = await host.loadAdapter(place, data, services, signal);
          if (!signal?.aborted) return adapter;
          // It was loaded by the time the host heard of the signal.
          await host.unloadAdapter(adapter.name);
          throw abortError(signal, LOADING);
        } catch (thrown) {
          throw signal?.aborted ? abortError(signal, LOADING) : toEngineError(thrown);
        } finally {
          services.end();
        }
      });
    },

    async setScale(name, scale) {
      check();
      checkArgument('the name of an adapter', name, text);
      checkArgument('the scale of an adapter', scale, finite);
      await host.setAdapterScale(wellFormed(name), scale);
    },

    async unload(name) {
      check();
      checkArgument('the name of an adapter', name, text);
      await host.unloadAdapter(wellFormed(name));
    },

    async list() {
      check();
      return host.adapters();
    },
  };
}

/** The option `adapters` of a load, as copies that the caller can't change any more. */
export function adapterSources(given: unknown): AdapterSource[] {
  if (given === undefined) return [];
  if (!isArray(given)) throw new EngineError('invalid_request', 'the option adapters is an array of {source, name, scale}');
  if (given.length > MOST_ADAPTERS) {
    throw new EngineError('invalid_request', `the option adapters has ${given.length} adapters, at most ${MOST_ADAPTERS} can be loaded`);
  }
  return Array.from({ length: given.length }, (_, index) => {
    const what = `the option adapters[${index}]`;
    const { source, ...fields } = reading(what, () => {
      const entry: unknown = given[index];
      if (!isRecord(entry) || !('source' in entry)) throw new EngineError('invalid_request', `${what} is an object with a source`);
      return { ...entry } as unknown as AdapterSource;
    });
    return { source, ...readOptions(what, fields, ADAPTER_SOURCE) };
  });
}
