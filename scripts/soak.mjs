// `npm run soak`: the tests that take too long for every run, with the others of their files. SOAK_MINUTES and the like make those of
// `tests/browser/soak.test.mjs` shorter. `npm run soak -- --device cpu` (or `gpu`) runs that file alone, on that device.

import { parseArgs } from 'node:util';

import { main, Problem, run } from './command.mjs';
import { toolsEnv } from './setup.mjs';

const NATIVE = [
  ['engine', 'architectures', 'fidelity', 'kv_cache', 'models', 'mutations', 'real_models', 'structured'],
  ['gpu', 'ops'],
];
const FILES = ['browser/shared_chaos', 'browser/rill', 'browser/tensor', 'browser/recovery'];

/** The device that was written, if one was. */
function deviceWritten() {
  let device;
  try {
    ({ device } = parseArgs({ options: { device: { type: 'string' } } }).values);
  } catch (error) {
    throw new Problem(`usage: npm run soak [-- --device cpu|gpu]: ${error.message}`);
  }
  if (device !== undefined && device !== 'cpu' && device !== 'gpu') throw new Problem(`--device is cpu or gpu, got "${device}"`);
  return device;
}

async function runWhole() {
  for (const [program, ...files] of NATIVE) {
    await run('cargo', ['test', '--locked', '--test', program, '--', ...files.map((file) => `${file}::`)], {
      env: toolsEnv({ RILLM_SOAK: '1' }),
    });
  }
  for (const file of FILES) await run(process.execPath, ['scripts/test.mjs', '--only', 'package,browser', '--file', file]);
}

await main(async () => {
  const device = deviceWritten();
  process.env.RILLM_SOAK = '1';
  if (device === undefined) await runWhole();
  else await run(process.execPath, ['scripts/build.mjs']);
  // Not as a step of `npm test`, which takes what runs for this long for something that hangs.
  const env = { ...process.env, RILLM_DEVICE: device ?? 'gpu' };
  await run(process.execPath, ['--test', '--test-reporter=spec', 'tests/browser/soak.test.mjs'], { env });
});
