// What form an answer can be given: OpenAI's `response_format` and vLLM's `structured_outputs`, as types.

export type { NamedSchema, ResponseFormat, StructuredOutputs } from './generated/requests.js';
