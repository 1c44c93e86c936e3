// The operations of tensors on the buffers of a batch, which notes them: the same methods, with the id of a buffer wherever there is a tensor.

import { EngineError, textOf } from '../../errors.js';
import type { WasmOperations } from '../../tensor_wasm.js';
import type { Tensor } from '../tensor.js';
import { LayerOperations } from './layers.js';

/** Names a buffer of one batch. */
export type BufferId = number;

// The places of arguments that are tensors. Numbers there are ids; elsewhere they are what they are for tensors.
const OPERANDS = {
  ...{ add: [0], sub: [0], mul: [0], div: [0], pow: [0], maximum: [0], minimum: [0], and: [0], or: [0], xor: [0], where: [0, 1] },
  ...{ equal: [0], notEqual: [0], greater: [0], greaterEqual: [0], lower: [0], lowerEqual: [0] },
  ...{ matmul: [0], dot: [0], conv1d: [0], conv2d: [0], convTranspose1d: [0], convTranspose2d: [0], attention: [0, 1] },
  ...{ gather: [1], scatterAdd: [1, 2], indexSelect: [1], embedding: [0] },
  ...{ abs: [], neg: [], relu: [], cos: [], exp: [], floor: [], gelu: [], log: [], rsqrt: [], sigmoid: [], silu: [], sin: [] },
  ...{ softplus: [], sqrt: [], tanh: [], not: [], clamp: [], cast: [] },
  ...{ sum: [], mean: [], prod: [], max: [], min: [], all: [], any: [], variance: [], argmax: [], argmin: [], cumsum: [] },
  ...{ maxPool2d: [], avgPool2d: [], softmax: [], logSoftmax: [], layerNorm: [], rmsNorm: [], crossEntropy: [0], mseLoss: [0] },
  ...{ reshape: [], flatten: [], permute: [], transpose: [], expand: [], squeeze: [], unsqueeze: [], slice: [], select: [] },
  ...{ split: [], chunk: [], flip: [], repeat: [], pad: [], triu: [], tril: [], contiguous: [], clone: [], sort: [], topk: [] },
} as const satisfies Partial<Record<keyof LayerOperations, readonly number[]>>;

/** An operation that tensors have. */
export type OperationName = keyof typeof OPERANDS;

/** What takes or gives tensors, with ids in their place. */
type WithIds<T> = T extends Tensor ? BufferId : T extends object ? { [K in keyof T]: WithIds<T[K]> } : T;

/** Arguments with ids in the place of tensors. */
type ArgumentsWithIds<P extends unknown[]> = { [I in keyof P]: WithIds<P[I]> };

/** The operations of tensors, of which the first argument is a buffer. */
export type BufferOperations<K extends OperationName = OperationName> = {
  [Name in keyof Pick<LayerOperations, K>]: (
    x: BufferId,
    ...args: ArgumentsWithIds<Parameters<LayerOperations[Name]>>
  ) => WithIds<ReturnType<LayerOperations[Name]>>;
};

/** A buffer of a batch with the operations of a tensor. */
class Noted extends LayerOperations {
  readonly id: BufferId;
  #on: WasmOperations;

  constructor(on: WasmOperations, id: BufferId) {
    super();
    this.#on = on;
    this.id = id;
  }

  protected override made(work: (on: WasmOperations, id: number) => number): Tensor {
    // It has all of a tensor that operations use.
    return new Noted(this.#on, work(this.#on, this.id)) as unknown as Tensor;
  }

  protected override madeAll(work: (on: WasmOperations, id: number) => Uint32Array): Tensor[] {
    return Array.from(work(this.#on, this.id), (id) => new Noted(this.#on, id) as unknown as Tensor);
  }

  protected override idOf(value: unknown, what: string): number {
    return value instanceof Noted ? value.id : bufferId(value, what);
  }
}

/** The id of a buffer; the wasm knows whether the batch has it. @internal */
export function bufferId(value: unknown, what: string): BufferId {
  if (typeof value !== 'number' || !Number.isInteger(value) || value < 0 || value >= 0xffffffff) {
    throw new EngineError('invalid_request', `${what} is a buffer of the batch, got ${textOf(value)}`);
  }
  return value;
}

/** Notes an operation. @internal */
export function noted<K extends OperationName>(
  on: WasmOperations,
  name: K,
  x: BufferId,
  args: readonly unknown[],
): WithIds<ReturnType<LayerOperations[K]>> {
  const of = new Noted(on, bufferId(x, `${name}: the first argument`));
  const places: readonly number[] = OPERANDS[name];
  const wrapped = args.map((arg, at) => (places.includes(at) ? new Noted(on, bufferId(arg, `${name}: an operand`)) : arg));
  for (const place of places) {
    if (place >= wrapped.length) throw new EngineError('invalid_request', `${name}: an operand is a buffer of the batch, got undefined`);
  }
  const method = of[name] as (...args: unknown[]) => unknown;
  return idsOf(method.apply(of, wrapped)) as WithIds<ReturnType<LayerOperations[K]>>;
}

function idsOf(result: unknown): unknown {
  if (result instanceof Noted) return result.id;
  if (Array.isArray(result)) return result.map(idsOf);
  return Object.fromEntries(Object.entries(result as object).map(([name, value]) => [name, idsOf(value)]));
}

/** The names of all operations. @internal */
export const OPERATIONS = Object.keys(OPERANDS) as OperationName[];
