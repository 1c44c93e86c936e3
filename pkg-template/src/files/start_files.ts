// The files of one load, from the options as they reach the host: opens the cache and says how digests are made.

import { toEngineError } from '../errors.js';
import type { RetryPolicy } from './attempts.js';
import { PortChunkReader } from './chunk_reader.js';
import type { Digested, Digester } from './digester.js';
import type { Arrived, FileEvent } from './events.js';
import { openDefaultStore } from './default_store.js';
import type { FilesData } from './options.js';
import { OwnStore } from './own_store.js';
import { InlineDigester, type Hasher, PortDigester } from './port_digester.js';
import { RemoteFiles, type RemoteFilesOptions } from './remote_files.js';
import type { ModelStore } from './store.js';

export interface FilesServices {
  onEvent(event: FileEvent): void;
  onBytes(arrived: Arrived): void;
  onWait(loaded: number, total: number): void;
  store: ModelStore | undefined;
  startDigester(of: Digested): MessagePort | undefined | Promise<MessagePort | undefined>;
  makeHasher(): Promise<Hasher>;
}

/** How often and when the requests of a load are sent again. */
export function retryPolicy({ retries, stallTimeoutMs }: FilesData, { onEvent }: Pick<FilesServices, 'onEvent'>): RetryPolicy {
  return { retries, stallTimeoutMs, onRetry: (retry) => onEvent({ type: 'retrying', ...retry }) };
}

export async function startFiles(
  data: FilesData,
  isWhole: boolean,
  services: FilesServices,
  signal: AbortSignal | undefined,
): Promise<RemoteFiles> {
  const { onEvent, onBytes, onWait } = services;
  const options: RemoteFilesOptions = {
    name: data.name,
    cache: await cacheOf(data, services),
    isWhole,
    update: data.update,
    connections: data.connections,
    integrity: data.integrity,
    policy: retryPolicy(data, services),
    signal,
    makeDigester: async (): Promise<Digester> => {
      const port = await services.startDigester('file');
      return port === undefined ? new InlineDigester(await services.makeHasher()) : new PortDigester(port);
    },
    makeChunkReader: async () => {
      const port = await services.startDigester('chunks');
      return port && new PortChunkReader(port);
    },
    onBytes,
    onEvent,
    onWait,
  };
  return new RemoteFiles(options);
}

async function cacheOf({ cache }: FilesData, { store, onEvent }: FilesServices): Promise<RemoteFilesOptions['cache']> {
  if (cache === 'none') return undefined;
  if (cache === 'own') return store && { store: new OwnStore(store), isShared: false };
  try {
    return await openDefaultStore();
  } catch (thrown) {
    const message = `files are not kept, the browser has no origin private file system here: ${toEngineError(thrown).message}`;
    onEvent({ type: 'fallback', reason: 'unavailable', message });
    return undefined;
  }
}
