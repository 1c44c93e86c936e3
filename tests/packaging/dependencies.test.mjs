// The law of dependencies finds what breaks it. That nothing does is the step `dependencies` of `npm test`.

import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { root } from '../../scripts/command.mjs';
import { versionOf } from '../../scripts/release/checks.mjs';
import { crateFaults, isAllowed, law, npmFaults } from '../../scripts/test/dependencies.mjs';

test('licence expressions', () => {
  const allowed = ['MIT', 'Apache-2.0', 'Unicode-3.0'];
  for (const [expression, wanted] of Object.entries({
    MIT: true,
    'GPL-3.0-only': false,
    'MIT OR Apache-2.0': true,
    'GPL-2.0/MIT': true,
    'GPL-2.0 OR BSD-3-Clause': false,
    '(MIT OR GPL-2.0) AND Unicode-3.0': true,
    'MIT AND GPL-2.0': false,
    'GPL-2.0 AND MIT OR MIT': true,
    'GPL-2.0 AND (MIT OR MIT)': false,
    'MIT WITH an-exception': false,
    'Apache-2.0 WITH LLVM-exception': false,
    'Apache-2.0 WITH LLVM-exception OR MIT': true,
    'MIT OR no-licence': false,
    'MIT MIT': false,
    '(MIT': false,
    '': false,
  })) {
    assert.equal(isAllowed(expression, allowed), wanted, expression);
  }
  assert.equal(isAllowed(undefined, allowed), false);
});

test('deny.toml is read as TOML', () => {
  const text = `
    [licenses]
    exceptions = [{ crate = "libloading", allow = ["ISC"] }]
    # "Not this one", 'nor this'
    allow = ["MIT", # in several lines
      'Zlib']
    [[bans.skip]]
    crate = "syn"
    [[bans.skip]]
    reason = "crate = no"
    crate = "bit-set"
  `;
  assert.deepEqual(law(text), { licenses: ['MIT', 'Zlib'], several: ['syn', 'bit-set'] });
  assert.deepEqual(law('[licenses]\nallow = []'), { licenses: [], several: [] });
  assert.throws(() => law('[bans]\nskip = []'), /no list licenses.allow/);
  assert.throws(() => law('[licenses'), /TOML/i);
});

test('crates that are linked: licences, sources, versions; others are not looked at', () => {
  const crate = (name, more = {}) => ({
    id: name,
    name,
    version: '1',
    license: 'MIT',
    source: 'registry+x',
    targets: [{ kind: ['lib'] }],
    ...more,
  });
  const own = (name) => crate(name, { source: null });
  const edge = (pkg, kind = null) => ({ pkg, dep_kinds: [{ kind }] });
  const faults = (crates, edges) => {
    const all = [own('rillm'), own('rillm-grammar'), ...crates];
    const nodes = all.map(({ id }) => ({ id, deps: id === 'rillm' ? edges : [] }));
    return crateFaults({ packages: all, resolve: { nodes } }, { licenses: ['MIT'], several: ['twice'] });
  };
  const bad = crate('bad', { license: 'GPL-3.0-only' });
  assert.deepEqual(faults([crate('good'), bad], [edge('good'), edge('bad', 'dev')]), []);
  assert.deepEqual(faults([{ ...bad, targets: [{ kind: ['proc-macro'] }] }], [edge('bad')]), []);
  assert.match(faults([bad], [edge('bad')]).join(), /bad 1 has the licence GPL-3.0-only/);
  assert.match(faults([crate('fork', { source: 'git+https://somewhere' })], [edge('fork')]).join(), /fork 1 comes from git/);
  const two = (name) => [crate(name), crate(name, { id: 'other', version: '2' })];
  assert.match(faults(two('a'), [edge('a'), edge('other')]).join(), /more than one a: 2, 1|more than one a: 1, 2/);
  assert.deepEqual(faults(two('twice'), [edge('twice'), edge('other')]), []);
  assert.match(crateFaults({ packages: [], resolve: { nodes: [] } }, { licenses: [], several: [] }).join(), /0 crates/);
});

test('a lock file of npm: licences, digests, addresses, scripts', () => {
  const of = (more) =>
    npmFaults({ packages: { '': {}, 'node_modules/a': { version: '1', license: 'MIT', integrity: 'sha512-', ...more } } });
  assert.deepEqual(of({}), []);
  assert.match(of({ license: 'GPL-3.0-only' }).join(), /a 1 has the licence/);
  assert.match(of({ integrity: undefined }).join(), /no digest/);
  assert.match(of({ resolved: 'https://somewhere' }).join(), /has an address/);
  assert.match(of({ hasInstallScript: true }).join(), /runs a script/);
});

test('examples name the version of the package, and of other packages those that they are built with here', () => {
  const { packages } = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'));
  const rillm = versionOf(readFileSync(join(root, 'Cargo.toml'), 'utf8'));
  const manifests = readdirSync(join(root, 'examples')).map((name) => join('examples', name, 'package.json'));
  const found = manifests.filter((name) => existsSync(join(root, name)));
  assert.ok(found.length >= 5);
  for (const name of found) {
    const { dependencies = {}, devDependencies = {} } = JSON.parse(readFileSync(join(root, name), 'utf8'));
    for (const [of, version] of Object.entries({ ...dependencies, ...devDependencies })) {
      assert.match(version, /^\d+\.\d+\.\d+$/, `${name}: ${of}`);
      const here = of === 'rillm' ? rillm : packages[`node_modules/${of}`]?.version;
      // Next is installed by the tests of bundlers alone, and compiles with a TypeScript written in JavaScript.
      if (here !== undefined && !(name.includes('next') && ['typescript', '@types/node'].includes(of))) {
        assert.equal(version, here, `${name}: ${of}`);
      }
    }
  }
});
