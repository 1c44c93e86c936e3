// One download of a file at a time in an origin (Web Locks), which other tabs hear of (BroadcastChannel).

import { webLocks } from './web_locks.js';

const PREFIX = 'rillm:file:';
/** How often a download says how far it is. */
const REPORT_MS = 250;

export interface FileLock {
  /** Says how far the download is, to those that wait. After the release nobody does. */
  report(loaded: number, total: number): void;
  release(): void;
}

/** How far a download is. Others may say anything on the channel. */
interface Report {
  loaded: number;
  total: number;
}

function isReport(data: unknown): data is Report {
  const { loaded, total } = (data ?? {}) as Partial<Report>;
  return [loaded, total].every((bytes) => Number.isSafeInteger(bytes) && Number(bytes) >= 0);
}

/** Waits until no other tab downloads the file; `onWait` is told how far that one is, first of all without numbers. */
export async function lockFile(
  id: string,
  signal: AbortSignal | undefined,
  onWait: (loaded?: number, total?: number) => void,
): Promise<FileLock> {
  const locks = await webLocks();
  if (locks === undefined) return { report: () => {}, release: () => {} };
  const channel = new BroadcastChannel(PREFIX + id);
  let release!: () => void;
  const held = new Promise<void>((resolve) => (release = resolve));
  const take = (options: LockOptions) =>
    new Promise<boolean>((resolve, reject) => {
      const request = locks.request(PREFIX + id, options, (lock) => {
        resolve(lock !== null);
        return lock === null ? undefined : held;
      });
      request.catch(reject);
    });
  try {
    if (!(await take({ ifAvailable: true }))) {
      onWait();
      channel.onmessage = ({ data }: MessageEvent<unknown>) => {
        if (isReport(data)) onWait(data.loaded, data.total);
      };
      await take(signal === undefined ? {} : { signal });
      channel.onmessage = null;
    }
  } catch (thrown) {
    channel.close();
    throw thrown;
  }
  let last = 0;
  let isReleased = false;
  return {
    report(loaded, total) {
      const now = performance.now();
      if (isReleased || now - last < REPORT_MS) return;
      last = now;
      channel.postMessage({ loaded, total } satisfies Report);
    },
    release() {
      isReleased = true;
      release();
      channel.close();
    },
  };
}

/** Does something to a file that no tab downloads now; false if one does. */
export async function withFileLock(id: string, work: () => Promise<void>): Promise<boolean> {
  const locks = await webLocks();
  if (locks === undefined) {
    await work();
    return true;
  }
  return locks.request(PREFIX + id, { ifAvailable: true }, async (lock) => {
    if (lock !== null) await work();
    return lock !== null;
  });
}
