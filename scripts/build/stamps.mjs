// Does work only where what it is made of has changed since: a hash of the inputs is kept for each piece of work. Built-in modules only.

import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';

import { root } from '../command.mjs';

const stampsFile = join(root, '.cache/build.json');

/** All files below a folder. */
export function files(folder) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name))
    .sort();
}

/** Does the work unless all outputs are there and the inputs, files and other texts, are what they were when it was last done. */
export async function when(name, inputs, outputs, work, texts = []) {
  const hash = createHash('sha256');
  for (const file of inputs) hash.update(relative(root, file)).update('\0').update(readFileSync(file)).update('\0');
  for (const text of texts) hash.update(text).update('\0');
  // What was made elsewhere is not there.
  for (const file of outputs) hash.update(relative(root, file)).update('\0');
  const digest = hash.digest('hex');
  const stamps = () => (existsSync(stampsFile) ? JSON.parse(readFileSync(stampsFile, 'utf8')) : {});
  if (stamps()[name] === digest && outputs.every((file) => existsSync(file))) return;
  await work();
  mkdirSync(dirname(stampsFile), { recursive: true });
  writeFileSync(stampsFile, `${JSON.stringify({ ...stamps(), [name]: digest }, null, 2)}\n`);
}
