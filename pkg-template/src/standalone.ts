// The functions that need the wasm but no model. They run on the thread of the caller.

import { loadWasm } from './wasm.js';
import { sentWasm, type WasmOptions } from './wasm_source.js';

/** Renders a chat template (Jinja, as models bring it) with a context such as {messages, add_generation_prompt, bos_token}. */
export async function renderTemplate(template: string, context: object, options: WasmOptions = {}): Promise<string> {
  const wasm = await loadWasm(await sentWasm(options));
  return wasm.guard(() => wasm.renderTemplate(template, context));
}
