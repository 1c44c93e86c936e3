// `npm run soak`: the tests that take too long for every run, with the others of their files.

import { main, run } from './command.mjs';
import { toolsEnv } from './setup.mjs';

const FILES = ['browser/shared_chaos', 'browser/rill', 'browser/tensor', 'browser/recovery'];

await main(async () => {
  process.env.RILLM_SOAK = '1';
  await run('cargo', ['test', '--locked', '--test', 'engine', 'mutations::'], { env: toolsEnv({ RILLM_SOAK: '1' }) });
  for (const file of FILES) await run(process.execPath, ['scripts/test.mjs', '--only', 'package,browser', '--file', file]);
});
