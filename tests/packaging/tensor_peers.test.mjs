// The side-by-side run of array libraries: what can be tested without the others. What a right result is, what is counted, and the tables.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { erf, errorOf, expectedOf } from '../../benches/tensors/reference.js';
import { dataOf, rowsOf, SIZES } from '../../benches/tensors/rows.js';
import { checksOf, ratiosOf, timesOf } from '../../benches/tensors/tables.js';

const tensor = (shape, ...numbers) => ({ shape, numbers: Float32Array.from(numbers) });

/** The reference of an operation on these tensors, by name. */
function valuesOf(op, inputs, options = {}) {
  const data = Object.fromEntries(Object.entries(inputs).map(([name, { numbers }]) => [name, numbers]));
  return expectedOf({ op, inputs, options }, data).map(({ value }) => value);
}

const near = (got, wanted) => {
  assert.equal(got.length, wanted.length);
  got.forEach((value, at) => {
    assert.ok(Math.abs(value - wanted[at]) < 1e-12, `${got} instead of ${wanted}`);
  });
};

/** x · Φ(x) of 1 and 2, from a table of the normal distribution. */
const GELU = { 1: 0.8413447460685429, 2: 1.9544997361036416 };

test('erf is that of the tables', () => {
  near([0, 0.5, -1, 2, 5, 7].map(erf), [0, 0.5204998778130465, -0.8427007929497149, 0.9953222650189527, 0.9999999999984626, 1]);
});

test('the references are what the operations are defined as', () => {
  near(valuesOf('matmul', { x: tensor([2, 2], 1, 2, 3, 4), w: tensor([2, 2], 5, 6, 7, 8) }), [19, 22, 43, 50]);
  near(valuesOf('add', { x: tensor([1, 2], 1, 2), y: tensor([1, 2], 10, 20) }), [11, 22]);
  near(valuesOf('softmax', { x: tensor([2, 4], 1, 1, 1, 1, 100, 100, -100, -100) }), [0.25, 0.25, 0.25, 0.25, 0.5, 0.5, 0, 0]);
  const one = 1 / Math.sqrt(1 + 1e-5);
  const lines = { x: tensor([1, 2], 3, 5), weight: tensor([2], 1, 2), bias: tensor([2], 0, 10) };
  near(valuesOf('layerNorm', lines), [-one, 10 + 2 * one]);
  const elements = { x: tensor([1, 2], 1, 1), w: tensor([2], 0, 1), b: tensor([2], 1, 1), mask: tensor([1, 2], 1, 0) };
  near(valuesOf('elementwise', elements), [GELU[1], 0]);
  const layers = { x: tensor([1, 1], 1), w1: tensor([1, 1], 1), b1: tensor([1], 1), w2: tensor([1, 1], 1), b2: tensor([1], -1) };
  near(valuesOf('mlp', layers), [GELU[2] - 1]);
});

test('a convolution slides a kernel without turning it over, and adds up channels', () => {
  const x = tensor([1, 2, 2, 2], 1, 2, 3, 4, 10, 20, 30, 40);
  // The first output adds what stands right of each element of the first channel and the second channel, the second has the second as it is.
  const [right, nothing, middle] = [5, -1, 4].map((at) => Array.from({ length: 9 }, (_, i) => (i === at ? 1 : 0)));
  const w = tensor([2, 2, 3, 3], ...right, ...middle, ...nothing, ...middle);
  near(valuesOf('conv2d', { x, w }, { padding: 1 }), [12, 20, 34, 40, 10, 20, 30, 40]);
});

test('a wrong result is one that is off anywhere that is looked at', () => {
  const expected = [
    { at: 0, value: 1 },
    { at: 3, value: -4 },
  ];
  assert.equal(errorOf([1, 0, 0, -4], expected, 4), 0);
  assert.equal(errorOf([1, 0, 0, -3], expected, 4), 0.25);
  assert.equal(errorOf([Number.NaN, 0, 0, -4], expected, 4), Number.POSITIVE_INFINITY);
  assert.equal(errorOf([1, 0, 0], expected, 4), Number.POSITIVE_INFINITY);
});

