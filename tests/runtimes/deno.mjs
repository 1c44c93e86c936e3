// rillm in Deno, which has WebGPU and workers: it finds its files by itself.
//
//   deno run --allow-read --allow-env deno.mjs model.gguf

import { Engine } from 'rillm';

const model = new Blob([await Deno.readFile(Deno.args[0])]);
const told = [];
for (const worker of [true, false]) {
  const engine = await Engine.load(model, { worker, device: 'gpu', onWarning: () => {} });
  const { choices } = await engine.completions.create({ prompt: 'The small boat', max_tokens: 4, temperature: 0, ignore_eos: true });
  const structured_outputs = { choice: ['yes', 'no'] };
  const choice = await engine.completions.create({ prompt: 'The small boat', temperature: 0, structured_outputs });
  told.push({ adapter: engine.info.adapter.description, ids: choices[0].token_ids, chosen: choice.choices[0].text });
  await engine.dispose();
}
if (told[0].ids.join() !== told[1].ids.join()) throw new Error('the worker answers otherwise');
console.log(JSON.stringify(told[0]));
