// `npm test`: sets up what is missing and runs everything, natively and in Chromium. Goes on after a step that fails, and
// ends with the seconds of every step and file, and the line `N passed, N failed`.
//
//   npm test                               everything
//   npm test -- --only native,browser      some steps
//   npm test -- --only browser --file gpu  of these the files whose names hold this
//   npm test -- --list                     their names

import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';

import { main, Problem, root, run } from './command.mjs';
import { setup } from './setup.mjs';
import { inBackground } from './test/background.mjs';
import { nodeTests } from './test/browser.mjs';
import { NOTHING, sum } from './test/counts.mjs';
import { nativeTests } from './test/native.mjs';
import { printTables } from './test/tables.mjs';
import { remember } from './test/times.mjs';
import { webTests } from './test/web.mjs';

const OPS = ['src/tensor/ops', 'src/sampler/ops'];

function rustFiles(folder) {
  return readdirSync(join(root, folder), { recursive: true })
    .filter((name) => name.endsWith('.rs'))
    .map((name) => join(folder, name));
}

const clippy = (...target) => run('cargo', ['clippy', '--workspace', '--all-targets', '--locked', ...target, '--', '-D', 'warnings']);

/** Builds the package: a long link on one core, which begins with the first step and goes on beside those before `package`. */
let build;
const startBuild = () => (build ??= inBackground(process.execPath, [join(root, 'scripts/build.mjs')]));

/** Installs the tools that the build does without, after it: they take minutes to compile. */
let tools;
const startTools = () => (tools ??= inBackground(process.execPath, [join(root, 'scripts/setup.mjs')]));

/** A folder as the XDG Base Directory Specification wants it, where there is none: without it Mesa complains once per device. */
function provideRuntimeFolder() {
  if (process.platform !== 'linux' || process.env.XDG_RUNTIME_DIR) return;
  const folder = mkdtempSync(join(tmpdir(), 'rillm-test-'));
  process.env.XDG_RUNTIME_DIR = folder;
  process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
}

/** In the order in which they run: what is quick and what fails often comes first. Each rejects, or resolves to a row for each file. */
const STEPS = {
  // The ops are declared by a macro, into which rustfmt does not look.
  fmt: () => run('cargo', ['fmt', '--all', '--check', '--', ...OPS.flatMap(rustFiles)]),
  // The format and the faults of TypeScript and JavaScript (`biome.jsonc`).
  lint: () => run(process.execPath, [join(root, 'node_modules/@biomejs/biome/bin/biome'), 'check', '--error-on-warnings']),
  clippy: () => clippy(),
  'clippy-wasm': () => clippy('--target', 'wasm32-unknown-unknown'),
  // What is generated from the Rust structs; `npm run types` writes it.
  types: () => run('cargo', ['test', '--locked', '--lib', 'engine::api::typescript']),
  native: (file) => nativeTests(file),
  package: () => startBuild().finished(),
  typecheck: async () => {
    // The types of the generated glue are part of the program.
    if (!['rillm', 'rillm_grammar'].every((name) => existsSync(join(root, `pkg/dist/wasm/${name}.d.ts`)))) await startBuild().finished();
    for (const project of ['pkg-template', 'tests/types']) {
      await run(process.execPath, [join(root, 'node_modules/typescript/bin/tsc'), '-p', join(root, project), '--noEmit']);
    }
  },
  packaging: (file) => nodeTests('packaging', file),
  browser: (file) => nodeTests('browser', file),
  'wasm-pack': async () => {
    await tools?.finished();
    return webTests();
  },
};

function chosenSteps() {
  let values;
  try {
    ({ values } = parseArgs({ options: { only: { type: 'string' }, file: { type: 'string' }, list: { type: 'boolean' } } }));
  } catch (error) {
    throw new Problem(error.message);
  }
  if (values.list) return { names: [] };
  if (values.only === undefined) return { names: Object.keys(STEPS), file: values.file };
  const names = values.only.split(',');
  const unknown = names.filter((name) => !(name in STEPS));
  if (unknown.length > 0) throw new Problem(`there is no step ${unknown.join(', ')}: the steps are ${Object.keys(STEPS).join(', ')}`);
  return { names: Object.keys(STEPS).filter((name) => names.includes(name)), file: values.file };
}

/** Runs a step, of its files those that `file` names part of; resolves to its row and theirs. */
async function runStep(name, file) {
  console.log(`\n── ${name} ${'─'.repeat(Math.max(0, 70 - name.length))}`);
  const begin = performance.now();
  let files = [];
  let counts;
  try {
    files = (await STEPS[name](file)) ?? [];
    counts = sum(files);
  } catch (error) {
    console.error(error instanceof Problem ? error.message : error);
    counts = { ...NOTHING, failed: 1 };
  }
  return { step: { name, ...counts, seconds: (performance.now() - begin) / 1000 }, files };
}

await main(async () => {
  const { names, file } = chosenSteps();
  if (names.length === 0) return console.log(Object.keys(STEPS).join('\n'));
  const begin = performance.now();
  await setup({ tools: !names.includes('package') });
  provideRuntimeFolder();
  // The build installs its tool by itself.
  if (names.includes('package')) startBuild().ended.then(startTools);
  const results = [{ step: { name: 'setup', ...NOTHING, seconds: (performance.now() - begin) / 1000 }, files: [] }];
  for (const name of names) results.push(await runStep(name, file));
  const [steps, files] = [results.map(({ step }) => step), results.flatMap(({ files }) => files)];
  remember(files);
  printTables(steps, files, (performance.now() - begin) / 1000);
  if (sum(steps).failed > 0) process.exitCode = 1;
});
