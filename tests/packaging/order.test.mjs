// The order of functions that a wasm is given before it is compressed.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { namedByOrder } from '../../scripts/build/order.mjs';
import { NAMES_OF_FUNCTIONS, number, Reader, SECTION, sections, text } from '../../scripts/build/sections.mjs';

const list = (...entries) => [...number(entries.length), ...entries.flat()];
const section = (id, bytes) => [id, ...number(bytes.length), ...bytes];
const body = (...code) => [...number(code.length + 2), 0, ...code, 0x0b];
const I32 = 0x7f;
const [GET, CONST, ADD, CALL] = [0x20, 0x41, 0x6a, 0x10];

/** Functions of two types, of which the first imports one and has a memory. */
function wasm(functions, { names = [] } = {}) {
  const types = list([0x60, 0, 1, I32], [0x60, 1, I32, 1, I32]);
  const imports = list([...text('m'), ...text('f'), 0, 0], [...text('m'), ...text('memory'), 2, 0, 1]);
  const exports = list(...functions.map((_, at) => [...text(`f${at}`), 0, at + 1]));
  return Buffer.from([
    ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...section(1, types),
    ...section(SECTION.import, imports),
    ...section(SECTION.function, list(...functions.map(({ type }) => [type]))),
    ...section(7, exports),
    ...section(SECTION.code, list(...functions.map(({ code }) => body(...code)))),
    ...names,
    ...section(SECTION.custom, [...text('producers'), 0]),
  ]);
}

function namesIn(bytes) {
  const found = [...sections(bytes)].filter(({ name }) => name === 'name');
  assert.equal(found.length, 1);
  const reader = new Reader(found[0].bytes);
  assert.equal(reader.byte(), NAMES_OF_FUNCTIONS);
  assert.equal(reader.number(), found[0].bytes.length - reader.at);
  return Array.from({ length: reader.number() }, (_, at) => {
    assert.equal(reader.number(), at);
    return reader.text();
  });
}

const functions = [
  // 300 and 500 take two bytes, 5 takes one.
  { type: 1, code: [GET, 0, CONST, 0xac, 0x02, ADD] },
  { type: 0, code: [CONST, 7] },
  { type: 1, code: [GET, 0, CONST, 5, ADD] },
  { type: 1, code: [GET, 0, CONST, 0xf4, 0x03, ADD] },
  { type: 0, code: [CALL, 0] },
];

test('functions are named by type, by what they do, and by where they were', async () => {
  const named = namedByOrder(wasm(functions));
  const names = namesIn(named);
  assert.equal(names.length, 6);
  const order = names
    .map((name, at) => ({ name, at }))
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .map(({ at }) => at);
  // The import, a call and a constant, and additions: those of long numbers are the same and stay in turn.
  assert.deepEqual(order, [0, 5, 2, 3, 1, 4]);
  const { instance } = await WebAssembly.instantiate(named, { m: { f: () => 9, memory: new WebAssembly.Memory({ initial: 1 }) } });
  const { f0, f1, f2, f3, f4 } = instance.exports;
  assert.deepEqual([f0(1), f1(), f2(1), f3(1), f4()], [301, 7, 6, 501, 9]);
});

test('names that were there are replaced, and the rest stays byte for byte', () => {
  const plain = wasm(functions);
  const other = section(SECTION.custom, [...text('name'), 1, ...number(3), 1, 0, 0]);
  const named = namedByOrder(wasm(functions, { names: other }));
  assert.deepEqual(named, namedByOrder(plain));
  const rest = [...sections(named)].filter(({ name }) => name !== 'name').map(({ whole }) => whole);
  assert.deepEqual(
    rest,
    [...sections(plain)].map(({ whole }) => whole),
  );
});

test('a wasm without functions has nothing to order', () => {
  assert.deepEqual(namesIn(namedByOrder(Buffer.from([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0]))), []);
});

test('numbers of any length are read as they were written', () => {
  for (const value of [0, 1, 127, 128, 300, 16383, 16384, 2 ** 21, 2 ** 28 - 1, 2 ** 28, 2 ** 32 - 1]) {
    const bytes = number(value);
    const reader = new Reader(bytes);
    assert.equal(reader.number(), value);
    assert.equal(reader.at, bytes.length);
  }
});
