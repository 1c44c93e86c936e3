// The native tests: builds their programs, then runs each file's tests in a process of its own, as many at once as there are cores.
// So a crash costs one file, and every file has its seconds. Built-in modules only.

import { spawn } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { basename } from 'node:path';

import { likelyAdapter, swiftShaderDriver } from '../chromium.mjs';
import { captured, output, Problem } from '../command.mjs';
import { failuresIn, rustCounts, sum } from './counts.mjs';
import { lintingEnv } from './lint.mjs';
import { builtPrograms } from './programs.mjs';
import { longestFirst } from './times.mjs';
import { runWorkers } from './workers.mjs';

/** How programs are divided, by the path of a test: most by the modules that are files of tests. The others are run whole. */
const BY_FILE = {
  ...Object.fromEntries(['gpu', 'engine', 'text'].map((name) => [name, (test) => `/${test.split('::')[0]}`])),
  'rillm (src)': (test) => (test.startsWith('decode::') ? '/decode' : ''),
};

/** The tests of a program by file. A program that lists none is left out: `web` is for browsers. */
function filesOf({ name, executable, folder }) {
  const listed = output(executable, ['--list', '--format', 'terse'], { cwd: folder });
  if (listed === undefined) throw new Problem(`${basename(executable)} does not list its tests`);
  const tests = listed
    .split('\n')
    .filter((line) => line.endsWith(': test'))
    .map((line) => line.slice(0, -': test'.length));
  const fileOf = BY_FILE[name];
  if (fileOf === undefined) return tests.length === 0 ? [] : [{ name: `native ${name}`, executable, folder, tests: [] }];
  return Array.from(grouped(tests, fileOf), ([file, tests]) => ({ name: `native ${name}${file}`, executable, folder, tests }));
}

function grouped(tests, fileOf) {
  const files = new Map();
  for (const test of tests) {
    // The functions of the CPU are held to the same references as the kernels of GPUs, which a process computes once.
    const file = test.startsWith('cpu::functions_') ? '/ops' : fileOf(test);
    files.set(file, [...(files.get(file) ?? []), test]);
  }
  return files;
}

/** What never ends costs a file this long and is a failure. */
const LIMIT_MS = 10 * 60_000;

/** Mesa's driver works on the thread that asks: files run at the same time, one for each core, and to wake others costs a tenth of it. */
const ON_ONE_THREAD = { LP_NUM_THREADS: '0' };

/** For glibc, whose heap the compiler of kernels else grows and trims all the time: a tenth of its processor time. Others ignore it. */
const ROOMY_HEAP = { MALLOC_TOP_PAD_: String(64 << 20), MALLOC_TRIM_THRESHOLD_: String(1 << 30) };

const countsOf = (text) => sum(text.split('\n').map((line) => rustCounts(line) ?? {}));

/**
 * For Mesa's software GPU. These compile far more kernels than they run, so that optimising those takes longer than it saves; and vectors of 4 are
 * compiled sooner than those of 8, by a fifth.
 */
const SOONER = { GALLIVM_PERF: 'nopt', LP_NATIVE_VECTOR_WIDTH: '128' };
const COMPILING = Object.fromEntries(['gpu/array_golden', 'gpu/autotune', 'gpu/ops'].map((name) => [`native ${name}`, SOONER]));

/**
 * These compile many small kernels, which SwiftShader does in less than half of the time of Mesa's driver: `gpu/array_golden` takes 31 s of processor time
 * there and 83. A product's kernel takes it many times longer, so that is not for the others.
 */
const ON_SWIFTSHADER = ['gpu/array_golden', 'gpu/arrays', 'gpu/gradients', 'gpu/quants'].map((name) => `native ${name}`);

/**
 * These are about what an engine does with a model, and not about its kernels, which have tests of their own: they run on the CPU's device, which
 * compiles nothing. With `RILLM_DEVICE=gpu` all of them run on a driver.
 */
