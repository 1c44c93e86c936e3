// What keeps a version from being published.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { root } from '../../scripts/command.mjs';
import { fileProblems, placeProblems, textProblems, versionOf } from '../../scripts/release/checks.mjs';

const CARGO = '[workspace]\nmembers = ["a"]\n\n[package]\nname = "rillm"\nversion = "1.2.3"\n\n[dependencies]\nother = "9"\n';
const CHANGELOG = '# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-11-30\n\n- A change.\n\n## [1.2.2] - 2026-10-01\n\n- Another.\n';
const texts = (change = {}) => textProblems({ cargoToml: CARGO, changelog: CHANGELOG, manifests: { 'package.json': '{}' }, ...change });

test('the version and the changelog', () => {
  assert.deepEqual(texts(), { version: '1.2.3', problems: [], later: [] });
  assert.match(versionOf(readFileSync(join(root, 'Cargo.toml'), 'utf8')), /^\d/);
  const wrong = {
    'no version': [{ cargoToml: '[package]\nname = "a"\n\n[dependencies]\nversion = "1.0.0"\n' }, /no version/],
    'another form': [{ cargoToml: CARGO.replace('1.2.3', '1.2') }, /the version 1\.2, wanted/],
    'a second version': [{ manifests: { 'a.json': '{"version": "1.2.3"}' } }, /a\.json has a version of its own/],
    'no section': [{ changelog: CHANGELOG.replace('[1.2.3]', '[1.2.4]') }, /no section \[1\.2\.3\]/],
    'an empty section': [{ changelog: CHANGELOG.replace('- A change.', '') }, /says nothing about 1\.2\.3/],
  };
  for (const [name, [change, message]] of Object.entries(wrong)) assert.match(texts(change).problems.join(), message, name);
  assert.match(texts({ changelog: CHANGELOG.replace('2026-11-30', 'unreleased') }).later.join(), /no date/);
  assert.match(texts({ changelog: CHANGELOG.replace('[Unreleased]\n', '[Unreleased]\n\n- New.\n') }).later.join(), /under \[Unreleased\]/);
});

test('the place: continuous integration, the tag of the version, nothing changed', () => {
  const problems = (change) => placeProblems({ env: { CI: 'true' }, tags: ['v1.2.3'], changes: '', version: '1.2.3', ...change }).join();
  assert.equal(problems({}), '');
  assert.equal(problems({ tags: ['stable', '1.2.3'] }), '');
  assert.match(problems({ env: {} }), /CI is not set/);
  assert.match(problems({ env: { CI: 'false' } }), /CI is not set/);
  assert.match(problems({ tags: [] }), /no tag, wanted v1\.2\.3/);
  assert.match(problems({ tags: ['v1.2.30'] }), /the tags v1\.2\.30/);
  assert.match(problems({ changes: ' M README.md' }), /was changed/);
});

test('the files', () => {
  assert.deepEqual(fileProblems(['a', 'b'], ['b', 'a']), []);
  assert.deepEqual(fileProblems(['a', 'c'], ['a', 'b']), ['the tarball lacks b', 'the tarball holds c, which is no part of it']);
});

/** Never with CI set: where the version's tag is checked out, it would publish. */
function release(...args) {
  const { CI: _, ...env } = process.env;
  const { status, stdout, stderr } = spawnSync(process.execPath, [join(root, 'scripts/release.mjs'), ...args], {
    cwd: root,
    encoding: 'utf8',
    env,
  });
  return { status, said: stdout + stderr };
}

test('without --dry-run it refuses here, and with an unknown option; with it, it says what it would do', { timeout: 120_000 }, () => {
  const refused = release();
  assert.equal(refused.status, 1);
  assert.match(refused.said, /not published:\n- this is not continuous integration/);
  assert.equal(release('--dryrun').status, 1);
  const dry = release('--dry-run');
  assert.equal(dry.status, 0, dry.said);
  assert.match(dry.said, /would run: npm publish pkg.rillm-\S+\.tgz --provenance/);
});
