// Starts workers that compute digests and nothing else, so that a download is not slower for being checked.

import { EngineError, workerLost } from './errors.js';
import type { Digested } from './files/digester.js';
import type { ToWorker } from './protocol.js';
import { startWorker } from './start_worker.js';
import type { EngineWasm } from './wasm_source.js';
import { WorkerLife } from './worker_life.js';

export class Digesters {
  #workers: { worker: Worker; life: WorkerLife }[] = [];

  /**
   * The port to a new one; undefined if there can't be one, and then the digest is computed where it is wanted. `onError` hears if its script
   * fails, or if it is gone.
   */
  start(
    of: Digested,
    make: (() => Worker) | undefined,
    wasm: EngineWasm | undefined,
    onError: (error: EngineError) => void,
  ): MessagePort | undefined {
    let worker: Worker;
    try {
      worker = startWorker(make);
    } catch {
      return undefined;
    }
    const life = new WorkerLife(worker, () => onError(workerLost('that computes digests')));
    this.#workers.push({ worker, life });
    worker.addEventListener('error', ({ message }) => {
      const why = message || 'its script did not start';
      onError(new EngineError('worker_unavailable', `the worker that computes digests failed: ${why}; load the engine again`));
    });
    const { port1, port2 } = new MessageChannel();
    const message: ToWorker = { type: 'digest', of, port: port2, ...(wasm === undefined ? {} : { wasm }) };
    worker.postMessage(message, [port2]);
    return port1;
  }

  /** Ends them all. */
  end(): void {
    for (const { worker, life } of this.#workers.splice(0)) {
      life.end();
      worker.terminate();
    }
  }
}