const ON_CPU = [
  ...['adapters', 'architectures', 'bad_requests', 'bitnet', 'chat', 'checkpoint', 'choices', 'classifiers', 'draft_model', 'embeddings'],
  ...[
    'encoder_decoders',
    'gguf',
    'hub',
    'kv_cache',
    'latents',
    'logits_processor',
    'logprobs',
    'mtp',
    'mutations',
    'penalties',
    'real_models',
  ],
  ...['recurrent', 'replay', 'sessions', 'shared_kv', 'speculation', 'structured', 'together', 'tool_calls'],
]
  .map((name) => `native engine/${name}`)
  .concat('native rillm (src)/decode');

/** The environment by which a file takes another device or driver than the system's first, or that one otherwise. */
function driverOf(name) {
  if (ON_CPU.includes(name) && process.env.RILLM_DEVICE !== 'gpu') return { RILLM_DEVICE: 'cpu' };
  const driver = ON_SWIFTSHADER.includes(name) && likelyAdapter() === 'swiftshader' ? swiftShaderDriver() : undefined;
  return driver === undefined ? (COMPILING[name] ?? {}) : { VK_DRIVER_FILES: driver, VK_ICD_FILENAMES: driver };
}

/** Runs a file's tests; their output is printed in one piece. */
function runFile({ name, executable, folder, tests }) {
  return new Promise((resolve) => {
    const begin = performance.now();
    const args = ['--test-threads=1', ...(tests.length > 0 ? ['--exact', ...tests] : [])];
    const child = spawn(executable, args, {
      cwd: folder,
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: LIMIT_MS,
      killSignal: 'SIGKILL',
      env: { ...process.env, ...ON_ONE_THREAD, ...ROOMY_HEAP, ...driverOf(name), CARGO_MANIFEST_DIR: folder },
    });
    let text = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8');
      stream.on('data', (piece) => (text += piece));
    }
    child.on('error', (error) => (text += `${executable} did not start: ${error.message}\n`));
    child.on('close', (code, signal) => {
      const seconds = (performance.now() - begin) / 1000;
      if (signal !== null) text += `\n${name}: ended by ${signal} after ${seconds.toFixed(0)} s`;
      console.log(`\n── ${name}, ${seconds.toFixed(1)} s\n${text.trim()}`);
      const counts = countsOf(text);
      if (code !== 0 && counts.failed === 0) counts.failed = 1;
      // A filter that matches nothing would pass.
      if (code === 0 && tests.length > 0 && counts.passed + counts.skipped !== tests.length) counts.failed += 1;
      resolve({ name, ...counts, seconds, told: counts.failed > 0 ? failuresIn(text) : undefined });
    });
  });
}

const EXAMPLES = 'native examples';

/** Runs what stands as code in doc comments. */
async function examples() {
  const begin = performance.now();
  const { code, text } = await captured('cargo', ['test', '--workspace', '--doc', '--locked'], { env: lintingEnv() });
  console.log(text.trim());
  const counts = countsOf(text);
  if (code !== 0 && counts.failed === 0) counts.failed = 1;
  const told = counts.failed > 0 ? failuresIn(text) : undefined;
  return { name: EXAMPLES, ...counts, seconds: (performance.now() - begin) / 1000, told };
}

/**
 * Runs the files whose names hold `part`; resolves to a row for each. Another lane of `npm test` keeps about a core busy until `coreIsFree`
 * resolves.
 */
export async function nativeTests(part = '', coreIsFree = Promise.resolve()) {
  const waiting = longestFirst((await builtPrograms()).flatMap(filesOf)).filter(({ name }) => name.includes(part));
  if (waiting.length === 0 && !EXAMPLES.includes(part)) throw new Problem(`there is no native test ${part}`);
  const rows = [];
  const worker = async () => {
    for (let file = waiting.shift(); file !== undefined; file = waiting.shift()) rows.push(await runFile(file));
  };
  await runWorkers(Math.max(1, availableParallelism() - 1), worker, [coreIsFree], () => waiting.length > 0);
  if (EXAMPLES.includes(part)) rows.push(await examples());
  return rows;
}
