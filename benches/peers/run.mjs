// `npm run peers`: builds the side-by-side page, runs it in headless Chromium and prints its table. The models come from
// synthetic/make.py.
//
//   npm run peers -- [--model benches/peers/models/tiny] [--engines rillm,wllama] [--new-tokens N] [--repetitions N]
//                    [--adapter swiftshader|gpu] [--json]

import { existsSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

import { main, Problem } from '../../scripts/command.mjs';
import { launchChromium } from '../../scripts/chromium.mjs';
import { serve } from '../../scripts/serve.mjs';
import { buildPeers } from './build.mjs';
import { tableOf, textOf } from './tables.js';

const here = dirname(fileURLToPath(import.meta.url));

await main(async () => {
  const text = { type: 'string' };
  const options = { model: text, engines: text, 'new-tokens': text, repetitions: text, adapter: text, json: { type: 'boolean' } };
  const { model = join(here, 'models/tiny'), adapter, json, ...parameters } = parseArgs({ options }).values;
  if (!existsSync(`${resolve(model)}.gguf`))
    throw new Problem(`there is no ${model}.gguf: make one with synthetic/make.py, see docs/benchmarks.md`);
  const dist = await buildPeers();
  let finish;
  const done = new Promise((resolveDone) => (finish = resolveDone));
  const handle = (request, response, pathname) => {
    if (request.method !== 'POST') return false;
    const parts = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', () => {
      response.end();
      if (pathname === '/posted/done') finish(JSON.parse(Buffer.concat(parts)));
    });
    return true;
  };
  const site = await serve({ '/': dist, '/models/': dirname(resolve(model)) }, { handle });
  const browser = await launchChromium(adapter === undefined ? {} : { adapter });
  try {
    const page = await browser.newPage();
    page.on('console', (message) => console.error(`page: ${message.text()}`));
    page.on('pageerror', (error) => console.error(`page: ${error.message}`));
    const query = new URLSearchParams({ ...parameters, model: `models/${basename(model)}`, run: '1', post: '/posted' });
    await page.goto(`${site.origin}/index.html?${query}`);
    const result = await done;
    if (result.error !== undefined) throw new Problem(result.error.message);
    if (json) return console.log(JSON.stringify(result));
    const { adapter: found, browser: agent, shader_f16 } = result;
    console.log(
      `${result.model}; ${found.description || found.vendor}, shader-f16 ${shader_f16 ? 'on' : 'off'}; ${agent}; ${result.date}\n`,
    );
    console.log(textOf(tableOf(result.engines)));
  } finally {
    await browser.close();
    await site.close();
  }
});
