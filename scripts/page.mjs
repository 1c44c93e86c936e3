// What the page at www/ is made of: its own files, the libraries that it uses, which come out of node_modules as they are, and the package. `npm run page -- FOLDER`
// writes all of it to a folder, for any server of static files.

import { createHash } from 'node:crypto';
import { cp, mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';

import { build, unpackPackage } from './build.mjs';
import { isMain, main, Problem, root } from './command.mjs';

/** By their addresses, as the import map of index.html has them. */
const LIBRARIES = {
  '/vendor/lit-html/': 'lit-html/',
  '/vendor/json-schema/': '@cfworker/json-schema/dist/esm/',
  '/vendor/marked.js': 'marked/lib/marked.esm.js',
  '/vendor/dompurify.js': 'dompurify/dist/purify.es.mjs',
  '/vendor/katex.js': 'katex/dist/katex.mjs',
  '/vendor/idb.js': 'idb/build/index.js',
};

/** Of lit-html what the page imports. */
const LIT = ['lit-html.js', 'directive.js', 'directive-helpers.js', 'directives/keyed.js', 'directives/live.js', 'directives/repeat.js'];

/** Pages that nobody opens without a network, and workers that are no part of it. */
const NOT_KEPT = [
  'service_worker.js',
  'offline.js',
  'frames.html',
  'bench/frames.js',
  'bench/frames_page.js',
  'teach/teach.js',
  'teach/view.js',
];
/** What of the package only pages with tensors of their own load, and what trains, which few want without a network. All glue is imported. */
const NOT_OF_THE_PAGE = /^(?:gpu|tensor)\/|rillm_tensor|rillm_train_bg/;

export const libraryMounts = (folder = root) =>
  Object.fromEntries(Object.entries(LIBRARIES).map(([address, path]) => [address, join(folder, 'node_modules', path)]));

/** All that the page needs without a network: addresses, relative to the page, with the files on the disk. */
export async function shellFiles(packed, folder = root) {
  const www = join(folder, 'www');
  const dist = join(packed, 'dist');
  const own = (await filesIn(www)).filter((path) => !NOT_KEPT.includes(path)).map((path) => [path, join(www, path)]);
  const libraries = await Promise.all(
    Object.entries(libraryMounts(folder)).map(async ([address, path]) => {
      if (!address.endsWith('/')) return [[address.slice(1), path]];
      const files = address.includes('lit-html') ? LIT : (await filesIn(path)).filter((file) => file.endsWith('.js'));
      return files.map((file) => [`${address.slice(1)}${file}`, join(path, file)]);
    }),
  );
  const ofPackage = (await filesIn(dist))
    .filter((path) => /\.(?:js|wasm)$/.test(path) && !NOT_OF_THE_PAGE.test(path.replace(/^wasm\//, '')))
    .map((path) => [`rillm/dist/${path}`, join(dist, path)]);
  return Object.fromEntries([['./', join(www, 'index.html')], ...own, ...libraries.flat(), ...ofPackage]);
}

/** What shell.json says, by which offline.js knows one version of the page from another: a digest of all, and of each file by its address. */
export async function shellOf(files) {
  const digest = (data) => createHash('sha256').update(data).digest('hex');
  const digests = Object.fromEntries(
    await Promise.all(Object.entries(files).map(async ([address, path]) => [address, digest(await readFile(path))])),
  );
  return { digest: digest(JSON.stringify(digests)), files: digests };
}

async function filesIn(folder) {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(folder.length).replaceAll('\\', '/').replace(/^\//, ''))
    .sort();
}

/** Copies the page to a folder, with the licences of the libraries. */
export async function writePage(target, packed) {
  await mkdir(target, { recursive: true });
  if ((await readdir(target)).length > 0) throw new Problem(`${target} is not empty: name a new folder`);
  await cp(join(root, 'www'), target, { recursive: true });
  await cp(join(packed, 'dist'), join(target, 'rillm/dist'), { recursive: true });
  await cp(join(root, 'models/demo'), join(target, 'models/demo'), { recursive: true });
  for (const [address, path] of Object.entries(libraryMounts())) {
    const to = join(target, address);
    if (address.endsWith('lit-html/')) for (const file of LIT) await copied(join(path, file), join(to, file));
    else if (address.endsWith('/'))
      for (const file of await filesIn(path)) file.endsWith('.js') && (await copied(join(path, file), join(to, file)));
    else await copied(path, to);
  }
  for (const path of new Set(Object.values(LIBRARIES).map((path) => path.match(/^(?:@[^/]+\/)?[^/]+/)[0]))) {
    const folder = join(root, 'node_modules', path);
    const licence = (await readdir(folder)).find((name) => /^licen[cs]e/i.test(name));
    if (licence !== undefined) await copied(join(folder, licence), join(target, 'vendor/licenses', `${path.replace('/', '-')}.txt`));
  }
  await writeFile(join(target, 'shell.json'), JSON.stringify(await shellOf(await shellFiles(packed))));
}

async function copied(from, to) {
  await mkdir(dirname(to), { recursive: true });
  await cp(from, to);
}

if (isMain(import.meta.url)) {
  await main(async () => {
    const [target] = process.argv.slice(2);
    if (target === undefined) throw new Problem('name a folder: npm run page -- FOLDER');
    const isFile = await stat(target).then(
      (entry) => !entry.isDirectory(),
      () => false,
    );
    if (isFile) throw new Problem(`${target} is a file`);
    await writePage(target, await unpackPackage(await build()));
    console.log(`The page is in ${target}. Serve it by https.`);
  });
}
