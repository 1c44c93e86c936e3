// Installs the packages of a benchmark that has a lock file of its own, so that nobody else has to fetch them.

import { createHash } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { npm, run } from '../scripts/command.mjs';

/** Without the packages' install scripts, which fetch what only node needs. Does nothing if the lock file is the one that was installed. */
export async function installLocked(folder) {
  const stamp = join(folder, 'node_modules/.rillm-lock-sha256');
  const hash = createHash('sha256')
    .update(readFileSync(join(folder, 'package-lock.json')))
    .digest('hex');
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === hash) return;
  await run(...npm('ci', '--ignore-scripts', '--no-audit', '--no-fund'), { cwd: folder });
  writeFileSync(stamp, hash);
}

/** The version of the package in a folder. */
export function versionOf(folder) {
  return JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')).version;
}
