// Builds the npm package into pkg/: Rust → wasm → bindings → optimised wasm, TypeScript → JavaScript, then `npm pack`.
// A step whose inputs did not change is skipped. Built-in modules only: it runs the tools, it does not import them.
//
//   node scripts/build.mjs      sets up what is missing, then builds

import { createHash } from 'node:crypto';
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

import { isMain, main, npm, output, Problem, root, run } from './command.mjs';
import { lockedVersion, setup, toolsEnv } from './setup.mjs';

const template = join(root, 'pkg-template');
const pkg = join(root, 'pkg');
const dist = join(pkg, 'dist');
const cache = join(root, '.cache');
const stampsFile = join(cache, 'build.json');

/** What rustc takes for granted on this target; wasm-opt has to be told. */
const WASM_FEATURES = [
  'bulk-memory',
  'bulk-memory-opt',
  'nontrapping-float-to-int',
  'sign-ext',
  'mutable-globals',
  'reference-types',
  'multivalue',
];

/** Builds what is out of date; resolves to the tarball's path. */
export async function build({ quietStdout = false } = {}) {
  const { step, say } = steps(quietStdout);
  const into = join(dist, 'wasm');
  const glue = [
    ...(await buildWasm({ crate: 'rillm', name: 'rillm', into }, step, say)),
    ...(await buildWasm({ crate: 'rillm-grammar', name: 'rillm_grammar', into }, step, say)),
  ];

  const sources = files(join(template, 'src'));
  const configs = [join(root, 'tsconfig.json'), join(template, 'tsconfig.json'), join(root, 'package-lock.json')];
  const scripts = sources.map((file) => join(dist, relative(join(template, 'src'), file).replace(/\.ts$/, '.js')));
  await when('typescript', [...sources, ...configs, ...glue.filter((file) => file.endsWith('.d.ts'))], scripts, async () => {
    say('tsc');
    for (const name of readdirSync(dist)) if (name !== 'wasm') rmSync(join(dist, name), { recursive: true });
    await step(process.execPath, [join(root, 'node_modules/typescript/bin/tsc'), '-p', template]);
  });

  const version = readFileSync(join(root, 'Cargo.toml'), 'utf8').match(/^version = "([^"]+)"/m)?.[1];
  if (version === undefined) throw new Problem('Cargo.toml has no version');
  const tarball = join(pkg, `rillm-${version}.tgz`);
  const papers = [[join(template, 'README.md'), 'README.md'], ...['LICENSE-MIT', 'LICENSE-APACHE'].map((name) => [join(root, name), name])];
  const contents = [...files(dist), ...papers.map(([from]) => from), join(template, 'package.json'), join(root, 'Cargo.toml')];
  await when('pack', contents, [tarball], async () => {
    for (const name of readdirSync(pkg)) if (name.endsWith('.tgz')) rmSync(join(pkg, name));
    for (const [from, to] of papers) copyFileSync(from, join(pkg, to));
    const { name, ...rest } = JSON.parse(readFileSync(join(template, 'package.json'), 'utf8'));
    writeFileSync(join(pkg, 'package.json'), `${JSON.stringify({ name, version, ...rest }, null, 2)}\n`);
    await step(...npm('pack', '--silent', '--pack-destination', pkg), { cwd: pkg });
    say(`${relative(root, tarball)} (${Math.ceil(statSync(tarball).size / 1024)} KiB)`);
  });
  return tarball;
}

/**
 * Builds the wasm of the package with the benchmark of dispatches in it, which users don't download; resolves to its folder. With
 * RILLM_UNOPTIMISED=1 without wasm-opt, which takes a minute: for whom the numbers don't matter.
 */
export async function buildBench({ quietStdout = false } = {}) {
  const { step, say } = steps(quietStdout);
  const optimise = !process.env.RILLM_UNOPTIMISED;
  const into = join(cache, optimise ? 'bench' : 'bench-unoptimised');
  await buildWasm({ crate: 'rillm', name: 'rillm', features: ['bench'], into, optimise }, step, say);
  return into;
}

