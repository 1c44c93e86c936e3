// `npm test`: sets up what is missing and runs everything, natively, in Chromium, in Firefox and in WebKit. Goes on after a step that fails, and
// ends with the seconds of every step and file, and the line `N passed, N failed`. Steps run in two lanes at the same time.
//
//   npm test                               everything
//   npm test -- --only native,browser      some steps
//   npm test -- --only browser --file gpu  of these the files whose names hold this
//   npm test -- --list                     their names

import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';

import { WASM } from './build/wasm.mjs';
import { main, Problem, root, run } from './command.mjs';
import { firefoxPath } from './firefox.mjs';
import { setup } from './setup.mjs';
import { inBackground } from './test/background.mjs';
import { AT_ONCE, nodeTests } from './test/browser.mjs';
import { NOTHING, sum } from './test/counts.mjs';
import { onceEnv } from './test/lint.mjs';
import { nativeTests } from './test/native.mjs';
import { builtPrograms, libraryTests } from './test/programs.mjs';
import { printTables } from './test/tables.mjs';
import { remember } from './test/times.mjs';
import { webTests } from './test/web.mjs';
import { HOW_TO_GET_WEBKIT, webkitDriver } from './webkit.mjs';

const OPS = ['src/tensor/ops', 'src/sampler/ops'];

function rustFiles(folder) {
  return readdirSync(join(root, folder), { recursive: true })
    .filter((name) => name.endsWith('.rs'))
    .map((name) => join(folder, name));
}

const build = () => run(process.execPath, [join(root, 'scripts/build.mjs')]);
const clippy = (...targets) => run('cargo', ['clippy', '--workspace', '--locked', ...targets, '--', '-D', 'warnings'], { env: onceEnv() });

/** A folder as the XDG Base Directory Specification wants it, where there is none: without it Mesa complains once per device. */
function provideRuntimeFolder() {
  if (process.platform !== 'linux' || process.env.XDG_RUNTIME_DIR) return;
  const folder = mkdtempSync(join(tmpdir(), 'rillm-test-'));
  process.env.XDG_RUNTIME_DIR = folder;
  process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
}

/** Where there is no Firefox and none can be installed, the tables tell that its tests were skipped. */
async function firefoxTests(file, runsBeside) {
  if (firefoxPath() !== undefined) return nodeTests('firefox', file, { chromium: false, ...runsBeside });
  console.log('skipped: there is no Firefox. Install it, or name one with FIREFOX_PATH');
  return [{ name: 'firefox', ...NOTHING, skipped: 1, seconds: 0 }];
}

/** WebKit is installed by whoever wants it. */
async function webkitTests(file, runsBeside) {
  if (webkitDriver() !== undefined) return nodeTests('webkit', file, { chromium: false, ...runsBeside });
  console.log(`skipped: there is no WebKit to drive. To run them, ${HOW_TO_GET_WEBKIT}`);
  return [{ name: 'webkit', ...NOTHING, skipped: 1, seconds: 0 }];
}

/** Each rejects, or resolves to a row for each file. */
const STEPS = {
  // The ops are declared by a macro, into which rustfmt does not look.
  fmt: () => run('cargo', ['fmt', '--all', '--check', '--', ...OPS.flatMap(rustFiles)]),
  // The format and the faults of TypeScript and JavaScript (`biome.jsonc`).
  lint: () => run(process.execPath, [join(root, 'node_modules/@biomejs/biome/bin/biome'), 'check', '--error-on-warnings']),
  // Licences, sources and versions of crates and of npm packages, as far as that works without a network.
  dependencies: async () => {
    // What it reads licences with is installed by the set-up, which comes before the steps.
    const { checkDependencies } = await import('./test/dependencies.mjs');
    await checkDependencies();
  },
  // Where the tests are compiled anyway, with them.
  clippy: async (_file, { names }) => {
    await (names.includes('native') ? builtPrograms() : clippy('--all-targets'));
  },
  // What is for wasm alone, with all features: the native tests are linted above.
  'clippy-wasm': () => clippy('--target', 'wasm32-unknown-unknown', '--lib', '--test', 'web', '--features', 'rillm/bench,rillm/train'),
  // What is generated from the Rust structs; `npm run types` writes it.
  types: async () => {
    const [{ executable, folder }] = await libraryTests();
    await run(executable, ['typescript'], { cwd: folder, env: { ...process.env, CARGO_MANIFEST_DIR: folder } });
  },
  native: (file, { othersEnded }) => nativeTests(file, othersEnded),
  package: () => build(),
  typecheck: async () => {
    // The types of the generated glue are part of the program.
    if (!Object.values(WASM).every(({ name }) => existsSync(join(root, `pkg/dist/wasm/${name}.d.ts`)))) await build();
    for (const project of ['pkg-template', 'tests/types', 'tests/types/examples.tsconfig.json']) {
      await run(process.execPath, [join(root, 'node_modules/typescript/bin/tsc'), '-p', join(root, project), '--noEmit']);
    }
  },
  // The site of the documentation: its blocks of code compile, its links and anchors lead somewhere.
  docs: async () => {
    const { buildDocs } = await import('./docs.mjs');
    await buildDocs();
  },
  // Right after the package, whose last wasm is made of the same crate.
  web: () => webTests(),
  packaging: async (file, { othersEnded }) => {
    // Two of its files build: one would read the package while the other writes it, if it were not up to date.
    await build();
    return nodeTests('packaging', file, { coresAreFree: [othersEnded] });
  },
  firefox: (file, lanes) => firefoxTests(file, oneOf(lanes)),
  webkit: (file, lanes) => webkitTests(file, oneOf(lanes)),
  browser: (file, { othersEnded, besideEnded }) =>
    besideEnded === undefined
      ? nodeTests('browser', file, { coresAreFree: [othersEnded] })
      : nodeTests('browser', file, { atOnce: AT_ONCE - 1, coresAreFree: [othersEnded, besideEnded] }),
};

