// The blocks of code in README and guide. A block that is run has `<!-- run -->` before it, with a word for what it needs besides the shared
// engine; one that shows another library's code has `<!-- theirs -->`.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

import { root } from '../command.mjs';

const LANGUAGES = new Map([
  ['js', 'ts'],
  ['ts', 'ts'],
  ['jsx', 'tsx'],
  ['tsx', 'tsx'],
  ['vue', 'ts'],
  ['svelte', 'ts'],
]);

/** The pages whose blocks are checked. Those of docs/tensors.md have a test of their own, which compares what they print. */
export function checkedPages() {
  const folders = ['docs/guide', 'docs/migrate'];
  const pages = folders.flatMap((folder) => readdirSync(join(root, folder)).map((name) => `${folder}/${name}`));
  return ['README.md', 'pkg-template/README.md', 'examples/README.md', ...pages.filter((name) => name.endsWith('.md'))];
}

/** The blocks of a page: {page, line, language, code, extension, run}; `run` is undefined for a block that is compiled only. */
export function blocksOf(page) {
  const text = readFileSync(join(root, page), 'utf8');
  const found = text.matchAll(/(?:<!-- (run|theirs|file)(?::? ([^>]*?))? -->\n)?^```(\w+)\n([\s\S]*?)^```$/gm);
  return Array.from(found, ({ 1: mark, 2: more = '', 3: language, 4: body, index }) => ({
    page,
    line: text.slice(0, index).split('\n').length,
    language,
    extension: LANGUAGES.get(language),
    code: language === 'vue' || language === 'svelte' ? (body.match(/<script[^>]*>\n([\s\S]*?)<\/script>/)?.[1] ?? '') : body,
    isTheirs: mark === 'theirs',
    run: mark === 'run' ? more : undefined,
  })).filter(({ extension, isTheirs }) => extension !== undefined && !isTheirs);
}

/** All blocks of all pages. */
export const allBlocks = () => checkedPages().flatMap(blocksOf);
