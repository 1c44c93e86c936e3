// The pages of docs/ that come with the package, for who reads offline. Built-in modules only.

import { readdirSync } from 'node:fs';
import { join } from 'node:path';

import { root } from '../command.mjs';

/** Their paths from the root of the repository, which are those in the package. */
export function guidePages() {
  const pages = ['docs', 'docs/guide', 'docs/migrate'].flatMap((folder) =>
    readdirSync(join(root, folder)).map((name) => `${folder}/${name}`),
  );
  // The start page of the site has no text of its own.
  return pages.filter((name) => name.endsWith('.md') && name !== 'docs/index.md');
}
