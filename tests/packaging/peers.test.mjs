// The side-by-side run: what can be tested without half a gigabyte of other engines. Its ratios, and that the lock files of such runs are
// ones that anybody's registry can serve.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { ratiosOf, tableOf, textOf } from '../../benches/peers/tables.js';
import { root } from '../../scripts/command.mjs';

const report = (name, decode16, decode512, prefill, loadMs, firstMs) => ({
  name,
  version: '1',
  backend: 'WebGPU',
  dtype: 'q4',
  load_ms: loadMs,
  first_answer_ms: firstMs,
  decode: [{ tokens_per_s: decode16 }, { tokens_per_s: decode512 }],
  prefill: { tokens_per_s: prefill },
});
const REPORTS = [
  report('rillm', 1000, 900, 26000, 1000, 1500),
  report('slower', 100, 90, 13000, 3000, 6000),
  { name: 'broken', error: 'no such thing' },
];

test('a ratio is above one where rillm has more tokens or takes less time', () => {
  assert.deepEqual(ratiosOf(REPORTS), [
    {
      to: 'slower',
      'decode after 16, tokens/s': 10,
      'decode after 512, tokens/s': 10,
      'prefill 512, tokens/s': 2,
      'load, s': 3,
      'load and first answer, s': 4,
    },
  ]);
  assert.deepEqual(ratiosOf(REPORTS.slice(1)), []);
});

test('an engine that did not run stays in the table, with the reason', () => {
  const table = tableOf(REPORTS);
  assert.deepEqual(table.columns, ['', 'rillm', 'slower', 'broken']);
  for (const row of table.rows) assert.equal(row.length, 4);
  const text = textOf(table);
  assert.match(text, /did not run: no such thing/);
  assert.match(text, /rillm, times as fast: prefill 512 +2\.00 ×/);
});

for (const folder of ['benches/peers', 'benches/tensors']) {
  test(`the lock file of ${folder} names versions and no registry`, () => {
    const read = (name) => JSON.parse(readFileSync(join(root, folder, name), 'utf8'));
    const { dependencies } = read('package.json');
    const { packages } = read('package-lock.json');
    for (const [name, version] of Object.entries(dependencies)) assert.equal(packages[`node_modules/${name}`].version, version);
    for (const [path, { resolved, integrity }] of Object.entries(packages)) {
      assert.equal(resolved, undefined, path);
      if (path !== '') assert.match(integrity, /^sha512-/, path);
    }
  });
}
