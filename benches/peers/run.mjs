// `npm run peers`: builds the side-by-side page, runs it in headless Chromium and prints its table. The models come from
// synthetic/make.py.
//
//   npm run peers -- [--model benches/peers/models/tiny] [--engines rillm,wllama] [--new-tokens N] [--repetitions N]
//                    [--adapter swiftshader|gpu] [--json]
//   npm run peers -- --task embedding --model benches/peers/models/minilm-l6
//   npm run peers -- --device cpu [--threads 1|N|all] [--runtime asyncify|plain]

import { existsSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

import { main, Problem } from '../../scripts/command.mjs';
import { runUnattended } from '../unattended.mjs';
import { buildPeers } from './build.mjs';
import { placeOf } from './place.js';
import { tableOf, textOf } from './tables.js';

const here = dirname(fileURLToPath(import.meta.url));

await main(async () => {
  const text = { type: 'string' };
  const more = { task: text, device: text, threads: text, runtime: text };
  const options = {
    model: text,
    engines: text,
    'new-tokens': text,
    repetitions: text,
    adapter: text,
    json: { type: 'boolean' },
    ...more,
  };
  const { model = join(here, 'models/tiny'), adapter, json, ...parameters } = parseArgs({ options }).values;
  try {
    placeOf(parameters, availableParallelism());
  } catch (error) {
    throw new Problem(error.message);
  }
  if (!existsSync(`${resolve(model)}.gguf`))
    throw new Problem(`there is no ${model}.gguf: make one with synthetic/make.py, see docs/benchmarks.md`);
  const mounts = { '/': await buildPeers(), '/models/': dirname(resolve(model)) };
  const result = await runUnattended(mounts, { ...parameters, model: `models/${basename(model)}` }, { adapter });
  if (json) return console.log(JSON.stringify(result));
  console.log(`${result.model}; ${result.processor}; ${result.browser}; ${result.date}\n`);
  console.log(textOf(tableOf(result.engines)));
});