function steps(quietStdout) {
  mkdirSync(cache, { recursive: true });
  return {
    step: (program, args, options) => run(program, args, { ...options, quietStdout }),
    say: (text) => (quietStdout ? console.error : console.log)(`build: ${text}`),
  };
}

/** What the wasm of a package of the workspace is made of, besides its own folders. */
const CRATES = { rillm: ['src'], 'rillm-grammar': ['grammar/src'] };
const MANIFESTS = ['Cargo.toml', 'grammar/Cargo.toml', 'Cargo.lock', 'rust-toolchain.toml', 'package-lock.json'];

/** Builds a package of the workspace into a folder: the glue, its types and the optimised wasm. Each is a wasm of its own. */
async function buildWasm({ crate, name, features = [], into, optimise = true }, step, say) {
  mkdirSync(into, { recursive: true });
  const glue = [`${name}.js`, `${name}.d.ts`, `${name}_bg.wasm`].map((file) => join(into, file));
  const stamp = [name, ...features, ...(optimise ? [] : ['unoptimised'])].join('+');
  const sources = [...CRATES[crate].flatMap((folder) => files(join(root, folder))), ...MANIFESTS.map((file) => join(root, file))];
  // Cargo is not asked where nothing changed: it keeps one wasm, whatever the features, and would build it anew after other features.
  await when(stamp, [...sources, fileURLToPath(import.meta.url)], glue, async () => {
    const withFeatures = features.length > 0 ? ['--features', features.join(',')] : [];
    const release = ['--release', '--target', 'wasm32-unknown-unknown', '--locked'];
    await step('cargo', ['build', ...release, '--package', crate, '--lib', ...withFeatures]);
    const wasm = join(process.env.CARGO_TARGET_DIR ?? join(root, 'target'), `wasm32-unknown-unknown/release/${name}.wasm`);
    const bindgen = join(cache, 'bindgen', stamp);
    rmSync(bindgen, { recursive: true, force: true });
    say(`wasm-bindgen ${lockedVersion('wasm-bindgen')} ${name}`);
    await step('wasm-bindgen', [wasm, '--target', 'web', '--out-dir', bindgen, '--out-name', name], { env: toolsEnv() });
    const made = join(bindgen, `${name}_bg.wasm`);
    const finished = optimise ? join(bindgen, 'optimised.wasm') : made;
    if (optimise) {
      say(`wasm-opt ${name}`);
      const wasmOpt = join(root, 'node_modules/binaryen/bin/wasm-opt');
      await step(process.execPath, [wasmOpt, '-Os', ...WASM_FEATURES.map((feature) => `--enable-${feature}`), made, '-o', finished]);
    }
    copyFileSync(join(bindgen, `${name}.js`), glue[0]);
    copyFileSync(join(bindgen, `${name}.d.ts`), glue[1]);
    // Last and in one go, so that a build that was broken off is not taken for a finished one.
    renameSync(finished, glue[2]);
  });
  return glue;
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

function files(folder) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name))
    .sort();
}

/** Does the work unless all outputs are there and the inputs are what they were when it was last done. */
async function when(name, inputs, outputs, work) {
  const hash = createHash('sha256');
  for (const file of inputs) hash.update(relative(root, file)).update('\0').update(readFileSync(file)).update('\0');
  const digest = hash.digest('hex');
  const stamps = existsSync(stampsFile) ? JSON.parse(readFileSync(stampsFile, 'utf8')) : {};
  if (stamps[name] === digest && outputs.every((file) => existsSync(file))) return;
  await work();
  writeFileSync(stampsFile, `${JSON.stringify({ ...stamps, [name]: digest }, null, 2)}\n`);
}

if (isMain(import.meta.url)) {
  await main(async () => {
    await setup({ browser: false, test: false });
    console.log(await build());
  });
}
