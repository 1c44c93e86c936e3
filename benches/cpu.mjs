// Speed of a model on the CPU, in Node, with both precisions and on one thread or several: decoding after 16 and after 512 tokens, and taking in a prompt of 512.
//
//   npm run build
//   python3 scripts/real_model.py smollm2 target/smollm2
//   node benches/cpu.mjs [MODEL] [--runs 5] [--tokens 48] [--precision exact|fast] [--threads 1 --threads 2]
//   node benches/cpu.mjs [MODEL] --sampling                      milliseconds of a token by what it is chosen with
//
// Precisions and numbers of threads take turns, so that what else the machine does falls on both. Each number is the median of the runs, and the range in brackets. Before
// that a run of each is dropped. Last comes what Engine.recommend expects, of one thread.

import { readdirSync } from 'node:fs';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const root = fileURLToPath(new URL('..', import.meta.url));
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    runs: { type: 'string', default: '5' },
    tokens: { type: 'string', default: '48' },
    precision: { type: 'string', multiple: true, default: ['exact', 'fast'] },
    threads: { type: 'string', multiple: true, default: ['1'] },
    sampling: { type: 'boolean', default: false },
  },
});
const [runs, newTokens] = [values.runs, values.tokens].map(Number);
if (!(runs >= 1 && newTokens >= 2)) throw new Error('--runs is at least 1, and --tokens at least 2');

/** The real model of the tests. */
function smollm2() {
  const folder = join(root, 'target/smollm2');
  const file = readdirSync(folder).find((name) => name.endsWith('.gguf'));
  if (file === undefined) throw new Error(`there is no model in ${folder}`);
  return join(folder, file);
}

const { Engine } = await import(new URL('../pkg/dist/index.js', import.meta.url).href);

/** A prompt that no other begins like: ids, so that it has just this length. */
let prompts = 0;
function prompt(length) {
  prompts += 1;
  return Array.from({ length }, (_, at) => 1000 + ((at * 7919 + prompts * 104_729) % 20_000));
}

/** One measurement: tokens per second of the prompt, and after it. */
async function run(engine, length, max_tokens, settings = { temperature: 0 }) {
  const { timings } = await engine.completions.create({ prompt: prompt(length), max_tokens, ignore_eos: true, ...settings });
  if (timings.cached_prompt_tokens !== 0) throw new Error('the prompt was taken in before');
  return { prefill: timings.prompt_tokens_per_s, decode: timings.tokens_per_s };
}

const MEASURED = {
  'decode after 16': async (engine) => (await run(engine, 16, newTokens)).decode,
  'decode after 512': async (engine) => (await run(engine, 512, newTokens)).decode,
  'prefill of 512': async (engine) => (await run(engine, 512, 1)).prefill,
};

/** What a token may be chosen with, each with all that it needs. */
const SETTINGS = {
  greedy: { temperature: 0 },
  temperature: { temperature: 0.8 },
  'top_k 40': { temperature: 0.8, top_k: 40 },
  'top_p 0.95': { temperature: 0.8, top_p: 0.95 },
  'top_k, top_p, min_p': { temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0.05 },
  repetition_penalty: { temperature: 0, repetition_penalty: 1.1 },
  frequency_penalty: { temperature: 0.8, frequency_penalty: 0.5 },
  dry_multiplier: { temperature: 0.8, dry_multiplier: 0.8 },
  'logprobs 5': { temperature: 0, logprobs: 5 },
  top_n_sigma: { temperature: 0.8, top_n_sigma: 1 },
  typical_p: { temperature: 0.8, typical_p: 0.9 },
  mirostat: { mirostat: 2 },
  xtc: { temperature: 0.8, xtc_probability: 0.5, xtc_threshold: 0.1 },
};

/** Settings take turns. */
async function measureSampling(engine) {
  const found = Object.fromEntries(Object.keys(SETTINGS).map((what) => [what, []]));
  for (let at = -1; at < runs; at += 1) {
    for (const [what, settings] of Object.entries(SETTINGS)) {
      const { decode } = await run(engine, 16, newTokens, { seed: 1, ...settings });
      if (at >= 0) found[what].push(1000 / decode);
    }
  }
  for (const [what, times] of Object.entries(found)) {
    const sorted = times.sort((a, b) => a - b);
    const [median, least, most] = [sorted[sorted.length >> 1], sorted[0], sorted.at(-1)].map((ms) => ms.toFixed(2));
    console.log(`${what.padEnd(22)}${median} (${least}–${most})`);
  }
}

const model = positionals[0] ?? smollm2();
if (values.sampling) {
  const engine = await Engine.load(model, { device: 'cpu', precision: 'fast', threads: 1, contextLength: 1024, promptCacheBytes: 0 });
  console.log(`${model}\n${cpus()[0]?.model}, Node ${process.versions.node}, ${runs} runs, milliseconds a token, median (range)`);
  await measureSampling(engine);
  process.exit();
}
const engines = [];
for (const [precision, threads] of values.precision.flatMap((precision) => values.threads.map((threads) => [precision, Number(threads)]))) {
  const engine = await Engine.load(model, { device: 'cpu', precision, threads, contextLength: 1024, promptCacheBytes: 0 });
  if (engine.info.threads !== threads) throw new Error(`${engine.info.threads} of ${threads} threads started`);
  engines.push({ precision, threads, engine, found: Object.fromEntries(Object.keys(MEASURED).map((what) => [what, []])) });
}
for (let at = -1; at < runs; at += 1) {
  for (const { engine, found } of engines) {
    for (const [what, measure] of Object.entries(MEASURED)) {
      const speed = await measure(engine);
      if (at >= 0) found[what].push(speed);
    }
  }
}

console.log(`${model}\n${cpus().length} × ${cpus()[0]?.model}, Node ${process.versions.node}, ${runs} runs, tokens per second`);
console.log(['precision', 'threads', 'weights', ...Object.keys(MEASURED), 'expected after 16'].map((title) => title.padEnd(20)).join(''));
for (const { precision, threads, engine, found } of engines) {
  const [{ tokens_per_s: expected }] = await Engine.recommend([model], { device: 'cpu', precision, contextLength: 1024 });
  const numbers = Object.values(found).map((speeds) => {
    const sorted = speeds.sort((a, b) => a - b);
    const [least, median, most] = [0, (sorted.length - 1) / 2, sorted.length - 1].map((at) => sorted[Math.floor(at)]);
    return `${median.toFixed(1)} (${least.toFixed(1)}–${most.toFixed(1)})`;
  });
  const bytes = `${(engine.info.weight_bytes / 2 ** 20).toFixed(0)} MiB`;
  console.log(
    [engine.info.precision, threads, bytes, ...numbers, expected?.toFixed(1) ?? 'not known']
      .map((cell) => String(cell).padEnd(20))
      .join(''),
  );
  if (engine.info.device !== 'cpu' || engine.info.precision !== precision) throw new Error(`it ran in ${engine.info.precision}`);
  await engine.dispose();
}
