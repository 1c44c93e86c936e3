// The wasm of the CPU's threads (`cpu_team/`): what each of them runs on a memory that they share. It has no glue. There are two, for browsers with and
// without relaxed vectors. Built-in modules only.

import { mkdirSync, renameSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { root } from '../command.mjs';
import { files, when } from './stamps.mjs';
import { binaryenVersion, cargoEnv, compiledBy, FEATURES, targetFolder, TARGET } from './wasm.mjs';

const CRATE = 'rillm-cpu-team';
/** The memory at first: `FIRST_PAGES` of `team_wasm.ts`, and at most what an address reaches. */
const MEMORY = ['--shared-memory', '--import-memory', `--initial-memory=${4 << 20}`, `--max-memory=${2 ** 32}`, '-zstack-size=262144'];
/** Where a thread's stack ends. */
const EXPORTED = ['--export=__stack_pointer'];

/** Each of the two: its compiler, and what wasm-opt has to be told besides. */
export const TEAM = {
  rillm_team: { rustc: join(root, 'scripts/build/team_rustc.sh'), features: ['simd', 'threads'] },
  rillm_team_relaxed: { rustc: join(root, 'scripts/build/team_relaxed_rustc.sh'), features: ['simd', 'relaxed-simd', 'threads'] },
};

/** Builds both into a folder. */
export async function buildTeam(into, step, say) {
  mkdirSync(into, { recursive: true });
  for (const [name, { rustc, features }] of Object.entries(TEAM)) {
    const sources = ['cpu_team', 'cpu_kernels'].flatMap((folder) => files(join(root, folder, 'src')));
    const manifests = ['Cargo.toml', 'Cargo.lock', 'rust-toolchain.toml', 'cpu_team/Cargo.toml', 'cpu_kernels/Cargo.toml'];
    const inputs = [...sources, ...manifests.map((file) => join(root, file)), rustc, fileURLToPath(import.meta.url)];
    const made = join(into, `${name}.wasm`);
    const work = async () => {
      const env = { ...process.env, ...(await cargoEnv(step)), ...compiledBy(rustc) };
      const linked = [...MEMORY, ...EXPORTED].flatMap((argument) => ['-C', `link-arg=${argument}`]);
      // Loops and what calls them are of two crates, and optimised together.
      const together = ['--config', 'profile.release.lto=true'];
      const of = ['--release', ...together, '--target', TARGET, '--locked', '--package', CRATE, '--lib', '--crate-type', 'cdylib'];
      await step('cargo', ['rustc', ...of, '--', ...linked], { env });
      say(`wasm-opt ${name}`);
      const wasm = join(targetFolder(), `${TARGET}/release/rillm_cpu_team.wasm`);
      const flags = [...FEATURES, ...features].map((feature) => `--enable-${feature}`);
      await step(process.execPath, [join(root, 'node_modules/binaryen/bin/wasm-opt'), ...flags, '-O1', wasm, '-o', `${made}.new`]);
      renameSync(`${made}.new`, made);
    };
    await when(name, inputs, [made], work, [binaryenVersion()]);
  }
}
