// Measures the products of the CPU device as wasm, or its attention, in Node or in Chromium:
// `node cpu_kernels/bench.mjs [FORMAT…] [attention] [--relaxed] [--chromium]`.

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The formats in the order of `tests/support/mod.rs`. */
const FORMATS = ['f32', 'f16', 'bf16', 'q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0', 'q4_k', 'q5_k', 'q6_k'];
/** Rows and columns: of SmolLM2-135M, Qwen2.5-0.5B and Llama-3.2-1B. */
const SHAPES = [
  [1536, 576],
  [4864, 896],
  [8192, 2048],
];
/** Of attention: heads, heads of keys and their dimensions. */
const HEADS = [
  [9, 3, 64],
  [14, 2, 64],
  [12, 12, 64],
  [8, 4, 128],
];
/** Of caches, in the order of `prepare_attention`. */
const CACHES = ['f32', 'f16', 'q8_0'];
const SAMPLES = 25;
/** Milliseconds of a sample, about. */
const SAMPLE = 8;

function build(relaxed) {
  const features = `+simd128${relaxed ? ',+relaxed-simd' : ''}`;
  const args = ['build', '--release', '-p', 'rillm-cpu-kernels', '--example', 'bench', '--target', 'wasm32-unknown-unknown'];
  // As the package's (`scripts/build/team_relaxed_rustc.sh`).
  const without = relaxed ? ',"-C","llvm-args=-disable-lsr"' : '';
  const config = ['--config', `target.wasm32-unknown-unknown.rustflags=["-C","target-feature=${features}"${without}]`];
  const cwd = fileURLToPath(new URL('..', import.meta.url));
  const { status } = spawnSync('cargo', [...args, ...config, '--config', 'profile.release.lto="off"'], { cwd, stdio: 'inherit' });
  if (status !== 0) process.exit(1);
  const metadata = spawnSync('cargo', ['metadata', '--no-deps', '--format-version', '1'], { cwd, encoding: 'utf8' });
  return join(JSON.parse(metadata.stdout).target_directory, 'wasm32-unknown-unknown/release/examples/bench.wasm');
}

/** Instantiates the wasm as it left the compiler: its imports are what the bindings' generator would ask, and nothing calls them. */
async function instantiate(bytes) {
  const module = await WebAssembly.compile(bytes);
  const imports = {};
  for (const { module: from, name } of WebAssembly.Module.imports(module)) {
    imports[from] ??= {};
    imports[from][name] = () => 0;
  }
  const { exports } = await WebAssembly.instantiate(module, imports);
  // Their names end with a digest.
  const named = (name) => exports[Object.keys(exports).find((of) => of.match(`^${name}_[0-9a-f]+$`))];
  const [prepare, run, pack, round] = ['prepare', 'run', 'run_packing', 'run_rounding'].map(named);
  globalThis.wasm = { prepare, run, pack, round, prepareAttention: named('prepare_attention'), attend: named('run_attention') };
}

/** Times of what is named, in milliseconds for each time, sorted. */
function measured(what, samples, sample) {
  const { wasm } = globalThis;
  const products = { exact: (times) => wasm.run(times, 0), fast: (times) => wasm.run(times, 1) };
  const run = { ...products, pack: wasm.pack, round: wasm.round, attend: wasm.attend }[what];
  const timed = (times) => {
    const start = performance.now();
    run(times);
    return performance.now() - start;
  };
  // Until the code is optimised.
  for (const start = performance.now(); performance.now() - start < 100; ) run(1);
  let times = 1;
  while (timed(times) < sample) times *= 2;
  return Array.from({ length: samples }, () => timed(times) / times).sort((a, b) => a - b);
}

const named = process.argv.slice(2).filter((argument) => !argument.startsWith('--'));
const bytes = readFileSync(build(process.argv.includes('--relaxed')));

/** Calls a function where it is measured. */
let call = (f, ...args) => f(...args);
let close = () => {};
if (process.argv.includes('--chromium')) {
  const { launchChromium } = await import('../scripts/chromium.mjs');
  const browser = await launchChromium({ adapter: 'none' });
  const page = await browser.newPage();
  close = () => browser.close();
  call = (f, ...args) => page.evaluate(`(${f})(...${JSON.stringify(args)})`);
  await call(`(text) => (${instantiate})(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)))`, bytes.toString('base64'));
} else {
  await instantiate(bytes);
}

const number = (value) => value.toFixed(2).padStart(7);
const formats = named.filter((name) => name !== 'attention');
for (const format of named.length > 0 ? formats : ['q4_0', 'q4_k', 'q8_0']) {
  for (const [rows, narrow] of SHAPES) {
    const columns = format.endsWith('_k') ? Math.ceil(narrow / 256) * 256 : narrow;
    for (const tokens of [1, 64]) {
      const size = await call((...args) => globalThis.wasm.prepare(...args), FORMATS.indexOf(format), rows, columns, tokens);
      for (const what of format.match(/^b?f/)
        ? ['exact']
        : tokens === 1
          ? ['exact', 'fast', 'pack', 'round']
          : ['exact', 'fast', 'round']) {
        const times = await call(measured, what, SAMPLES, SAMPLE);
        const [fastest, median, slowest] = [times[0], times[SAMPLES >> 1], times.at(-1)];
        const flops = (ms) => number((2 * rows * columns * tokens) / ms / 1e6);
        const rate = /pack|round/.test(what) ? '' : `${flops(median)} GFLOP/s (${flops(slowest)} to ${flops(fastest)})`;
        console.log(
          `${format.padEnd(5)}${`${rows} × ${columns}`.padStart(12)}, ${tokens} tokens, ${what.padEnd(5)} ${number(median)} ms, ` +
            `${number(size / median / 1e6)} GB/s, ${rate}`,
        );
      }
    }
  }
}
for (const [heads, kvHeads, dim] of named.includes('attention') ? HEADS : []) {
  for (const cache of CACHES) {
    for (const [rows, tokens] of [
      [512, 1],
      [512, 128],
    ]) {
      const shape = [CACHES.indexOf(cache), heads, kvHeads, dim, rows, tokens];
      await call((...args) => globalThis.wasm.prepareAttention(...args), ...shape);
      const times = await call(measured, 'attend', SAMPLES, SAMPLE);
      const [fastest, median, slowest] = [times[0], times[SAMPLES >> 1], times.at(-1)];
      const pairs = tokens * rows - (tokens * (tokens - 1)) / 2;
      const flops = (ms) => number((4 * pairs * heads * dim) / ms / 1e6);
      console.log(
        `attention, ${cache.padEnd(5)} ${heads} heads of ${dim}, ${kvHeads} of keys, ${rows} rows, ${tokens} tokens ` +
          `${number(median)} ms, ${flops(median)} GFLOP/s (${flops(slowest)} to ${flops(fastest)})`,
      );
    }
  }
}
await close();
