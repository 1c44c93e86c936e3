// The task of embedding texts: short and long ones, one at a time and many at once.

import { DEFAULTS, EMBEDDERS } from './embedders.js';
import { textOf } from './texts.js';

const LENGTHS = [16, 256];
const BATCHES = [1, 32];
/** One run takes in at least so many tokens, by as many requests as that takes. */
const LEAST_TOKENS = 512;
/** Before a text and after it. */
const SPECIAL_TOKENS = 2;

/** One request for texts of so many tokens each. */
async function request(engine, tokens, batch, next) {
  const texts = Array.from({ length: batch }, () => textOf(tokens - SPECIAL_TOKENS, next()));
  const begin = performance.now();
  const { vectors, tokens: counted } = await engine.embed(texts);
  const ms = performance.now() - begin;
  if (counted !== undefined && counted !== tokens * batch)
    throw new Error(`the texts have ${tokens * batch} tokens, the engine counts ${counted}`);
  if (vectors.length !== batch) throw new Error(`asked for ${batch} vectors, got ${vectors.length}`);
  for (const vector of vectors) {
    const length = Math.hypot(...vector);
    if (!(Math.abs(length - 1) < 1e-3)) throw new Error(`a vector has the length ${length}`);
  }
  return ms;
}

export const embedding = {
  engines: EMBEDDERS,
  byDefault: DEFAULTS,

  first: (engine, number) => request(engine, LENGTHS[0], 1, () => number),

  async round(engine, { say, next }) {
    const figures = {};
    for (const tokens of LENGTHS) {
      for (const batch of BATCHES) {
        const name = `${tokens} tokens, ${batch === 1 ? 'one at a time' : `${batch} at once`}, texts/s`;
        say(name);
        const requests = Math.ceil(LEAST_TOKENS / (tokens * batch));
        let ms = 0;
        for (let i = 0; i < requests; i++) ms += await request(engine, tokens, batch, next);
        figures[name] = { value: (batch * requests * 1000) / ms };
      }
    }
    return figures;
  },
};
