// The face of rillm/tensor: rillm/gpu with the operations of tensors as functions besides.

export * from '../gpu/index.js';
export * from '../gpu/functions.js';
