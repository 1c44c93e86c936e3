// The operations of tensors as functions, for who likes them better so.

import { isA, isArray, reading } from '../arguments.js';
import { EngineError, textOf } from '../errors.js';
import type { Operand } from './operations/elements.js';
import { Tensor } from './tensor.js';

/** The names of methods that take other arguments after the tensor. */
type Method = {
  [K in keyof Tensor]: Tensor[K] extends (...args: never[]) => Tensor | Tensor[] | { values: Tensor; indices: Tensor } ? K : never;
}[keyof Tensor];

function method<K extends Method>(name: K): (x: Tensor, ...args: Parameters<Tensor[K]>) => ReturnType<Tensor[K]> {
  return (x, ...args) => {
    const called = tensor(x, name)[name] as (...args: unknown[]) => ReturnType<Tensor[K]>;
    return called.apply(x, args);
  };
}

function tensor(x: unknown, what: string): Tensor {
  if (!isA(x, Tensor)) throw new EngineError('invalid_request', `${what}: a Tensor is wanted, got ${textOf(x)}`);
  return x;
}

function firstOf(tensors: unknown, what: string): unknown {
  return isArray(tensors) ? reading(`${what}: the array of tensors`, () => tensors[0]) : undefined;
}

export const abs = method('abs');
export const neg = method('neg');
export const relu = method('relu');
export const cos = method('cos');
export const exp = method('exp');
export const floor = method('floor');
export const gelu = method('gelu');
export const log = method('log');
export const rsqrt = method('rsqrt');
export const sigmoid = method('sigmoid');
export const silu = method('silu');
export const sin = method('sin');
export const softplus = method('softplus');
export const sqrt = method('sqrt');
export const tanh = method('tanh');
export const add = method('add');
export const sub = method('sub');
export const mul = method('mul');
export const div = method('div');
export const pow = method('pow');
export const maximum = method('maximum');
export const minimum = method('minimum');
export const equal = method('equal');
export const notEqual = method('notEqual');
export const greater = method('greater');
export const greaterEqual = method('greaterEqual');
export const lower = method('lower');
export const lowerEqual = method('lowerEqual');
export const and = method('and');
export const or = method('or');
export const xor = method('xor');
export const not = method('not');
export const clamp = method('clamp');
export const cast = method('cast');
export const sum = method('sum');
export const mean = method('mean');
export const prod = method('prod');
export const max = method('max');
export const min = method('min');
export const all = method('all');
export const any = method('any');
export const variance = method('variance');
export const argmax = method('argmax');
export const argmin = method('argmin');
export const cumsum = method('cumsum');
export const reshape = method('reshape');
export const flatten = method('flatten');
export const permute = method('permute');
export const transpose = method('transpose');
export const expand = method('expand');
export const squeeze = method('squeeze');
export const unsqueeze = method('unsqueeze');
export const slice = method('slice');
export const select = method('select');
export const split = method('split');
export const chunk = method('chunk');
export const flip = method('flip');
export const repeat = method('repeat');
export const pad = method('pad');
export const triu = method('triu');
export const tril = method('tril');
export const gather = method('gather');
export const scatterAdd = method('scatterAdd');
export const indexSelect = method('indexSelect');
export const sort = method('sort');
export const topk = method('topk');
export const matmul = method('matmul');
export const dot = method('dot');
export const conv1d = method('conv1d');
export const conv2d = method('conv2d');
export const convTranspose1d = method('convTranspose1d');
export const convTranspose2d = method('convTranspose2d');
export const maxPool2d = method('maxPool2d');
export const avgPool2d = method('avgPool2d');
export const softmax = method('softmax');
export const logSoftmax = method('logSoftmax');
export const layerNorm = method('layerNorm');
export const rmsNorm = method('rmsNorm');
export const attention = method('attention');
export const crossEntropy = method('crossEntropy');
export const mseLoss = method('mseLoss');
export const detach = method('detach');

/** An operation with one result. */
type Differentiable = { [K in Method]: Tensor[K] extends (...args: never[]) => Tensor ? K : never }[Method];

/**
 * The gradients of one operation's tensors, x and those among its arguments, in this order, where `gradient` is that of its result (a vector-Jacobian
 * product). Of tensors of whole numbers it is undefined. Tensors in options, such as a bias, are taken as they are.
 *
 * ```js
 * const [ofX] = vjp('relu', gradient, x);
 * const [ofA, ofB] = vjp('matmul', gradient, a, b);
 * ```
 */
export function vjp<K extends Differentiable>(
  name: K,
  gradient: Tensor,
  x: Tensor,
  ...args: Parameters<Tensor[K]>
): (Tensor | undefined)[] {
  const of = tensor(x, 'vjp');
  // A tensor's own methods are no operations, nor is what every object has.
  const isOperation = typeof name === 'string' && !Object.hasOwn(Tensor.prototype, name) && !Object.hasOwn(Object.prototype, name);
  if (!isOperation || typeof of[name] !== 'function') {
    throw new EngineError('invalid_request', `vjp: an operation's name is wanted, got ${textOf(name)}`);
  }
  const inputs = [of, ...args.filter((arg): arg is Tensor => isA(arg, Tensor))];
  return of.device.tape.pullBack(inputs, gradient, ([first, ...others]) => {
    const called = first![name] as (...args: unknown[]) => Tensor;
    return called.apply(
      first,
      args.map((arg) => (isA(arg, Tensor) ? others.shift() : arg)),
    );
  });
}

/** The element of `x` where `condition`, of bools, is true, and that of `y` elsewhere. */
export const where = (condition: Tensor, x: Operand, y: Operand): Tensor => tensor(condition, 'where').where(x, y);

/** The rows of a weight [rows, columns] with these indices. */
export const embedding = (index: Tensor, weight: Tensor): Tensor => tensor(weight, 'embedding').embedding(index);

/** Tensors one after the other along a dimension. */
export const cat = (tensors: readonly Tensor[], dim = 0): Tensor => tensor(firstOf(tensors, 'cat'), 'cat').device.cat(tensors, dim);

/** Tensors of one shape along a new dimension. */
export const stack = (tensors: readonly Tensor[], dim = 0): Tensor => tensor(firstOf(tensors, 'stack'), 'stack').device.stack(tensors, dim);
