// GPU time by kernel, from the engine's profiling: what a decoded token and a prompt are made of, and the bytes that each kernel
// reads. Held against the memory's speed this is the roofline.

import { promptOf, requestOf, WARM_UP_TOKENS } from './measure.js';

/**
 * Steps that are asked for after the measured ones, so that the engine, which submits steps ahead of their tokens, submits as
 * many at the end of the measurement as at its begin.
 */
const STEPS_BEHIND = 64;
/** Browsers that round GPU times do it to this many nanoseconds (Dawn's timestamp quantisation). */
const ROUNDED_TO = [2 ** 16, 100_000];

/**
 * The kernels of a decoded token and of a prompt; undefined where the adapter can't time them. The engine has to run without a
 * worker: there a step is submitted only when its chunk is asked for.
 */
export async function measureKernels(engine, { promptTokens = 16, prefillTokens = 512, newTokens = 64 } = {}) {
  if (!engine.info.adapter.features.includes('timestamp-query')) return undefined;
  await engine.setProfiling(true);
  try {
    const decode = await decodeKernels(engine, promptTokens, newTokens);
    const prefill = await prefillKernels(engine, Math.min(prefillTokens, engine.info.context_length - 2));
    const times = [...decode.kernels, ...prefill.kernels].map(({ nanoseconds }) => nanoseconds);
    return { decode, prefill, rounded: ROUNDED_TO.some((step) => times.every((time) => time % step === 0)) };
  } finally {
    await engine.setProfiling(false);
  }
}

async function decodeKernels(engine, promptTokens, newTokens) {
  const prompt = await promptOf(engine, promptTokens, 0);
  const room = engine.info.context_length - promptTokens - WARM_UP_TOKENS;
  const measured = Math.max(1, Math.min(newTokens, room - STEPS_BEHIND));
  let tokens = 0;
  let begin;
  let kernels;
  const request = requestOf(prompt, Math.min(room, WARM_UP_TOKENS + measured + STEPS_BEHIND));
  for await (const { choices } of await engine.completions.create({ ...request, stream: true })) {
    tokens += choices[0].token_ids.length;
    if (begin === undefined && tokens >= WARM_UP_TOKENS) {
      await engine.kernelTimes();
      begin = tokens;
    } else if (tokens >= begin + measured) {
      kernels = await engine.kernelTimes();
      break;
    }
  }
  // Every step is submitted whole and has a kernel that runs once, so the greatest common divisor counts the steps.
  const steps = kernels.reduce((divisor, { dispatches }) => greatestCommonDivisor(divisor, dispatches), 0);
  return { steps, ...perUnit(kernels, steps) };
}

async function prefillKernels(engine, tokens) {
  const prompt = async (start) => requestOf(await promptOf(engine, tokens, start), 1);
  await engine.completions.create(await prompt(200));
  const request = await prompt(201);
  await engine.kernelTimes();
  const { usage } = await engine.completions.create(request);
  return { prompt_tokens: usage.prompt_tokens, ...perUnit(await engine.kernelTimes(), 1) };
}

/** Kernels per step or per prompt, the dearest first. */
function perUnit(uses, units) {
  const kernels = uses
    .map(({ label, dispatches, nanoseconds, read_bytes }) => ({
      label,
      dispatches: dispatches / units,
      read_bytes: read_bytes / dispatches,
      us: nanoseconds / dispatches / 1000,
      us_in_all: nanoseconds / units / 1000,
      bytes_per_s: nanoseconds > 0 ? (read_bytes / nanoseconds) * 1e9 : null,
      nanoseconds,
    }))
    .sort((a, b) => b.us_in_all - a.us_in_all);
  return { kernels, us_in_all: kernels.reduce((sum, { us_in_all }) => sum + us_in_all, 0) };
}

function greatestCommonDivisor(a, b) {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}

/**
 * The dispatches of a token as a · layers + b. A kernel that runs n times runs ⌊n / layers⌋ times in every layer, and the rest
 * around them.
 */
export function dispatchesByLayer(perToken, layers, kernels) {
  const counts = kernels?.map(({ dispatches }) => dispatches) ?? [perToken];
  return {
    per_token: perToken,
    per_layer: counts.reduce((sum, count) => sum + Math.floor(count / layers), 0),
    around: counts.reduce((sum, count) => sum + (count % layers), 0),
  };
}
