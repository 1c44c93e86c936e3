// Node's tests in Chromium: a file after the other, each in a process of its own, all in one browser, which is started again should
// a file have brought it down. Files that want other flags start a browser of their own.

import { readdirSync } from 'node:fs';
import { join } from 'node:path';

import { serveChromium } from '../chromium.mjs';
import { Problem, root, runLines } from '../command.mjs';
import { nodeCounts, NOTHING, stripColours } from './counts.mjs';

/** Runs the files `*.test.mjs` of a folder of tests whose names hold `part`; resolves to a row for each. */
export async function nodeTests(folder, part = '') {
  const all = readdirSync(join(root, 'tests', folder))
    .filter((name) => name.endsWith('.test.mjs'))
    .sort();
  const files = all.filter((name) => `${folder}/${name}`.includes(part));
  if (files.length === 0) throw new Problem(`there is no file ${part} in tests/${folder}`);
  let browser;
  const rows = [];
  try {
    for (const file of files) {
      if (browser === undefined || !browser.isRunning()) browser = await serveChromium();
      rows.push(await runFile(folder, file, { ...process.env, RILLM_TEST_BROWSER: browser.endpoint }));
    }
  } finally {
    await browser?.close();
  }
  return rows;
}

async function runFile(folder, file, env) {
  const name = `${folder}/${file}`;
  console.log(`\n── ${name}`);
  const begin = performance.now();
  const counts = { ...NOTHING };
  const code = await runLines(process.execPath, ['--test', '--test-reporter=spec', join('tests', folder, file)], {
    env,
    onLine: (line) => {
      for (const [kind, number] of Object.entries(nodeCounts(stripColours(line)) ?? {})) counts[kind] += number;
    },
  });
  // A file that fails without counting did not get as far as its tests, and one that counts none tests nothing.
  if (counts.failed === 0 && (code !== 0 || counts.passed + counts.skipped === 0)) counts.failed = 1;
  return { name, ...counts, seconds: (performance.now() - begin) / 1000 };
}
