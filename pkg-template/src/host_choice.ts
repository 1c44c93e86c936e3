// Which thread a model runs on: a worker of its own, or this one.

import { EngineError, noWebGpu } from './errors.js';
import { EngineHost } from './host.js';
import { isServer } from './node.js';
import type { Host } from './protocol.js';
import { WorkerHost } from './worker_host.js';

/**
 * The host for the option `worker`. Left out, it is a worker where there are any: shared and service workers may have none, and a server needs
 * none.
 */
export function hostOf(worker: unknown): Host {
  checkWorker(worker);
  const choice = worker ?? (!isServer() && (typeof Worker !== 'undefined' || !canRunHere()));
  if (choice === false) {
    if (!canRunHere()) throw noWebGpu();
    return new EngineHost();
  }
  return typeof choice === 'function' ? new WorkerHost(choice as () => Worker) : new WorkerHost();
}

/** Refuses what the option `worker` can't be. */
export function checkWorker(worker: unknown): void {
  if (worker === undefined || worker === null || typeof worker === 'boolean' || typeof worker === 'function') return;
  throw new EngineError('invalid_request', `the option worker is true, false or a function that makes a Worker, got ${typeof worker}`);
}

/** A page, a worker or a server with files. */
function canRunHere(): boolean {
  if (isServer()) return true;
  const isBrowser = globalThis.document !== undefined || 'WorkerGlobalScope' in globalThis;
  return isBrowser || globalThis.navigator?.gpu !== undefined;
}
