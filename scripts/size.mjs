// What a page downloads, and what the bytes of the engine's wasm and of that of rillm/gpu are: code by crate, before wasm-opt. `npm run size`
// builds the package, prints the tables and writes them to docs/size.md.

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, constants } from 'node:zlib';

import * as esbuild from 'esbuild';

import { build } from './build.mjs';
import { importedFunctions, NAMES_OF_FUNCTIONS, Reader, SECTION, sections } from './build/sections.mjs';
import { isMain, main, Problem, root } from './command.mjs';
import { setup } from './setup.mjs';

/** Crates below this share of the code are summed up. */
const SMALLEST_SHARE = 0.004;

/** The names of functions by their index. */
function functionNames(section) {
  const names = new Map();
  const reader = new Reader(section);
  while (reader.at < section.length) {
    const kind = reader.byte();
    const end = reader.number() + reader.at;
    if (kind === NAMES_OF_FUNCTIONS) for (let left = reader.number(); left > 0; left--) names.set(reader.number(), reader.text());
    reader.at = end;
  }
  return names;
}

const STANDARD = new Set(['core', 'alloc', 'std', 'compiler_builtins', 'hashbrown', 'dlmalloc', 'rustc_demangle']);

/** `_ZN4core3ptr…E` as `core::ptr::…`, with the brackets of types in it. */
function demangled(name) {
  const parts = [];
  for (let rest = name.replace(/^_ZN/, ''); /^\d/.test(rest); ) {
    const digits = /^\d+/.exec(rest)[0];
    parts.push(rest.slice(digits.length, digits.length + Number(digits)));
    rest = rest.slice(digits.length + Number(digits));
  }
  if (parts.length === 0) return name;
  const signs = { LT: '<', GT: '>', RF: '&', BP: '*', LP: '(', RP: ')', C: ',' };
  const sign = (_, code) => signs[code] ?? String.fromCodePoint(Number.parseInt(code.slice(1), 16));
  return parts.map((part) => part.replaceAll(/\$(\w+)\$/g, sign).replaceAll('..', '::')).join('::');
}

/**
 * The crate of a function. One of the standard library's that is made for a type of another crate counts as that crate's: without it, it
 * would not be there.
 */
export function crateOf(name) {
  const crates = [...demangled(name).matchAll(/(?<![\w:}>])([a-z]\w*)::/g)].map(([, crate]) => crate);
  return crates.find((crate) => !STANDARD.has(crate)) ?? (crates.length > 0 ? 'std' : 'other');
}

/** Bytes of code by crate, of all code and of data. */
export function analyse(wasm) {
  const all = [...sections(wasm)];
  const find = (id, name = '') => all.find((section) => section.id === id && section.name === name)?.bytes;
  const [code, data, names] = [find(SECTION.code), find(SECTION.data), find(SECTION.custom, 'name')];
  if (!code || !data || !names) throw new Problem('the wasm has no code, no data or no names of functions: build it without stripping');
  const byIndex = functionNames(names);
  const byCrate = new Map();
  const reader = new Reader(code);
  let index = importedFunctions(find(SECTION.import) ?? Buffer.from([0]));
  for (let left = reader.number(); left > 0; left--) {
    const length = reader.number();
    reader.at += length;
    const crate = crateOf(byIndex.get(index++) ?? '');
    byCrate.set(crate, (byCrate.get(crate) ?? 0) + length);
  }
  return { byCrate, code: code.length, data: data.length };
}

export function brotli(bytes) {
  const params = { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length };
  return brotliCompressSync(bytes, { params }).length;
}

/** JavaScript as a page gets it. */
async function bundled(contents, resolveDir) {
  const options = { bundle: true, minify: true, format: 'esm', write: false, external: ['node:*'], logLevel: 'error' };
  const { outputFiles } = await esbuild.build({ ...options, stdin: { contents, resolveDir } });
  return Buffer.from(outputFiles[0].contents);
}

/** A file as it is, and compressed, which takes seconds. */
const download = (name, bytes) => ({ name, bytes: bytes.length, compressed: brotli(bytes) });