/** Beside the files of `browser` one file at once takes the place of one of them. */
const oneOf = ({ othersEnded, isBeside }) => (isBeside ? { atOnce: 1, coresAreFree: [] } : { coresAreFree: [othersEnded] });

/**
 * Two lanes run at the same time, each step after the one before it but for those of `BESIDE`; what is quick and what fails often comes first. In each are
 * steps that keep one core busy (a link, the compiler of SwiftShader), and neither waits for cargo in the other: they build in
 * different folders of target/.
 */
const LANES = [
  ['fmt', 'lint', 'dependencies', 'clippy', 'clippy-wasm', 'types', 'native'],
  ['package', 'typecheck', 'web', 'docs', 'packaging', 'firefox', 'webkit', 'browser'],
];

/** Steps of one browser each, which waits for half of the time: they run one after the other beside the step that comes after them. */
const BESIDE = { browser: ['firefox', 'webkit'] };

function chosenSteps() {
  let values;
  try {
    ({ values } = parseArgs({
      options: { only: { type: 'string' }, file: { type: 'string' }, list: { type: 'boolean' }, rows: { type: 'string' } },
    }));
  } catch (error) {
    throw new Problem(error.message);
  }
  const all = LANES.flat();
  if (values.list) return { names: [] };
  const wanted = values.only?.split(',') ?? all;
  const unknown = wanted.filter((name) => !all.includes(name));
  if (unknown.length > 0) throw new Problem(`there is no step ${unknown.join(', ')}: the steps are ${all.join(', ')}`);
  return { names: all.filter((name) => wanted.includes(name)), file: values.file, rows: values.rows };
}

/** Runs steps in a process of its own, whose output is printed in one piece; resolves to their results. */
function runBeside(names, file) {
  const folder = mkdtempSync(join(tmpdir(), 'rillm-lane-'));
  const rows = join(folder, 'rows.json');
  const args = ['--only', names.join(','), '--rows', rows, ...(file === undefined ? [] : ['--file', file])];
  const lane = inBackground(process.execPath, [join(root, 'scripts/test.mjs'), ...args], { hasInput: true });
  const finished = async () => {
    try {
      await lane.finished();
      return JSON.parse(readFileSync(rows, 'utf8'));
    } catch (error) {
      console.error(error.message);
      return names.map((name) => ({ step: { name, ...NOTHING, failed: 1, seconds: 0 }, files: [] }));
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  };
  return { ended: lane.ended, otherEnded: lane.endInput, finished };
}

/** In a process that was started by `runBeside`: resolves when the lane that started it has ended. */
function starterEnded() {
  const ended = once(process.stdin, 'close');
  process.stdin.resume().unref();
  return ended;
}

/** Runs a step, of its files those that `file` names part of; resolves to its row and theirs. */
async function runStep(name, file, lanes) {
  console.log(`\n── ${name} ${'─'.repeat(Math.max(0, 70 - name.length))}`);
  const begin = performance.now();
  let files = [];
  let counts;
  try {
    files = (await STEPS[name](file, lanes)) ?? [];
    counts = sum(files);
  } catch (error) {
    console.error(error instanceof Problem ? error.message : error);
    counts = { ...NOTHING, failed: 1, told: error instanceof Problem ? error.message : String(error.stack) };
  }
  return { step: { name, ...counts, seconds: (performance.now() - begin) / 1000 }, files };
}

/** Runs steps one after the other; resolves to their results. */
async function runChain(names, file, lanes) {
  const results = [];
  for (const name of names) results.push(await runStep(name, file, lanes));
  return results;
}

/** Runs the steps, those of different lanes at the same time; resolves to their results. */
async function runSteps(names, file, isBeside) {
  const lanes = LANES.map((lane) => lane.filter((name) => names.includes(name))).filter((lane) => lane.length > 0);
  const [own, ...others] = lanes;
  const beside = others.map((lane) => runBeside(lane, file));
  const othersEnded = isBeside ? starterEnded() : Promise.all(beside.map(({ ended }) => ended));
  const results = [];
  const goesBeside = (name) => Object.entries(BESIDE).some(([step, all]) => own.includes(step) && all.includes(name));
  for (const name of own.filter((name) => !goesBeside(name))) {
    const chosen = own.filter((other) => BESIDE[name]?.includes(other));
    const chain = runChain(chosen, file, { names, othersEnded, isBeside: true });
    const row = await runStep(name, file, { names, othersEnded, besideEnded: chosen.length > 0 ? chain : undefined });
    results.push(...(await chain), row);
  }
  for (const { otherEnded } of beside) otherEnded();
  for (const { finished } of beside) results.push(...(await finished()));
  return results;
}

await main(async () => {
  const { names, file, rows } = chosenSteps();
  if (names.length === 0) return console.log(LANES.flat().join('\n'));
  const begin = performance.now();
  // The build of the package installs its tools by itself.
  await setup({ tools: !names.includes('package'), firefox: names.includes('firefox'), lavapipe: names.includes('browser') });
  provideRuntimeFolder();
  const seconds = (performance.now() - begin) / 1000;
  const results = await runSteps(names, file, rows !== undefined);
  if (rows !== undefined) return writeFileSync(rows, JSON.stringify(results));
  const steps = [{ name: 'setup', ...NOTHING, seconds }, ...results.map(({ step }) => step)];
  const files = results.flatMap(({ files }) => files);
  remember(files);
  printTables(steps, files, (performance.now() - begin) / 1000);
  if (sum(steps).failed > 0) process.exitCode = 1;
});
