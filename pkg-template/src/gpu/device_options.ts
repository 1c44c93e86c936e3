// The options with which a device is asked for, checked.

import { EngineError } from '../errors.js';
import { isWhole } from './elements.js';
import type { DeviceOptions } from './types.js';

/** With an application's device there is no adapter to choose and nothing to ask it for. */
const CHOOSING_OPTIONS = ['powerPreference', 'forceFallbackAdapter', 'features', 'limits'] as const;

/** @internal */
export function checkGiven(given: unknown, options: DeviceOptions): void {
  if (typeof GPUDevice === 'undefined' || !(given instanceof GPUDevice)) {
    throw new EngineError('invalid_request', `the option device is a GPUDevice, got ${String(given)}`);
  }
  const [choosing] = CHOOSING_OPTIONS.filter((name) => options[name] !== undefined);
  if (choosing !== undefined) {
    throw new EngineError(
      'invalid_request',
      `with an application's own device there is nothing to choose: leave ${choosing} out, or request the GPUDevice with it`,
    );
  }
}

/** @internal */
export function checkCounts(counts: Record<string, unknown>): void {
  for (const [name, value] of Object.entries(counts)) {
    if (value !== undefined && !(isWhole(value) && value >= 0 && value <= 0xffffffff)) {
      throw new EngineError('invalid_request', `${name} is a whole number from 0, got ${String(value)}`);
    }
  }
}
