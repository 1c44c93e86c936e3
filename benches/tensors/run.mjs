// `npm run peers:tensors`: builds the side-by-side page, runs it in headless Chromium and prints its tables.
//
//   npm run peers:tensors -- [--adapter gpu|swiftshader] [--sizes full|small] [--engines rillm,jax,tfjs] [--rows matmul,mlp]
//                            [--repetitions N] [--target-ms N] [--json]

import { parseArgs } from 'node:util';

import { main } from '../../scripts/command.mjs';
import { runUnattended } from '../unattended.mjs';
import { buildTensorPeers } from './build.mjs';
import { reportText } from './tables.js';

await main(async () => {
  const text = { type: 'string' };
  const options = {
    sizes: text,
    engines: text,
    rows: text,
    repetitions: text,
    'target-ms': text,
    adapter: text,
    json: { type: 'boolean' },
  };
  const { adapter, json, ...parameters } = parseArgs({ options }).values;
  const onLog = ({ row, engine }) => row !== undefined && console.error(`${row}: ${engine}`);
  const report = await runUnattended({ '/': await buildTensorPeers() }, parameters, { adapter, onLog });
  if (json) return console.log(JSON.stringify(report));
  const { adapter: found, browser, sizes, date } = report;
  console.log(`${found.description || `${found.vendor} ${found.architecture}`}, sizes ${sizes}; ${browser}; ${date}\n`);
  console.log(reportText(report));
});
