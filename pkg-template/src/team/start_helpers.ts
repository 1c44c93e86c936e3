// Starts the threads of a team: workers in a browser, and threads of Node's kind on a server.

import { isServer, startServerThread } from '../node.js';
import type { ToWorker } from '../protocol.js';
import { startWorker } from '../start_worker.js';
import { type HelperData, SERVER_HELPER } from './helper.js';

export class Helpers {
  #stops: (() => void)[] = [];

  /** Starts as many as can be; how many these are. */
  start(helpers: HelperData[], make?: (() => Worker) | undefined): number {
    for (const [at, data] of helpers.entries()) {
      try {
        this.#stops.push(isServer() ? startServerThread(SERVER_HELPER, data) : started(data, make));
      } catch {
        return at;
      }
    }
    return helpers.length;
  }

  /** Ends them at once, whatever they do. Those of a team that has ended are gone by themselves. */
  stop(): void {
    for (const stop of this.#stops.splice(0)) stop();
  }
}

function started(data: HelperData, make: (() => Worker) | undefined): () => void {
  const worker = startWorker(make);
  worker.addEventListener('error', (event) => event.preventDefault());
  try {
    worker.postMessage({ type: 'help', ...data } satisfies ToWorker);
  } catch (thrown) {
    worker.terminate();
    throw thrown;
  }
  return () => worker.terminate();
}
