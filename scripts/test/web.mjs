// tests/web.rs in Chromium: the crate's own tests as wasm. Built as the package is, so that both share what they are made of; a
// build without optimisation of all that wasm-pack wants takes longer than this one's link.

import { chromedriverPath } from '../chromium.mjs';
import { run, runLines } from '../command.mjs';
import { cargoEnv } from '../build/wasm.mjs';
import { setup, toolsEnv } from '../setup.mjs';
import { NOTHING, rustCounts, stripColours } from './counts.mjs';

export async function webTests() {
  const begin = performance.now();
  const counts = { ...NOTHING };
  // The test runner comes with wasm-bindgen, which the build of the package installs where that runs too.
  await setup();
  const code = await runLines('cargo', ['test', '--release', '--target', 'wasm32-unknown-unknown', '--locked', '--test', 'web'], {
    env: toolsEnv({
      ...(await cargoEnv(run)),
      CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUNNER: 'wasm-bindgen-test-runner',
      CHROMEDRIVER: chromedriverPath(),
      WASM_BINDGEN_TEST_TIMEOUT: '1200',
    }),
    onLine: (line) => {
      for (const [kind, number] of Object.entries(rustCounts(stripColours(line)) ?? {})) counts[kind] += number;
    },
  });
  // A program that fails without counting did not get as far as its tests, and one that counts none tests nothing.
  if (counts.failed === 0 && (code !== 0 || counts.passed === 0)) counts.failed = 1;
  return [{ name: 'web.rs', ...counts, seconds: (performance.now() - begin) / 1000 }];
}
