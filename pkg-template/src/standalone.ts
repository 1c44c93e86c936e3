// The functions that need the wasm but no model. They run on the thread of the caller.

import { checkArgument, type Checks, address, anything, readOptions, text } from './arguments.js';
import { checkLength, objectOf } from './json.js';
import { loadWasm } from './wasm.js';
import { engineWasm, type WasmOptions } from './wasm_source.js';

const WASM: Checks<WasmOptions> = { wasmUrl: address, wasmModule: anything };

/** Renders a chat template (Jinja, as models bring it) with a context such as {messages, add_generation_prompt, bos_token}. */
export async function renderTemplate(template: string, context: object, options: WasmOptions = {}): Promise<string> {
  checkArgument('the template', template, text);
  checkLength('the template', template);
  const variables = objectOf('the context of a template', '{messages: […]}', context);
  const wasm = await loadWasm(await engineWasm(readOptions('the options of renderTemplate', options, WASM), 'gpu'));
  return wasm.guard(() => wasm.renderTemplate(template, variables));
}
