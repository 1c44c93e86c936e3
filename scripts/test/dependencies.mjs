// The law of dependencies, as far as it can be kept without a network: the crates that are linked into the wasm, by `deny.toml`, and the npm packages
// that build and test it, by their lock files. Weaknesses that were found since are `npm run audit`'s.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import { parse as parseToml } from 'smol-toml';
import parseLicense from 'spdx-expression-parse';

import { captured, Problem, root } from '../command.mjs';

/** Under which licences npm packages may be used here. Nothing of them is handed on. Lists of SPDX's names are under CC0 and CC-BY. */
const NPM_LICENSES = [
  'MIT',
  'Apache-2.0',
  'ISC',
  'BSD-2-Clause',
  'BSD-3-Clause',
  '0BSD',
  'BlueOak-1.0.0',
  'MPL-2.0',
  'CC0-1.0',
  'CC-BY-3.0',
  'Python-2.0',
];
/** Which may run a script when they are installed: esbuild puts its program in its place. */
const INSTALL_SCRIPTS = ['esbuild'];
/** The crates that become wasm. */
const SHIPPED = ['rillm', 'rillm-grammar'];

/** Whether a licence expression (SPDX; older crates have a slash for OR) can be fulfilled by these licences. */
export function isAllowed(expression, allowed) {
  const fits = ({ conjunction, left, right, license, plus, exception }) => {
    if (conjunction === 'and') return fits(left) && fits(right);
    if (conjunction === 'or') return fits(left) || fits(right);
    // Exceptions and later versions are for a person to read.
    return allowed.includes(license) && !plus && exception === undefined;
  };
  try {
    return fits(parseLicense((expression ?? '').replaceAll('/', ' OR ')));
  } catch {
    // It is no expression, or has a name that SPDX does not know.
    return false;
  }
}

/**
 * What is wrong with the crates that `cargo metadata` tells of, of those that may be linked: not tests, not macros, not scripts of a build. Features are
 * those of all programs together, so a few are among them that no wasm has.
 */
export function crateFaults({ packages, resolve }, { licenses, several }) {
  const byId = new Map(packages.map((crate) => [crate.id, crate]));
  const nodes = new Map(resolve.nodes.map((node) => [node.id, node]));
  const waiting = packages.filter(({ name, source }) => source === null && SHIPPED.includes(name)).map(({ id }) => id);
  if (waiting.length !== SHIPPED.length) return [`cargo tells of ${waiting.length} crates of the package, not ${SHIPPED.length}`];
  const linked = new Set(waiting);
  while (waiting.length > 0) {
    for (const { pkg, dep_kinds } of nodes.get(waiting.pop()).deps) {
      const isMacro = byId.get(pkg).targets.some(({ kind }) => kind.includes('proc-macro'));
      if (linked.has(pkg) || isMacro || !dep_kinds.some(({ kind }) => kind === null)) continue;
      linked.add(pkg);
      waiting.push(pkg);
    }
  }
  const faults = [];
  const versions = new Map();
  for (const id of linked) {
    const { name, version, license, source } = byId.get(id);
    if (!isAllowed(license, licenses))
      faults.push(`the crate ${name} ${version} has the licence ${license}, which deny.toml does not allow`);
    if (source !== null && !source.startsWith('registry+')) faults.push(`the crate ${name} ${version} comes from ${source}`);
    versions.set(name, [...(versions.get(name) ?? []), version]);
  }
  for (const [name, all] of versions) {
    if (all.length > 1 && !several.includes(name)) faults.push(`there is more than one ${name}: ${all.join(', ')}`);
  }
  return faults;
}

/** What is wrong with a lock file of npm. */
export function npmFaults(lock) {
  const faults = [];
  for (const [path, { version, license, integrity, resolved, hasInstallScript, link }] of Object.entries(lock.packages)) {
    if (path === '' || link) continue;
    const name = path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length);
    const told = `the npm package ${name} ${version}`;
    if (!isAllowed(license, NPM_LICENSES)) faults.push(`${told} has the licence ${license}`);
    if (!integrity) faults.push(`${told} has no digest`);
    if (resolved) faults.push(`${told} has an address: lock files here have none (npm's option omit-lockfile-registry-resolved)`);
    if (hasInstallScript && !INSTALL_SCRIPTS.includes(name)) faults.push(`${told} runs a script when it is installed`);
  }
  return faults;
}

/** What deny.toml allows: licences, and crates of which there may be several versions. */
export function law(text) {
  const { licenses, bans } = parseToml(text);
  if (!Array.isArray(licenses?.allow)) throw new Problem('deny.toml has no list licenses.allow');
  return { licenses: licenses.allow, several: (bans?.skip ?? []).map(({ crate }) => crate) };
}

export async function checkDependencies() {
  const args = ['metadata', '--locked', '--format-version', '1', '--filter-platform', 'wasm32-unknown-unknown'];
  const { code, text } = await captured('cargo', args);
  if (code !== 0) throw new Problem(`cargo ${args.join(' ')}: exit status ${code}`);
  const locks = ['package-lock.json', 'docs/package-lock.json'].map((name) => JSON.parse(readFileSync(join(root, name), 'utf8')));
  const allowed = law(readFileSync(join(root, 'deny.toml'), 'utf8'));
  const faults = [...crateFaults(JSON.parse(text), allowed), ...locks.flatMap(npmFaults)];
  if (faults.length > 0) throw new Problem(faults.join('\n'));
}
