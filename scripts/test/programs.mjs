// Compiles and lints the native programs of tests and benchmarks. Built-in modules only.

import { dirname } from 'node:path';

import { captured, output, Problem } from '../command.mjs';
import { lintingEnv } from './lint.mjs';

/**
 * These spend their time in the library and in the GPU's driver: to optimise them takes more than a minute, and their tests are faster by a few
 * seconds. Cargo's profiles know packages and no single programs, so each of these is compiled by itself. So are the library's own tests: 36 s of
 * processor time in place of 94.
 */
const UNOPTIMISED = ['--test engine', '--test gpu', '--test text', '--bench decode', '--bench kernels'];
/** Without optimisation rustc would bring the checks back that the profile leaves out: they were an eighth of a profile of `gpu/ops`. */
const WITHOUT_OPTIMISATION = ['--', '-C', 'opt-level=0', '-C', 'debug-assertions=off', '-C', 'overflow-checks=on'];

/** Builds the library's own tests; resolves to a list with that program. */
export function libraryTests() {
  return compiled(['rustc', '--profile', 'test', '--lib'], WITHOUT_OPTIMISATION);
}

/** Builds all of them; resolves to the names, files and folders of those that hold tests. */
export async function builtPrograms() {
  const listed = output('cargo', ['metadata', '--no-deps', '--format-version', '1']);
  if (listed === undefined) throw new Problem('cargo does not list the programs: run `cargo metadata`');
  const { packages } = JSON.parse(listed);
  const options = packages
    .flatMap((of) => of.targets)
    .flatMap(({ kind, name }) => (['test', 'bench', 'example', 'bin'].includes(kind[0]) ? [`--${kind[0]} ${name}`] : []));
  const optimised = options.filter((option) => !UNOPTIMISED.includes(option));
  const programs = await compiled(['test', '--workspace', '--no-run', ...optimised.flatMap((option) => option.split(' '))]);
  // By itself the grammar's crate would want dependencies with other features: it has no tests in its library.
  programs.push(...(await libraryTests()));
  for (const option of UNOPTIMISED) {
    programs.push(...(await compiled(['rustc', '--profile', 'test', ...option.split(' ')], WITHOUT_OPTIMISATION)));
  }
  return programs;
}

/** Runs cargo; resolves to the programs with tests that it names. */
async function compiled(args, forRustc = []) {
  const format = ['--locked', '--message-format=json-render-diagnostics'];
  const { code, text } = await captured('cargo', [...args, ...format, ...forRustc], { env: lintingEnv() });
  if (code !== 0) throw new Problem('the native tests do not compile');
  return text
    .split('\n')
    .filter((line) => line.startsWith('{"reason":"compiler-artifact"'))
    .map((line) => JSON.parse(line))
    .filter(({ executable, profile, target }) => profile.test && executable && !target.kind.includes('bench'))
    .map(({ executable, manifest_path, target }) => ({
      name: target.kind.includes('test') ? target.name : `${target.name} (src)`,
      executable,
      folder: dirname(manifest_path),
    }));
}
