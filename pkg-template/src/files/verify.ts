// Reads all of a kept file, which fetches again what is damaged.

import { Download } from './download.js';
import type { RetryPolicy } from './attempts.js';
import type { FileEvent } from './events.js';
import { HttpFile, type RemoteRequest } from './http.js';
import type { KeptFile } from './kept_file.js';
import { Ranges } from './ranges.js';
import { CHUNK_BYTES } from './segments.js';

export async function verifyFile(
  kept: KeptFile,
  access: Pick<RemoteRequest, 'token' | 'tokenOrigin'>,
  { onEvent, ...policy }: Pick<RetryPolicy, 'retries' | 'stallTimeoutMs'> & { onEvent(event: FileEvent): void },
  signal: AbortSignal | undefined,
): Promise<void> {
  const { url, size, entityTag, modified } = kept.record;
  const onRetry: RetryPolicy['onRetry'] = (retry) => onEvent({ type: 'retrying', ...retry });
  const http = new HttpFile({ url, ...access }, { policy: { ...policy, onRetry }, signals: [signal] });
  const ranges = new Ranges({ http, state: { size, entityTag, version: modified } });
  const file = new Download({ ranges, connections: 1, kept, onBytes: () => {}, onEvent });
  try {
    for (let offset = 0; offset < size; offset += CHUNK_BYTES) await file.read(offset, Math.min(CHUNK_BYTES, size - offset));
  } finally {
    file.close();
  }
}
