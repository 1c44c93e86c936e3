// Keeps what autotuning found from one load to the next, as a text of which only the engine knows the meaning. It is a help and
// no more: where the browser keeps nothing (private windows, a full disk, no permission), the next load finds it again.

const CACHE = 'rillm-tunings';
/** The cache is keyed by requests; nothing is ever asked of this address. */
const KEY = 'https://rillm.invalid/tunings.json';

/** The text of earlier loads, if there is one. */
export async function keptTunings(): Promise<string | undefined> {
  try {
    const response = await caches.match(KEY, { cacheName: CACHE });
    return await response?.text();
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

export async function keepTunings(text: string): Promise<void> {
  try {
    await (await caches.open(CACHE)).put(KEY, new Response(text, { headers: { 'content-type': 'application/json' } }));
  } catch {
    // The next load measures again.
  }
}
