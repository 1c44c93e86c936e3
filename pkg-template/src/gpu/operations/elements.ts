// Functions of elements, which broadcast and promote as in PyTorch, and what becomes of the elements along dimensions.

import { EngineError, textOf } from '../../errors.js';
import { NONE } from '../../tensor_wasm.js';
import { checkDType } from '../elements.js';
import type { Tensor } from '../tensor.js';
import type { DType } from '../types.js';
import { flag, number, options, whole, wholes } from './arguments.js';
import { DTYPES, Operations } from './base.js';

// In the order in which the wasm counts them.
const UNARY = [
  'abs',
  'neg',
  'relu',
  'cos',
  'exp',
  'floor',
  'gelu',
  'gelu_tanh',
  'log',
  'rsqrt',
  'sigmoid',
  'silu',
  'sin',
  'softplus',
  'sqrt',
  'tanh',
] as const;
/** @internal */
export const BINARY = ['add', 'sub', 'mul', 'div', 'pow', 'maximum', 'minimum'] as const;
const COMPARE = ['equal', 'lower', 'lowerEqual', 'notEqual', 'greater', 'greaterEqual'] as const;
const LOGICAL = ['and', 'or', 'xor'] as const;
const REDUCE = ['sum', 'mean', 'prod', 'max', 'min', 'all', 'any'] as const;

/** A tensor of the same device, or a number. */
export type Operand = Tensor | number;

/** How dimensions are reduced. */
export interface ReduceOptions {
  /** Whether reduced dimensions stay, of size 1. Default: false. */
  keepDim?: boolean | undefined;
}

/** Functions of elements. Shapes broadcast as in NumPy, and dtypes are promoted: bool < u32 < i32 < f16, bf16 < f32. */
export abstract class ElementOperations extends Operations {
  /** |x| */
  abs(): Tensor {
    return this.#unary('abs');
  }

  /** −x */
  neg(): Tensor {
    return this.#unary('neg');
  }

  /** max(x, 0); NaN stays NaN. */
  relu(): Tensor {
    return this.#unary('relu');
  }

  /** The cosine, within 2e-7. */
  cos(): Tensor {
    return this.#unary('cos');
  }

  /** e^x; infinite above 88.72. */
  exp(): Tensor {
    return this.#unary('exp');
  }

  /** The largest whole number that is not larger. */
  floor(): Tensor {
    return this.#unary('floor');
  }

  /**
   * The Gaussian error linear unit x · Φ(x) (Hendrycks, Gimpel 2016): by the error function, or with `approximate: 'tanh'` by the hyperbolic
   * tangent.
   */
  gelu(given?: { approximate?: 'none' | 'tanh' | undefined }): Tensor {
    const { approximate = 'none' } = options(given, 'gelu', ['approximate']);
    if (approximate !== 'none' && approximate !== 'tanh') {
      throw new EngineError('invalid_request', `gelu: approximate is 'none' or 'tanh', got ${textOf(approximate)}`);
    }
    return this.#unary(approximate === 'tanh' ? 'gelu_tanh' : 'gelu');
  }

  /** The natural logarithm; NaN for negative numbers. */
  log(): Tensor {
    return this.#unary('log');
  }

  /** 1 / √x */
  rsqrt(): Tensor {
    return this.#unary('rsqrt');
  }

  /** 1 / (1 + e^-x) */
  sigmoid(): Tensor {
    return this.#unary('sigmoid');
  }

  /** x · sigmoid(x), also called swish. */
  silu(): Tensor {
    return this.#unary('silu');
  }

  /** The sine, within 2e-7. */
  sin(): Tensor {
    return this.#unary('sin');
  }

  /** √x; NaN for negative numbers. */
  sqrt(): Tensor {
    return this.#unary('sqrt');
  }

  /** The hyperbolic tangent. */
  tanh(): Tensor {
    return this.#unary('tanh');
  }

  /** log(1 + e^(beta · x)) / beta, and x where beta · x is above `threshold`. */
  softplus(given?: { beta?: number | undefined; threshold?: number | undefined }): Tensor {
    const { beta = 1, threshold = 20 } = options(given, 'softplus', ['beta', 'threshold']);
    number(beta, 'softplus: beta');
    number(threshold, 'softplus: threshold');
    return this.made((on, id) => on.softplus(id, beta, threshold));
  }

