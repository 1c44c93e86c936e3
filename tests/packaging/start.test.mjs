// `npm start`: what it says while it works, and what of the tools' output a failure shows.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { test } from 'node:test';

import { root } from '../../scripts/command.mjs';

const LIMIT = { timeout: 120_000 };
const START = join(root, 'scripts/start.mjs');

test('it names its steps, serves the page and keeps quiet otherwise', LIMIT, async () => {
  const child = spawn(process.execPath, [START], { cwd: root, env: { ...process.env, PORT: '0' }, stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text) => (said += text));
  const origin = await new Promise((resolve, reject) => {
    child.stdout.on('data', () => {
      const found = /rillm is at (\S+)\//.exec(said);
      if (found !== null) resolve(found[1]);
    });
    child.on('close', () => reject(new Error(said)));
  });
  const page = await fetch(`${origin}/`);
  child.kill();
  assert.equal(page.status, 200);
  const lines = said.trim().split('\n');
  for (let i = 0; i < 8; i++) assert.match(lines[i], new RegExp(`^${i + 1} of 8  .* \\d+\\.\\d s$`), said);
  // Of tools nothing: the eight steps, the address and what to do with it.
  assert.equal(lines.filter((line) => line !== '').length, 10, said);
});

test('a step that fails shows the end of what its tool said', { ...LIMIT, skip: process.platform === 'win32' }, () => {
  // A rustc without the target, and a rustup that can't install it.
  const folder = mkdtempSync(join(tmpdir(), 'rillm-start-'));
  const programs = {
    cargo: 'echo cargo 1.0.0',
    rustc: `echo ${folder}`,
    rustup: 'i=0; while [ $i -lt 100 ]; do i=$((i+1)); echo "line $i of rustup"; done; exit 3',
  };
  for (const [name, text] of Object.entries(programs)) {
    writeFileSync(join(folder, name), `#!/bin/sh\n${text}\n`);
    chmodSync(join(folder, name), 0o755);
  }
  try {
    const env = { ...process.env, PATH: [folder, process.env.PATH].join(delimiter) };
    const { status, stdout, stderr } = spawnSync(process.execPath, [START], { cwd: root, encoding: 'utf8', env });
    assert.equal(status, 1);
    assert.match(stdout, /^1 of 8 {2}.* … failed\n$/);
    assert.match(stderr, /lines more in \.cache.start\.log\)\n/);
    assert.match(stderr, /line 100 of rustup\n\nrustup target add \S+: exit status 3/);
    assert.ok(!stderr.includes('line 5 of'), stderr);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