function sum(name, downloads) {
  const total = (field) => downloads.reduce((sum, { [field]: bytes }) => sum + bytes, 0);
  return { name, bytes: total('bytes'), compressed: total('compressed') };
}

const number = (bytes) => bytes.toLocaleString('en-US');

const row = (...cells) => `| ${cells.join(' | ')} |`;

const sizes = ({ name, bytes, compressed }) => row(name, number(bytes), number(compressed));

/** A table of code by crate. */
function crateTable({ byCrate, code, data }) {
  const crates = [...byCrate].sort(([, left], [, right]) => right - left);
  const large = crates.filter(([, bytes]) => bytes >= code * SMALLEST_SHARE);
  const rest = crates.slice(large.length).reduce((sum, [, bytes]) => sum + bytes, 0);
  return [
    row('crate', 'bytes', 'share'),
    '|---|---|---|',
    ...[...large, [`${crates.length - large.length} others`, rest]].map(([crate, bytes]) =>
      row(crate, number(bytes), `${((100 * bytes) / code).toFixed(1)}%`),
    ),
    row('all code', number(code), '100%'),
    row('data: texts, shaders, tables', number(data), ''),
  ];
}

/** The page docs/size.md. */
function page(chat, grammar, others, gpu, code) {
  return [
    '# Size',
    '',
    'What a page downloads, in bytes. `npm run size` measures it and writes this page.',
    '',
    row('file', 'bytes', 'brotli 11'),
    '|---|---|---|',
    ...chat.map(sizes),
    sizes(sum('**to load a model and chat**', chat)),
    sizes(grammar),
    sizes(sum('**with grammar**', [...chat, grammar])),
    ...others.map(sizes),
    ...gpu.map(sizes),
    sizes(sum('**to use `rillm/gpu`**', gpu)),
    '',
    'The grammar engine is fetched when a request first asks for structured output, and what `rillm/gpu` runs on when a device is first asked for.',
    'The engine for the CPU takes the place of the engine where there is no GPU, and the one that trains for `training: true`.',
    'JavaScript is counted as a bundler hands it out, by esbuild: minified, and without what the page does not use.',
    '',
    '## Code by crate',
    '',
    "Code of the engine's wasm before wasm-opt, by the crate that the name of each function tells. A function of the standard library",
    'that is made for the type of a crate counts as that crate\'s. "std" is the rest of it.',
    '',
    ...crateTable(code.engine),
    '',
    'The same of the wasm of `rillm/gpu`:',
    '',
    ...crateTable(code.gpu),
    '',
  ].join('\n');
}

if (isMain(import.meta.url)) {
  await main(async () => {
    await setup({ browser: false, test: false });
    await build();
    const dist = join(root, 'pkg/dist');
    const wasm = (name) => readFileSync(join(dist, `wasm/${name}_bg.wasm`));
    const code = (name) => analyse(readFileSync(join(root, `.cache/bindgen/${name}/${name}_bg.wasm`)));
    const chat = [
      download('engine, wasm', wasm('rillm')),
      download("JavaScript of the page: `import { Engine } from 'rillm'`", await bundled("export { Engine } from './index.js';", dist)),
      download('JavaScript of the worker', await bundled("import './worker.js';", dist)),
    ];
    const gpu = [
      download('`rillm/gpu`, wasm', wasm('rillm_tensor')),
      download("JavaScript: `import { Device } from 'rillm/gpu'`", await bundled("export { Device } from './gpu/index.js';", dist)),
    ];
    const grammar = download('grammar engine, wasm', wasm('rillm_grammar'));
    const others = [
      download('engine for the CPU, wasm', wasm('rillm_cpu')),
      download('what multiplies there with relaxed vectors, or in threads, wasm', readFileSync(join(dist, 'wasm/rillm_team_relaxed.wasm'))),
      download('engine that trains, wasm', wasm('rillm_train')),
    ];
    const text = page(chat, grammar, others, gpu, { engine: code('rillm'), gpu: code('rillm_tensor') });
    writeFileSync(join(root, 'docs/size.md'), text);
    console.log(text);
  });
}
