// The models that are kept in the browser: lists, downloads, deletes, exports and imports them. Loading one is `Engine.load`'s.

import { anything, checkArgument, type Checks, describe, finite, reading } from './arguments.js';
import { abortError, EngineError, textOf, toEngineError } from './errors.js';
import { ModelExport } from './files/export.js';
import { withFileLock } from './files/file_lock.js';
import { refusedAsError } from './files/failures.js';
import { KeptFile } from './files/kept_file.js';
import { filesOf as idsOf, isWhole, ModelIndex, type ModelRecord } from './files/model_index.js';
import { openDefaultStore } from './files/default_store.js';
import { type ConnectionOptions, connectionData, isStore } from './files/options.js';
import { memoryStore, OwnStore } from './files/own_store.js';
import type { ModelStore } from './files/store.js';
import { verifyFile } from './files/verify.js';
import { hostOf } from './host_choice.js';
import { hubOptions, LOAD, loadOptions, modelsOptions } from './load_options.js';
import { filesOf, loadServices, modelName, persist, reporter } from './load_services.js';
import { keptSessionBytes } from './sessions/files.js';
import { resolveSource, resolveUrl } from './source.js';
import { keptCheckpointBytes } from './train/files.js';
import { forgetTunings, keepTunings, keptTunings } from './tunings.js';
import type { CacheOptions, FileEvent, HubOptions, LoadOptions, LoadProgress, ModelSource } from './types.js';
import { chooseDevice } from './device_choice.js';
import { engineWasm, type WasmSource } from './wasm_source.js';

/** Where models are looked for; as in `LoadOptions`. */
export interface ModelsOptions {
  /** Default: `'opfs'`. */
  cache?: 'opfs' | 'memory' | ModelStore | undefined;
}

/** A file of a kept model. */
export interface ModelFileInfo {
  /** Where it came from. */
  url: string;
  /** Bytes of the file, and those of them that are there. */
  size: number;
  /** Of the file that are there. */
  bytes: number;
  /** The SHA-256 that it was compared with, as 64 hexadecimal digits; undefined if none was known. */
  sha256?: string;
}

/** A model that is kept, or begun. */
export interface KeptModel {
  /** What it is loaded by: `Engine.load(name)`. */
  name: string;
  /** All of it is there: it loads without a network. */
  complete: boolean;
  /** Bytes that are there, and bytes of all files that are known of. A file of several models counts for each. */
  bytes: number;
  /** Bytes of all files that are known of. */
  size: number;
  /** When it was first downloaded. */
  created: Date;
  /** When it was last loaded. */
  lastUsed: Date;
  /** Its files. */
  files: ModelFileInfo[];
}

/** What is kept, and what the browser grants. */
export interface ModelsUsage {
  /** How many models there are, whole or begun. */
  models: number;
  /** Of the files of all models, each once, and of the list of them. */
  bytes: number;
  /** What autotuning found, for all models. */
  tuning_bytes: number;
  /** Of the sessions that are kept by name, whatever the option `cache` says. */
  session_bytes: number;
  /** Of the checkpoints of trainings, likewise. */
  checkpoint_bytes: number;
  /** Bytes that the whole site uses and may use, as `navigator.storage.estimate` says; undefined where it does not. */
  site_bytes: number | undefined;
  /** Bytes that the whole site may use. */
  quota_bytes: number | undefined;
  /** The browser keeps them even if it needs room (option `persist`). */
  persisted: boolean;
}

/** How a model is downloaded. */
export interface DownloadModelOptions extends CacheOptions {
  /** Of a folder with several models, the file that is the model. */
  file?: string | undefined;
  /** How the hub is asked, for `hf:…`. */
  hub?: HubOptions | undefined;
  /** Called with the bytes that are there, many times. */
  onProgress?: ((progress: LoadProgress) => void) | undefined;
  /** Aborting it rejects with code `aborted`. What came in stays, and the next download or load goes on with it. */
  signal?: AbortSignal | undefined;
  /** As in `LoadOptions`. */
  worker?: boolean | (() => Worker) | undefined;
  /** Where the wasm is served. Default: beside the package's JavaScript. */
  wasmUrl?: string | URL | undefined;
  /** The wasm, handed in. */
  wasmModule?: WasmSource | undefined;
}

