// `npm run types`: writes what pkg-template takes from the Rust structs: src/generated/ and the README's table of error codes.

import { main, run } from './command.mjs';
import { setup, toolsEnv } from './setup.mjs';

await main(async () => {
  await setup({ browser: false, test: false });
  await run('cargo', ['test', '--locked', '--lib', 'engine::api::typescript'], { env: toolsEnv({ RILLM_WRITE_TYPES: '1' }) });
});
