// `npm run docs`: builds the site of the documentation into docs/.vitepress/dist, which is static files, and checks its links and blocks of code.
//
//   npm run docs                builds and checks
//   npm run docs -- --serve     builds, and serves it on localhost

import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';

import { isMain, main, npm, Problem, root, run } from './command.mjs';
import { writeReference } from './docs/api.mjs';
import { compileBlocks } from './docs/compile.mjs';
import { linkFaults } from './docs/links.mjs';

const docs = join(root, 'docs');
/** Pages of the site whose texts stand at the root of the repository. */
const OF_THE_ROOT = ['ARCHITECTURE', 'CONTRIBUTING', 'SECURITY', 'CHANGELOG'];

/** What builds the site has a lock file of its own: who builds the package needs none of it. */
async function installTools() {
  const stamp = join(docs, 'node_modules/.rillm-lock-sha256');
  const hash = createHash('sha256')
    .update(readFileSync(join(docs, 'package-lock.json')))
    .digest('hex');
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === hash) return;
  await run(...npm('ci', '--no-audit', '--no-fund', '--ignore-scripts'), { cwd: docs });
  writeFileSync(stamp, hash);
}

/** Builds the site; resolves to its folder. A block of code that does not compile and a link that leads nowhere reject. */
export async function buildDocs() {
  await installTools();
  console.log(`docs: ${await compileBlocks()} blocks of code compile`);
  await writeReference();
  mkdirSync(join(docs, 'project'), { recursive: true });
  for (const name of OF_THE_ROOT) {
    const text = readFileSync(join(root, `${name}.md`), 'utf8');
    writeFileSync(join(docs, 'project', `${name.toLowerCase()}.md`), text.replace(/\]\((?![a-z]+:|#)/g, '](../../'));
  }
  const site = join(docs, '.vitepress/dist');
  rmSync(site, { recursive: true, force: true });
  await run(process.execPath, [join(docs, 'node_modules/vitepress/bin/vitepress.js'), 'build', docs, '--logLevel', 'warn'], { cwd: docs });
  const faults = linkFaults(site, ['README.md', 'pkg-template/README.md']);
  if (faults.length > 0) throw new Problem(`links that lead nowhere:\n${faults.join('\n')}`);
  return site;
}

if (isMain(import.meta.url)) {
  await main(async () => {
    const { values } = parseArgs({ options: { serve: { type: 'boolean' } } });
    const site = await buildDocs();
    console.log(site);
    if (!values.serve) return;
    const { serve } = await import('./serve.mjs');
    const { origin } = await serve({ '/': site }, { port: Number(process.env.PORT ?? 8010), nextFree: true });
    console.log(origin);
  });
}
