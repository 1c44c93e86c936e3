// Web Locks as they are needed here: the browser gives a lock to one tab at a time, and to the next when that one is gone, however it went.
// No clock is involved.

export interface HeldLock {
  release(): void;
}

/** Waits for a lock, in the order of those that ask. Rejects if the signal is aborted before. */
export function holdLock(name: string, signal?: AbortSignal): Promise<HeldLock> {
  return new Promise((resolve, reject) => {
    const take = () => new Promise<void>((release) => resolve({ release }));
    navigator.locks.request(name, signal === undefined ? {} : { signal }, take).catch(reject);
  });
}

/** Of the one lock that somebody holds and whose name begins so, the rest of the name. Waits while there are several. */
export async function heldSuffix(prefix: string): Promise<string | undefined> {
  for (;;) {
    // A page that is going away can't ask any more.
    const { held = [] } = await navigator.locks.query().catch(() => ({ held: [] as LockInfo[] }));
    const found = held.flatMap(({ name = '' }) => (name.startsWith(prefix) ? [name.slice(prefix.length)] : []));
    // The locks of a tab that died need not all go at once.
    if (found.length <= 1) return found[0];
  }
}

/** Why tabs can't share an engine here; undefined if they can. */
export async function whyUnshared(): Promise<string | undefined> {
  const { locks } = globalThis.navigator ?? {};
  if (locks === undefined) return 'there are no Web Locks here (navigator.locks): pages that are served by https have them';
  if (globalThis.BroadcastChannel === undefined) return 'there is no BroadcastChannel here';
  if (globalThis.crypto?.subtle === undefined) return 'there is no crypto.subtle here: pages that are served by https have it';
  try {
    // Refused where a page has no origin to share with, such as in a sandbox.
    await locks.query();
    new BroadcastChannel('rillm:shared').close();
    return undefined;
  } catch (thrown) {
    return `tabs are kept apart here: ${String(thrown)}`;
  }
}