/** How a model is verified. */
export interface VerifyOptions extends ModelsOptions, ConnectionOptions {
  /** How the hub is asked, for `hf:…`. */
  hub?: HubOptions | undefined;
  /** Aborting it rejects with code `aborted`. */
  signal?: AbortSignal | undefined;
  /** Hears what happens to the files, such as `verified`. */
  onEvent?: ((event: FileEvent) => void) | undefined;
}

/** How files are imported. */
export interface ImportOptions extends ModelsOptions {
  /**
   * What the model will be loaded by, for a file that was not exported here: the URL of a GGUF file. Exported models have their names in
   * `rillm-model.json`.
   */
  name?: string | URL | undefined;
}

const MODELS: Checks<ModelsOptions> = { cache: anything };
/** One set of options may serve to load a model and to verify it. */
const VERIFY: Checks<LoadOptions & VerifyOptions> = LOAD;
const IMPORT: Checks<ImportOptions> = { ...MODELS, name: anything };
const PRUNE: Checks<ModelsOptions & { keepBytes: number }> = { ...MODELS, keepBytes: finite };

async function list(options?: ModelsOptions): Promise<KeptModel[]> {
  const index = await indexOf(modelsOptions('list', options, MODELS));
  const models = await Promise.all((await index.list()).map((model) => described(index, model)));
  return models.sort((a, b) => b.lastUsed.getTime() - a.lastUsed.getTime());
}

async function info(name: string | URL, options?: ModelsOptions): Promise<KeptModel | undefined> {
  const index = await indexOf(modelsOptions('info', options, MODELS));
  const model = await index.find(await nameOf(name, index));
  return model && described(index, model);
}

async function download(source: ModelSource, given: DownloadModelOptions = {}): Promise<KeptModel> {
  const options = loadOptions('models.download', given);
  const { signal, worker } = options;
  const place = await resolveSource(source, options.file, options.hub);
  if ((place.kind !== 'url' && place.kind !== 'hub') || options.cache === 'none') {
    throw new EngineError('invalid_request', 'models.download keeps a model of a server: name a URL or "hf:owner/name", and a cache');
  }
  // Either module reads headers; this is the one that the model will be loaded by.
  const wasm = await engineWasm(options, (await chooseDevice(options)).kind, signal);
  const hostOptions = { files: filesOf(place, options), wasm };
  if (signal?.aborted) throw abortError(signal, 'downloading the model');
  await persist(options);
  const host = hostOf(worker);
  let broken: string | undefined;
  const services = loadServices(
    {
      ...options,
      onEvent: (event) => {
        if (event.type === 'fallback' && event.reason !== 'offline') broken = event.message;
        options.onEvent?.(event);
      },
    },
    wasm,
  );
  try {
    await host.download(place, hostOptions, services, signal);
  } catch (thrown) {
    throw signal?.aborted ? abortError(signal, 'downloading the model') : toEngineError(thrown);
  } finally {
    services.end();
    await host.dispose().catch(() => {});
  }
  const cache = options.cache as ModelsOptions['cache'];
  const kept = await info(modelName(place), cache === undefined ? {} : { cache });
  if (kept?.complete) return kept;
  throw new EngineError('cache_unavailable', `the model could not be kept: ${broken ?? 'it is gone again'}`);
}

/**
 * Reads all of a kept model and compares it with its digests; what is damaged is fetched again. Resolves to how many parts of up to 4 MiB
 * were. `Engine.load` does the same for what it reads.
 *
 * @throws EngineError `not_found` if nothing of that name is kept; `network` if what is damaged can't be fetched.
 */
async function verify(name: string | URL, given: VerifyOptions = {}): Promise<{ repaired: number }> {
  const options = modelsOptions('verify', given, VERIFY);
  const { signal, onEvent } = options;
  const hub = hubOptions(options.hub);
  const connection = connectionData(options);
  const index = await indexOf(options);
  const model = await index.find(await nameOf(name, index));
  if (model === undefined) throw notKept(name);
  let repaired = 0;
  const report = reporter(onEvent);
  const endpoint = new URL(resolveUrl(hub.endpoint ?? 'https://huggingface.co', 'hub.endpoint')).origin;
  const access = hub.token === undefined ? {} : { token: hub.token, tokenOrigin: endpoint };
  for (const id of new Set(Object.values(model.entries))) {
    const kept = id === null ? undefined : await KeptFile.find(index.store, id);
    if (kept === undefined) continue;
    try {
      await verifyFile(
        kept,
        access,
        {
          ...connection,
          onEvent: (event) => {
            if (event.type === 'repaired') repaired += 1;
            report(event);
          },
        },
        signal,
      );
    } catch (thrown) {
      throw signal?.aborted ? abortError(signal, 'verifying the model') : refusedAsError(thrown);
    }
  }
  return { repaired };
}

