// The package's face: everything public, and nothing else.

/**
 * The engine: load a model and ask it.
 *
 * @module rillm
 */

export type { Adapters, NamedAdapter } from './adapters.js';
export {
  type ChatCompletions,
  type ClassifyEndpoint,
  type Completions,
  type EmbeddingsEndpoint,
  Engine,
  type ForwardOptions,
  type RerankEndpoint,
} from './engine.js';
export {
  models,
  type DownloadModelOptions,
  type ImportOptions,
  type KeptModel,
  type ModelFileInfo,
  type ModelsOptions,
  type ModelsUsage,
  type VerifyOptions,
} from './models.js';
export type { InputItemsQuery, Responses } from './responses/endpoint.js';
export type { Sessions } from './sessions/endpoint.js';
export type { Checkpoints, Training } from './train/endpoint.js';
export type { ModelState } from './engine_pool.js';
export { EngineError, ERROR_CODES, type ErrorCode } from './errors.js';
export type { Recommendation, RecommendOptions } from './recommend.js';
export type { Fallback, FallbackEvent, FallbackOptions, FallbackRequest } from './fallback.js';
export { serve as serveModels, type ModelServer, type ServedSource, type ServeOptions } from './serve.js';
export type { SharedEvent, SharedOptions } from './shared/share.js';
export { CompletionStream } from './stream.js';
export { Tensor } from './engine_tensor.js';
export { renderTemplate } from './standalone.js';
export type * from './types.js';
