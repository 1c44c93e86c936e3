// What a reader of a stream sees: how long the first token takes, how long nothing comes, and what sampling costs. Wall clock
// on the page, the worker's messages included.

import { EngineError } from 'rillm';

import { checkLength, complete, median, promptOf, requestOf, WARM_UP_TOKENS } from './measure.js';

/** Settings whose cost is held against greedy decoding, from the least to all. */
const SAMPLING = [{ temperature: 0.8 }, { temperature: 0.8, top_k: 40 }, { temperature: 0.8, top_k: 40, top_p: 0.95 }];

async function stream(engine, request, onChunk) {
  let last;
  for await (const chunk of await engine.completions.create({ ...request, stream: true })) {
    last = chunk;
    onChunk(chunk);
  }
  checkLength(last, request.max_tokens);
  return last;
}

/** From the request to the first token, for a prompt of which the KV cache holds nothing. */
export async function measureFirstToken(engine, { promptTokens = 512, repetitions = 3 } = {}) {
  const tokens = Math.min(promptTokens, engine.info.context_length - 4);
  const runs = [];
  let prompt_tokens;
  for (let i = 0; i <= repetitions; i++) {
    const prompt = await promptOf(engine, tokens, i + 100);
    let first;
    const begin = performance.now();
    const { usage } = await stream(engine, requestOf(prompt, 2), ({ choices }) => {
      if (choices[0].token_ids.length > 0) first ??= performance.now() - begin;
    });
    prompt_tokens = usage.prompt_tokens;
    runs.push(first);
  }
  // The first one builds pipelines.
  const measured = runs.slice(1);
  return { prompt_tokens, ms: median(measured), runs_ms: measured };
}

/** The longest time without a chunk while decoding, after the first chunk, and how many chunks came. */
export async function measureGaps(engine, { promptTokens = 16, newTokens = 128, repetitions = 3 } = {}) {
  const prompt = await promptOf(engine, promptTokens, 0);
  await complete(engine, prompt, WARM_UP_TOKENS + newTokens);
  const longest = [];
  let chunks;
  for (let i = 0; i < repetitions; i++) {
    chunks = 0;
    let gap = 0;
    let last;
    await stream(engine, requestOf(prompt, newTokens), () => {
      const now = performance.now();
      gap = Math.max(gap, now - (last ?? now));
      last = now;
      chunks++;
    });
    longest.push(gap);
  }
  return { new_tokens: newTokens, chunks, longest_ms: Math.max(...longest), median_of_longest_ms: median(longest) };
}

/** Decoding speed by settings of sampling, each held against a greedy run right before it. */
export async function measureSampling(engine, { promptTokens = 16, newTokens = 128, repetitions = 3 } = {}) {
  const prompt = await promptOf(engine, promptTokens, 0);
  const results = [];
  for (const settings of SAMPLING) {
    const request = { ...requestOf(prompt, WARM_UP_TOKENS + newTokens), ...settings, seed: 1 };
    const refusal = await warmUp(engine, request);
    if (refusal !== undefined) {
      results.push({ settings, refused: refusal });
      continue;
    }
    const [greedy, sampled] = [[], []];
    for (let i = 0; i < repetitions; i++) {
      greedy.push((await complete(engine, prompt, request.max_tokens)).timings.tokens_per_s);
      const answer = await engine.completions.create(request);
      checkLength(answer, request.max_tokens);
      sampled.push(answer.timings.tokens_per_s);
    }
    const [tokens_per_s, greedy_tokens_per_s] = [median(sampled), median(greedy)];
    results.push({ settings, tokens_per_s, greedy_tokens_per_s, cost_percent: (greedy_tokens_per_s / tokens_per_s - 1) * 100 });
  }
  return results;
}

/** The first run builds pipelines. Returns the message where this version does not take the settings. */
async function warmUp(engine, request) {
  try {
    await engine.completions.create(request);
  } catch (error) {
    if (error instanceof EngineError && /^(invalid|unsupported)_/.test(error.code)) return error.message;
    throw error;
  }
  return undefined;
}
