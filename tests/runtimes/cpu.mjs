// rillm on the CPU, of a model's path: in Node, Deno and Bun. With a second argument on so many threads.
//
//   node cpu.mjs ./model.gguf [2]

import process from 'node:process';

import { Engine } from 'rillm';

const [model, threads = '1'] = process.argv.slice(2);
const engine = await Engine.load(model, { device: 'cpu', threads: Number(threads), onWarning: ({ code }) => console.error(code) });
const { choices } = await engine.completions.create({ prompt: 'The small boat', max_tokens: 4, temperature: 0, ignore_eos: true });
const structured_outputs = { choice: ['yes', 'no'] };
const choice = await engine.completions.create({ prompt: 'The small boat', temperature: 0, structured_outputs });
const { device, threads: used } = engine.info;
console.log(JSON.stringify({ adapter: `${device}, ${used}`, ids: choices[0].token_ids, chosen: choice.choices[0].text }));
await engine.dispose();
