// `npm run test:reproducible`: builds a commit in two folders of different names and compares the packages byte by byte. It takes as long
// as two builds from nothing.
//
//   npm run test:reproducible                what is checked out (HEAD)
//   npm run test:reproducible -- v0.1.0      another commit

import { createHash } from 'node:crypto';
import { mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';

import { files } from './build/stamps.mjs';
import { main, output, Problem, root, run } from './command.mjs';
import { setup } from './setup.mjs';

const digest = (file) => createHash('sha256').update(readFileSync(file)).digest('hex');

/** Builds the commit in a new folder below this one; resolves to the digests of all files of the package, and of the tarball. */
async function digests(commit, folder) {
  await run('git', ['clone', '--quiet', '--no-checkout', root, folder]);
  await run('git', ['checkout', '--quiet', '--detach', commit], { cwd: folder });
  // The tools are the same; what they make is compared.
  for (const tools of ['node_modules', '.tools']) symlinkSync(join(root, tools), join(folder, tools));
  const { CARGO_TARGET_DIR: _, ...env } = process.env;
  const code = "import('./scripts/build.mjs').then(({ build }) => build())";
  await run(process.execPath, ['--input-type=module', '--eval', code], { cwd: folder, env });
  const pkg = join(folder, 'pkg');
  const tarball = readdirSync(pkg).find((name) => name.endsWith('.tgz'));
  const made = [...files(join(pkg, 'dist')), join(pkg, 'package.json'), join(pkg, tarball)];
  return new Map(made.map((file) => [relative(pkg, file), digest(file)]));
}

await main(async () => {
  const [, , name = 'HEAD'] = process.argv;
  const commit = output('git', ['rev-parse', '--verify', `${name}^{commit}`]);
  if (commit === undefined) throw new Problem(`there is no commit ${name}`);
  await setup({ browser: false, test: false });
  const folder = mkdtempSync(join(tmpdir(), 'rillm-reproducible-'));
  try {
    const first = await digests(commit, join(folder, 'first'));
    const second = await digests(commit, join(folder, 'a folder with a longer name'));
    const names = [...new Set([...first.keys(), ...second.keys()])].sort();
    const different = names.filter((name) => first.get(name) !== second.get(name));
    if (different.length > 0) throw new Problem(`${commit} gives other bytes in another folder: ${different.join(', ')}`);
    for (const name of names.filter((name) => /\.(wasm|tgz)$/.test(name))) console.log(`${first.get(name)}  ${name}`);
    console.log(`${names.length} files of ${commit} are the same in both folders`);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
