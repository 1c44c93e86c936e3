// `npm test`: sets up what is missing and runs everything, natively and in Chromium. Goes on after a step that fails, and
// ends with a table and the line `N passed, N failed`.
//
//   npm test                               everything
//   npm test -- --only native,browser      some steps
//   npm test -- --list                     their names

import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';

import { build } from './build.mjs';
import { chromedriverPath } from './chromium.mjs';
import { main, Problem, root, runLines } from './command.mjs';
import { setup, toolsEnv } from './setup.mjs';

/** Each runner's way of telling how many tests passed, failed and were skipped; they may tell it several times. */
const COUNTS = {
  rust: (line) => {
    const match = line.match(/^test result: \S+ (\d+) passed; (\d+) failed; (\d+) ignored/);
    return match === null ? undefined : { passed: Number(match[1]), failed: Number(match[2]), skipped: Number(match[3]) };
  },
  node: (line) => {
    const match = line.match(/^ℹ (pass|fail|cancelled|skipped|todo) (\d+)$/);
    if (match === null) return undefined;
    const kind = { pass: 'passed', fail: 'failed', cancelled: 'failed', skipped: 'skipped', todo: 'skipped' }[match[1]];
    return { [kind]: Number(match[2]) };
  },
};

/** Runs a program and counts its tests. */
async function counted(program, args, { env = toolsEnv(), count } = {}) {
  const counts = { passed: 0, failed: 0, skipped: 0 };
  const code = await runLines(program, args, {
    env,
    onLine: (line) => {
      const found = count?.(stripColours(line));
      for (const [kind, number] of Object.entries(found ?? {})) counts[kind] += number;
    },
  });
  // A program that fails without counting did not get as far as its tests.
  if (code !== 0 && counts.failed === 0) counts.failed = 1;
  if (code === 0 && count !== undefined && counts.passed + counts.skipped === 0) throw new Problem(`${program} ${args.join(' ')} ran no test`);
  return counts;
}

const stripColours = (line) => line.replace(/\x1b\[[0-9;]*m/g, '').trimEnd();

function nodeTests(folder) {
  const files = readdirSync(join(root, folder)).filter((name) => name.endsWith('.test.mjs')).sort();
  // One after the other: every file starts a Chromium, and a software GPU takes all cores.
  const args = ['--test', '--test-reporter=spec', '--test-concurrency=1', ...files.map((name) => join(folder, name))];
  return counted(process.execPath, args, { count: COUNTS.node });
}

function rustFiles(folder) {
  return readdirSync(join(root, folder), { recursive: true }).filter((name) => name.endsWith('.rs')).map((name) => join(folder, name));
}

const WASM = ['--target', 'wasm32-unknown-unknown'];

/** A folder as the XDG Base Directory Specification wants it, where there is none: without it Mesa complains once per device. */
function provideRuntimeFolder() {
  if (process.platform !== 'linux' || process.env.XDG_RUNTIME_DIR) return;
  const folder = mkdtempSync(join(tmpdir(), 'rillm-test-'));
  process.env.XDG_RUNTIME_DIR = folder;
  process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
}

/** In the order in which they run: what is quick and what fails often comes first. */
const STEPS = {
  // The ops are declared by a macro, into which rustfmt does not look.
  fmt: () => counted('cargo', ['fmt', '--all', '--check', '--', ...rustFiles('src/tensor/ops'), ...rustFiles('src/sampler/ops')]),
  clippy: () => counted('cargo', ['clippy', '--workspace', '--all-targets', '--locked', '--', '-D', 'warnings']),
  'clippy-wasm': () => counted('cargo', ['clippy', '--workspace', '--all-targets', '--locked', ...WASM, '--', '-D', 'warnings']),
  native: () => counted('cargo', ['test', '--workspace', '--locked'], { count: COUNTS.rust }),
  package: async () => {
    await build();
    return { passed: 0, failed: 0, skipped: 0 };
  },
  typecheck: async () => {
    // The types of the generated glue are part of the program.
    if (!['rillm', 'rillm_grammar'].every((name) => existsSync(join(root, `pkg/dist/wasm/${name}.d.ts`)))) await build();
    const tsc = (project) => counted(process.execPath, [join(root, 'node_modules/typescript/bin/tsc'), '-p', join(root, project), '--noEmit']);
    const [ours, besideOthers] = [await tsc('pkg-template'), await tsc('tests/types')];
    return { ...ours, failed: ours.failed + besideOthers.failed };
  },
  packaging: () => nodeTests('tests/packaging'),
  browser: () => nodeTests('tests/browser'),
  'wasm-pack': () =>
    counted('wasm-pack', ['test', '--headless', '--chrome', '--', '--test', 'web'], {
      count: COUNTS.rust,
      env: toolsEnv({ CHROMEDRIVER: chromedriverPath(), WASM_BINDGEN_TEST_TIMEOUT: '1200' }),
    }),
};

function chosenSteps() {
  let values;
  try {
    ({ values } = parseArgs({ options: { only: { type: 'string' }, list: { type: 'boolean' } } }));
  } catch (error) {
    throw new Problem(error.message);
  }
  if (values.list) return [];
  if (values.only === undefined) return Object.keys(STEPS);
  const names = values.only.split(',');
  const unknown = names.filter((name) => !(name in STEPS));
  if (unknown.length > 0) throw new Problem(`there is no step ${unknown.join(', ')}: the steps are ${Object.keys(STEPS).join(', ')}`);
  return names;
}

await main(async () => {
  const names = chosenSteps();
  if (names.length === 0) return console.log(Object.keys(STEPS).join('\n'));
  await setup();
  provideRuntimeFolder();
  const rows = [];
  for (const name of names) {
    console.log(`\n── ${name} ${'─'.repeat(Math.max(0, 70 - name.length))}`);
    const begin = performance.now();
    let counts;
    try {
      counts = await STEPS[name]();
    } catch (error) {
      console.error(error instanceof Problem ? error.message : error);
      counts = { passed: 0, failed: 1, skipped: 0 };
    }
    rows.push({ name, ...counts, seconds: (performance.now() - begin) / 1000 });
  }
  summarise(rows);
});

function summarise(rows) {
  const cell = (value, width) => String(value).padStart(width);
  console.log(`\n${'step'.padEnd(14)}${['passed', 'failed', 'skipped', 'seconds'].map((title) => cell(title, 10)).join('')}`);
  for (const { name, passed, failed, skipped, seconds } of rows) {
    console.log(`${name.padEnd(14)}${[passed, failed, skipped, seconds.toFixed(1)].map((value) => cell(value, 10)).join('')}`);
  }
  const sum = (kind) => rows.reduce((total, row) => total + row[kind], 0);
  console.log(`\n${sum('passed')} passed, ${sum('failed')} failed`);
  if (sum('failed') > 0) process.exitCode = 1;
}
