// `npm run audit`: whether dependencies have weaknesses that are known, and the whole law of deny.toml. It needs a network and cargo-deny; what
// can't be asked is told as skipped, and what was found ends it with a failure.

import { spawnSync } from 'node:child_process';

import { main, npm, output, Problem, root } from './command.mjs';

function ask(program, args) {
  const { status, stdout, stderr } = spawnSync(program, args, { cwd: root, encoding: 'utf8', maxBuffer: 2 ** 28 });
  return { status, text: `${stdout ?? ''}${stderr ?? ''}`.trim() };
}

/** Advisories are fetched; the rest needs nothing but the crates. */
function cargoDeny() {
  if (output('cargo', ['deny', '--version']) === undefined)
    return { skipped: 'cargo-deny is not installed: cargo install cargo-deny --locked' };
  const law = ask('cargo', ['deny', 'check', 'licenses', 'bans', 'sources']);
  if (law.status !== 0) return { failed: law.text };
  const advisories = ask('cargo', ['deny', 'check', 'advisories']);
  if (advisories.status === 0) return {};
  if (/failed to fetch advisory database/i.test(advisories.text))
    return { skipped: 'licences, bans and sources are right; there is no way to the advisories' };
  return { failed: advisories.text };
}

/** What is found of packages that build and test; the package itself has no dependencies. */
function npmAudit() {
  const { status, text } = ask(...npm('audit', '--json'));
  if (status === 0) return {};
  let found;
  try {
    found = JSON.parse(text.slice(text.indexOf('{'), text.lastIndexOf('}') + 1));
  } catch {
    return { skipped: `npm audit says nothing that can be read: ${text.slice(0, 300)}` };
  }
  return found.vulnerabilities === undefined
    ? { skipped: `the registry does not answer audits: ${found.message ?? found.error?.summary}` }
    : { failed: text };
}

await main(() => {
  const failed = [];
  for (const [name, check] of Object.entries({ 'cargo deny': cargoDeny, 'npm audit': npmAudit })) {
    const result = check();
    if (result.failed !== undefined) failed.push(`${name}:\n${result.failed}`);
    console.log(`${name}: ${result.failed !== undefined ? 'FAILED' : result.skipped !== undefined ? `SKIPPED (${result.skipped})` : 'ok'}`);
  }
  if (failed.length > 0) throw new Problem(failed.join('\n\n'));
});
