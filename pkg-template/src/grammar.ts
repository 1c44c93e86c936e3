// The grammar engine: a wasm of its own, loaded when a request first asks for structured output. The only file that touches its
// glue. The engine in the main wasm calls its objects by itself.

import init, { WasmGrammars } from './wasm/rillm_grammar.js';
import { EngineError } from './errors.js';
import type { WasmGrammarLoader } from './wasm.js';

let loading: Promise<unknown> | undefined;

/** What the engine asks when it needs grammars. After a failure, the next request tries again. */
export function grammarLoader(url: string | undefined): WasmGrammarLoader {
  return {
    async load(bytes, lengths, control, ends, tokenize) {
      loading ??= init(url === undefined ? undefined : { module_or_path: url });
      try {
        await loading;
      } catch (thrown) {
        loading = undefined;
        const where = url === undefined ? 'rillm_grammar_bg.wasm beside the package' : url;
        throw new EngineError(
          'wasm_unavailable',
          `the WebAssembly module ${where} did not load (${String(thrown)}), and structured output needs it: check that the file ` +
            `is served, or name its address with the option grammarWasmUrl`,
          { cause: thrown },
        );
      }
      return new WasmGrammars(bytes, lengths, control, ends, tokenize);
    },
  };
}
