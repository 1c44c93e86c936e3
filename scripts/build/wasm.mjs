// The package's WebAssembly: Rust → wasm → bindings → optimised wasm. The same sources give the same bytes, in whatever
// folder they are built, and the result names no folder of the machine. Built-in modules only.

import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { basename, delimiter, dirname, join } from 'node:path';

import { output, Problem, root } from '../command.mjs';
import { lockedVersion, toolsEnv } from '../setup.mjs';
import { namedByOrder } from './order.mjs';
import { files, when } from './stamps.mjs';

export const TARGET = 'wasm32-unknown-unknown';

/** What rustc takes for granted on this target; wasm-opt has to be told. */
export const FEATURES = [
  'bulk-memory',
  'bulk-memory-opt',
  'nontrapping-float-to-int',
  'sign-ext',
  'mutable-globals',
  'reference-types',
  'multivalue',
];

/** Compiles the workspace's own crates with wasm's vectors. */
const SIMD_RUSTC = join(root, 'scripts/build/simd_rustc.sh');

/**
 * LLVM has optimised all of it for size, and what else wasm-opt does with `-O1` takes three times as long and makes more of it once it is compressed:
 * variables that share a place, for one, are less alike from function to function. The lowest kilobyte of memory is the end of the stack, so no
 * address is below it.
 */
const SMALL = ['--duplicate-function-elimination', '--optimize-instructions', '--low-memory-unused', '--duplicate-function-elimination'];

/** For code that is compiled for speed. `-Os` and `-O3` take four times as long, and what they make is larger once it is compressed. */
const FAST = ['-O1', '--low-memory-unused'];

/** For what calls itself: without inlining its calls take more of the stack, and grammars at their limit overflow it. */
const DEEP = ['-Os', '--low-memory-unused'];

/** Layers of the crate `rillm` that only its features `engine` and `train` compile (`src/lib.rs`). */
const ENGINE_LAYERS = ['decode', 'engine', 'model', 'sampler', 'text', 'train'].map((layer) => join(root, 'src', layer, '/'));

/** What the feature `train` alone compiles. */
const TRAINING = [join(root, 'src/train', '/')];

/** The macro that takes shaders into the program. */
const MACROS = join(root, 'shader_text/src');

const besides = (left) => [...files(join(root, 'src')), ...files(MACROS)].filter((file) => !left.some((part) => file.startsWith(part)));

/**
 * Each wasm of the package: the crate that it is made of, its cargo features if they are not the default ones, its sources, whether its
 * crate is optimised for speed, whether it calls itself deeply, and whether some crate brings an interface for C, every function of which is
 * exported. The engine's is the last: what cargo keeps of the crate `rillm` is what
 * `tests/web.rs` is linked with.
 */
export const WASM = {
  tensor: {
    name: 'rillm_tensor',
    crate: 'rillm',
    features: ['tensor'],
    // A call of an operation takes as long as this code does, and not as long as the GPU: 40% less, for a fifth more bytes.
    isFast: true,
    sources: () => besides([...ENGINE_LAYERS, ...TRAINING]),
  },
  grammar: {
    name: 'rillm_grammar',
    crate: 'rillm-grammar',
    isDeep: true,
    hasInterfaceForC: true,
    sources: () => files(join(root, 'grammar/src')),
  },
  cpu: {
    name: 'rillm_cpu',
    crate: 'rillm',
    features: ['engine', 'cpu'],
    hasVectors: true,
    sources: () => [...besides(TRAINING), ...files(join(root, 'cpu_device/src')), ...files(join(root, 'cpu_kernels/src')), SIMD_RUSTC],
  },
  train: { name: 'rillm_train', crate: 'rillm-training', sources: () => [...besides([]), ...files(join(root, 'training/src'))] },
  // With the feature `train`, of which the linker leaves nothing here, so that the wasm above has been compiled but for its own bindings.
  engine: { name: 'rillm', crate: 'rillm', features: ['engine', 'train'], sources: () => besides([]) },
};
const MANIFESTS = [
  'Cargo.toml',
  'cpu_device/Cargo.toml',
  'cpu_kernels/Cargo.toml',
  'grammar/Cargo.toml',
  'grammar/build.rs',
  'shader_text/Cargo.toml',
  'training/Cargo.toml',
  'Cargo.lock',
  'rust-toolchain.toml',
];

