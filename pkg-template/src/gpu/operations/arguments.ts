// Arguments of operations, checked before they cross to the wasm, which would cut them to whole numbers.

import { describe, isArray, isRecord, reading } from '../../arguments.js';
import { EngineError, textOf } from '../../errors.js';

const MOST = 2 ** 31 - 1;

/** A whole number, which may count from the end. @internal */
export function whole(value: unknown, what: string): number {
  if (typeof value !== 'number' || !Number.isInteger(value) || Math.abs(value) > MOST) {
    throw new EngineError('invalid_request', `${what} is a whole number, got ${textOf(value)}`);
  }
  return value;
}

/** A whole number from 0. @internal */
export function count(value: unknown, what: string): number {
  if (whole(value, what) < 0) throw new EngineError('invalid_request', `${what} is a whole number from 0, got ${textOf(value)}`);
  return value as number;
}

/** Any number, NaN and infinities too. @internal */
export function number(value: unknown, what: string): number {
  if (typeof value !== 'number') throw new EngineError('invalid_request', `${what} is a number, got ${textOf(value)}`);
  return value;
}

/** @internal */
export function flag(value: unknown, what: string): boolean {
  if (typeof value !== 'boolean') throw new EngineError('invalid_request', `${what} is true or false, got ${textOf(value)}`);
  return value;
}

/** Whole numbers, of which there may be one without an array. @internal */
export function wholes(values: unknown, what: string): Int32Array {
  const list = typeof values === 'number' ? [values] : values;
  if (!isArray(list) && !ArrayBuffer.isView(list)) {
    throw new EngineError('invalid_request', `${what} is an array of whole numbers, got ${textOf(values)}`);
  }
  return reading(what, () => Int32Array.from(Array.from(list as ArrayLike<unknown>, (value) => whole(value, what))));
}

/** The same from 0. @internal */
export function counts(values: unknown, what: string): Uint32Array {
  return Uint32Array.from(wholes(values, what), (value) => count(value, what));
}

/** One number for height and width, or both. @internal */
export function pair(value: unknown, what: string): [number, number] {
  // What most calls have, without arrays.
  if (typeof value === 'number') {
    const both = count(value, what);
    return [both, both];
  }
  const numbers = counts(value, what);
  const [height, width = height, ...more] = numbers;
  if (height === undefined || more.length > 0) {
    throw new EngineError('invalid_request', `${what} is one whole number, or two for height and width, got ${textOf(value)}`);
  }
  return [height, width!];
}

/** An object of options, none if left out. @internal */
export function options<T extends object>(value: T | undefined, what: string, known: readonly (keyof T & string)[]): T {
  if (value === undefined || value === null) return {} as T;
  return reading(`the options of ${what}`, () => {
    if (!isRecord(value)) throw new EngineError('invalid_request', `${what}: options are an object, got ${describe(value)}`);
    const given: T & Record<string, unknown> = { ...value };
    const unknown = Object.keys(given).find((name) => given[name] !== undefined && !(known as readonly string[]).includes(name));
    if (unknown === undefined) return given;
    throw new EngineError('invalid_request', `${what} has no option ${unknown}; it has ${known.join(', ') || 'none'}`);
  });
}
