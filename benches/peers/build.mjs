// Puts the side-by-side page with all engines into benches/peers/dist, which any static server with byte ranges and cross-origin
// isolation can serve, without node and without a network (serve.py is one).
//
//   node benches/peers/build.mjs

import { cpSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { build, unpackPackage } from '../../scripts/build.mjs';
import { isMain, main, root } from '../../scripts/command.mjs';
import { setup } from '../../scripts/setup.mjs';
import { installLocked, versionOf } from '../install.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const modules = join(here, 'node_modules');

const PAGE = [
  ...['index.html', 'page.js', 'place.js', 'measure.js', 'spread.js', 'tables.js', 'texts.js'],
  ...['generation.js', 'engines.js', 'embedding.js', 'embedders.js', 'transformers.js', 'wllama.js'],
];
/** Where in dist/vendor each file or folder of a package goes. */
const VENDOR = {
  'wllama/index.js': '@wllama/wllama/esm/index.js',
  'wllama/wllama.wasm': '@wllama/wllama/esm/wasm/wllama.wasm',
  'transformers/transformers.web.js': '@huggingface/transformers/dist/transformers.web.js',
  'jinja/index.js': '@huggingface/jinja/dist/index.js',
  'tokenizers/tokenizers.mjs': '@huggingface/tokenizers/dist/tokenizers.mjs',
  'onnxruntime-common': 'onnxruntime-common/dist/esm',
  'onnxruntime-web/ort.webgpu.bundle.min.mjs': 'onnxruntime-web/dist/ort.webgpu.bundle.min.mjs',
  'onnxruntime-web/ort-wasm-simd-threaded.mjs': 'onnxruntime-web/dist/ort-wasm-simd-threaded.mjs',
  'onnxruntime-web/ort-wasm-simd-threaded.wasm': 'onnxruntime-web/dist/ort-wasm-simd-threaded.wasm',
  'onnxruntime-web/ort-wasm-simd-threaded.asyncify.mjs': 'onnxruntime-web/dist/ort-wasm-simd-threaded.asyncify.mjs',
  'onnxruntime-web/ort-wasm-simd-threaded.asyncify.wasm': 'onnxruntime-web/dist/ort-wasm-simd-threaded.asyncify.wasm',
};
const VERSIONS = ['@wllama/wllama', '@huggingface/transformers', 'onnxruntime-web'];

/** Resolves to the folder. */
export async function buildPeers() {
  await setup({ browser: false, test: false });
  const rillm = await unpackPackage(await build());
  await installLocked(here);
  const dist = join(here, 'dist');
  rmSync(dist, { recursive: true, force: true });
  mkdirSync(dist, { recursive: true });
  for (const name of PAGE) cpSync(join(here, name), join(dist, name));
  for (const name of ['style.css', 'icon.svg']) cpSync(join(root, 'www', name), join(dist, name));
  cpSync(join(rillm, 'dist'), join(dist, 'vendor/rillm'), { recursive: true });
  for (const [to, from] of Object.entries(VENDOR)) cpSync(join(modules, from), join(dist, 'vendor', to), { recursive: true });
  const versions = { rillm: versionOf(rillm), ...Object.fromEntries(VERSIONS.map((name) => [name, versionOf(join(modules, name))])) };
  writeFileSync(join(dist, 'versions.json'), `${JSON.stringify(versions, null, 2)}\n`);
  return dist;
}

if (isMain(import.meta.url)) await main(async () => console.log(await buildPeers()));