async function remove(name: string | URL, options?: ModelsOptions): Promise<boolean> {
  const index = await indexOf(modelsOptions('delete', options, MODELS));
  return deleteModel(index, await nameOf(name, index));
}

async function deleteModel(index: ModelIndex, name: string): Promise<boolean> {
  const model = await index.find(name);
  if (model === undefined) return false;
  const ids = idsOf(model);
  for (const id of ids) {
    if (index.isShared && !(await withFileLock(id, async () => {}))) {
      throw new EngineError('cache_in_use', `${name}: a tab is downloading it; abort that, or close the tab, and delete it then`);
    }
  }
  await index.change(name, () => undefined);
  await index.deleteUnused(ids);
  return true;
}

async function usage(options?: ModelsOptions): Promise<ModelsUsage> {
  const index = await indexOf(modelsOptions('usage', options, MODELS));
  const models = await index.list();
  const bytes = new Map<string, number>();
  for (const model of models) for (const file of await index.files(model)) bytes.set(file.id, file.bytes);
  const estimate = await navigator.storage?.estimate?.().catch(() => undefined);
  return {
    models: models.length,
    bytes: [...bytes.values()].reduce((sum, bytes) => sum + bytes, 0),
    tuning_bytes: (await keptTunings())?.length ?? 0,
    session_bytes: await keptSessionBytes(),
    checkpoint_bytes: await keptCheckpointBytes(),
    site_bytes: estimate?.usage,
    quota_bytes: estimate?.quota,
    persisted: (await navigator.storage?.persisted?.().catch(() => false)) ?? false,
  };
}

async function prune(given: ModelsOptions & { keepBytes: number }): Promise<string[]> {
  const { keepBytes, ...options } = modelsOptions('prune', given, PRUNE);
  if (!(keepBytes >= 0)) {
    throw new EngineError('invalid_request', `keepBytes is ${describe(keepBytes)}, wanted a number of bytes from 0`);
  }
  const index = await indexOf(options);
  const names: string[] = [];
  for (const { name } of (await list(options)).reverse()) {
    if ((await usage(options)).bytes <= keepBytes) break;
    try {
      if (await deleteModel(index, name)) names.push(name);
    } catch (thrown) {
      if (!(thrown instanceof EngineError && thrown.code === 'cache_in_use')) throw thrown;
    }
  }
  if (keepBytes === 0) await forgetTunings();
  return names;
}

async function exportModel(name: string | URL, folder: FileSystemDirectoryHandle, options?: ModelsOptions): Promise<void> {
  const index = await indexOf(modelsOptions('export', options, MODELS));
  checkArgument('the folder of an export', folder, directory);
  const model = await index.find(await nameOf(name, index));
  if (model === undefined) throw notKept(name);
  if (!isWhole(model)) throw new EngineError('invalid_request', `${model.name}: a part of it is missing; download it first`);
  try {
    await new ModelExport(index).write(model, folder, await keptTunings());
  } catch (thrown) {
    if (thrown instanceof EngineError) throw thrown;
    throw new EngineError('invalid_request', `the folder can't be written: ${textOf(thrown)}; ask the user for it again`, {
      cause: thrown,
    });
  }
}

async function importModel(files: Iterable<File> | FileSystemDirectoryHandle, given: ImportOptions = {}): Promise<KeptModel> {
  const options = modelsOptions('import', given, IMPORT);
  const index = await indexOf(options);
  const name = options.name === undefined ? undefined : resolveUrl(options.name, 'the option name');
  const { model, tunings } = await new ModelExport(index).read(files, name);
  if (tunings !== undefined && (await keptTunings()) === undefined) await keepTunings(tunings);
  return described(index, (await index.find(model))!);
}

