// The grammar engine: a wasm of its own, loaded when a request first asks for structured output. The only file that touches its
// glue. The engine in the main wasm calls its objects by itself.

import init, { WasmGrammars } from './wasm/rillm_grammar.js';
import { compileWasm, wasmName } from './compile_wasm.js';
import { EngineError } from './errors.js';
import type { WasmGrammarLoader } from './wasm.js';
import type { SentWasm } from './wasm_source.js';

let loading: Promise<unknown> | undefined;

/** What the engine asks when it needs grammars. After a failure, the next request tries again. */
export function grammarLoader(source: SentWasm | undefined): WasmGrammarLoader {
  return {
    async load(bytes, lengths, control, ends, tokenize) {
      loading ??= start(source);
      try {
        await loading;
      } catch (thrown) {
        loading = undefined;
        throw new EngineError(
          'wasm_unavailable',
          `the WebAssembly module ${wasmName(source, 'rillm_grammar_bg.wasm', 'grammarWasmModule')} did not load (${String(thrown)}), and ` +
            `structured output needs it: check that the file is served, or hand it in with the option grammarWasmUrl or grammarWasmModule`,
          { cause: thrown },
        );
      }
      return new WasmGrammars(bytes, lengths, control, ends, tokenize);
    },
  };
}

async function start(source: SentWasm | undefined): Promise<unknown> {
  // Bundlers look for exactly this expression.
  const module = await compileWasm(source ?? new URL('./wasm/rillm_grammar_bg.wasm', import.meta.url), 'wasmgrammars_new');
  return init({ module_or_path: module });
}
