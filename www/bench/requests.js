// Speed of requests of different kinds, one at a time and several at once. Knows the package's public face only.

import { checkLength, median, promptOf } from './measure.js';

const AT_ONCE = 4;
const WARM_UPS = 2;

const NAMES = {
  type: 'object',
  properties: { names: { type: 'array', items: { type: 'string', maxLength: 12 }, minItems: 30 } },
  required: ['names'],
  additionalProperties: false,
};

const KINDS = [
  ['plain', { temperature: 0, ignore_eos: true }],
  ['top_k 40', { temperature: 1, top_k: 40, ignore_eos: true }],
  ['JSON schema', { temperature: 0, structured_outputs: { json: NAMES } }],
  ['regular expression', { temperature: 1, structured_outputs: { regex: '([a-z]{2,9} ){200}' } }],
  ['prompt lookup', { temperature: 0, ignore_eos: true, speculation: { type: 'prompt_lookup', min_ngram: 2 } }],
];

/**
 * Tokens per second of whole answers, prompts included, in all: one answer at a time, and four at once; the median and the range.
 * Besides, the dispatches and submits for each token. `onRow` is called with each kind's row.
 */
export async function measureRequests(Engine, source, { promptTokens = 32, newTokens = 128, repetitions = 7, onRow, ...load } = {}) {
  const engine = await Engine.load(source, { ...load, maxSequences: AT_ONCE });
  try {
    const prompts = await Promise.all(Array.from({ length: AT_ONCE }, (_, index) => promptOf(engine, promptTokens, index)));
    const rows = [];
    for (const [name, fields] of KINDS) {
      const settings = { newTokens, repetitions };
      const one = await measure(engine, prompts.slice(0, 1), fields, settings);
      const row = { name, one, at_once: await measure(engine, prompts, fields, settings) };
      rows.push(row);
      onRow?.(row);
    }
    return { adapter: engine.info.adapter, layers: engine.info.layers, at_once: AT_ONCE, kinds: rows };
  } finally {
    await engine.dispose();
  }
}

async function measure(engine, prompts, fields, { newTokens, repetitions }) {
  const speeds = [];
  let before;
  let tokens = 0;
  for (let run = 0; run < WARM_UPS + repetitions; run++) {
    if (run === WARM_UPS) before = await engine.stats();
    const begin = performance.now();
    const answers = await Promise.all(
      prompts.map((prompt, index) => engine.completions.create({ prompt, max_tokens: newTokens, ...fields, seed: run * AT_ONCE + index })),
    );
    const seconds = (performance.now() - begin) / 1000;
    for (const answer of answers) checkLength(answer, newTokens);
    if (run < WARM_UPS) continue;
    tokens += newTokens * prompts.length;
    speeds.push((newTokens * prompts.length) / seconds);
  }
  const after = await engine.stats();
  return {
    tokens_per_s: median(speeds),
    range: [Math.min(...speeds), Math.max(...speeds)],
    dispatches_per_token: (after.dispatches - before.dispatches) / tokens,
    submits_per_token: (after.submits - before.submits) / tokens,
  };
}
