// `npm run soak`: the tests that take too long for every run, with the others of their files. SOAK_MINUTES and the like make those of
// `tests/browser/soak.test.mjs` shorter.

import { main, run } from './command.mjs';
import { toolsEnv } from './setup.mjs';

const NATIVE = [
  ['engine', 'architectures', 'fidelity', 'kv_cache', 'models', 'mutations', 'real_models', 'structured'],
  ['gpu', 'ops'],
];
const FILES = ['browser/shared_chaos', 'browser/rill', 'browser/tensor', 'browser/recovery'];

await main(async () => {
  process.env.RILLM_SOAK = '1';
  for (const [program, ...files] of NATIVE) {
    await run('cargo', ['test', '--locked', '--test', program, '--', ...files.map((file) => `${file}::`)], {
      env: toolsEnv({ RILLM_SOAK: '1' }),
    });
  }
  for (const file of FILES) await run(process.execPath, ['scripts/test.mjs', '--only', 'package,browser', '--file', file]);
  // Not as a step of `npm test`, which takes what runs for this long for something that hangs.
  await run(process.execPath, ['--test', '--test-reporter=spec', 'tests/browser/soak.test.mjs']);
});
