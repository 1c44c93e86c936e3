// The API reference: pages in Markdown that TypeDoc makes of the TypeScript sources, and the sidebar that lists them.

import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';

import { root, run } from '../command.mjs';

const docs = join(root, 'docs');
const api = join(docs, 'api');
const KINDS = ['classes', 'interfaces'];
/** The entry points of the package, which name themselves by `@module` and are folders of the reference. */
const ENTRIES = ['rillm', 'rillm/gpu', 'rillm/tensor', 'rillm/react'];
const sourceOf = (entry) => join(root, 'pkg-template/src', entry.replace(/^rillm\/?/, ''), 'index.ts');

/** Writes docs/api. What TypeDoc warns of ends it: an unknown tag, a link to a name that is not there. */
export async function writeReference() {
  rmSync(api, { recursive: true, force: true });
  const sources = ENTRIES.map(sourceOf).filter(existsSync);
  await run(process.execPath, [join(docs, 'node_modules/typedoc/bin/typedoc'), '--logLevel', 'Warn', ...sources], { cwd: docs });
  for (const name of readdirSync(api, { recursive: true })) {
    if (name.endsWith('.md')) writeFileSync(join(api, name), tidied(readFileSync(join(api, name), 'utf8')));
  }
  writeFileSync(join(api, 'sidebar.json'), JSON.stringify(sidebar()));
}

/** The outline has enough at two levels, and searches find members by their names. */
function tidied(text) {
  return `---\noutline: [2, 3]\neditLink: false\n---\n\n${text}`;
}

function sidebar() {
  const entries = ENTRIES.map((entry) => [entry, join(api, entry)]).filter(([, folder]) => existsSync(folder));
  return entries.map(([entry, folder]) => ({
    text: entry,
    link: `/api/${entry}/`,
    collapsed: entry !== 'rillm',
    items: KINDS.filter((kind) => existsSync(join(folder, kind))).map((kind) => ({
      text: kind.replace(/^./, (letter) => letter.toUpperCase()),
      collapsed: kind !== 'classes',
      items: readdirSync(join(folder, kind))
        .sort()
        .map((name) => ({
          text: name.replace(/\.md$/, ''),
          link: `/api/${relative(api, join(folder, kind, name))
            .replaceAll('\\', '/')
            .replace(/\.md$/, '')}`,
        })),
    })),
  }));
}
