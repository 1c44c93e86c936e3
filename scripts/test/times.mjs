// How long each file of tests took the last time on this machine, so that the longest can begin first.

import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

import { root } from '../command.mjs';

/** The longest, for a machine on which nothing ran yet. */
const LONG = [
  'native gpu/ops',
  'native gpu/sampling',
  'native engine/fidelity',
  'native engine/architectures',
  'native engine/models',
  'native engine/kv_cache',
  'native engine/structured',
  'browser/rill.test.mjs',
  'browser/sources.test.mjs',
  'browser/bench.test.mjs',
  'browser/demo_model.test.mjs',
  'browser/model.test.mjs',
  'browser/bad_input.test.mjs',
  'browser/gpu_bad_use.test.mjs',
];

const file = join(root, '.cache/test-seconds.json');

function remembered() {
  try {
    return existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : {};
  } catch {
    // A run that was broken off while it wrote.
    return {};
  }
}

/** Those that took longest first; before them those that nothing is known of, of these the ones that are long elsewhere. */
export function longestFirst(files) {
  const seconds = remembered();
  // Not Infinity: the difference of two would be no number.
  const of = ({ name }) => seconds[name] ?? (LONG.includes(name) ? 2e6 - LONG.indexOf(name) : 1e6);
  return [...files].sort((a, b) => of(b) - of(a));
}

/** Keeps the seconds of these rows for the next run. */
export function remember(rows) {
  mkdirSync(dirname(file), { recursive: true });
  const seconds = Object.fromEntries(rows.map(({ name, seconds }) => [name, Number(seconds.toFixed(1))]));
  writeFileSync(file, `${JSON.stringify({ ...remembered(), ...seconds }, null, 2)}\n`);
}
