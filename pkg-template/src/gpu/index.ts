// The face of rillm/gpu: everything public, and nothing else.

/**
 * Tensors, kernels in WGSL and batches on a GPU device.
 *
 * @module rillm/gpu
 */

export { EngineError, ERROR_CODES, type ErrorCode } from '../errors.js';
export { isAvailable, listAdapters } from './adapters.js';
export { CommandBatch, type BatchDispatchOptions } from './batch.js';
export { Device } from './device.js';
export { Kernel, type DispatchOptions } from './kernel.js';
export type { RandomOptions } from './operations/creation.js';
export type { Operand, ReduceOptions } from './operations/elements.js';
export type { ConvOptions, ConvTransposeOptions, PoolOptions, Reduction } from './operations/layers.js';
export type { BufferId, BufferOperations, OperationName } from './operations/noted.js';
export type { Plan } from './plan.js';
export { RecordedReadback, type ValuesOf } from './recorded_readback.js';
export { type BackwardOptions, Tape } from './tape.js';
export { Tensor } from './tensor.js';
export type * from './types.js';
