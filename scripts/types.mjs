// `npm run types`: writes what pkg-template takes from the Rust structs: src/generated/ and the codes of docs/guide/errors.md.

import { main, run } from './command.mjs';
import { setup, toolsEnv } from './setup.mjs';

await main(async () => {
  await setup({ browser: false, test: false });
  await run('cargo', ['test', '--locked', '--lib', 'typescript'], { env: toolsEnv({ RILLM_WRITE_TYPES: '1' }) });
});
