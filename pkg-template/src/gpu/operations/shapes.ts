// Other shapes, orders and parts of the same elements, and elements by their indices.

import { EngineError } from '../../errors.js';
import type { Tensor } from '../tensor.js';
import { count, counts, flag, number, options, whole, wholes } from './arguments.js';
import { ElementOperations } from './elements.js';

/** Views share memory with what they are views of: what is written to one is seen in the other. `clone()` is apart. */
export abstract class ShapeOperations extends ElementOperations {
  /** The same elements in another shape, in row-major order. One dimension may be −1 and follows from the others. A view where strides allow it. */
  reshape(shape: ArrayLike<number>): Tensor {
    const dims = wholes(shape, 'reshape: a dimension');
    return this.made((on, id) => on.reshape(id, dims));
  }

  /** Dimensions `first` to `last`, both included, as one. */
  flatten(first = 0, last = -1): Tensor {
    return this.made((on, id) => on.flatten(id, whole(first, 'flatten: the first dimension'), whole(last, 'flatten: the last dimension')));
  }

  /** The dimensions in another order: dimension i of the result is `order[i]` of this tensor. A view. */
  permute(order: ArrayLike<number>): Tensor {
    const dims = wholes(order, 'permute: a dimension');
    return this.made((on, id) => on.permute(id, dims));
  }

  /** Two dimensions swapped, the last two by default. A view. */
  transpose(a = -2, b = -1): Tensor {
    return this.made((on, id) => on.transpose(id, whole(a, 'transpose: a dimension'), whole(b, 'transpose: a dimension')));
  }

  /** Repeated along dimensions of size 1, without a copy; −1 keeps a dimension. New dimensions come first. A view. */
  expand(shape: ArrayLike<number>): Tensor {
    const dims = wholes(shape, 'expand: a dimension');
    return this.made((on, id) => on.expand(id, dims));
  }

  /** Without dimensions of size 1: all of them, or those named if they are. */
  squeeze(dims?: number | readonly number[]): Tensor {
    const named = dims === undefined ? undefined : wholes(dims, 'squeeze: a dimension');
    return this.made((on, id) => on.squeeze(id, named));
  }

  /** With a dimension of size 1 at this place. */
  unsqueeze(dim: number): Tensor {
    return this.made((on, id) => on.unsqueeze(id, whole(dim, 'unsqueeze: the dimension')));
  }

  /**
   * Elements `start`, `start + step`, … before `end` of a dimension, the first by default. Bounds count from the end if they are negative and
   * are cut to the dimension; a negative step goes backwards. A view.
   */
  slice(start?: number | null, end?: number | null, given?: { dim?: number | undefined; step?: number | undefined }): Tensor {
    const { dim = 0, step = 1 } = options(given, 'slice', ['dim', 'step']);
    const bound = (value: number | null | undefined, what: string) =>
      value === undefined || value === null ? undefined : whole(value, what);
    const [from, to] = [bound(start, 'slice: start'), bound(end, 'slice: end')];
    return this.made((on, id) => on.slice(id, whole(dim, 'slice: dim'), from, to, whole(step, 'slice: step')));
  }

  /** One index of a dimension, which goes. A view. */
  select(dim: number, index: number): Tensor {
    return this.made((on, id) => on.select(id, whole(dim, 'select: the dimension'), whole(index, 'select: the index')));
  }

  /** Parts along a dimension: of these sizes, or of one size, where the last may be smaller. Views. */
  split(sizes: number | readonly number[], dim = 0): Tensor[] {
    whole(dim, 'split: the dimension');
    if (typeof sizes === 'number') return this.madeAll((on, id) => on.splitEvery(id, count(sizes, 'split: the size'), dim));
    const each = counts(sizes, 'split: a size');
    return this.madeAll((on, id) => on.split(id, each, dim));
  }

  /** At most this number of parts of equal size along a dimension; the last may be smaller. Views. */
  chunk(chunks: number, dim = 0): Tensor[] {
    return this.madeAll((on, id) => on.chunk(id, count(chunks, 'chunk: the number of parts'), whole(dim, 'chunk: the dimension')));
  }

  /** Backwards along these dimensions. A view. */
  flip(dims: number | readonly number[]): Tensor {
    const named = wholes(dims, 'flip: a dimension');
    return this.made((on, id) => on.flip(id, named));
  }

