// Speed of a model on the CPU, in Node on one thread, with both precisions: decoding after 16 and after 512 tokens, and taking in a prompt of 512.
//
//   npm run build
//   python3 scripts/real_model.py smollm2 target/smollm2
//   node benches/cpu.mjs [MODEL] [--runs 5] [--tokens 48] [--precision exact|fast]
//
// Precisions take turns, so that what else the machine does falls on both. Each number is the median of the runs, and the range in brackets. Before
// that a run of each is dropped. Last comes what Engine.recommend expects.

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
async function run(engine, length, max_tokens) {
  const { timings } = await engine.completions.create({ prompt: prompt(length), max_tokens, temperature: 0, ignore_eos: true });
  if (timings.cached_prompt_tokens !== 0) throw new Error('the prompt was taken in before');
  return { prefill: timings.prompt_tokens_per_s, decode: timings.tokens_per_s };
}

const MEASURED = {
  'decode after 16': async (engine) => (await run(engine, 16, newTokens)).decode,
  'decode after 512': async (engine) => (await run(engine, 512, newTokens)).decode,
  'prefill of 512': async (engine) => (await run(engine, 512, 1)).prefill,
};

const model = positionals[0] ?? smollm2();
const engines = [];
for (const precision of values.precision) {
  const engine = await Engine.load(model, { device: 'cpu', precision, contextLength: 1024, promptCacheBytes: 0 });
  engines.push({ precision, engine, found: Object.fromEntries(Object.keys(MEASURED).map((what) => [what, []])) });
}
for (let at = -1; at < runs; at += 1) {
  for (const { engine, found } of engines) {
    for (const [what, measure] of Object.entries(MEASURED)) {
      const speed = await measure(engine);
      if (at >= 0) found[what].push(speed);
    }
  }
}

console.log(`${model}\n${cpus()[0]?.model}, one thread, Node ${process.versions.node}, ${runs} runs, tokens per second`);
console.log(['precision', 'weights', ...Object.keys(MEASURED), 'expected after 16'].map((title) => title.padEnd(22)).join(''));
for (const { precision, engine, found } of engines) {
  const [{ tokens_per_s: expected }] = await Engine.recommend([model], { device: 'cpu', precision, contextLength: 1024 });
  const numbers = Object.values(found).map((speeds) => {
    const sorted = speeds.sort((a, b) => a - b);
    const [least, median, most] = [0, (sorted.length - 1) / 2, sorted.length - 1].map((at) => sorted[Math.floor(at)]);
    return `${median.toFixed(1)} (${least.toFixed(1)}–${most.toFixed(1)})`;
  });
  const bytes = `${(engine.info.weight_bytes / 2 ** 20).toFixed(0)} MiB`;
  console.log([engine.info.precision, bytes, ...numbers, expected?.toFixed(1) ?? 'not known'].map((cell) => cell.padEnd(22)).join(''));
  if (engine.info.device !== 'cpu' || engine.info.precision !== precision) throw new Error(`it ran in ${engine.info.precision}`);
  await engine.dispose();
}
