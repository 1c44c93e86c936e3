// The functions that need the wasm but no model. They run on the thread of the caller.

/** Renders a chat template (Jinja, as models bring it) with a context such as {messages, add_generation_prompt, bos_token}. */
export async function renderTemplate(template: string, context: object, options: { wasmUrl?: string | URL } = {}): Promise<string> {
  const wasm = await load(options.wasmUrl);
  return wasm.guard(() => wasm.renderTemplate(template, context));
}

async function load(wasmUrl: string | URL | undefined) {
  const { loadWasm } = await import('./wasm.js');
  return loadWasm(wasmUrl === undefined ? undefined : String(wasmUrl));
}
