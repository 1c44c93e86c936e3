// What is in the tarball, how large it is, and whether its promises agree with the sources.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { delimiter, join } from 'node:path';
import { before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { brotliCompressSync, constants } from 'node:zlib';

import { checkPackage, createPackageFromTarballData } from '@arethetypeswrong/core';
import { publint } from 'publint';

import { packedReadme, unpackPackage } from '../../scripts/build.mjs';
import { root } from '../../scripts/command.mjs';
import { isPart } from '../../scripts/build/entries.mjs';
import { entries, SECTION, sections } from '../../scripts/build/sections.mjs';
import { compiledBy } from '../../scripts/build/wasm.mjs';
import { expectedFiles, filesIn } from '../../scripts/release/contents.mjs';

/** What a browser may have to download of the engine, compressed: half a percent above what it is. `npm run size` tells where it goes. */
const WASM_CEILING = 1_298_500;
/** The same of the engine for the CPU, which only those download who have no GPU. */
const CPU_CEILING = 1_428_900;
/** The same for the grammar engine, which only those download who ask for structured output. */
const GRAMMAR_CEILING = 411_500;
/** The same for what `rillm/gpu` runs on. */
const TENSOR_CEILING = 442_400;

/** The same of the engine with what trains, which only those download who train. */
const TRAIN_CEILING = 1_423_400;
/** Of each of the two modules of the CPU's threads: products, attention, and how both are divided. */
const TEAM_CEILING = 57_500;

let tarball;
let names;
before(() => {
  tarball = join(
    root,
    'pkg',
    readdirSync(join(root, 'pkg')).find((name) => name.endsWith('.tgz')),
  );
  names = filesIn(tarball);
});

const read = (name) => execFileSync('tar', ['-xzOf', tarball, `package/${name}`], { maxBuffer: 2 ** 28 });

test('the tarball holds the package and nothing else', () => {
  assert.deepEqual([...names].sort(), expectedFiles(names).sort());
});

test('each file that entry points share is imported', async () => {
  const unpacked = await unpackPackage(tarball);
  const scripts = names.filter((name) => name.endsWith('.js')).map((name) => readFileSync(join(unpacked, name), 'utf8'));
  const imported = scripts.flatMap((code) => Array.from(code.matchAll(/"\.{1,2}\/(rillm\.part-[^"]+)"/g), ([, name]) => name));
  const parts = names.map((name) => name.replace('dist/', '')).filter(isPart);
  assert.ok(parts.length > 1);
  assert.deepEqual([...new Set(imported)].sort(), parts.sort());
});

test('package.json: name, version of the crate, entry points that exist, no dependencies but React for who uses rillm/react', () => {
  const manifest = JSON.parse(read('package.json'));
  const version = readFileSync(join(root, 'Cargo.toml'), 'utf8').match(/^version = "(.+)"$/m)[1];
  assert.equal(manifest.name, 'rillm');
  assert.equal(manifest.version, version);
  assert.equal(manifest.type, 'module');
  assert.equal(manifest.license, 'MIT OR Apache-2.0');
  for (const field of ['dependencies', 'optionalDependencies', 'scripts']) assert.equal(manifest[field], undefined, field);
  assert.deepEqual(manifest.peerDependencies, { react: '>=18' });
  assert.deepEqual(manifest.peerDependenciesMeta, { react: { optional: true } });
  const targets = (entry) => (typeof entry === 'string' ? [entry] : Object.values(entry).flatMap(targets));
  for (const target of [manifest.main, manifest.types, ...targets(manifest.exports), ...manifest.sideEffects]) {
    assert.ok(names.includes(target.replace('./', '')), target);
  }
});

test('errors and the README lead to pages of the guide', async () => {
  const { homepage = '' } = JSON.parse(read('package.json'));
  const packed = await unpackPackage(tarball);
  const { EngineError, ERROR_CODES } = await import(pathToFileURL(join(packed, 'dist/index.js')));
  const page = String(read('docs/guide/errors.md'));
  for (const code of ERROR_CODES) {
    assert.equal(new EngineError(code, 'a message').docs, `${homepage}guide/errors.html#${code}`);
    assert.ok(page.includes(`\n### \`${code}\`\n`), code);
  }
  const links = Array.from(String(read('README.md')).matchAll(/\]\((?!https?:)([^)#]+)/g), ([, link]) => link);
  assert.ok(homepage !== '' || links.length > 20);
  assert.deepEqual(
    links.filter((link) => !names.includes(link)),
    [],
  );
  const text = '[a](../docs/guide/chat.md#stop-it) [b](../docs/tensors.md)';
  assert.equal(packedReadme(text, undefined), '[a](docs/guide/chat.md#stop-it) [b](docs/tensors.md)');
  assert.equal(packedReadme(text, 'https://e.org/'), '[a](https://e.org/guide/chat.html#stop-it) [b](https://e.org/tensors.html)');
});

for (const [name, ceiling] of [
  ['rillm', WASM_CEILING],
  ['rillm_cpu', CPU_CEILING],
  ['rillm_grammar', GRAMMAR_CEILING],
  ['rillm_tensor', TENSOR_CEILING],
  ['rillm_train', TRAIN_CEILING],
]) {
  test(`${name}_bg.wasm is below ${ceiling} bytes with brotli`, (t) => {
    const wasm = read(`dist/wasm/${name}_bg.wasm`);
    const size = brotliCompressSync(wasm, {
      params: { [constants.BROTLI_PARAM_QUALITY]: 9, [constants.BROTLI_PARAM_SIZE_HINT]: wasm.length },
    }).length;
    t.diagnostic(`${name}: ${wasm.length} bytes, brotli ${size}`);
    console.log(`${name}: ${wasm.length} bytes, brotli ${size}`);
    assert.ok(size < ceiling, `${size} bytes`);
  });

  test(`${name}_bg.wasm imports from its own glue only`, async () => {
    // An import of a bare module name would keep every page from loading.
    const imports = WebAssembly.Module.imports(await WebAssembly.compile(read(`dist/wasm/${name}_bg.wasm`)));
    assert.deepEqual(new Set(imports.map(({ module }) => module)), new Set([`./${name}_bg.js`]));
  });
}

test('functions of a type stand together, which compresses better, and nothing names them', () => {
  for (const name of ['rillm', 'rillm_cpu', 'rillm_grammar', 'rillm_tensor', 'rillm_train']) {
    const all = [...sections(read(`dist/wasm/${name}_bg.wasm`))];
    assert.ok(!all.some((section) => section.name === 'name'), name);
    // `-Os`, which is for grammars alone, gives functions other types after they were ordered.
    if (name === 'rillm_grammar') continue;
    const types = entries(all.find(({ id }) => id === SECTION.function).bytes, (reader) => reader.number());
    const changes = types.filter((type, at) => type !== types[at - 1]).length;
    assert.equal(changes, new Set(types).size, name);
  }
});

test('cargo is told no folder by which it would name functions: the wasm would be another in each', () => {
  const env = compiledBy('/any folder/vectors.sh');
  assert.equal(env.RUSTC_WORKSPACE_WRAPPER, 'vectors.sh');
  assert.equal(env.PATH.split(delimiter)[0], '/any folder');
  assert.ok(env.PATH.endsWith(process.env.PATH));
});

for (const name of ['rillm_team', 'rillm_team_relaxed']) {
  test(`${name}.wasm is small, shares its memory and imports what the package gives it`, async () => {
    const wasm = read(`dist/wasm/${name}.wasm`);
    const size = brotliCompressSync(wasm, {
      params: { [constants.BROTLI_PARAM_QUALITY]: 9, [constants.BROTLI_PARAM_SIZE_HINT]: wasm.length },
    }).length;
    assert.ok(size < TEAM_CEILING, `${size} bytes`);
    const relaxed = name.endsWith('relaxed');
    // Node 20 has no relaxed vectors.
    assert.equal(WebAssembly.validate(wasm) || relaxed, true);
    if (relaxed && !WebAssembly.validate(wasm)) return;
    const module = await WebAssembly.compile(wasm);
    const imports = WebAssembly.Module.imports(module).map(({ module, name }) => `${module}.${name}`);
    assert.deepEqual(imports.sort(), ['env.memory', 'threads.wait', 'threads.wake']);
    const exported = new Set(WebAssembly.Module.exports(module).map(({ name }) => name));
    for (const name of ['multiply', 'attend', 'feed_forward', 'pack_rows', 'restore_row', 'help', '__stack_pointer'])
      assert.ok(exported.has(name), name);
  });
}

test('what the README and the guide say of the download is what was measured last', () => {
  const page = (path) => readFileSync(join(root, path), 'utf8');
  const rows = page('docs/size.md').split('\n');
  const size = (row) =>
    Number(
      rows
        .find((line) => line.startsWith(`| ${row} |`))
        .split('|')[3]
        .replaceAll(',', ''),
    );
  const chat = `${(size('**to load a model and chat**') / 1e6).toFixed(2)} MB`;
  const grammar = `${(size('grammar engine, wasm') / 1e6).toFixed(2)} MB`;
  assert.ok(page('README.md').includes(`| download without the model (brotli) | **${chat}** |`), chat);
  assert.ok(page('docs/guide/bundlers.md').includes(`downloads about ${chat} (brotli) to chat and ${grammar} more`), `${chat}, ${grammar}`);
  assert.ok(page('docs/benchmarks.md').includes(`rillm ${chat} to chat, and ${grammar} more`), `${chat}, ${grammar}`);
});

test('no dynamic import, which service workers forbid', async () => {
  const unpacked = await unpackPackage(tarball);
  for (const name of names.filter((name) => name.endsWith('.js'))) {
    const code = readFileSync(join(unpacked, name), 'utf8').replaceAll(/\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm, '');
    assert.ok(!/\bimport\s*\(/.test(code), name);
  }
});

test('the types tell nothing of what is internal', () => {
  for (const face of ['dist/index.d.ts', 'dist/gpu/index.d.ts', 'dist/react/index.d.ts']) {
    const index = String(read(face));
    assert.ok(!/wasm|host|queue|protocol|RunningGeneration|Handle|Owner/.test(index), index);
  }
});

test('React is imported by rillm/react alone, which imports nothing else from outside', async () => {
  const unpacked = await unpackPackage(tarball);
  const bare = names
    .filter((name) => name.endsWith('.js'))
    .flatMap((name) =>
      Array.from(
        readFileSync(join(unpacked, name), 'utf8').matchAll(/^(?:import|export)\b[^;]*?\bfrom ['"]([^.'"][^'"]*)['"]/gm),
        ([, from]) => [name, from],
      ),
    );
  assert.deepEqual([...new Set(bare.map(String))], ['dist/react/index.js,react']);
});

test('a server may import it, and what wants WebGPU says that there is none', async () => {
  const unpacked = await unpackPackage(tarball);
  const { Engine, EngineError } = await import(pathToFileURL(join(unpacked, 'dist/index.js')));
  for (const source of ['https://example.test/model.gguf', 'hf:owner/name', new Blob(['GGUF'])]) {
    for (const worker of [true, false]) {
      await assert.rejects(Engine.load(source, { worker, device: 'gpu' }), (error) => {
        assert.ok(error instanceof EngineError);
        assert.equal(error.code, 'webgpu_unavailable', `worker ${worker}: ${error.message}`);
        return true;
      });
    }
  }
  await assert.rejects(Engine.load('model.gguf'), ({ code, message }) => code === 'not_found' && message.includes('model.gguf'));
});

test('publint and "Are the types wrong?" find nothing', async () => {
  const unpacked = await unpackPackage(tarball);
  const { messages } = await publint({ pkgDir: unpacked, strict: true, pack: false });
  assert.deepEqual(messages, []);
  const { problems } = await checkPackage(createPackageFromTarballData(new Uint8Array(readFileSync(tarball))));
  // The package is ES modules alone: CommonJS can't require it, and the resolution of Node 10 knows no exports.
  const known = (problem) => problem.resolutionKind === 'node10' || problem.resolutionKind === 'node16-cjs';
  assert.deepEqual(
    problems.filter((problem) => !known(problem)),
    [],
  );
});

test('the wasm names no folder of the machine that built it', () => {
  for (const name of names.filter((name) => name.endsWith('.wasm'))) {
    const text = read(name).toString('latin1');
    for (const folder of ['/root', '/home', '/Users', 'C:\\', '.cargo', '.rustup', root, homedir()]) {
      const at = folder.length > 1 ? text.indexOf(folder) : -1;
      assert.equal(at, -1, `${name}: ${text.slice(at - 20, at + 100)}`);
    }
    // What they are called in place of it.
    assert.ok(text.includes('/crates/'), name);
  }
});

test('the lock file names no registry', () => {
  const lock = readFileSync(join(root, 'package-lock.json'), 'utf8');
  assert.ok(!/"resolved"/.test(lock));
});
