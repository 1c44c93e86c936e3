// The packed package outside of browsers: in Node on Dawn, in Deno, and on the CPU in Node, Deno and Bun. A job of its own (`npm run test:runtimes`),
// since it installs them.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, realpathSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';

import { chromiumPath, likelyAdapter } from '../../scripts/chromium.mjs';
import { root } from '../../scripts/command.mjs';
import { golden, newProject } from '../bundlers/consumer.mjs';

const LIMIT = { timeout: 300_000 };
const MODEL = join(golden, 'tied-q8_0.gguf');
let project;
before(() => {
  project = newProject({}, ['webgpu@0.6.2', 'deno@2.9.6', 'bun@1.4.5']);
  // Where npm runs no scripts of packages.
  for (const script of ['deno/install.cjs', 'bun/install.js']) {
    execFileSync(process.execPath, [join(project.folder, 'node_modules', script)], { cwd: project.folder, stdio: 'pipe' });
  }
  for (const name of ['node.mjs', 'deno.mjs', 'cpu.mjs']) cpSync(join(root, 'tests/runtimes', name), join(project.folder, name));
}, LIMIT);
after(() => project?.remove());

/** Without a GPU the one in software that comes with Chromium: Dawn takes no other. */
function software() {
  if (process.platform !== 'linux' || likelyAdapter() === 'gpu') return {};
  const folders = [dirname(realpathSync(chromiumPath() ?? '/usr/bin/env')), '/usr/lib/chromium', '/opt/google/chrome'];
  const icd = folders.map((folder) => join(folder, 'vk_swiftshader_icd.json')).find((file) => existsSync(file));
  return icd === undefined ? {} : { VK_DRIVER_FILES: icd, VK_ICD_FILENAMES: icd };
}

function ask(program, ...args) {
  const said = execFileSync(program, args, {
    cwd: project.folder,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, XDG_RUNTIME_DIR: process.env.XDG_RUNTIME_DIR ?? project.folder, ...software() },
  });
  const { adapter, ids, chosen } = JSON.parse(said.trim().split('\n').at(-1));
  console.log(adapter);
  assert.deepEqual(ids, [33, 33, 33, 33]);
  assert.ok(['yes', 'no'].includes(chosen), chosen);
  return adapter;
}

test('Node, on Dawn', LIMIT, () => ask(process.execPath, 'node.mjs', MODEL));

test('Deno, in its worker and on its main thread', LIMIT, () =>
  ask(join(project.folder, 'node_modules/.bin/deno'), 'run', '--allow-read', '--allow-env', '--node-modules-dir=manual', 'deno.mjs', MODEL),
);

const installed = (name) => join(project.folder, 'node_modules/.bin', name);
const DENO = ['run', '--allow-read', '--allow-write', '--allow-env', '--allow-sys', '--node-modules-dir=manual'];
for (const threads of [1, 2]) {
  const cpu = (...command) => assert.equal(ask(...command, 'cpu.mjs', MODEL, String(threads)), `cpu, ${threads}`);
  test(`Node, on the CPU, threads: ${threads}`, LIMIT, () => cpu(process.execPath));
  test(`Deno, on the CPU, threads: ${threads}`, LIMIT, () => cpu(installed('deno'), ...DENO));
  test(`Bun, on the CPU, threads: ${threads}`, LIMIT, () => cpu(installed('bun')));
}
