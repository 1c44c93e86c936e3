// Puts the side-by-side page with all engines into benches/tensors/dist, which any static server can serve, without node and without a network.
//
//   node benches/tensors/build.mjs

import { cpSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { build, unpackPackage } from '../../scripts/build.mjs';
import { isMain, main, root } from '../../scripts/command.mjs';
import { setup } from '../../scripts/setup.mjs';
import { installLocked, versionOf } from '../install.mjs';

const here = dirname(fileURLToPath(import.meta.url));

/** The packages whose versions are shown, by engine. */
const PACKAGES = { 'jax-js': '@jax-js/jax', 'tfjs-webgpu': '@tensorflow/tfjs-backend-webgpu' };

/** Resolves to the folder. */
export async function buildTensorPeers() {
  await setup({ browser: false, test: false });
  const rillm = await unpackPackage(await build());
  await installLocked(here);
  const dist = join(here, 'dist');
  rmSync(dist, { recursive: true, force: true });
  mkdirSync(dist, { recursive: true });
  // The package itself is not bundled: it is tried as it is shipped, with its wasm beside it.
  const { build: bundle } = await import('esbuild');
  await bundle({
    entryPoints: [join(here, 'page.js')],
    outdir: dist,
    bundle: true,
    splitting: true,
    format: 'esm',
    target: 'es2022',
    minify: true,
    external: ['rillm/tensor'],
    logLevel: 'warning',
  });
  cpSync(join(here, 'index.html'), join(dist, 'index.html'));
  for (const name of ['style.css', 'icon.svg']) cpSync(join(root, 'www', name), join(dist, name));
  cpSync(join(rillm, 'dist'), join(dist, 'vendor/rillm'), { recursive: true });
  const peers = Object.entries(PACKAGES).map(([engine, name]) => [engine, versionOf(join(here, 'node_modules', name))]);
  const versions = { rillm: versionOf(rillm), ...Object.fromEntries(peers) };
  writeFileSync(join(dist, 'versions.json'), `${JSON.stringify(versions, null, 2)}\n`);
  return dist;
}

if (isMain(import.meta.url)) await main(async () => console.log(await buildTensorPeers()));
