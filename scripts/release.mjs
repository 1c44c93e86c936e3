// `npm run release`: checks the version, the changelog and the tarball, and publishes it with its provenance. It publishes only in continuous
// integration, and only what has the version's tag.
//
//   npm run release -- --dry-run     checks everything and says what would be done

import { readFileSync, statSync } from 'node:fs';
import { join, relative } from 'node:path';
import { parseArgs } from 'node:util';

import { build, unpackPackage } from './build.mjs';
import { main, npm, output, Problem, root, run } from './command.mjs';
import { fileProblems, placeProblems, textProblems } from './release/checks.mjs';
import { expectedFiles, filesIn } from './release/contents.mjs';
import { setup } from './setup.mjs';

const read = (name) => readFileSync(join(root, name), 'utf8');

function dryRun() {
  try {
    return parseArgs({ options: { 'dry-run': { type: 'boolean' } } }).values['dry-run'] ?? false;
  } catch (error) {
    throw new Problem(error.message);
  }
}

function refuse(problems) {
  if (problems.length > 0) throw new Problem(`not published:\n- ${problems.join('\n- ')}`);
}

await main(async () => {
  const isDry = dryRun();
  const manifests = ['package.json', 'pkg-template/package.json'];
  const { version, problems, later } = textProblems({
    cargoToml: read('Cargo.toml'),
    changelog: read('CHANGELOG.md'),
    manifests: Object.fromEntries(manifests.map((name) => [name, read(name)])),
  });
  refuse(problems);
  const tags = output('git', ['tag', '--points-at', 'HEAD'])?.split('\n').filter(Boolean) ?? [];
  const changes = output('git', ['status', '--porcelain']) ?? 'git does not say';
  const here = placeProblems({ env: process.env, tags, changes, version });
  // Before anything is built.
  if (!isDry) refuse([...here, ...later]);

  await setup({ browser: false, test: false });
  const tarball = await build();
  const names = filesIn(tarball);
  const { publint } = await import('publint');
  const { formatMessage } = await import('publint/utils');
  const packed = await unpackPackage(tarball);
  const { messages, pkg } = await publint({ pkgDir: packed, strict: true, pack: false });
  const found = pkg.version === version ? [] : [`the tarball is of version ${pkg.version}, wanted ${version}`];
  refuse([...found, ...fileProblems(names, expectedFiles(names)), ...messages.map((message) => formatMessage(message, pkg))]);

  // A version such as 1.0.0-rc.1 must not become what people get by default.
  const tag = version.includes('-') ? 'next' : 'latest';
  const publish = ['publish', tarball, '--provenance', '--access', 'public', '--tag', tag];
  const size = Math.ceil(statSync(tarball).size / 1024);
  console.log(`rillm ${version}: ${names.length} files, ${size} KiB, checked: ${relative(root, tarball)}`);
  if (!isDry) return run(...npm(...publish));
  console.log(`would run: npm ${publish.map((argument) => (argument === tarball ? relative(root, tarball) : argument)).join(' ')}`);
  console.log(`which publishes rillm@${version} as "${tag}", with a statement of which commit and which build it came from`);
  for (const problem of [...here, ...later]) console.log(`but not from here and now: ${problem}`);
});
