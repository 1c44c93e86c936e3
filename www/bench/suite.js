// The whole benchmark of one model, in order: what `npm run bench` prints and bench.html shows. Returns plain data; how it looks
// is report.js's.

import { measureBandwidth } from './bandwidth.js';
import { dispatchesByLayer, measureKernels } from './kernels.js';
import { countWarmToken, measureDecode, measurePrefill, median, WARM_UP_TOKENS } from './measure.js';
import { measureFirstToken, measureGaps, measureSampling } from './stream.js';

const PROMPT_LENGTHS = [16, 512, 4000];
/** With less, a speed is mostly chance. */
const LEAST_NEW_TOKENS = 16;
const MOST_LOADS = 3;

/**
 * Runs everything. `source` is what Engine.load takes. Settings: promptTokens (one length instead of the usual), newTokens,
 * repetitions (of which one more is run first and dropped), contextLength, precision, autotune. `onProgress({done, total, text, report})` is called
 * before each part, with the report as far as it is known, `onResult({text, result})` with what it gave. Aborting `signal` ends the run.
 */
export async function runSuite(Engine, source, { settings = {}, onProgress = () => {}, onResult = () => {}, signal } = {}) {
  const { promptTokens, newTokens = 128, contextLength, precision, autotune } = settings;
  let { repetitions } = settings;
  const options = { contextLength, precision, autotune };
  let engine;
  const report = { date: new Date().toISOString(), browser: navigator.userAgent, cross_origin_isolated: globalThis.crossOriginIsolated };
  let done = 0;
  let total = 10;
  const part = async (text, work) => {
    signal?.throwIfAborted();
    onProgress({ done: done++, total, text, report });
    const result = await work();
    onResult({ text, result });
    return result;
  };
  // What runs is then rejected, and the run ends.
  const abort = () => void engine?.dispose();
  signal?.addEventListener('abort', abort, { once: true });
  try {
    report.bandwidth = await part('Measuring the speed of the GPU memory', measureBandwidth);
    // In software everything takes a hundred times as long, and speed is not the point.
    repetitions ??= (report.bandwidth?.is_fallback ?? true) ? 1 : 3;
    report.settings = { newTokens, repetitions };
    report.load = await part('Loading the model', async () => {
      const loads = [];
      // A model from elsewhere is fetched once.
      for (let i = 0; i < (isNear(source) ? Math.min(repetitions, MOST_LOADS) : 1); i++) {
        await engine?.dispose();
        let bytes = 0;
        const begin = performance.now();
        engine = await Engine.load(source, {
          ...options,
          signal,
          onProgress: (progress) => {
            bytes = progress.total;
          },
        });
        loads.push({ ms: performance.now() - begin, bytes });
      }
      const ms = median(loads.map((load) => load.ms));
      return { ms, runs_ms: loads.map((load) => load.ms), bytes: loads[0].bytes, bytes_per_s: (loads[0].bytes / ms) * 1000 };
    });
    const { adapter, ...model } = engine.info;
    Object.assign(report, { adapter, model });
    // The CPU reads its own memory.
    if (model.device === 'cpu') report.bandwidth = null;
    const afterLoading = await engine.stats();

    const lengths = (least) => promptLengths(promptTokens, engine.info.context_length, least);
    const decodeLengths = lengths(WARM_UP_TOKENS + Math.min(newTokens, LEAST_NEW_TOKENS));
    const prefillLengths = lengths(2);
    total = 8 + decodeLengths.length + prefillLengths.length;
    report.decode = [];
    for (const length of decodeLengths) {
      const fitting = Math.min(newTokens, engine.info.context_length - length - WARM_UP_TOKENS);
      const measure = () => measureDecode(engine, { promptTokens: length, newTokens: fitting, repetitions });
      const { prompt_tokens, tokens_per_s } = await part(`Decoding after ${length} tokens`, measure);
      report.decode.push({
        ...againstTheLimit(report, prompt_tokens, fitting, tokens_per_s),
        prompt_tokens,
        new_tokens: fitting,
        tokens_per_s,
      });
    }
    report.prefill = [];
    for (const length of prefillLengths) {
      const measure = () => measurePrefill(engine, { promptTokens: length, repetitions });
      const { prompt_tokens, prompt_ms, tokens_per_s } = await part(`Reading prompts of ${length} tokens`, measure);
      report.prefill.push({ prompt_tokens, tokens_per_s, prompt_ms });
    }
    const short = {
      promptTokens: decodeLengths[0],
      newTokens: Math.min(newTokens, engine.info.context_length - decodeLengths[0] - WARM_UP_TOKENS),
      repetitions,
    };
    report.first_token = await part('Waiting for the first token', () =>
      measureFirstToken(engine, { promptTokens: promptTokens ?? 512, repetitions }),
    );
    report.gaps = await part('Listening to the stream', () => measureGaps(engine, short));
    report.sampling = await part('Sampling instead of greedy decoding', () => measureSampling(engine, short));
    report.memory = memoryOf(engine.info, afterLoading, await engine.stats());
    await engine.dispose();

    // Without a worker a step is submitted only when its chunk is asked for, so kernels can be timed from one token to another.
    const load = () => Engine.load(source, { ...options, signal, worker: false });
    await part('Loading the model without a worker', async () => {
      engine = await load();
    });
    report.per_warm_token = await part('Counting what a token costs', () => countWarmToken(engine, short));
    report.kernels = (await part('Timing the kernels', () => measureKernels(engine, short))) ?? null;
    report.dispatches = dispatchesByLayer(report.per_warm_token.dispatches, model.layers, report.kernels?.decode.kernels);
    onProgress({ done: total, total, text: 'Done', report });
    return report;
  } finally {
    signal?.removeEventListener('abort', abort);
    await engine?.dispose();
  }
}

function promptLengths(wished, context, after) {
  const lengths = wished === undefined ? PROMPT_LENGTHS : [wished];
  const fitting = lengths.filter((length) => length + after <= context);
  // A model with a very short context is still measured.
  return fitting.length > 0 ? fitting : [Math.max(1, context - after)];
}

/** What a token in the middle of the measured ones has to read, and how near to the memory's speed that comes. */
function againstTheLimit({ bandwidth, model }, promptTokens, newTokens, tokensPerSecond) {
  const cachePerToken = model.kv_cache_bytes / model.context_length;
  const bytes_per_token = model.weight_bytes_per_token + cachePerToken * (promptTokens + WARM_UP_TOKENS + newTokens / 2);
  return {
    ms_per_token: 1000 / tokensPerSecond,
    bytes_per_token,
    percent_of_bandwidth: bandwidth === null ? null : ((bytes_per_token * tokensPerSecond) / bandwidth.bytes_per_s) * 100,
  };
}

function memoryOf({ weight_bytes, kv_cache_bytes }, afterLoading, afterAll) {
  const live_bytes = afterAll.live_bytes;
  return {
    weight_bytes,
    kv_cache_bytes,
    rest_bytes: live_bytes - weight_bytes - kv_cache_bytes,
    live_bytes,
    peak_bytes: afterAll.peak_bytes,
    live_bytes_after_loading: afterLoading.live_bytes,
    wasm_memory_bytes_after_loading: afterLoading.wasm_memory_bytes,
    wasm_memory_bytes: afterAll.wasm_memory_bytes,
  };
}

function isNear(source) {
  return (typeof source !== 'string' && !(source instanceof URL)) || new URL(source, document.baseURI).origin === location.origin;
}
