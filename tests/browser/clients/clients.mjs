// A page with clients of OpenAI's API in it, unmodified, and with an engine (of the demo model, unless another is named), for tests that run in the page.

import { existsSync } from 'node:fs';
import { join } from 'node:path';

import { build } from 'vite';

import { openStage, root } from '../browser.mjs';

const MODEL = 'models/demo/rillm-demo-q4_0.gguf';
export const LIMIT = { timeout: 300_000, skip: !existsSync(join(root, MODEL)) && `not there: ${MODEL}` };

/**
 * Opens the page. `run(fn, argument)` runs a function in it, which travels as source text and finds there: the clients, `assert`, `rillm`,
 * `engine`, and what `prepare` has set.
 */
export async function openClients(prepare, model = `/${MODEL}`, options = {}) {
  const stage = await openStage();
  await build({
    configFile: false,
    logLevel: 'error',
    root,
    define: { 'process.env.NODE_ENV': '"production"' },
    build: {
      outDir: join(stage.made, 'clients'),
      minify: false,
      lib: { entry: join(root, 'tests/browser/clients/page.js'), formats: ['es'], fileName: () => 'page.js' },
    },
  });
  const { page, prepare: prepareEngines, close } = await stage.openPage();
  await prepareEngines('/rillm/dist/index.js');
  await page.evaluate(
    async ([model, options]) => {
      await import('/made/clients/page.js');
      globalThis.engine = await rillm.Engine.load(model, { onWarning: () => {}, ...options });
    },
    [model, options],
  );
  const run = (fn, argument) => page.evaluate(([source, argument]) => (0, eval)(`(${source})`)(argument), [String(fn), argument]);
  if (prepare !== undefined) await run(prepare);
  return {
    origin: stage.origin,
    run,
    async close() {
      await page.evaluate(() => engine.dispose());
      await close();
      await stage.close();
    },
  };
}
