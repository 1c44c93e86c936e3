// Compiles the blocks of README and guide against the package's sources: a call that there is not, a wrong field, a wrong type.

import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { captured, Problem, root } from '../command.mjs';
import { allBlocks } from './blocks.mjs';

const folder = join(root, 'target/docs-blocks');
const tsc = (...args) => captured(process.execPath, [join(root, 'node_modules/typescript/bin/tsc'), '--pretty', 'false', ...args]);

/** The declarations of the package as it would be published now. */
async function writeTypes() {
  const types = join(folder, 'types');
  const { code, text } = await tsc('-p', join(root, 'pkg-template'), '--emitDeclarationOnly', '--declarationDir', types);
  if (code !== 0) throw new Problem(`the package does not compile:\n${text}`);
  return types;
}

/** Resolves to the number of blocks; rejects with the page and line of each that does not compile. */
export async function compileBlocks() {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const types = await writeTypes();
  const names = new Map();
  for (const block of allBlocks()) {
    // The guide is ahead of the package.
    if (block.code.includes("'rillm/react'") && !existsSync(join(types, 'react/index.d.ts'))) {
      console.warn(`docs: skipped ${block.page}:${block.line}, since the package has no rillm/react`);
      continue;
    }
    const name = `${block.page.replace(/\W/g, '_')}_${block.line}.${block.extension}`;
    names.set(name, block);
    writeFileSync(join(folder, name), `${block.code}\nexport {};\n`);
  }
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config(types, [...names.keys()])));
  const { code, text } = await tsc('-p', folder);
  if (code === 0) return names.size;
  const placed = text.replace(/^.*?(\w+\.tsx?)\((\d+),\d+\)/gm, (all, name, line) => {
    const block = names.get(name);
    return block === undefined ? all : `${block.page}:${block.line + Number(line)}`;
  });
  throw new Problem(`blocks of code that do not compile:\n${placed}`);
}

function config(types, files) {
  const ours = ['gpu', 'tensor', 'react'].map((name) => [`rillm/${name}`, [join(types, name, 'index.d.ts')]]);
  const theirs = ['vue', 'svelte'].map((name) => [name, [join(root, 'docs/node_modules', name)]]);
  return {
    extends: join(root, 'tsconfig.json'),
    compilerOptions: {
      noEmit: true,
      skipLibCheck: true,
      jsx: 'preserve',
      // Pages read as a person writes: what an array holds is not asked for twice, and what is declared may be for the reader.
      noImplicitAny: false,
      noUncheckedIndexedAccess: false,
      noUnusedLocals: false,
      noUnusedParameters: false,
      noImplicitReturns: false,
      paths: { rillm: [join(types, 'index.d.ts')], ...Object.fromEntries([...ours, ...theirs]) },
    },
    files: [
      ...files.map((name) => `./${name}`),
      join(root, 'tests/docs/ambient.d.ts'),
      join(root, 'docs/node_modules/svelte/types/index.d.ts'),
    ],
  };
}