  /** Repeated this number of times along each dimension; new dimensions come first. */
  repeat(times: ArrayLike<number>): Tensor {
    const each = counts(times, 'repeat: a number of times');
    return this.made((on, id) => on.repeat(id, each));
  }

  /** With `value` before and after dimensions: pairs of counts, the last dimension's first, as in PyTorch. Negative counts cut. */
  pad(pairs: ArrayLike<number>, value = 0): Tensor {
    const each = wholes(pairs, 'pad: a count');
    return this.made((on, id) => on.pad(id, each, number(value, 'pad: the value')));
  }

  /** The elements on and above a diagonal of the last two dimensions; the others become 0. */
  triu(diagonal = 0): Tensor {
    return this.made((on, id) => on.triangle(id, true, whole(diagonal, 'triu: the diagonal')));
  }

  /** The elements on and below a diagonal of the last two dimensions; the others become 0. */
  tril(diagonal = 0): Tensor {
    return this.made((on, id) => on.triangle(id, false, whole(diagonal, 'tril: the diagonal')));
  }

  /** The same elements side by side in row-major order: this tensor's own memory if they lie so, a copy otherwise. */
  contiguous(): Tensor {
    return this.made((on, id) => on.contiguous(id));
  }

  /** The same elements in memory of their own. */
  clone(): Tensor {
    return this.made((on, id) => on.copied(id));
  }

  /**
   * `out[i][j][k] = x[i][index[i][j][k]][k]` for the second of three dimensions, and likewise for others. The index is i32, where −1 is the
   * last element, or u32. An index out of range gives NaN for floats and 0 for integers.
   */
  gather(dim: number, index: Tensor): Tensor {
    const at = this.idOf(index, 'gather: the index');
    return this.made((on, id) => on.gather(id, whole(dim, 'gather: the dimension'), at));
  }

  /**
   * A new tensor with `source[i][j][k]` added to `x[i][index[i][j][k]][k]`, and likewise for other dimensions. An index out of range leaves its
   * element out. Floats are added in no fixed order.
   */
  scatterAdd(dim: number, index: Tensor, source: Tensor): Tensor {
    const [at, from] = [this.idOf(index, 'scatterAdd: the index'), this.idOf(source, 'scatterAdd: the source')];
    return this.made((on, id) => on.scatterAdd(id, whole(dim, 'scatterAdd: the dimension'), at, from));
  }

  /** The elements of a dimension with these indices, i32 or u32 of one dimension. */
  indexSelect(dim: number, index: Tensor): Tensor {
    const at = this.idOf(index, 'indexSelect: the index');
    return this.made((on, id) => on.indexSelect(id, whole(dim, 'indexSelect: the dimension'), at));
  }

  /** The rows of this matrix with these indices: a dimension more than the index has. */
  embedding(index: Tensor): Tensor {
    const at = this.idOf(index, 'embedding: the index');
    return this.made((on, id) => on.embedding(id, at));
  }

  /** The elements of a dimension in order, and the index of each as i32. Stable; NaN counts as larger than every number. */
  sort(dim = -1, given?: { descending?: boolean | undefined }): { values: Tensor; indices: Tensor } {
    const { descending = false } = options(given, 'sort', ['descending']);
    return valuesAndIndices(this.madeAll((on, id) => on.sort(id, whole(dim, 'sort: the dimension'), flag(descending, 'sort: descending'))));
  }

  /** The k largest (or smallest) elements of a dimension in order, and the index of each as i32. Of equal ones the first come first. */
  topk(k: number, dim = -1, given?: { largest?: boolean | undefined }): { values: Tensor; indices: Tensor } {
    const { largest = true } = options(given, 'topk', ['largest']);
    return valuesAndIndices(
      this.madeAll((on, id) => on.topk(id, count(k, 'topk: k'), whole(dim, 'topk: the dimension'), flag(largest, 'topk: largest'))),
    );
  }
}

/** @internal */
export function valuesAndIndices([values, indices]: Tensor[]): { values: Tensor; indices: Tensor } {
  if (values === undefined || indices === undefined) throw new EngineError('internal', 'an operation gave no indices');
  return { values, indices };
}
