// Links of pages that lead out of docs/: those to texts at the root of the repository go to their pages on the site, others to the repository
// where the package names its address, and else become plain text. One that leads nowhere ends the build.

import { existsSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

const docs = fileURLToPath(new URL('..', import.meta.url));
const root = dirname(join(docs, '.'));
const { repository } = JSON.parse(readFileSync(join(root, 'pkg-template/package.json'), 'utf8'));
const address = (repository?.url ?? repository)?.replace(/^git\+/, '').replace(/\.git$/, '');

/** Where a link of a page leads: an href, or undefined for what is not on the site and has no address. */
export function hrefOf(href, page) {
  if (/^([a-z][a-z+.-]*:|#|\/)/.test(href)) return href;
  const [path, anchor] = href.split('#');
  const target = resolve(dirname(page), decodeURI(path));
  const hash = anchor === undefined ? '' : `#${anchor}`;
  const place = relative(docs, target).split(sep).join('/');
  if (!place.startsWith('..')) return `/${place}${href.endsWith('/') ? '/' : ''}${hash}`;
  const name = relative(root, target);
  if (!existsSync(target)) {
    // The guide is ahead of the examples: as long as none of these is there.
    if (name.startsWith('examples') && !existsSync(join(root, 'examples/react'))) return undefined;
    throw new Error(`${page} links to ${href}, which is not there`);
  }
  const isPage = existsSync(join(docs, 'project', name.toLowerCase()));
  if (isPage && name.endsWith('.md')) return `/project/${name.toLowerCase()}${hash}`;
  return address === undefined ? undefined : `${address}/blob/main/${name.split(sep).join('/')}`;
}

/** The plugin of markdown-it. */
export function outsideLinks(md) {
  md.core.ruler.push('outside_links', ({ tokens, env }) => {
    for (const { children } of tokens) {
      let isText = false;
      for (const token of children ?? []) {
        if (token.type === 'link_open') {
          const href = hrefOf(token.attrGet('href'), env.path);
          isText = href === undefined;
          if (!isText) token.attrSet('href', href);
        }
        if (isText && (token.type === 'link_open' || token.type === 'link_close')) {
          if (token.type === 'link_close') isText = false;
          token.type = token.type === 'link_open' ? 'em_open' : 'em_close';
          token.tag = 'em';
          token.attrs = null;
        }
      }
    }
  });
}
