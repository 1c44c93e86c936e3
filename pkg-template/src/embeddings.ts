// OpenAI's shape of embeddings: what is taken out of a request before the engine sees it, and what the answer looks like. It knows
// nothing of workers, wasm or the queue.

import { describe } from './arguments.js';
import { EngineError } from './errors.js';
import { objectOf } from './json.js';
import type { EmbeddingsData } from './protocol.js';
import type { EmbeddingsResponse } from './types.js';

/** A request cut in two: what the engine embeds, and how the vectors are written. */
export interface SplitEmbeddingRequest {
  /** For the engine, which rejects what it doesn't know. */
  embedding: object;
  format: 'float' | 'base64';
}

export function splitEmbeddingRequest(request: unknown): SplitEmbeddingRequest {
  const { model, user, encoding_format, ...embedding } = objectOf('a request', '{input: "…"}', request);
  for (const [name, value] of Object.entries({ model, user })) {
    if (value !== undefined && typeof value !== 'string')
      throw new EngineError('invalid_request', `${name} is a string, got ${typeof value}`);
  }
  const format = encoding_format ?? 'float';
  if (format !== 'float' && format !== 'base64') {
    throw new EngineError('invalid_request', `encoding_format is "float" or "base64", got ${describe(encoding_format)}`);
  }
  return { embedding, format };
}

export function embeddingsResponse(
  { values, dimensions, usage }: EmbeddingsData,
  format: 'float' | 'base64',
  model: string,
): EmbeddingsResponse {
  const data = Array.from({ length: values.length / dimensions }, (_, index) => {
    const vector = values.subarray(index * dimensions, (index + 1) * dimensions);
    return { object: 'embedding', index, embedding: format === 'float' ? Array.from(vector) : base64(vector) } as const;
  });
  return { object: 'list', data, model, usage } as EmbeddingsResponse;
}

/** Float32 in little-endian order, as OpenAI's clients decode it. */
function base64(vector: Float32Array): string {
  const bytes = new DataView(new ArrayBuffer(4 * vector.length));
  vector.forEach((value, index) => {
    bytes.setFloat32(4 * index, value, true);
  });
  let text = '';
  for (const byte of new Uint8Array(bytes.buffer)) text += String.fromCharCode(byte);
  return btoa(text);
}
