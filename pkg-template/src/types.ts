// The public types: what a caller passes in and gets back. Types only, so that nothing here can depend on how it works.

export type { AdapterFormat, AdapterOptions, AdapterSource, LoadedAdapter } from './adapters.js';
export type * from './answers.js';
export type * from './loading.js';
export type * from './messages.js';
export type * from './model_source.js';
export type * from './requests.js';
export type * from './responses/types.js';
export type * from './sampling.js';
export type * from './sessions/types.js';
export type { NamedSchema, ResponseFormat, StructuredOutputs } from './structured.js';
export type * from './train/types.js';
export type { CacheStats, Flushes, GpuStats, KernelTime } from './stats.js';