test('rows have names of their own, and inputs that give results of the shape of x', () => {
  assert.deepEqual(SIZES, ['full', 'small']);
  for (const size of SIZES) {
    const rows = rowsOf(size);
    for (const key of ['id', 'name']) assert.equal(new Set(rows.map((row) => row[key])).size, rows.length);
    for (const row of rows) assert.ok((row.chain === undefined) !== (row.fresh === undefined), row.id);
  }
  for (const row of rowsOf('small')) {
    const data = dataOf(row);
    const expected = expectedOf(row, data);
    assert.equal(new Set(expected.map(({ at }) => at)).size, expected.length, row.id);
    assert.equal(expected.at(0).at, 0);
    assert.equal(expected.at(-1).at, data.x.length - 1);
    assert.ok(
      expected.every(({ value }) => Number.isFinite(value)),
      row.id,
    );
    assert.deepEqual(dataOf(row).x, data.x);
  }
});

const timed = (median, more) => ({ error: 1e-7, kernels: 1, submits: 0.125, ms: { median, least: median, most: 2 * median }, ...more });
const REPORT = {
  engines: [
    { name: 'rillm', version: '1', facts: { fusion: 'lazy', waits: 'sync' }, notes: {}, gpu_errors: [] },
    { name: 'slow', version: '2', facts: { fusion: 'none', waits: 'data' }, notes: { mlp: 'gelu of erf' }, gpu_errors: ['bad buffer'] },
    { name: 'gone', version: '3', error: 'it finds no WebGPU' },
  ],
  rows: [
    { id: 'a', name: 'product', results: { rillm: timed(1, { gflops: 1234 }), slow: timed(2.5, { gflops: 494 }) } },
    { id: 'b', name: 'sum', results: { rillm: timed(1), slow: { error: 0.5, wrong: true } } },
    { id: 'c', name: 'lines', results: { rillm: timed(1), slow: { failed: 'no such thing\nat all' } } },
    { id: 'd', name: 'small', unit: 'µs', results: { rillm: timed(0.001, { call_ms: timed(0.0005).ms }) } },
  ],
};

test('a ratio is above one where rillm takes less time, and what is wrong or did not run is not counted', () => {
  assert.deepEqual(ratiosOf(REPORT.rows), [{ row: 'a', to: 'slow', ratio: 2.5 }]);
  const { columns, rows } = timesOf(REPORT);
  assert.deepEqual(columns, ['', 'rillm 1', 'slow 2', 'gone 3', 'rillm to slow', 'rillm to gone']);
  assert.deepEqual(rows, [
    ['product', '1.00 (1.00–2.00) ms, 1,234 GFLOP/s', '2.50 (2.50–5.00) ms, 494 GFLOP/s', '–', '2.50 ×', ''],
    ['sum', '1.00 (1.00–2.00) ms', 'wrong: error 5.0e-1', '–', '', ''],
    ['lines', '1.00 (1.00–2.00) ms', 'did not run: no such thing', '–', '', ''],
    ['small', '1.00 (1.00–2.00) µs', '–', '–', '', ''],
    ['… of which until all was called and handed over', '0.500 (0.500–1.00) µs', '–', '–', '', ''],
  ]);
});

test('what was seen beside the times stands under them, without lines that say nothing', () => {
  assert.deepEqual(checksOf(REPORT).rows, [
    ['did not start', '–', '–', 'it finds no WebGPU'],
    ['joins operations by', 'lazy', 'none', '–'],
    ['waits by', 'sync', 'data', '–'],
    ['has no function of its own for', '–', 'mlp (gelu of erf)', '–'],
    ['errors of its GPUDevice', '–', '1: bad buffer', '–'],
    ['product', '1.0e-7; 1.00, 0.125', '1.0e-7; 1.00, 0.125', '–'],
    ['sum', '1.0e-7; 1.00, 0.125', '5.0e-1', '–'],
    ['lines', '1.0e-7; 1.00, 0.125', '–', '–'],
    ['small', '1.0e-7; 1.00, 0.125', '–', '–'],
  ]);
});