  /** x + y; of bools, or. */
  add(y: Operand): Tensor {
    return this.#binary('add', y);
  }

  /** x − y */
  sub(y: Operand): Tensor {
    return this.#binary('sub', y);
  }

  /** x · y by elements; of bools, and. */
  mul(y: Operand): Tensor {
    return this.#binary('mul', y);
  }

  /** x / y by elements; of integers in f32. */
  div(y: Operand): Tensor {
    return this.#binary('div', y);
  }

  /** x^y by elements. */
  pow(y: Operand): Tensor {
    return this.#binary('pow', y);
  }

  /** The larger of each two elements; NaN if one of them is. */
  maximum(y: Operand): Tensor {
    return this.#binary('maximum', y);
  }

  /** The smaller of each two elements; NaN if one of them is. */
  minimum(y: Operand): Tensor {
    return this.#binary('minimum', y);
  }

  /** Where x = y, as bool. NaN is equal to nothing. */
  equal(y: Operand): Tensor {
    return this.#compare('equal', y);
  }

  /** Where x ≠ y, as bool. */
  notEqual(y: Operand): Tensor {
    return this.#compare('notEqual', y);
  }

  /** Where x > y, as bool. */
  greater(y: Operand): Tensor {
    return this.#compare('greater', y);
  }

  /** Where x ≥ y, as bool. */
  greaterEqual(y: Operand): Tensor {
    return this.#compare('greaterEqual', y);
  }

  /** Where x < y, as bool. */
  lower(y: Operand): Tensor {
    return this.#compare('lower', y);
  }

  /** Where x ≤ y, as bool. */
  lowerEqual(y: Operand): Tensor {
    return this.#compare('lowerEqual', y);
  }

  /** Where both are not 0, as bool. */
  and(y: Tensor): Tensor {
    return this.#logical('and', y);
  }

  /** Where one of them is not 0, as bool. */
  or(y: Tensor): Tensor {
    return this.#logical('or', y);
  }

  /** Where exactly one of them is not 0, as bool. */
  xor(y: Tensor): Tensor {
    return this.#logical('xor', y);
  }

  /** Where it is 0, as bool. */
  not(): Tensor {
    return this.made((on, id) => on.logicalNot(id));
  }

  /** The element of `x` where this tensor, of bools, is true, and that of `y` elsewhere. */
  where(x: Operand, y: Operand): Tensor {
    const [a, b] = [typeof x === 'number' ? NONE : this.idOf(x, 'where: x'), typeof y === 'number' ? NONE : this.idOf(y, 'where: y')];
    if (a !== NONE && b !== NONE) return this.made((on, id) => on.choose(id, a, b));
    return this.made((on, id) => on.chooseScalars(id, a, b, a === NONE ? (x as number) : 0, b === NONE ? (y as number) : 0));
  }

  /** Elements below `min` become it, and those above `max`. NaN stays NaN. One of the two may be left out. */
  clamp(given: { min?: number | undefined; max?: number | undefined }): Tensor {
    const { min, max } = options(given, 'clamp', ['min', 'max']);
    if (min !== undefined) number(min, 'clamp: min');
    if (max !== undefined) number(max, 'clamp: max');
    return this.made((on, id) => on.clamp(id, min, max));
  }

  /** The same values in another dtype: floats are cut towards zero, beyond an integer dtype they become its nearest value, and NaN 0. */
  cast(dtype: DType): Tensor {
    const code = DTYPES.indexOf(checkDType(dtype));
    return this.made((on, id) => on.cast(id, code));
  }

  /** The sum over dimensions; over all of them by default. Of bools the number of true ones. */
  sum(dims?: number | readonly number[] | null, given?: ReduceOptions): Tensor {
    return this.#reduce('sum', dims, given);
  }

  /** The mean over dimensions, in floats. */
  mean(dims?: number | readonly number[] | null, given?: ReduceOptions): Tensor {
    return this.#reduce('mean', dims, given);
  }

  /** The product over dimensions. */
  prod(dims?: number | readonly number[] | null, given?: ReduceOptions): Tensor {
    return this.#reduce('prod', dims, given);
  }

