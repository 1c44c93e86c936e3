// Measures one engine: load, prefill and decoding, by the wall clock around its stream. Knows engines by their common face only.

import { ENGINES } from './engines.js';

const LETTERS = 'abcdefghijklmnopqrstuvwxyz';
const PREFILL_TOKENS = 512;
const DECODE_AFTER = [16, 512];

/** A text of so many tokens in the vocabulary of the synthetic models; two with other `start` share no beginning. */
function promptOf(tokens, start) {
  return Array.from({ length: tokens }, (_, i) => ` ${LETTERS[(start + i * 7) % LETTERS.length]}`).join('');
}

/** One request: tokens per second after the first arrival, and milliseconds until it. */
async function request(engine, promptTokens, newTokens, start) {
  const arrivals = [];
  const begin = performance.now();
  const result = await engine.generate(promptOf(promptTokens, start), newTokens, (count) => {
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

function median(values) {
  const sorted = values.filter((value) => value !== undefined).sort((a, b) => a - b);
  if (sorted.length === 0) return undefined;
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** → {name, facts, load_ms, first_answer_ms, decode: [...], prefill}, or {name, error}. */
export async function measureEngine(name, model, { newTokens = 128, repetitions = 3, onProgress = () => {} } = {}) {
  let engine;
  try {
    onProgress(`${name}: loading`);
    const begin = performance.now();
    engine = await ENGINES[name](model);
    const load_ms = performance.now() - begin;
    const cold = await request(engine, DECODE_AFTER[0], 2, 3);
    const report = { name, ...engine.facts, load_ms, first_answer_ms: load_ms + cold.firstMs, decode: [] };
    for (const after of DECODE_AFTER) {
      const runs = [];
      // The first one is dropped: it builds pipelines.
      for (let i = 0; i <= repetitions; i++) {
        onProgress(`${name}: decoding after ${after} tokens, ${i === 0 ? 'warming up' : `${i} of ${repetitions}`}`);
        runs.push(await request(engine, after, newTokens, i));
      }
      const measured = runs.slice(1);
      report.decode.push({
        after,
        new_tokens: newTokens,
        tokens_per_s: median(measured.map(({ decode }) => decode)),
        own_tokens_per_s: median(measured.map(({ own }) => own?.decode)),
      });
    }
    const runs = [];
    for (let i = 0; i <= repetitions; i++) {
      onProgress(`${name}: reading ${PREFILL_TOKENS} tokens, ${i === 0 ? 'warming up' : `${i} of ${repetitions}`}`);
      // Other beginnings than before, so that nothing is found in a cache.
      runs.push(await request(engine, PREFILL_TOKENS, 2, 10 + i));
    }
    const measured = runs.slice(1);
    const ms = median(measured.map(({ firstMs }) => firstMs));
    report.prefill = {
      prompt_tokens: PREFILL_TOKENS,
      first_token_ms: ms,
      tokens_per_s: (PREFILL_TOKENS * 1000) / ms,
      own_tokens_per_s: median(measured.map(({ own }) => own?.prefill)),
    };
    return report;
  } catch (error) {
    return { name, error: error?.message ?? String(error), log: engine?.log?.slice(-20) };
  } finally {
    await engine?.close?.();
  }
}
