// What the translator makes of tokenizers' expressions (`src/text/tokenizer/pattern`), in JavaScript's engine: the places that fancy-regex
// finds, which a native test wrote down.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { root } from '../../scripts/command.mjs';

const golden = JSON.parse(readFileSync(process.env.GOLDEN_EXPRESSIONS ?? join(root, 'tests/golden/text/expressions.json'), 'utf8'));

const compiled = ({ source, any_case }) => new RegExp(source, any_case ? 'giv' : 'gv');

/** Lengths of gaps and matches in turn, in bytes. */
function lengths(expression, text) {
  const bytes = (from, to) => Buffer.byteLength(text.slice(from, to));
  const all = [];
  let done;
  for (const { 0: found, index } of text.matchAll(expression)) {
    // An empty match where another ends is none of Rust's.
    if (found === '' && index === done) continue;
    all.push(bytes(done ?? 0, index), bytes(index, index + found.length));
    done = index + found.length;
  }
  return all;
}

for (const [what, entries, texts] of [
  ['expressions', golden.expressions, golden.texts],
  ['odd expressions', golden.odd_expressions, golden.odd_texts],
]) {
  test(`${what}: JavaScript finds what fancy-regex finds`, () => {
    assert.ok(entries.length >= 100, `${entries.length} expressions`);
    let found = 0;
    for (const entry of entries) {
      const expression = compiled(entry);
      for (const [n, text] of texts.entries()) {
        const got = lengths(expression, text);
        found += got.length;
        assert.deepEqual(got, entry.found[n], `${entry.expression} as ${entry.source} on ${JSON.stringify(text)}`);
      }
    }
    assert.ok(found > 1000, `${found} places`);
  });
}

test('classes hold the same characters, of those that both versions of Unicode have', () => {
  const members = (changes) => {
    const set = new Set();
    for (let n = 0; n < changes.length; n += 2) for (let at = changes[n]; at < changes[n + 1]; at++) set.add(at);
    return set;
  };
  const assigned = members(golden.assigned);
  for (const entry of golden.sets) {
    const wanted = members(entry.changes);
    const expression = compiled(entry);
    const others = [];
    for (const at of assigned) {
      const character = String.fromCodePoint(at);
      if (!/\P{Cn}/v.test(character)) continue;
      expression.lastIndex = 0;
      if (expression.test(character) !== wanted.has(at)) others.push(at.toString(16));
    }
    // A character may change its category from one version to the next, as U+0295 did.
    assert.ok(others.length <= 4, `${entry.expression} as ${entry.source}: ${others}`);
  }
});
