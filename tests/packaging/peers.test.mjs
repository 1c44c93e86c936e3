// The side-by-side run: what can be tested without half a gigabyte of other engines. Its options, turns and ratios, and that the lock files of such runs are
// ones that anybody's registry can serve.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { measureEngines } from '../../benches/peers/measure.js';
import { placeOf } from '../../benches/peers/place.js';
import { spread } from '../../benches/peers/spread.js';
import { ratiosOf, tableOf, textOf as wordsOf } from '../../benches/peers/tables.js';
import { textOf } from '../../benches/peers/texts.js';
import { root } from '../../scripts/command.mjs';

const report = (name, decode16, prefill, loadMs, firstMs) => ({
  name,
  version: '1',
  backend: 'WebGPU',
  dtype: 'q4',
  load_ms: loadMs,
  first_answer_ms: firstMs,
  figures: {
    'decode after 16, tokens/s': { median: decode16, range: [decode16 - 1, decode16 + 1] },
    'prefill 512, tokens/s': { median: prefill, range: [prefill, prefill], own: name === 'slower' ? prefill : undefined },
  },
});
const REPORTS = [
  { name: 'broken', error: 'no such thing' },
  report('rillm', 1000, 26000, 1000, 1500),
  report('slower', 90, 13000, 3000, 6000),
];

test('a ratio is above one where rillm has more tokens or takes less time', () => {
  assert.deepEqual(ratiosOf(REPORTS), [
    {
      to: 'slower',
      'decode after 16, tokens/s': 1000 / 90,
      'prefill 512, tokens/s': 2,
      'load, s': 3,
      'load and first answer, s': 4,
    },
  ]);
  assert.deepEqual(ratiosOf([REPORTS[0], REPORTS[2]]), []);
});

test('an engine that did not run stays in the table, with the reason', () => {
  const table = tableOf(REPORTS);
  assert.deepEqual(table.columns, ['', 'broken', 'rillm', 'slower']);
  for (const row of table.rows) assert.equal(row.length, 4);
  const text = wordsOf(table);
  assert.match(text, /did not run: no such thing/);
  assert.match(text, /rillm, times as fast: prefill 512 +2\.00 ×/);
  assert.match(text, /decode after 16, tokens\/s +– +1,000 \(999–1,001\) +90\.0 \(89\.0–91\.0\)/);
  // Engines count some figures themselves, and not others.
  assert.match(text, /its own count: prefill 512 +– +– +13,000/);
  assert.doesNotMatch(text, /its own count: decode/);
  assert.equal(tableOf([REPORTS[0]]).rows[0][1], 'did not run: no such thing');
});

test('threads are those of the CPU, one if nothing is said, and all of them leave a core to the page', () => {
  assert.deepEqual(placeOf({}, 4), { device: 'gpu', threads: 1 });
  assert.deepEqual(placeOf({ device: 'cpu' }, 4), { device: 'cpu', threads: 1 });
  assert.deepEqual(placeOf({ device: 'cpu', threads: '12' }, 4), { device: 'cpu', threads: 12 });
  for (const [cores, threads] of [
    [1, 1],
    [2, 1],
    [4, 3],
    [9, 8],
    [64, 8],
  ])
    assert.deepEqual(placeOf({ device: 'cpu', threads: 'all' }, cores), { device: 'cpu', threads });
  for (const threads of ['0', '-1', '1.5', '100', 'many', ''])
    assert.throws(() => placeOf({ device: 'cpu', threads }, 4), /threads are a number/);
  assert.throws(() => placeOf({ device: 'tpu' }, 4), /gpu or cpu, and not tpu/);
  assert.throws(() => placeOf({ threads: '2' }, 4), /threads are of the CPU/);
});

test('the median is the middle of what was counted', () => {
  assert.deepEqual(spread([10, 9, 100]), { median: 10, range: [9, 100] });
  assert.deepEqual(spread([4, undefined, 1]), { median: 2.5, range: [1, 4] });
  assert.deepEqual(spread([undefined]), {});
});

test('texts are as long as asked for and begin differently', () => {
  const texts = Array.from({ length: 676 }, (_, number) => textOf(16, number).trim().split(' '));
  for (const words of texts) assert.equal(words.length, 16);
  assert.equal(new Set(texts.map(([first, second]) => first + second)).size, 676);
  assert.deepEqual([textOf(0, 3), textOf(1, 3)], ['', ' d']);
});

/** A task whose engines give the number of each of their requests as the figure, and what happened in which order. */
function taskOf(faults = {}) {
  const events = [];
  const open = (name) => async () => {
    events.push(`${name} opens`);
    if (faults[name] === 'open') throw new Error('it does not open');
    return { name, facts: { version: name }, close: async () => events.push(`${name} closes`) };
  };
  const task = {
    engines: { a: open('a'), b: open('b') },
    first: async (_, number) => number,
    async round({ name }, { next, say, newTokens }) {
      say('a figure');
      const number = next();
      events.push(`${name} ${number}`);
      if (faults[name] === number) throw undefined;
      return { 'a figure, tokens/s': { value: number * newTokens, own: number } };
    },
  };
  return { task, events };
}

test('engines run one after the other, or take turns, and the first run is dropped', async () => {
  const options = { repetitions: 2, newTokens: 10 };
  const apart = taskOf();
  const reports = await measureEngines(apart.task, ['a', 'b'], {}, options);
  assert.deepEqual(apart.events, ['a opens', 'a 1', 'a 2', 'a 3', 'a closes', 'b opens', 'b 1', 'b 2', 'b 3', 'b closes']);
  assert.deepEqual(
    reports.map(({ name, version, figures }) => ({ name, version, figures })),
    ['a', 'b'].map((name) => ({ name, version: name, figures: { 'a figure, tokens/s': { median: 25, range: [20, 30], own: 2.5 } } })),
  );
  const inTurns = taskOf();
  const heard = [];
  await measureEngines(inTurns.task, ['a', 'b'], {}, { ...options, inTurns: true, onReport: (found) => heard.push(found.length) });
  assert.deepEqual(inTurns.events, ['a opens', 'b opens', 'a 1', 'b 1', 'a 2', 'b 2', 'a 3', 'b 3', 'a closes', 'b closes']);
  assert.deepEqual(heard, [1, 2]);
});

test('an engine that fails is closed once, and the others go on', async () => {
  for (const [faults, events] of [
    [{ a: 'open' }, ['a opens', 'b opens', 'b 1', 'b 2', 'b closes']],
    [{ a: 2 }, ['a opens', 'b opens', 'a 1', 'b 1', 'a 2', 'a closes', 'b 2', 'b closes']],
  ]) {
    const { task, events: found } = taskOf(faults);
    const [a, b] = await measureEngines(task, ['a', 'b'], {}, { repetitions: 1, newTokens: 1, inTurns: true });
    assert.deepEqual(found, events);
    assert.ok(a.error.length > 0 && a.figures === undefined, JSON.stringify(a));
    assert.equal(b.figures['a figure, tokens/s'].median, 2);
  }
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
