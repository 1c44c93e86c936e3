// The files that the package consists of, by its sources.

import { execFileSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';

import { ENTRIES, isPart } from '../build/entries.mjs';
import { guidePages } from '../build/guide.mjs';
import { root } from '../command.mjs';

/** What the tarball must hold, and nothing else. What entry points share is named by its content: those of `names` are expected. */
export function expectedFiles(names) {
  const sources = readdirSync(join(root, 'pkg-template/src'), { recursive: true })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => name.replaceAll('\\', '/').replace(/\.ts$/, ''));
  return [
    'package.json',
    'README.md',
    'LICENSE-MIT',
    'LICENSE-APACHE',
    'wasm_address.d.ts',
    ...guidePages(),
    ...sources.map((name) => `dist/${name}.d.ts`),
    ...ENTRIES.map((name) => `dist/${name}.js`),
    ...names.filter((name) => name.startsWith('dist/') && isPart(name.slice('dist/'.length))),
    'dist/wasm/rillm.js',
    'dist/wasm/rillm_bg.wasm',
    'dist/wasm/rillm_cpu.js',
    'dist/wasm/rillm_cpu_bg.wasm',
    'dist/wasm/rillm_grammar.js',
    'dist/wasm/rillm_grammar_bg.wasm',
    'dist/wasm/rillm_team.wasm',
    'dist/wasm/rillm_team_relaxed.wasm',
    'dist/wasm/rillm_tensor.js',
    'dist/wasm/rillm_tensor_bg.wasm',
    'dist/wasm/rillm_train.js',
    'dist/wasm/rillm_train_bg.wasm',
  ];
}

/** The names of the files in a tarball. */
export function filesIn(tarball) {
  const names = execFileSync('tar', ['-tzf', tarball], { encoding: 'utf8' }).trim().split('\n');
  return names.map((name) => name.replace(/^package\//, ''));
}
