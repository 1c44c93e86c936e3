// The order of a wasm's functions, by which a compressed wasm gets smaller. Built-in modules only.

import { entries, importedFunctions, NAMES_OF_FUNCTIONS, number, SECTION, sections, text } from './sections.mjs';

/** Numbers of more than one byte: mostly addresses and the functions that are called, which differ where all else is the same. */
const LONG_NUMBER = /[\u0080-\u00ff]+./gs;

/**
 * The same wasm with functions that are named by their places in an order: those of one type stand together, and among them those that begin
 * alike. Brotli makes a twenty-fifth less of that, since what is alike is near, and the list of types repeats itself.
 */
export function namedByOrder(wasm) {
  const all = [...sections(wasm)];
  const bytesOf = (wanted) => all.find(({ id }) => id === wanted)?.bytes ?? Buffer.from([0]);
  const imported = importedFunctions(bytesOf(SECTION.import));
  const types = entries(bytesOf(SECTION.function), (reader) => reader.number());
  const bodies = entries(bytesOf(SECTION.code), (reader) => reader.take(reader.number()).toString('latin1').replace(LONG_NUMBER, '\xff'));
  const order = types
    .map((type, at) => ({ type, at, body: bodies[at] }))
    .sort((a, b) => a.type - b.type || (a.body < b.body ? -1 : a.body > b.body ? 1 : 0));
  const places = new Array(types.length);
  for (const [place, { at }] of order.entries()) places[at] = place;
  // Names are compared as text.
  const name = (kind, at) => `${kind}${String(at).padStart(8, '0')}`;
  const names = [...Array.from({ length: imported }, (_, at) => name('a', at)), ...places.map((place) => name('b', place))];
  const list = [number(names.length), ...names.flatMap((name, at) => [number(at), text(name)])];
  const inner = Buffer.concat(list);
  const section = Buffer.concat([text('name'), Buffer.from([NAMES_OF_FUNCTIONS]), number(inner.length), inner]);
  const rest = all.filter(({ id, name }) => id !== SECTION.custom || name !== 'name').map(({ whole }) => whole);
  return Buffer.concat([wasm.subarray(0, 8), ...rest, Buffer.from([SECTION.custom]), number(section.length), section]);
}