const directory = (value: unknown) =>
  typeof (value as FileSystemDirectoryHandle | null)?.getFileHandle === 'function' ? undefined : 'a directory handle';

async function described(index: ModelIndex, model: ModelRecord): Promise<KeptModel> {
  const files = await index.files(model);
  return {
    name: model.name,
    // A file may have been deleted by someone else.
    complete:
      isWhole(model) &&
      Object.values(model.entries).every((id) => id === null || files.some((file) => file.id === id && file.record.whole)),
    bytes: files.reduce((sum, { bytes }) => sum + bytes, 0),
    size: files.reduce((sum, { record }) => sum + record.size, 0),
    created: new Date(model.created),
    lastUsed: new Date(model.used),
    files: files.map(({ record: { url, size, sha256 }, bytes }) => ({ url, size, bytes, ...(sha256 === undefined ? {} : { sha256 }) })),
  };
}

function notKept(name: string | URL): EngineError {
  return new EngineError('not_found', `${textOf(name)}: no such model is kept; models.list() names those that are`);
}

/** A name as it is in the list, or what `Engine.load` would make of it. */
async function nameOf(name: unknown, index: ModelIndex): Promise<string> {
  if (typeof name === 'string' && (name.startsWith('hf:') || (await index.find(name)) !== undefined)) return name;
  return resolveUrl(name, 'the name of a model');
}

async function indexOf(options: ModelsOptions): Promise<ModelIndex> {
  const cache: unknown = options.cache === undefined ? 'opfs' : options.cache;
  if (cache === 'memory') return new ModelIndex(new OwnStore(memoryStore), false);
  if (reading('the option cache', () => isStore(cache))) return new ModelIndex(new OwnStore(cache as ModelStore), false);
  if (cache !== 'opfs') {
    throw new EngineError(
      'invalid_request',
      `the option cache is ${describe(cache)}, wanted 'opfs', 'memory' or an object with get, put and delete`,
    );
  }
  try {
    const { store, isShared } = await openDefaultStore();
    return new ModelIndex(store, isShared);
  } catch (thrown) {
    const why = toEngineError(thrown).message;
    throw new EngineError('cache_unavailable', `there is no origin private file system here (${why}); nothing is kept`, { cause: thrown });
  }
}

/** What the browser's file system rejects with is no error of ours. */
function failing<Args extends unknown[], T>(work: (...args: Args) => Promise<T>): (...args: Args) => Promise<T> {
  return async (...args) => {
    try {
      return await work(...args);
    } catch (thrown) {
      throw toEngineError(thrown);
    }
  };
}

/** The models that are kept in the browser. */
export const models = {
  /** All models, those used last first. */
  list: failing(list),
  /** A model by its name; undefined if nothing of it is kept. */
  info: failing(info),
  /**
   * Downloads a model, or the rest of it, and loads nothing; resolves when all of it is there and checked.
   *
   * @throws EngineError as `Engine.load` does; `invalid_request` for a source that is not a server's.
   */
  download: failing(download),
  /**
   * Reads all of a kept model and compares it with its digests; what is damaged is fetched again. Resolves to how many parts of up to 4 MiB
   * were. `Engine.load` does the same for what it reads.
   *
   * @throws EngineError `not_found` if nothing of that name is kept; `network` if what is damaged can't be fetched.
   */
  verify: failing(verify),
  /**
   * Deletes a model. Files that another model has too stay. Resolves to whether there was one.
   *
   * @throws EngineError `cache_in_use` if a tab is downloading it.
   */
  delete: failing(remove),
  usage: failing(usage),
  /**
   * Deletes models, those used longest ago first, until at most `keepBytes` are left; with 0 what autotuning found goes too. Models that a tab
   * is downloading stay. Resolves to the names of those that went.
   */
  prune: failing(prune),
  /**
   * Writes a model's files into a folder that the user chose, with `rillm-model.json`, by which `import` knows them. The files have the names
   * that they have on their server.
   *
   * @throws EngineError `not_found` if nothing of that name is kept; `invalid_request` if it is not complete.
   */
  export: failing(exportModel),
  /**
   * Keeps a model from files: what `export` wrote, or a GGUF file with the option `name`. Digests are compared with those of the export.
   *
   * @throws EngineError `invalid_file` if a file is missing or is no export; `integrity_mismatch` if one was damaged.
   */
  import: failing(importModel),
};
