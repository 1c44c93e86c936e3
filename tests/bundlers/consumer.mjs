// An application that uses the package in all its ways, wherever a bundler put it, and what it must come to.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

import { npm, root } from '../../scripts/command.mjs';

export const golden = join(root, 'tests/golden/tiny_llama');

/** Leaves `globalThis.results` behind. */
export const USE = `
import { Engine } from 'rillm';
import { Device } from 'rillm/gpu';
async function use() {
  const device = await Device.request();
  const batch = device.batch();
  const doubled = batch.scale(batch.upload([1, 2, 3]), 2);
  await batch.execute();
  const numbers = [...await batch.read(doubled)];
  device.destroy();
  const results = [];
  const chosen = [];
  for (const worker of [undefined, false]) {
    const engine = await Engine.load('/golden/tied-q8_0.gguf', { worker });
    const answer = await engine.completions.create({ prompt: 'The small boat', max_tokens: 8, temperature: 0, ignore_eos: true });
    results.push(answer.choices[0].token_ids);
    // By the wasm of the grammar engine.
    const choice = await engine.completions.create({ prompt: 'The small boat', temperature: 0, structured_outputs: { choice: ['yes', 'no'] } });
    chosen.push(choice.choices[0].text);
    await engine.dispose();
  }
  return { tokens: results, chosen, numbers };
}
use().then((results) => (globalThis.results = results), (error) => (globalThis.results = { failed: error.code + ': ' + error.message }));
`;

export const PAGE = (script) =>
  `<!doctype html><link rel="icon" href="data:,"><title>consumer</title><script type="module" src="${script}"></script>`;

/** A new project with the packed package and others installed, and these files. */
export function newProject(files, packages = [], ...installOptions) {
  const folder = mkdtempSync(join(tmpdir(), 'rillm-consumer-'));
  const tarball = readdirSync(join(root, 'pkg')).find((name) => name.endsWith('.tgz'));
  const manifest = { name: 'consumer', version: '1.0.0', private: true, type: 'module' };
  for (const [name, text] of Object.entries({ 'package.json': JSON.stringify(manifest), ...files })) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
  const [program, args] = npm('install', '--no-audit', '--no-fund', ...installOptions, join(root, 'pkg', tarball), ...packages);
  execFileSync(program, args, { cwd: folder, stdio: 'pipe' });
  return { folder, remove: () => rmSync(folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 }) };
}

/** Puts the model where the servers of bundlers look for files that they leave alone. */
export function publish(folder) {
  mkdirSync(join(folder, 'public/golden'), { recursive: true });
  cpSync(join(golden, 'tied-q8_0.gguf'), join(folder, 'public/golden/tied-q8_0.gguf'));
}

/** Opens a page, waits for what USE leaves behind, and holds it to what it must be. */
export async function checkPage(browser, url, allowed = []) {
  const page = await browser.newPage();
  const faults = [];
  const note = (text) => allowed.some((pattern) => pattern.test(text)) || faults.push(text);
  page.on('pageerror', (error) => note(error.message));
  page.on('console', (message) => message.type() === 'error' && note(message.text()));
  try {
    await page.goto(url);
    await page
      .waitForFunction(() => globalThis.results !== undefined, null, { timeout: 120_000 })
      .catch((error) => faults.push(error.message));
    const { failed, tokens, chosen, numbers } = (await page.evaluate(() => globalThis.results)) ?? {};
    assert.deepEqual([failed, faults], [undefined, []]);
    const [inWorker, onPage] = tokens;
    assert.ok(['yes', 'no'].includes(chosen[0]), chosen[0]);
    assert.deepEqual(chosen[1], chosen[0]);
    assert.deepEqual(numbers, [2, 4, 6]);
    assert.equal(inWorker.length, 8);
    assert.deepEqual(inWorker, onPage);
  } finally {
    await page.close();
  }
}
