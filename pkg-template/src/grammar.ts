// The grammar engine: a wasm of its own, loaded when a request first asks for structured output. The only file that touches its
// glue. The engine calls its objects by itself.

import init, { WasmGrammars } from './wasm/rillm_grammar.js';
import { compileWasm, wasmLoader } from './compile_wasm.js';
import type { RetryPolicy } from './files/attempts.js';
import type { WasmGrammarLoader } from './wasm.js';
import type { SentWasm } from './wasm_source.js';

const NAMES = {
  file: 'rillm_grammar_bg.wasm',
  option: 'grammarWasmModule',
  advice: 'structured output needs it; check that the file is served, or hand it in with the option grammarWasmUrl or grammarWasmModule',
};

const loadGrammars = wasmLoader(NAMES, async (source, policy) => {
  // Bundlers look for exactly this expression.
  const module = await compileWasm(source ?? new URL('./wasm/rillm_grammar_bg.wasm', import.meta.url), 'wasmgrammars_new', policy);
  return init({ module_or_path: module });
});

/** What the engine asks when it needs grammars. */
export function grammarLoader(source: SentWasm | undefined, policy: RetryPolicy): WasmGrammarLoader {
  return {
    async load(bytes, lengths, control, ends, tokenize) {
      await loadGrammars(source, policy);
      return new WasmGrammars(bytes, lengths, control, ends, tokenize);
    },
  };
}
