// Starts workers that compute digests and nothing else, so that a download is not slower for being checked.

import type { Digested } from './files/digester.js';
import type { ToWorker } from './protocol.js';
import { startWorker } from './start_worker.js';
import type { SentWasm } from './wasm_source.js';

export class Digesters {
  #workers: Worker[] = [];

  /**
   * The port to a new one; undefined if there can't be one, and then the digest is computed where it is wanted. `onError` hears if its script
   * fails.
   */
  start(
    of: Digested,
    make: (() => Worker) | undefined,
    wasm: SentWasm | undefined,
    onError: (message: string) => void,
  ): MessagePort | undefined {
    let worker: Worker;
    try {
      worker = startWorker(make);
    } catch {
      return undefined;
    }
    this.#workers.push(worker);
    worker.addEventListener('error', (event) => onError(event.message || 'its script did not start'));
    const { port1, port2 } = new MessageChannel();
    const message: ToWorker = { type: 'digest', of, port: port2, ...(wasm === undefined ? {} : { wasm }) };
    worker.postMessage(message, [port2]);
    return port1;
  }

  /** Ends them all. */
  end(): void {
    for (const worker of this.#workers.splice(0)) worker.terminate();
  }
}