/** The files that say how. */
const OF_THIS = ['wasm', 'order', 'sections'].map((name) => join(root, `scripts/build/${name}.mjs`));

/** Builds a wasm into a folder: the glue, its types and the optimised wasm. `more` names features that it does not have in the package. */
export async function buildWasm(
  { name, crate, features = [], isFast = false, isDeep = false, hasVectors = false, hasInterfaceForC = false, sources },
  { more = [], into, optimise = true },
  step,
  say,
) {
  mkdirSync(into, { recursive: true });
  const glue = [`${name}.js`, `${name}.d.ts`, `${name}_bg.wasm`].map((file) => join(into, file));
  const stamp = [name, ...more, ...(optimise ? [] : ['unoptimised'])].join('+');
  const inputs = [...sources(), ...MANIFESTS.map((file) => join(root, file)), ...OF_THIS];
  const work = async () => {
    // Code that is not to be fast is compiled four times as fast without any optimisation.
    const ofCrate = optimise ? (isFast ? 3 : undefined) : 0;
    const level = ofCrate === undefined ? [] : ['--config', `profile.release.package.${crate}.opt-level=${ofCrate}`];
    const chosen = [...level, '--features', [...features, ...more].join(','), ...(features.length > 0 ? ['--no-default-features'] : [])];
    const env = { ...process.env, ...(await cargoEnv(step)), ...(hasVectors ? compiledBy(SIMD_RUSTC) : {}) };
    await step('cargo', ['build', '--release', '--target', TARGET, '--locked', '--package', crate, '--lib', ...chosen], { env });
    const wasm = join(targetFolder(), `${TARGET}/release/${crate.replaceAll('-', '_')}.wasm`);
    const bindgen = join(root, '.cache/bindgen', stamp);
    rmSync(bindgen, { recursive: true, force: true });
    say(`wasm-bindgen ${lockedVersion('wasm-bindgen')} ${name}`);
    // The package fetches the wasm itself, so the glue needs no address of it. After a trap it makes a new instance.
    const form = ['--target', 'web', '--omit-default-module-path', '--experimental-reset-state-function'];
    await step('wasm-bindgen', [wasm, ...form, '--out-dir', bindgen, '--out-name', name], { env: toolsEnv() });
    const made = join(bindgen, `${name}_bg.wasm`);
    ignoreStaleCalls(join(bindgen, `${name}.js`));
    const finished = optimise ? join(bindgen, 'optimised.wasm') : made;
    if (optimise) {
      say(`wasm-opt ${name}`);
      const binaryen = (tool, ...args) =>
        step(process.execPath, [
          join(root, 'node_modules/binaryen/bin', tool),
          ...[...FEATURES, ...(hasVectors ? ['simd'] : [])].map((feature) => `--enable-${feature}`),
          ...args,
        ]);
      const { called, uncalled } = exportsOf(readFileSync(made), readFileSync(join(bindgen, `${name}.js`), 'utf8'));
      if (uncalled.length > 0 && !hasInterfaceForC) throw new Problem(`nobody calls these exports of ${name}: ${uncalled.join(', ')}`);
      let input = made;
      if (hasInterfaceForC) {
        // Takes out the exports that nobody calls, with what only they use: it takes a quarter as long as all other optimisation.
        input = join(bindgen, 'called.wasm');
        const graph = join(bindgen, 'exports.json');
        const glue = { name: 'glue', root: true, reaches: called };
        writeFileSync(graph, JSON.stringify([glue, ...called.map((name) => ({ name, export: name }))]));
        await binaryen('wasm-metadce', '--graph-file', graph, '-g', made, '-o', input);
      }
      const named = join(bindgen, 'named.wasm');
      writeFileSync(named, namedByOrder(readFileSync(input)));
      const passes = isDeep ? DEEP : isFast ? FAST : SMALL;
      await binaryen('wasm-opt', ...passes, '--reorder-functions-by-name', named, '-o', finished);
    }
    copyFileSync(join(bindgen, `${name}.js`), glue[0]);
    copyFileSync(join(bindgen, `${name}.d.ts`), glue[1]);
    // Last and in one go, so that a build that was broken off is not taken for a finished one.
    renameSync(finished, glue[2]);
  };
  // Cargo is not asked where nothing changed: it keeps one wasm, whatever the features, and would build it anew after other features.
  await when(stamp, inputs, glue, work, [binaryenVersion()]);
  return glue;
}

