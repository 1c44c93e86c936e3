// Builds the npm package into pkg/: its five wasm with glue (`build/wasm.mjs`) and the two of the CPU's threads (`build/team.mjs`), TypeScript → modules → what a page fetches (`build/modules.mjs`), then
// `npm pack`.
// A step whose inputs did not change is skipped. Built-in modules only: it runs the tools, it does not import them.
//
//   node scripts/build.mjs      sets up what is missing, then builds

import { copyFileSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';

import { ENTRIES } from './build/entries.mjs';
import { guidePages } from './build/guide.mjs';
import { files, when } from './build/stamps.mjs';
import { buildTeam } from './build/team.mjs';
import { buildWasm, WASM } from './build/wasm.mjs';
import { isMain, main, npm, output, Problem, root, run, sayTo } from './command.mjs';
import { setup } from './setup.mjs';

const template = join(root, 'pkg-template');
const pkg = join(root, 'pkg');
const dist = join(pkg, 'dist');
const cache = join(root, '.cache');

/** The package's modules before they are joined, for tests of single ones. */
export const modulesFolder = join(cache, 'modules');

/**
 * Builds what is out of date; resolves to the tarball's path. `onStage` hears what begins: "tensor", "grammar", "engine", "team", "package". With `log`,
 * an open file, all output goes there.
 */
export async function build({ onStage = () => {}, ...outputs } = {}) {
  const { step, say } = steps(outputs);
  const into = join(dist, 'wasm');
  const glue = [];
  for (const [stage, wasm] of Object.entries(WASM)) {
    onStage(stage);
    glue.push(...(await buildWasm(wasm, { into }, step, say)));
  }

  onStage('team');
  await buildTeam(into, step, say);

  onStage('package');
  const sources = files(join(template, 'src'));
  const configs = [join(root, 'tsconfig.json'), join(template, 'tsconfig.json'), join(root, 'package-lock.json')];
  const tools = ['modules', 'entries'].map((name) => join(root, `scripts/build/${name}.mjs`));
  const inputs = [...sources, ...configs, ...tools, ...glue.filter((file) => file.endsWith('.d.ts'))];
  const scripts = ENTRIES.map((name) => join(dist, `${name}.js`));
  await when('typescript', inputs, [...scripts, modulesFolder], async () => {
    say('tsc');
    for (const name of readdirSync(dist)) if (name !== 'wasm') rmSync(join(dist, name), { recursive: true });
    rmSync(modulesFolder, { recursive: true, force: true });
    await step(process.execPath, [join(root, 'node_modules/typescript/bin/tsc'), '-p', template]);
    say('esbuild');
    await step(process.execPath, [join(root, 'scripts/build/modules.mjs'), modulesFolder, dist]);
  });

  const version = readFileSync(join(root, 'Cargo.toml'), 'utf8').match(/^version = "([^"]+)"/m)?.[1];
  if (version === undefined) throw new Problem('Cargo.toml has no version');
  const tarball = join(pkg, `rillm-${version}.tgz`);
  const papers = [
    [join(template, 'wasm_address.d.ts'), 'wasm_address.d.ts'],
    ...['LICENSE-MIT', 'LICENSE-APACHE'].map((name) => [join(root, name), name]),
    ...guidePages().map((name) => [join(root, name), name]),
  ];
  const readme = join(template, 'README.md');
  const contents = [...files(dist), ...papers.map(([from]) => from), readme, join(template, 'package.json'), join(root, 'Cargo.toml')];
  await when('pack', contents, [tarball], async () => {
    for (const name of readdirSync(pkg)) if (name.endsWith('.tgz')) rmSync(join(pkg, name));
    rmSync(join(pkg, 'docs'), { recursive: true, force: true });
    for (const folder of ['docs/guide', 'docs/migrate']) mkdirSync(join(pkg, folder), { recursive: true });
    for (const [from, to] of papers) copyFileSync(from, join(pkg, to));
    const { name, ...rest } = JSON.parse(readFileSync(join(template, 'package.json'), 'utf8'));
    writeFileSync(join(pkg, 'README.md'), packedReadme(readFileSync(readme, 'utf8'), rest.homepage));
    writeFileSync(join(pkg, 'package.json'), `${JSON.stringify({ name, version, ...rest }, null, 2)}\n`);
    await step(...npm('pack', '--silent', '--pack-destination', pkg), { cwd: pkg });
    say(`${relative(root, tarball)} (${Math.ceil(statSync(tarball).size / 1024)} KiB)`);
  });
  return tarball;
}

/**
 * Builds the wasm of `rillm/gpu` with the benchmark of dispatches in it, which users don't download; resolves to its folder. With
 * RILLM_UNOPTIMISED=1 without optimisation, which takes two minutes: for whom the numbers don't matter.
 */
export async function buildBench(outputs = {}) {
  const { step, say } = steps(outputs);
  const optimise = !process.env.RILLM_UNOPTIMISED;
  const into = join(cache, optimise ? 'bench' : 'bench-unoptimised');
  await buildWasm(WASM.tensor, { more: ['bench'], into, optimise }, step, say);
  return into;
}

/** The README as the package has it: its links to docs/ lead to the site, or while that has no address to the pages that come with the package. */
export function packedReadme(text, homepage) {
  if (homepage === undefined) return text.replaceAll('](../docs/', '](docs/');
  return text.replace(/\]\(\.\.\/docs\/([\w/-]+)\.md(#[\w-]+)?\)/g, (_, page, anchor = '') => `](${homepage}${page}.html${anchor})`);
}

function steps({ quietStdout = false, log }) {
  mkdirSync(cache, { recursive: true });
  return {
    step: (program, args, options) => run(program, args, { ...options, quietStdout, log }),
    say: sayTo('build', { quietStdout, log }),
  };
}

/** The unpacked tarball: what `npm start`, the command line and the tests run, so that what is shipped is what is tried. */
export async function unpackPackage(tarball) {
  const unpacked = join(cache, 'package');
  await when('unpack', [tarball], [join(unpacked, 'package.json')], async () => {
    rmSync(unpacked, { recursive: true, force: true });
    mkdirSync(unpacked, { recursive: true });
    if (output('tar', ['-xzf', tarball, '-C', unpacked, '--strip-components', '1']) === undefined) {
      throw new Problem(`tar could not unpack ${tarball}: remove pkg/ and build again`);
    }
  });
  return unpacked;
}

if (isMain(import.meta.url)) {
  await main(async () => {
    await setup({ browser: false, test: false });
    console.log(await build());
  });
}
