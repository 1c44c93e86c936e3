// rillm in Node, on Dawn (the npm package webgpu): a file is handed over as a Blob, and the wasm as bytes.
//
//   node node.mjs model.gguf

import { openAsBlob, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { create, globals } from 'webgpu';

Object.assign(globalThis, globals);
Object.defineProperty(globalThis, 'navigator', { value: { gpu: create([]) }, configurable: true });

const { Engine } = await import('rillm');
const wasm = (name) => readFileSync(fileURLToPath(import.meta.resolve(`rillm/${name}_bg.wasm`)));

const engine = await Engine.load(await openAsBlob(process.argv[2]), {
  wasmModule: wasm('rillm'),
  grammarWasmModule: wasm('rillm_grammar'),
  device: 'gpu',
  onWarning: () => {},
});
const { choices } = await engine.completions.create({ prompt: 'The small boat', max_tokens: 4, temperature: 0, ignore_eos: true });
const structured_outputs = { choice: ['yes', 'no'] };
const choice = await engine.completions.create({ prompt: 'The small boat', temperature: 0, structured_outputs });
console.log(JSON.stringify({ adapter: engine.info.adapter.description, ids: choices[0].token_ids, chosen: choice.choices[0].text }));
await engine.dispose();
process.exit();
