// A page with clients of OpenAI's API in it, unmodified, and with an engine (of the demo model, unless another is named), for tests that run in the page.

import { existsSync } from 'node:fs';
import { join } from 'node:path';

import { build } from 'vite';

import { openStage, root } from '../browser.mjs';

const MODEL = 'models/demo/rillm-demo-q4_0.gguf';
export const LIMIT = { timeout: 300_000, skip: !existsSync(join(root, MODEL)) && `not there: ${MODEL}` };

/** Bundles the clients for pages of a site that serves the folder `made`: they import `/made/clients/page.js`. */
export async function bundleClients(made) {
  await build({
    configFile: false,
    logLevel: 'error',
    root,
    define: { 'process.env.NODE_ENV': '"production"' },
    build: {
      outDir: join(made, 'clients'),
      minify: false,
      lib: { entry: join(root, 'tests/browser/clients/page.js'), formats: ['es'], fileName: () => 'page.js' },
    },
  });
}

/**
 * Runs in the page of any browser: asks the engine of the page by each client, whole and streamed, and for a call of a tool. Resolves to what each
 * said, with the engine's own answer first, and to the calls. The page has imported the clients.
 */
export async function askByClients({ messages, tools, calling }) {
  const { openai, provider, chain } = clientsOf((...args) => engine.fetch(...args));
  const request = { model: 'rillm', temperature: 0, max_tokens: 60, messages };
  const [{ content: prompt }] = messages;
  const asked = { model: provider('rillm'), temperature: 0, maxOutputTokens: 60, maxRetries: 0, prompt };
  const langchain = chain({ maxTokens: 60 });
  const joined = async (pieces, text) => {
    const texts = [];
    for await (const piece of pieces) texts.push(text(piece) ?? '');
    return texts.join('');
  };
  const streamed = await openai.chat.completions.create({ ...request, stream: true });
  const called = await openai.chat.completions.create({ ...request, max_tokens: 100, messages: calling, tools, tool_choice: 'required' });
  return {
    said: [
      (await engine.chat.completions.create(request)).choices[0].message.content,
      (await openai.chat.completions.create(request)).choices[0].message.content,
      await joined(streamed, ({ choices }) => choices[0]?.delta.content),
      (await ai.generateText(asked)).text,
      await joined(ai.streamText(asked).textStream, (piece) => piece),
      (await langchain.invoke([['user', prompt]])).content,
      await joined(await langchain.stream([['user', prompt]]), ({ content }) => content),
    ],
    calls: called.choices[0].message.tool_calls.map(({ function: { name, arguments: text } }) => ({ name, arguments: JSON.parse(text) })),
  };
}

/**
 * Opens the page. `run(fn, argument)` runs a function in it, which travels as source text and finds there: the clients, `assert`, `rillm`,
 * `engine`, and what `prepare` has set.
 */
export async function openClients(prepare, model = `/${MODEL}`, options = {}) {
  const stage = await openStage();
  await bundleClients(stage.made);
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
