// `npm start`: sets up what is missing, builds the package and serves the demo page.

import { build, unpackPackage } from './build.mjs';
import { main, root } from './command.mjs';
import { setup } from './setup.mjs';

await main(async () => {
  await setup({ test: false, browserNeeded: false });
  const packed = await unpackPackage(await build());
  const { demoMounts, serve } = await import('./serve.mjs');
  const port = process.env.PORT;
  const { origin } = await serve(await demoMounts(root, packed), { port: Number(port ?? 8080), nextFree: port === undefined });
  console.log(`\n  rillm is at ${origin}/\n\n  Open it in a browser with WebGPU. Ctrl+C ends it.\n`);
});
