// Loads a model into a host that is recovered when it is lost, and again with what trains when that is wanted later. It knows nothing of requests.

import { unlessAborted } from './abort.js';
import { chooseDevice } from './device_choice.js';
import { abortError, type EngineError, toEngineError } from './errors.js';
import type { FilesData } from './files/options.js';
import { retryPolicy } from './files/start_files.js';
import { LOAD_OPTIONS, type LoadOptions as LoadData } from './generated/loading.js';
import { hostOf } from './host_choice.js';
import { dataOf as jsonOf } from './json.js';
import { LoadPlace, onDevice } from './load_place.js';
import { filesOf, loadServices, reporter } from './load_services.js';
import type { HostLoadOptions } from './protocol.js';
import { isLoss } from './recovery/losses.js';
import { RecoveringHost } from './recovery/recovering_host.js';
import { type LoadedModel, MAX_RECOVERIES, type Recovery } from './recovery/recovery.js';
import { type HostSource, resolveSource } from './source.js';
import { ENABLING } from './train/host.js';
import type { InspectOptions, LoadOptions, ModelSource, Warning } from './types.js';
import { compileTraining } from './wasm.js';
import { sentWasm } from './wasm_source.js';

/** The options that the wasm reads, of those that were given. */
function dataOf(options: LoadData): LoadData {
  return jsonOf('the options of a load', Object.fromEntries(LOAD_OPTIONS.map((name) => [name, options[name]]))) as LoadData;
}

/** What a host is asked to load. */
export async function hostLoad(
  source: ModelSource,
  options: Omit<LoadOptions, 'onEvent'>,
): Promise<[place: HostSource, hostOptions: HostLoadOptions]> {
  const { file, hub, draft, signal } = options;
  const place = await resolveSource(source, file, hub);
  const hostOptions = await hostOptionsOf(options, filesOf(place, options));
  if (draft !== undefined) hostOptions.draft = await resolveSource(draft, undefined, hub);
  const grammarWasm = await sentWasm(options, signal, ['grammarWasmUrl', 'grammarWasmModule']);
  if (grammarWasm !== undefined) hostOptions.grammarWasm = grammarWasm;
  return [place, hostOptions];
}

/** Loads a model into a host that is recovered when it is lost. */
export async function loadHost(
  source: HostSource,
  hostOptions: HostLoadOptions,
  options: LoadOptions,
  isOfOnePage = true,
): Promise<LoadedModel> {
  const { signal, maxRecoveries = MAX_RECOVERIES } = options;
  // It is the same model again, whatever its server has by then.
  const ofAgain = (device: HostLoadOptions): HostLoadOptions => ({ ...device, files: { ...device.files, update: 'never' } });
  const place = new LoadPlace(options, hostOptions);
  const loadThere = async (isAgain: boolean, signal: AbortSignal) => {
    const loaded = await loadOnce(source, isAgain ? ofAgain(place.host) : place.host, { ...options, signal }, isOfOnePage);
    loaded.info.warnings.push(...place.warnings);
    return loaded;
  };
  const load = async (lost: EngineError | undefined, signal: AbortSignal) => {
    const isAgain = lost !== undefined;
    await place.after(lost);
    try {
      return await loadThere(isAgain, signal);
    } catch (thrown) {
      const error = toEngineError(thrown);
      if (signal.aborted || isLoss(error)) throw thrown;
      if (!(isAgain ? place.returnsToGpu() : await place.leavesGpu(error))) throw thrown;
      return loadThere(isAgain, signal);
    }
  };
  /** What was warned of already. */
  const known = new Set<Warning['code']>();
  const recovery: Recovery = {
    load,
    canTrain: options.training === true,
    async withTraining(onProgress, signal) {
      const given = { ...options, training: true };
      const device = await chooseDevice({ ...given, signal });
      // Compiled here: the host that answers is not given up for what does not come.
      const trains = await onDevice(ofAgain(hostOptions), { ...given, signal }, device);
      const from = await unlessAborted(
        compileTraining(trains.wasm?.from, retryPolicy(hostOptions.files, { onEvent: reporter(options.onEvent) })),
        signal,
        ENABLING,
      );
      const host: HostLoadOptions = { ...trains, wasm: { build: 'train', from } };
      return (lost, signal) => loadOnce(source, host, { ...given, ...(lost === undefined ? { onProgress } : {}), signal }, isOfOnePage);
    },
    most: maxRecoveries,
    onEvent: reporter(options.onEvent),
    onLoadedAgain({ warnings }) {
      warnings.filter(({ code }) => !known.has(code)).forEach(warner(options.onWarning));
      for (const { code } of warnings) known.add(code);
    },
  };
  try {
    const loaded = await RecoveringHost.load(recovery, signal);
    for (const { code } of loaded.info.warnings) known.add(code);
    return loaded;
  } catch (thrown) {
    // A signal may carry any reason, such as a TimeoutError; the caller knows one code for all of them.
    throw signal?.aborted ? abortError(signal, 'loading the model') : toEngineError(thrown);
  }
}

/** Tells of what a caller is warned of. */
export function warner(onWarning: LoadOptions['onWarning']): (warning: Warning) => void {
  return reporter(onWarning ?? (({ message }: Warning) => console.warn(`rillm: ${message}`)));
}

/** Loads a model into a host of its own. */
async function loadOnce(place: HostSource, hostOptions: HostLoadOptions, options: LoadOptions, isOfOnePage: boolean): Promise<LoadedModel> {
  const { signal, worker } = options;
  if (signal?.aborted) throw abortError(signal, 'loading the model');
  const host = hostOf(worker);
  const services = loadServices(options, hostOptions.wasm, isOfOnePage);
  try {
    return { host, info: await host.load(place, hostOptions, services, signal) };
  } catch (thrown) {
    await host.dispose().catch(() => {});
    throw thrown;
  } finally {
    services.end();
  }
}

export async function hostOptionsOf(options: InspectOptions, files: FilesData): Promise<HostLoadOptions> {
  return onDevice({ ...dataOf(options), files }, options, await chooseDevice(options));
}
