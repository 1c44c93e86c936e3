// What a host asks of the caller's thread while it loads: the caller's functions, and a worker for digests.

import { type CacheOptions, filesData, type FilesData, isStore } from './files/options.js';
import { memoryStore } from './files/own_store.js';
import type { MemoryPressure } from './generated/loading.js';
import type { LoadServices } from './protocol.js';
import type { HostSource } from './source.js';
import { Digesters } from './start_digester.js';
import { Helpers } from './team/start_helpers.js';
import type { LoadProgress } from './types.js';
import type { EngineWasm } from './wasm_source.js';

/** By what the index of kept models knows a source. */
export function modelName(source: HostSource): string {
  switch (source.kind) {
    case 'hub':
      return source.hub.endpoint === undefined ? source.reference : `${source.reference} (${source.hub.endpoint})`;
    case 'url':
      return source.file === undefined ? source.url : new URL(source.file, source.url).href;
    default:
      return source.kind;
  }
}

/** The options of files as the host wants them. */
export function filesOf(source: HostSource, options: CacheOptions): FilesData {
  return filesData(modelName(source), options);
}

/** Asks the browser to keep what is kept. Whether it does is its own affair. */
export async function persist(options: CacheOptions): Promise<void> {
  if (options.persist) await globalThis.navigator?.storage?.persist?.().catch(() => false);
}

/** Calls the caller's function; what it throws is the caller's and must not break the load. */
export function reporter<T>(report: ((value: T) => void) | undefined): (value: T) => void {
  return (value) => {
    try {
      report?.(value);
    } catch (thrown) {
      reportError(thrown);
    }
  };
}

interface Callbacks extends CacheOptions {
  onProgress?: ((progress: LoadProgress) => void) | undefined;
  onMemoryPressure?: ((event: MemoryPressure) => void) | undefined;
}

/** `end` has to be called after the load. */
export function loadServices(options: Callbacks, wasm: EngineWasm | undefined, isOfOnePage = true): LoadServices & { end(): void } {
  const digesters = new Digesters();
  const threads = new Helpers();
  return {
    onProgress: reporter(options.onProgress),
    onEvent: reporter(options.onEvent),
    onMemoryPressure: reporter(options.onMemoryPressure),
    isOfOnePage,
    store: isStore(options.cache) ? options.cache : options.cache === 'memory' ? memoryStore : undefined,
    startDigester(of) {
      // The port stays on this thread, so that a failure can be told to whoever listens to it.
      const port = digesters.start(of, undefined, wasm, ({ message }) =>
        port?.dispatchEvent(new MessageEvent('message', { data: { type: 'failed', message } })),
      );
      return port;
    },
    startHelpers: (helpers) => threads.start(helpers),
    shareWithHelpers: (more) => threads.share(more),
    stopHelpers: () => threads.stop(),
    end: () => digesters.end(),
  };
}
