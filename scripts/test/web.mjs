// tests/web.rs in Chromium: the crate's own tests as wasm. Built as the package is, so that both share what they are made of; a
// build without optimisation of all that wasm-pack wants takes longer than this one's link.

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { cargoEnv } from '../build/wasm.mjs';
import { chromedriverPath } from '../chromium.mjs';
import { captured, Problem, root, run, runLines } from '../command.mjs';
import { setup, toolsEnv } from '../setup.mjs';
import { NOTHING, rustCounts, stripColours } from './counts.mjs';

/** Builds the tests; resolves to the file. */
async function builtTests() {
  const args = [
    'rustc',
    '--release',
    '--target',
    'wasm32-unknown-unknown',
    '--locked',
    '--no-default-features',
    '--features',
    'engine,train',
    '--test',
    'web',
  ];
  const format = '--message-format=json-render-diagnostics';
  const { code, text } = await captured('cargo', [...args, format], {
    env: { ...process.env, ...(await cargoEnv(run)) },
  });
  if (code !== 0) throw new Problem('tests/web.rs does not compile');
  const messages = text.split('\n').filter((line) => line.startsWith('{"reason":"compiler-artifact"'));
  const executable = messages.map((line) => JSON.parse(line).executable).find(Boolean);
  if (executable === undefined) throw new Problem('cargo does not name the program that it made of tests/web.rs');
  return executable;
}

const AGREED = 'agreed: ';

/** Writes what `tests/web/record.rs` tells: the browser, and a line for each op that agreed. */
function writeRecord(told) {
  const [browser, ...lines] = new Set(told);
  writeFileSync(join(root, 'tests/web/agreed.txt'), `${[browser, ...lines.sort()].join('\n')}\n`);
}

export async function webTests() {
  const begin = performance.now();
  const counts = { ...NOTHING };
  // The test runner comes with wasm-bindgen, which the build of the package installs where that runs too.
  await setup();
  const told = [];
  // What tests print, which is how they say what agreed.
  const code = await runLines('wasm-bindgen-test-runner', [await builtTests(), '--nocapture'], {
    env: toolsEnv({ CHROMEDRIVER: chromedriverPath(), WASM_BINDGEN_TEST_TIMEOUT: '1200' }),
    onLine: (line) => {
      if (line.includes(AGREED)) told.push(line.slice(line.indexOf(AGREED) + AGREED.length));
      for (const [kind, number] of Object.entries(rustCounts(stripColours(line)) ?? {})) counts[kind] += number;
    },
  });
  if (process.env.UPDATE_AGREED && code === 0) writeRecord(told);
  // A program that fails without counting did not get as far as its tests, and one that counts none tests nothing.
  if (counts.failed === 0 && (code !== 0 || counts.passed === 0)) counts.failed = 1;
  return [{ name: 'web.rs', ...counts, seconds: (performance.now() - begin) / 1000 }];
}
