// The task of writing text: decoding after prompts of two lengths, and taking in a prompt.

import { DEFAULTS, ENGINES } from './engines.js';
import { textOf } from './texts.js';

const PREFILL_TOKENS = 512;
const DECODE_AFTER = [16, 512];

/** One request: tokens per second after the first arrival, and milliseconds until it. */
async function request(engine, promptTokens, newTokens, number) {
  const arrivals = [];
  const begin = performance.now();
  const result = await engine.generate(textOf(promptTokens, number), newTokens, (count) => {
    if (count > 0) arrivals.push({ ms: performance.now() - begin, count });
  });
  if (result.promptTokens !== promptTokens)
    throw new Error(`the prompt has ${promptTokens} tokens, the engine counts ${result.promptTokens}`);
  // An engine may hold back a token that is part of a character, so its own number counts where it tells one.
  const tokens = result.newTokens ?? arrivals.reduce((sum, { count }) => sum + count, 0);
  if (tokens !== newTokens) throw new Error(`asked for ${newTokens} new tokens, got ${tokens}`);
  const [first, last] = [arrivals[0], arrivals.at(-1)];
  return { firstMs: first.ms, decode: ((tokens - first.count) * 1000) / (last.ms - first.ms), own: result.own };
}

export const generation = {
  engines: ENGINES,
  byDefault: DEFAULTS,

  async first(engine, number) {
    return (await request(engine, DECODE_AFTER[0], 2, number)).firstMs;
  },

  async round(engine, { newTokens = 128, inTurns, say, next }) {
    const figures = {};
    let last;
    for (const after of DECODE_AFTER) {
      say(`decoding after ${after} tokens`);
      last = await request(engine, after, newTokens, next());
      figures[`decode after ${after}, tokens/s`] = { value: last.decode, own: last.own?.decode };
    }
    if (!inTurns) {
      say(`reading ${PREFILL_TOKENS} tokens`);
      last = await request(engine, PREFILL_TOKENS, 2, next());
    }
    // On the CPU, where prompts take long, the one of the last decoding counts.
    figures[`prefill ${PREFILL_TOKENS}, tokens/s`] = { value: (PREFILL_TOKENS * 1000) / last.firstMs, own: last.own?.prefill };
    return figures;
  },
};
