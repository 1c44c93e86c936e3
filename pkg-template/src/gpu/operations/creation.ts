// Tensors of numbers that follow from their places: arguments checked, then ids of tensors or of a batch's buffers.

import { EngineError, textOf } from '../../errors.js';
import type { WasmOperations } from '../../tensor_wasm.js';
import { checkDType, checkShape } from '../elements.js';
import type { DType } from '../types.js';
import { count, number, options, whole } from './arguments.js';
import { DTYPES } from './base.js';

/** The options of random numbers. */
export interface RandomOptions {
  /** A whole number from 0, below 2^53. The same seed gives the same numbers on every device. By default a random one. */
  seed?: number | undefined;
}

const codeOf = (dtype: DType): number => DTYPES.indexOf(checkDType(dtype));

/** @internal */
export class Creation {
  #on: WasmOperations;
  #numberOf: (dims: Uint32Array) => number;

  constructor(on: WasmOperations, numberOf: (dims: Uint32Array) => number) {
    this.#on = on;
    this.#numberOf = numberOf;
  }

  full(shape: ArrayLike<number>, value: number | boolean, dtype: DType): number {
    const [dims, code] = [checkShape(shape), codeOf(dtype)];
    const fill = number(typeof value === 'boolean' ? Number(value) : value, 'full: the value');
    return this.#on.full(this.#numberOf(dims), code, fill);
  }

  arange(start: number, end: number | undefined, step: number, dtype: DType | undefined): number {
    const [first, last] = end === undefined ? [0, start] : [start, end];
    for (const value of [first, last, step]) number(value, 'arange: each bound');
    const found = dtype ?? ([first, last, step].every(Number.isInteger) ? 'i32' : 'f32');
    return this.#on.arange(first, last, step, codeOf(found));
  }

  linspace(start: number, end: number, steps: number, dtype: DType): number {
    const [from, to, many] = [number(start, 'linspace: start'), number(end, 'linspace: end'), count(steps, 'linspace: steps')];
    return this.#on.linspace(from, to, many, codeOf(dtype));
  }

  eye(rows: number, columns: number, dtype: DType): number {
    return this.#on.eye(count(rows, 'eye: rows'), count(columns, 'eye: columns'), codeOf(dtype));
  }

  random(shape: ArrayLike<number>, normal: boolean, given: RandomOptions | undefined): number {
    const { seed = Math.floor(Math.random() * 2 ** 53) } = options(given, 'rand', ['seed']);
    if (!Number.isSafeInteger(seed) || seed < 0)
      throw new EngineError('invalid_request', `a seed is a whole number from 0, got ${textOf(seed)}`);
    return this.#on.random(this.#numberOf(checkShape(shape)), normal, Math.floor(seed / 2 ** 32), seed % 2 ** 32);
  }

  cat(ids: Uint32Array, dim: number): number {
    return this.#on.cat(ids, whole(dim, 'cat: the dimension'));
  }

  stack(ids: Uint32Array, dim: number): number {
    return this.#on.stack(ids, whole(dim, 'stack: the dimension'));
  }
}