  /** The largest element over dimensions; NaN if one is. */
  max(dims?: number | readonly number[] | null, given?: ReduceOptions): Tensor {
    return this.#reduce('max', dims, given);
  }

  /** The smallest element over dimensions; NaN if one is. */
  min(dims?: number | readonly number[] | null, given?: ReduceOptions): Tensor {
    return this.#reduce('min', dims, given);
  }

  /** Whether all elements over dimensions are not 0. */
  all(dims?: number | readonly number[] | null, given?: ReduceOptions): Tensor {
    return this.#reduce('all', dims, given);
  }

  /** Whether an element over dimensions is not 0. */
  any(dims?: number | readonly number[] | null, given?: ReduceOptions): Tensor {
    return this.#reduce('any', dims, given);
  }

  /** The mean of squared differences from the mean; the sum is divided by the number of elements less `correction` (1, after Bessel). */
  variance(dims?: number | readonly number[] | null, given?: ReduceOptions & { correction?: number | undefined }): Tensor {
    const { keepDim = false, correction = 1 } = options(given, 'variance', ['keepDim', 'correction']);
    const over = dimsOrAll(dims, 'variance');
    return this.made((on, id) => on.variance(id, over, number(correction, 'variance: correction'), flag(keepDim, 'variance: keepDim')));
  }

  /** The index of the first largest element along a dimension, as i32; of all elements in row-major order by default. NaN counts as largest. */
  argmax(dim?: number | null, given?: ReduceOptions): Tensor {
    return this.#argReduce('argmax', true, dim, given);
  }

  /** The index of the first smallest element along a dimension, as i32. NaN counts as smallest. */
  argmin(dim?: number | null, given?: ReduceOptions): Tensor {
    return this.#argReduce('argmin', false, dim, given);
  }

  /** The sum of the elements up to each one along a dimension. */
  cumsum(dim: number): Tensor {
    return this.made((on, id) => on.cumsum(id, whole(dim, 'cumsum: the dimension')));
  }

  #unary(name: (typeof UNARY)[number]): Tensor {
    const kind = UNARY.indexOf(name);
    return this.made((on, id) => on.unary(kind, id));
  }

  #binary(name: (typeof BINARY)[number], y: Operand): Tensor {
    const kind = BINARY.indexOf(name);
    if (typeof y === 'number') return this.made((on, id) => on.binaryScalar(kind, id, y, false));
    const other = this.idOf(y, `${name}: the other operand`);
    return this.made((on, id) => on.binary(kind, id, other));
  }

  #compare(name: (typeof COMPARE)[number], y: Operand): Tensor {
    const kind = COMPARE.indexOf(name);
    if (typeof y === 'number') return this.made((on, id) => on.compareScalar(kind, id, y));
    const other = this.idOf(y, `${name}: the other operand`);
    return this.made((on, id) => on.compare(kind, id, other));
  }

  #logical(name: (typeof LOGICAL)[number], y: Tensor): Tensor {
    const other = this.idOf(y, `${name}: the other operand`);
    return this.made((on, id) => on.logical(LOGICAL.indexOf(name), id, other));
  }

  #reduce(name: (typeof REDUCE)[number], dims: number | readonly number[] | null | undefined, given: ReduceOptions | undefined): Tensor {
    const { keepDim = false } = options(given, name, ['keepDim']);
    const over = dimsOrAll(dims, name);
    return this.made((on, id) => on.reduce(REDUCE.indexOf(name), id, over, flag(keepDim, `${name}: keepDim`)));
  }

  #argReduce(name: string, largest: boolean, dim: number | null | undefined, given: ReduceOptions | undefined): Tensor {
    const { keepDim = false } = options(given, name, ['keepDim']);
    const along = dim === undefined || dim === null ? undefined : whole(dim, `${name}: the dimension`);
    return this.made((on, id) => on.argReduce(largest, id, along, flag(keepDim, `${name}: keepDim`)));
  }
}

function dimsOrAll(dims: number | readonly number[] | null | undefined, what: string): Int32Array | undefined {
  return dims === undefined || dims === null ? undefined : wholes(dims, `${what}: dims`);
}
