// The package's face: everything public, and nothing else.

export { Engine, type ChatCompletions, type Completions, type EmbeddingsEndpoint } from './engine.js';
export { EngineError, ERROR_CODES, type ErrorCode } from './errors.js';
export { CompletionStream } from './stream.js';
export { Tensor } from './tensor.js';
export { renderTemplate } from './standalone.js';
export type * from './types.js';
