// The shapes of rankings and labels: what is taken out of a request before the engine sees it, and what the answer looks like. Rankings are in
// the shape of Jina's and Cohere's rerank API, labels in that of vLLM's /classify. It knows nothing of workers, wasm or the queue.

import { EngineError } from './errors.js';
import { objectOf } from './json.js';
import { newId } from './openai.js';
import type { ScoreData, ScoreKind } from './protocol.js';
import type { ClassifyResponse, RerankResponse } from './types.js';

/** What each is called in messages. */
export const SCORED: Record<ScoreKind, string> = { rerank: 'the ranking', classify: 'the classification' };

/** A request cut in two: what the engine reads, and how the answer is written. */
export interface SplitScoreRequest<Kind extends ScoreKind> {
  /** For the engine, which rejects what it doesn't know. */
  fields: object;
  answer(data: ScoreData[Kind], model: string): RerankResponse | ClassifyResponse;
}

/** Takes out what clients send along. */
function withoutClientFields(example: string, request: unknown): Record<string, unknown> {
  const { model, user, ...fields } = objectOf('a request', example, request);
  for (const [name, value] of Object.entries({ model, user })) {
    if (value !== undefined && value !== null && typeof value !== 'string')
      throw new EngineError('invalid_request', `${name} is a string, got ${typeof value}`);
  }
  return fields;
}

export function splitRerankRequest(request: unknown): SplitScoreRequest<'rerank'> {
  const { return_documents, ...fields } = withoutClientFields('{query: "…", documents: ["…"]}', request);
  if (return_documents !== undefined && return_documents !== null && typeof return_documents !== 'boolean')
    throw new EngineError('invalid_request', `return_documents is true or false, got ${typeof return_documents}`);
  // As they were when the request came.
  const texts = Array.isArray(fields.documents) ? fields.documents.map(textOf) : [];
  const answer = ({ results, usage }: ScoreData['rerank'], model: string): RerankResponse => ({
    object: 'list',
    model,
    results: results.map(({ index, relevance_score }) =>
      return_documents === false ? { index, relevance_score } : { index, relevance_score, document: { text: texts[index] ?? '' } },
    ),
    usage,
  });
  return { fields, answer };
}

/** The text of a document. The engine refuses what is none. */
function textOf(document: unknown): string {
  const text = typeof document === 'object' && document !== null && 'text' in document ? document.text : document;
  return typeof text === 'string' ? text : '';
}

export function splitClassifyRequest(request: unknown): SplitScoreRequest<'classify'> {
  const fields = withoutClientFields('{input: "…"}', request);
  const answer = ({ data, usage }: ScoreData['classify'], model: string): ClassifyResponse => ({
    id: newId('classify-'),
    object: 'list',
    created: Math.floor(Date.now() / 1000),
    model,
    data,
    usage,
  });
  return { fields, answer };
}
