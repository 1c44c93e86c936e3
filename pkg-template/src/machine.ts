// How much memory this machine has.

import { memoryOfServer } from './node.js';

/** From here on browsers may report less than there is. */
const REPORTED_AT_MOST = 8 * 2 ** 30;

/** Bytes of memory; undefined where nobody tells, as in browsers from 8 GiB on. */
export function memoryOfMachine(): number | undefined {
  const { deviceMemory } = (globalThis.navigator ?? {}) as { deviceMemory?: unknown };
  const reported = typeof deviceMemory === 'number' && deviceMemory > 0 ? deviceMemory * 2 ** 30 : undefined;
  return memoryOfServer() ?? (reported !== undefined && reported < REPORTED_AT_MOST ? reported : undefined);
}
