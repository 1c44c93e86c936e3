// The face of rillm/tensor: rillm/gpu with the operations of tensors as functions besides.

/**
 * An array library on `rillm/gpu`, with PyTorch's operations. It has all that `rillm/gpu` has, and each operation of `Tensor` as a function too:
 * `relu(x)` is `x.relu()`.
 *
 * @module rillm/tensor
 */

export * from '../gpu/index.js';
export * from '../gpu/functions.js';
export * from './optimizers.js';
export * from './schedules.js';
