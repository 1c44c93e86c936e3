// The options with which a device is asked for, checked.

import { address, anything, type Check, type Checks, isA, isRecord, readOptions, truth } from '../arguments.js';
import { EngineError, textOf } from '../errors.js';
import { isWhole } from './elements.js';
import type { CacheSizes, DeviceOptions } from './types.js';

/** With an application's device there is no adapter to choose and nothing to ask it for. */
const CHOOSING_OPTIONS = ['powerPreference', 'forceFallbackAdapter', 'features', 'limits'] as const;

const powers: Check = (value) => (value === 'high-performance' || value === 'low-power' ? undefined : "'high-performance' or 'low-power'");
const names: Check = (value) =>
  Array.isArray(value) && value.findIndex((name) => typeof name !== 'string') === -1 ? undefined : 'an array of names';
const numbers: Check = (value) =>
  isRecord(value) && Object.values(value).every((limit) => isWhole(limit) && limit >= 0) ? undefined : 'an object of whole numbers';

const DEVICE: Checks<DeviceOptions> = {
  device: anything,
  powerPreference: powers,
  forceFallbackAdapter: truth,
  features: names,
  limits: numbers,
  debug: truth,
  caches: anything,
  maxBatchSize: anything,
  wasmUrl: address,
  wasmModule: anything,
};
const CACHES: Checks<CacheSizes> = { uniforms: anything, bindGroups: anything, shapes: anything, staging: anything };

/** The options of `Device.request`, checked and copied. @internal */
export function deviceOptions(given: unknown): DeviceOptions {
  const options = readOptions('the options of Device.request', given, DEVICE);
  return options.caches === undefined ? options : { ...options, caches: readOptions('the sizes of caches', options.caches, CACHES) };
}

/** @internal */
export function checkGiven(given: unknown, options: DeviceOptions): void {
  if (typeof GPUDevice === 'undefined' || !isA(given, GPUDevice)) {
    throw new EngineError('invalid_request', `the option device is a GPUDevice, got ${textOf(given)}`);
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
      throw new EngineError('invalid_request', `${name} is a whole number from 0, got ${textOf(value)}`);
    }
  }
}
