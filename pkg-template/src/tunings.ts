// Keeps what autotuning found from one load to the next, as a text of which only the engine knows the meaning. It is a help and
// no more: where the browser keeps nothing (private windows, a full disk, no permission), the next load finds it again.

import { unlessAborted } from './abort.js';
import { withinTime } from './time_limit.js';

const CACHE = 'rillm-tunings';
/** The cache is keyed by requests; nothing is ever asked of this address. */
const KEY = 'https://rillm.invalid/tunings.json';

/** A cache that has not answered by then is a load's delay and no help. */
const LIMIT_MS = 2000;

/** The text of earlier loads, if there is one. */
export async function keptTunings(signal?: AbortSignal): Promise<string | undefined> {
  return within(signal, async () => (await caches.match(KEY, { cacheName: CACHE }))?.text());
}

/** What work comes to; undefined if it fails, takes too long, or nobody waits for it any more. */
async function within<T>(signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await unlessAborted(withinTime(work(), LIMIT_MS), signal, 'reading what was kept');
  } catch {
    return undefined;
  }
}

/** Forgets them. */
export async function forgetTunings(): Promise<void> {
  try {
    await caches.delete(CACHE);
  } catch {
    // Nothing was kept.
  }
}

/** If that fails the next load measures again. */
export async function keepTunings(text: string, signal?: AbortSignal): Promise<void> {
  const response = new Response(text, { headers: { 'content-type': 'application/json' } });
  await within(signal, async () => (await caches.open(CACHE)).put(KEY, response));
}
