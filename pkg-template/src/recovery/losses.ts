// What counts as a loss, and how often this thread has seen a GPU go away: browsers give none any more after a few times.

import { EngineError, wasDestroyed } from '../errors.js';
import { SPAN_MS } from './allowance.js';

/** Errors after which the next host answers what this one can't. */
export function isLoss({ code }: EngineError): boolean {
  return code === 'device_lost' || code === 'worker_lost';
}

/** Whether the browser may have a GPU again in a moment, when it has started its GPU process anew. */
export function isPassing({ code }: EngineError): boolean {
  return code === 'adapter_unavailable' || code === 'webgpu_unavailable';
}

let devices = 0;

/** Counts a loss of what ran on this device. Who destroys a device has not lost it, and the browser gives the next one. */
export function noteLoss(error: EngineError, device: 'gpu' | 'cpu'): void {
  if (device === 'gpu' && error.code === 'device_lost' && !wasDestroyed(error)) devices += 1;
}

/** The error of a load, with the reason if it is that the browser gives no GPU any more. */
export function explained(error: EngineError): EngineError {
  if (devices === 0 || !isPassing(error)) return error;
  const times = devices === 1 ? 'once' : `${devices} times`;
  return new EngineError(
    error.code,
    `${error.message}; this page has lost its GPU ${times} before: when the browser's GPU process has crashed a few times, the browser refuses WebGPU ` +
      '(its "block list") until it is started again',
    { cause: error },
  );
}

/** The error of a loss after as many recoveries as there may be. */
export function exhausted(error: EngineError, most: number): EngineError {
  if (most === 0) return error;
  const times = most === 1 ? 'once' : `${most} times`;
  const minutes = SPAN_MS / 60_000;
  return new EngineError(
    error.code,
    `${error.message}; the engine was recovered ${times} in the last ${minutes} minutes, as many as maxRecoveries allows`,
    { cause: error },
  );
}

/** The error of a loss from which the engine did not come back. */
export function failedAgain(lost: EngineError, error: EngineError): EngineError {
  return new EngineError(lost.code, `${lost.message}; the model could not be loaded again (${error.code}): ${error.message}`, {
    cause: error,
  });
}