/**
 * The environment in which a script compiles the workspace's own crates. Cargo gets its name alone: functions are named after a hash of what it gets, and
 * with a folder in it no other folder would give the same wasm.
 */
export function compiledBy(script) {
  return { RUSTC_WORKSPACE_WRAPPER: basename(script), PATH: [dirname(script), process.env.PATH].join(delimiter) };
}

/** What the environment holds besides, of whatever is to share what cargo builds for the package. */
export async function cargoEnv(step) {
  // Before the flags are known: it unpacks the crates that are not there yet.
  await step('cargo', ['fetch', '--locked', '--target', TARGET]);
  return { CARGO_ENCODED_RUSTFLAGS: flags() };
}

/**
 * Promises that an instance waited for before it trapped may settle later. The glue throws when it is called for one, which would be an uncaught
 * error of the page.
 */
function ignoreStaleCalls(file) {
  const glue = readFileSync(file, 'utf8');
  const stale = "throw new Error('Cannot invoke closure from previous WASM instance');";
  const hasClosures = /function make(Mut)?Closure/.test(glue);
  if (hasClosures && !glue.includes(stale)) throw new Problem('the glue of wasm-bindgen has changed: it tells stale closures otherwise');
  writeFileSync(file, glue.replaceAll(stale, 'return undefined;'));
}

/** What wasm-bindgen exports for itself. */
const OF_BINDGEN = ['__abort_handler', '__instance_terminated'];

/** The names of the exports that the glue calls, and of those that nobody calls. */
function exportsOf(wasm, glue) {
  const names = WebAssembly.Module.exports(new WebAssembly.Module(wasm)).map(({ name }) => name);
  const called = names.filter((name) => new RegExp(`\\b${name}\\b`).test(glue) || OF_BINDGEN.includes(name));
  return { called, uncalled: names.filter((name) => !called.includes(name)) };
}

export function binaryenVersion() {
  const version = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')).packages?.['node_modules/binaryen']?.version;
  if (version === undefined) throw new Problem('package-lock.json does not hold binaryen: restore the file from git');
  return `binaryen ${version}`;
}

export function targetFolder() {
  return process.env.CARGO_TARGET_DIR ?? join(root, 'target');
}

/** rustc's flags, each by itself: names in place of the folders of this machine, which messages of panics hold. The last that fits counts. */
function flags() {
  const home = process.env.CARGO_HOME ?? join(homedir(), '.cargo');
  const registries = join(home, 'registry/src');
  const sysroot = output('rustc', ['--print', 'sysroot']);
  const commit = /^commit-hash: (\w+)$/m.exec(output('rustc', ['-vV']) ?? '')?.[1];
  const names = [
    [home, '/cargo'],
    // Whichever registry they came from.
    ...(existsSync(registries) ? readdirSync(registries) : []).map((name) => [join(registries, name), '/crates']),
    [root, '/rillm'],
    [targetFolder(), '/target'],
    // With the component rust-src the library's paths are those of the machine, and else these.
    ...(sysroot && commit ? [[join(sysroot, 'lib/rustlib/src/rust'), `/rustc/${commit}`]] : []),
  ];
  const given = process.env.CARGO_ENCODED_RUSTFLAGS?.split('\x1f') ?? process.env.RUSTFLAGS?.split(/\s+/) ?? [];
  return [...given.filter(Boolean), ...names.map(([from, to]) => `--remap-path-prefix=${from}=${to}`)].join('\x1f');
}
