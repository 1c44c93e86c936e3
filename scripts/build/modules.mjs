// Joins the package's modules into one file for each entry point, and files of what entry points share. A page without a bundler would fetch
// and compile a hundred modules, which cost more than all else of its start. A program of its own, since it imports esbuild.
//
//   node scripts/build/modules.mjs FROM INTO      from the folder of the modules into that of the package

import { join, resolve } from 'node:path';

import { build } from 'esbuild';

import { main, Problem } from '../command.mjs';
import { ENTRIES } from './entries.mjs';

await main(async () => {
  const [from, into] = process.argv.slice(2).map((folder) => resolve(folder));
  const { metafile } = await build({
    absWorkingDir: from,
    entryPoints: ENTRIES.map((name) => `${name}.js`),
    outbase: '.',
    outdir: into,
    bundle: true,
    splitting: true,
    format: 'esm',
    target: 'es2022',
    // By this name the package knows that no other bundler joined it once more (`start_worker.ts`).
    chunkNames: 'rillm.part-[hash]',
    // The glue stays by itself: it is fetched with its wasm, and that of the CPU only where it is needed.
    external: ['./wasm/*', 'node:*', 'react'],
    metafile: true,
    logLevel: 'warning',
  });
  for (const [file, { entryPoint, imports }] of Object.entries(metafile.outputs)) {
    // Addresses of files that lie beside a module are written for the folder that modules lie in.
    const moves = entryPoint?.includes('/') && imports.some(({ path }) => path.includes('wasm/'));
    if (moves) throw new Problem(`${file} has glue, whose address is another one from there: what uses it has to be shared`);
  }
  console.log(join(into, 'index.js'));
});
