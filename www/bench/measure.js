// What `npm run bench` measures, as functions over a loaded engine, so that a page can show the same figures. Knows the
// package's public face only.

import { EngineError } from 'rillm';

import { measureScriptDispatch } from './dispatch.js';

/** New tokens before the measured ones: the first steps build pipelines and bind groups. */
export const WARM_UP_TOKENS = 8;

/** What one decoded token costs: what is done for it, and what ought not to be. */
const PER_TOKEN = ['dispatches', 'passes', 'submits', 'maps'];
const NEVER_PER_TOKEN = ['buffers_created', 'bind_groups_created', 'pipelines_created', 'uniform_writes'];

const WORDS = 'the boat went down the river and the old man on the bridge saw it pass while rain fell on the quiet town'.split(' ');

/** A text of about `tokens` tokens for this model; `start` makes texts that share no beginning. */
export async function promptOf(engine, tokens, start) {
  const special = (await engine.tokenize('', { add_special: true })).length;
  const wanted = Math.max(1, tokens - special);
  const text = Array.from({ length: wanted }, (_, i) => WORDS[(i * 7 + start) % WORDS.length]).join(' ');
  const ids = await engine.tokenize(text);
  // Cutting tokens off a text may let its end be split otherwise, so the cut is looked for.
  for (let cut = wanted; cut > Math.max(0, wanted - 8); cut--) {
    const candidate = await engine.detokenize(ids.slice(0, cut));
    if ((await engine.tokenize(candidate)).length === wanted) return candidate;
  }
  return engine.detokenize(ids.slice(0, wanted));
}

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

export function requestOf(prompt, tokens) {
  return { prompt, max_tokens: tokens, temperature: 0, ignore_eos: true };
}

export async function complete(engine, prompt, tokens) {
  const answer = await engine.completions.create(requestOf(prompt, tokens));
  checkLength(answer, tokens);
  return answer;
}

export function checkLength({ usage, choices }, tokens) {
  if (usage.completion_tokens === tokens) return;
  const message = `wanted ${tokens} new tokens, got ${usage.completion_tokens} (${choices[0].finish_reason}): the context is too short for this measurement`;
  throw new EngineError('context_length_exceeded', message);
}

/** Decoding speed after a prompt, the first new tokens not counted in. */
export async function measureDecode(engine, { promptTokens = 16, newTokens = 128, repetitions = 3 } = {}) {
  const prompt = await promptOf(engine, promptTokens, 0);
  await complete(engine, prompt, WARM_UP_TOKENS + newTokens);
  const runs = [];
  for (let i = 0; i < repetitions; i++) runs.push(await complete(engine, prompt, WARM_UP_TOKENS + newTokens));
  return {
    adapter: engine.info.adapter,
    layers: engine.info.layers,
    prompt_tokens: runs[0].usage.prompt_tokens,
    new_tokens: runs[0].usage.completion_tokens,
    tokens_per_s: median(runs.map(({ timings }) => timings.tokens_per_s)),
  };
}

/**
 * The GPU counters of one warm token. Several steps share a submit and are submitted before their tokens are read, so between two
 * tokens there are no whole steps: what a token takes is what an answer takes beyond a shorter one to the same prompt. What is
 * created or written is counted from an answer's first token on. The engine has to run without a worker: there a step is
 * submitted only when its chunk is asked for.
 */
export async function countWarmToken(engine, { promptTokens = 16, newTokens = 128 } = {}) {
  const prompt = await promptOf(engine, promptTokens, 0);
  await complete(engine, prompt, WARM_UP_TOKENS + newTokens);
  // This one copies what the longer one left to the prompt cache, in a submit of its own.
  await complete(engine, prompt, WARM_UP_TOKENS);
  const start = await engine.stats();
  await complete(engine, prompt, WARM_UP_TOKENS);
  const between = await engine.stats();
  let first;
  let tokens = 0;
  let last;
  for await (const chunk of await engine.completions.create({ ...requestOf(prompt, WARM_UP_TOKENS + newTokens), stream: true })) {
    last = chunk;
    tokens += chunk.choices[0].token_ids.length;
    first ??= { tokens, stats: await engine.stats() };
  }
  checkLength(last, WARM_UP_TOKENS + newTokens);
  const end = await engine.stats();
  const beyondTheShorter = (name) => (end[name] - between[name] - (between[name] - start[name])) / newTokens;
  const sinceTheFirst = (name) => (end[name] - first.stats[name]) / (tokens - first.tokens);
  return Object.fromEntries([
    ...PER_TOKEN.map((name) => [name, beyondTheShorter(name)]),
    ...NEVER_PER_TOKEN.map((name) => [name, sinceTheFirst(name)]),
  ]);
}

/** Speed of reading a prompt; every repetition has a prompt of its own, so none is found in the KV cache. */
export async function measurePrefill(engine, { promptTokens = 512, repetitions = 3 } = {}) {
  const tokens = Math.min(promptTokens, engine.info.context_length - 2);
  const runs = [];
  for (let i = 0; i <= repetitions; i++) runs.push(await complete(engine, await promptOf(engine, tokens, i), 1));
  // The first one builds pipelines.
  const measured = runs.slice(1);
  return {
    adapter: engine.info.adapter,
    layers: engine.info.layers,
    prompt_tokens: measured[0].usage.prompt_tokens,
    cached_prompt_tokens: Math.max(...measured.map(({ timings }) => timings.cached_prompt_tokens)),
    prompt_ms: median(measured.map(({ timings }) => timings.prompt_ms)),
    tokens_per_s: median(measured.map(({ timings }) => timings.prompt_tokens_per_s)),
  };
}

/**
 * What a small dispatch costs, by who encodes it: the package (`flush_each`, `eager`, `replay`, and with uniforms that are all new
 * `misses` and `no_caches`) or plain JavaScript (`submit_each`, `tvm`). Besides, how many times less than `tvm` each variant takes.
 */
export async function measureDispatch(benchDispatch, options = {}) {
  const script = await measureScriptDispatch(options);
  const { adapter, results: own } = await benchDispatch(options);
  const results = [...script, ...own];
  const tvm = results.find(({ variant }) => variant === 'tvm');
  const timesLess = ({ encode_us, whole_us, alone_us }) => ({
    encode: tvm.encode_us / encode_us,
    whole: tvm.whole_us / whole_us,
    alone: tvm.alone_us / alone_us,
  });
  return {
    adapter,
    results,
    times_less_than_tvm: Object.fromEntries(results.map((result) => [result.variant, timesLess(result)])),
  };
}
