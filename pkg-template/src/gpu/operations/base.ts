// What all operations of tensors are built on: how one asks the wasm and what becomes of its answer.

import { NONE, type WasmOperations } from '../../tensor_wasm.js';
import type { Tensor } from '../tensor.js';
import type { DType } from '../types.js';

/** In the order in which the wasm counts them. @internal */
export const DTYPES = ['bool', 'u32', 'i32', 'f16', 'bf16', 'f32'] as const satisfies readonly DType[];

/** How an operation asks its device. */
export abstract class Operations {
  /** The tensor that an operation on this one makes. @internal */
  protected abstract made(work: (operations: WasmOperations, id: number) => number): Tensor;
  /** Several of them. @internal */
  protected abstract madeAll(work: (operations: WasmOperations, id: number) => Uint32Array): Tensor[];
  /** The id of another tensor of the same device; throws for anything else. @internal */
  protected abstract idOf(tensor: unknown, what: string): number;

  /** The same, or {@link NONE} where it was left out. @internal */
  protected idOrNone(tensor: unknown, what: string): number {
    return tensor === undefined || tensor === null ? NONE : this.idOf(tensor, what);
  }
}
