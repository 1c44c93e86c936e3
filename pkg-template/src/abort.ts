// Waiting that ends when a caller's signal is aborted.

import { abortError, toEngineError } from './errors.js';

/** What work comes to, as long as somebody waits for it: an aborted signal rejects at once. The work has to hear of that by itself. */
export function unlessAborted<T>(work: Promise<T>, signal: AbortSignal | undefined, what: string): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(abortError(signal!, what));
    const done = () => signal?.removeEventListener('abort', abort);
    if (signal?.aborted) abort();
    signal?.addEventListener('abort', abort, { once: true });
    work.then(
      (value) => (done(), resolve(value)),
      (thrown: unknown) => (done(), reject(signal?.aborted ? abortError(signal, what) : toEngineError(thrown))),
    );
  });
}

/** Calls `abort` when any of the signals is aborted, or at once if one is. To be released by what is returned. */
export function onAbort(signals: (AbortSignal | undefined)[], abort: () => void): () => void {
  for (const signal of signals) signal?.addEventListener('abort', abort, { once: true });
  if (signals.some((signal) => signal?.aborted)) abort();
  return () => {
    for (const signal of signals) signal?.removeEventListener('abort', abort);
  };
}
