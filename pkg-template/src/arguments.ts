// Arguments of callers, checked before anything else sees them. To read one may run code of the caller's, of getters and proxies: each is read once,
// and what that code throws is an error of the argument. It knows nothing of engines.

import { EngineError, isEngineError, textOf } from './errors.js';

/** What is wanted, in words, of a value that isn't that; undefined of one that is. */
export type Check = (value: unknown) => string | undefined;

/** A check for each option: a name that the type has and this has not does not compile, nor the other way round. */
export type Checks<Options> = { readonly [Name in keyof Required<Options>]: Check };

/** The longest that a value is written out in a message. */
const MOST_DESCRIBED = 200;

export function refuse(message: string): never {
  throw new EngineError('invalid_request', message);
}

/** A value in a message. Never throws. */
export function describe(value: unknown): string {
  if (typeof value === 'number') return `number ${value}`;
  try {
    if (value === null || Array.isArray(value)) return value === null ? 'null' : 'an array';
    const text = ArrayBuffer.isView(value) ? '' : (JSON.stringify(value) ?? '');
    return `${typeof value} ${text.length > MOST_DESCRIBED ? `${text.slice(0, MOST_DESCRIBED)}…` : text}`.trim();
  } catch {
    // A bigint, a cycle, or something that can't be read.
    return typeof value;
  }
}

/** Reads something of the caller's. */
export function reading<T>(what: string, read: () => T): T {
  try {
    return read();
  } catch (thrown) {
    if (isEngineError(thrown)) throw thrown;
    throw new EngineError('invalid_request', `${what} can't be read: ${textOf(thrown)}`, { cause: thrown });
  }
}

/**
 * The options that were given, copied. One that is undefined is left out, and one that there is not is refused by its name. Null in the place of
 * them all stands for none.
 */
export function readOptions<Options extends object>(what: string, given: unknown, checks: Checks<Options>): Options {
  if (given === undefined || given === null) return {} as Options;
  const names = Object.keys(checks);
  return reading(what, () => {
    if (!isRecord(given)) refuse(`${what} are an object with ${names.join(', ')}, got ${describe(given)}`);
    const unknown = Object.keys(given).find((name) => !names.includes(name) && given[name] !== undefined);
    if (unknown !== undefined) refuse(`${what} have no ${JSON.stringify(unknown)}: there are ${names.join(', ')}`);
    const read: Record<string, unknown> = {};
    for (const name of names) {
      const value = given[name];
      if (value === undefined) continue;
      checkArgument(`the option ${name}`, value, checks[name as keyof Options]);
      read[name] = value;
    }
    return read as Options;
  });
}

/** An object with fields, and not one of elements or bytes. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !ArrayBuffer.isView(value);
}

/** Refuses a value that is not what is wanted. */
export function checkArgument(what: string, value: unknown, check: Check): void {
  const wanted = reading(what, () => check(value));
  if (wanted !== undefined) refuse(`${what} is ${describe(value)}, wanted ${wanted}`);
}

/** What is checked where it is used. */
export const anything: Check = () => undefined;
export const text: Check = (value) => (typeof value === 'string' ? undefined : 'a text');
export const truth: Check = (value) => (typeof value === 'boolean' ? undefined : 'true or false');
export const callable: Check = (value) => (typeof value === 'function' ? undefined : 'a function');
export const finite: Check = (value) => (Number.isFinite(value) ? undefined : 'a number');

export const address: Check = (value) => (typeof value === 'string' || value instanceof URL ? undefined : 'a URL');

export function whole(least: number, most = Number.MAX_SAFE_INTEGER): Check {
  const range = most === Number.MAX_SAFE_INTEGER ? `from ${least}` : `from ${least} to ${most}`;
  return (value) => (Number.isInteger(value) && Number(value) >= least && Number(value) <= most ? undefined : `a whole number ${range}`);
}

/** One of these names, and no other that the type has. */
export function named<Name extends string>(names: Record<Name, true>): Check {
  const wanted = Object.keys(names).map((name) => JSON.stringify(name));
  return (value) => (typeof value === 'string' && Object.hasOwn(names, value) ? undefined : wanted.join(' or '));
}

/** By what is used of it, since other frames have other classes. */
export const abortSignal: Check = (value) => {
  const { aborted, addEventListener, removeEventListener } = (value ?? {}) as Partial<AbortSignal>;
  const isSignal = typeof aborted === 'boolean' && typeof addEventListener === 'function' && typeof removeEventListener === 'function';
  return isSignal ? undefined : 'an AbortSignal';
};

/** An object whose values are texts. */
export const texts: Check = (value) => {
  return isRecord(value) && Object.values(value).every((part) => typeof part === 'string') ? undefined : 'an object of texts';
};

/** `Array.isArray`, which throws of a proxy that was revoked. */
export function isArray(value: unknown): value is readonly unknown[] {
  try {
    return Array.isArray(value);
  } catch {
    return false;
  }
}

/** `instanceof`, which throws of some proxies. */
export function isA<T>(value: unknown, kind: abstract new (...args: never[]) => T): value is T {
  try {
    return value instanceof kind;
  } catch {
    return false;
  }
}

/** Whole numbers of 32 bits, such as token ids, copied. An array that is too long for memory is refused at its first element that is none. */
export function numbersOf(what: string, given: unknown): Uint32Array {
  return reading(what, () => {
    if (typeof given !== 'object' || given === null) refuse(`${what} are an array of whole numbers, got ${describe(given)}`);
    const { length } = given as ArrayLike<unknown>;
    if (!Number.isInteger(length) || length < 0) refuse(`${what} are an array of whole numbers, got ${describe(given)}`);
    if (ArrayBuffer.isView(given) && given.buffer.byteLength === 0 && given.byteLength === 0 && isDetached(given.buffer)) {
      refuse(`${what} lie in memory that was transferred to another thread`);
    }
    for (let index = 0; index < length; index++) {
      const value = (given as ArrayLike<unknown>)[index];
      if (!Number.isInteger(value) || (value as number) < 0 || (value as number) > 0xffffffff) {
        refuse(`${what} are whole numbers from 0, got ${describe(value)} at position ${index}`);
      }
    }
    return Uint32Array.from(given as ArrayLike<number>);
  });
}

function isDetached(buffer: ArrayBufferLike): boolean {
  try {
    // Only of a buffer that is gone no view can be made.
    new Uint8Array(buffer);
    return false;
  } catch {
    return true;
  }
}
