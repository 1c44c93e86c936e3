// The face of rillm/gpu: everything public, and nothing else.

export { EngineError, ERROR_CODES, type ErrorCode } from '../errors.js';
export { isAvailable, listAdapters } from './adapters.js';
export { CommandBatch, type BatchDispatchOptions, type BufferId } from './batch.js';
export { Device } from './device.js';
export { Kernel, type DispatchOptions } from './kernel.js';
export { RecordedReadback, type ValuesOf } from './recorded_readback.js';
export { Tensor } from './tensor.js';
export type * from './types.js';
