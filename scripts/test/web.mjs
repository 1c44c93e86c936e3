// tests/web.rs in Chromium: the crate's own tests as wasm.

import { chromedriverPath } from '../chromium.mjs';
import { runLines } from '../command.mjs';
import { toolsEnv } from '../setup.mjs';
import { NOTHING, rustCounts, stripColours } from './counts.mjs';

export async function webTests() {
  const begin = performance.now();
  const counts = { ...NOTHING };
  const code = await runLines('wasm-pack', ['test', '--headless', '--chrome', '--', '--test', 'web'], {
    env: toolsEnv({ CHROMEDRIVER: chromedriverPath(), WASM_BINDGEN_TEST_TIMEOUT: '1200' }),
    onLine: (line) => {
      for (const [kind, number] of Object.entries(rustCounts(stripColours(line)) ?? {})) counts[kind] += number;
    },
  });
  // A program that fails without counting did not get as far as its tests, and one that counts none tests nothing.
  if (counts.failed === 0 && (code !== 0 || counts.passed === 0)) counts.failed = 1;
  return [{ name: 'web.rs', ...counts, seconds: (performance.now() - begin) / 1000 }];
}
