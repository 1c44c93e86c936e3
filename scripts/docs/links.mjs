// Whether the links of the built site and of texts in the repository lead anywhere, anchors included. Addresses of other sites are not asked.

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, posix, resolve } from 'node:path';

import { slugOf } from '../../docs/.vitepress/slugs.mjs';
import { root } from '../command.mjs';

const decoded = (text) => decodeURIComponent(text.replaceAll('&amp;', '&'));

/** The faults of the site in a folder: of each page's links to pages, files and anchors of the site. */
export function siteFaults(site) {
  const pages = readdirSync(site, { recursive: true })
    .map((name) => name.replaceAll('\\', '/'))
    .filter((name) => name.endsWith('.html'));
  const read = new Map(pages.map((name) => [name, readFileSync(join(site, name), 'utf8')]));
  const anchors = new Map(
    [...read].map(([name, text]) => [name, new Set(Array.from(text.matchAll(/\sid="([^"]+)"/g), ([, id]) => decoded(id)))]),
  );
  const faults = [];
  for (const [name, text] of read) {
    for (const [, href] of text.matchAll(/<a\s[^>]*?href="([^"]*)"/g)) {
      if (/^[a-z][a-z+.-]*:/.test(href)) continue;
      const [path, anchor = ''] = decoded(href).split('#');
      const place = path === '' ? name : posix.join(path.startsWith('/') ? '' : posix.dirname(name), path).replace(/^\//, '');
      const file = place === '' || place.endsWith('/') ? `${place}index.html` : place;
      if (!read.has(file)) {
        if (!existsSync(join(site, file))) faults.push(`${name}: ${href}: there is no such page`);
      } else if (anchor !== '' && !anchors.get(file).has(anchor)) faults.push(`${name}: ${href}: the page has no such anchor`);
    }
  }
  return faults;
}

/** The anchors of a text in Markdown, as GitHub has them. */
function anchorsOf(text) {
  const headings = text.replace(/^```[\s\S]*?^```/gm, '').matchAll(/^#{1,6} (.*)$/gm);
  return new Set(Array.from(headings, ([, heading]) => slugOf(heading.replace(/\[([^\]]*)\]\([^)]*\)/g, '$1'))));
}

/** The faults of a text in Markdown of the repository: of its links to files and their anchors. */
export function textFaults(name) {
  const text = readFileSync(join(root, name), 'utf8');
  const faults = [];
  for (const [, href] of text.replace(/^```[\s\S]*?^```/gm, '').matchAll(/\]\(([^)\s]+)\)/g)) {
    if (/^[a-z][a-z+.-]*:/.test(href)) continue;
    const [path, anchor = ''] = href.split('#');
    const file = path === '' ? join(root, name) : resolve(root, dirname(name), decodeURI(path));
    if (!existsSync(file)) faults.push(`${name}: ${href}: there is no such file`);
    else if (anchor !== '' && !anchorsOf(readFileSync(file, 'utf8')).has(anchor))
      faults.push(`${name}: ${href}: the file has no such heading`);
  }
  return faults;
}

/** All faults of the site and of these texts. */
export function linkFaults(site, texts) {
  return [...new Set([...siteFaults(site), ...texts.flatMap(textFaults)])];
}
