// Models that run well in a page, smallest first. `bytes` is the size of the file, `kv` the bytes of a token in the KV cache in f16 (layers with attention
// · 2 · KV heads · size of a head · 2), `context` what the model was trained for. They are what is known before anything is asked of the hub; `Engine.inspect`
// says it exactly.

const MB = 1e6;
const GB = 1e9;

export const KNOWN = [
  {
    source: 'hf:bartowski/SmolLM2-135M-Instruct-GGUF:Q8_0',
    name: 'SmolLM2 135M Instruct',
    bytes: 145 * MB,
    kv: 23_040,
    context: 8192,
    words: 'Tiny: for a first try',
  },
  {
    source: 'hf:LiquidAI/LFM2-350M-GGUF:Q4_K_M',
    name: 'LFM2 350M',
    bytes: 229 * MB,
    kv: 12_288,
    context: 32_768,
    words: 'Small and quick',
  },
  {
    source: 'hf:unsloth/gemma-3-270m-it-GGUF:Q8_0',
    name: 'Gemma 3 270M',
    bytes: 292 * MB,
    kv: 18_432,
    context: 32_768,
    words: 'Follows short instructions',
  },
  {
    source: 'hf:bartowski/SmolLM2-360M-Instruct-GGUF:Q8_0',
    name: 'SmolLM2 360M Instruct',
    bytes: 386 * MB,
    kv: 40_960,
    context: 8192,
    words: 'Small talk and short texts',
  },
  {
    source: 'hf:Qwen/Qwen3-0.6B-GGUF:Q8_0',
    name: 'Qwen3 0.6B',
    bytes: 639 * MB,
    kv: 114_688,
    context: 40_960,
    words: 'Thinks, calls tools',
  },
  {
    source: 'hf:LiquidAI/LFM2-1.2B-GGUF:Q4_K_M',
    name: 'LFM2 1.2B',
    bytes: 731 * MB,
    kv: 12_288,
    context: 32_768,
    words: 'Quick, with little memory for long chats',
  },
  {
    source: 'hf:unsloth/gemma-3-1b-it-GGUF:Q4_K_M',
    name: 'Gemma 3 1B',
    bytes: 806 * MB,
    kv: 26_624,
    context: 32_768,
    words: 'Good texts in many languages',
  },
  {
    source: 'hf:unsloth/Llama-3.2-1B-Instruct-GGUF:Q4_K_M',
    name: 'Llama 3.2 1B Instruct',
    bytes: 808 * MB,
    kv: 32_768,
    context: 131_072,
    words: 'An all-rounder',
  },
  {
    source: 'hf:unsloth/Qwen3-1.7B-GGUF:Q4_K_M',
    name: 'Qwen3 1.7B',
    bytes: 1.11 * GB,
    kv: 114_688,
    context: 40_960,
    words: 'Thinks, calls tools, writes code',
  },
  {
    source: 'hf:bartowski/HuggingFaceTB_SmolLM3-3B-GGUF:Q4_K_M',
    name: 'SmolLM3 3B',
    bytes: 1.92 * GB,
    kv: 73_728,
    context: 65_536,
    words: 'Thinks; six languages',
  },
  {
    source: 'hf:unsloth/Llama-3.2-3B-Instruct-GGUF:Q4_K_M',
    name: 'Llama 3.2 3B Instruct',
    bytes: 2.02 * GB,
    kv: 114_688,
    context: 131_072,
    words: 'An all-rounder',
  },
  {
    source: 'hf:unsloth/Phi-4-mini-instruct-GGUF:Q4_K_M',
    name: 'Phi-4 mini',
    bytes: 2.49 * GB,
    kv: 131_072,
    context: 131_072,
    words: 'Reasoning and code',
  },
  {
    source: 'hf:unsloth/gemma-3-4b-it-GGUF:Q4_K_M',
    name: 'Gemma 3 4B',
    bytes: 2.49 * GB,
    kv: 139_264,
    context: 131_072,
    words: 'Good texts in many languages',
  },
  {
    source: 'hf:unsloth/Qwen3-4B-Instruct-2507-GGUF:Q4_K_M',
    name: 'Qwen3 4B Instruct',
    bytes: 2.5 * GB,
    kv: 147_456,
    context: 262_144,
    words: 'The best of its size',
  },
  {
    source: 'hf:unsloth/Qwen3-8B-GGUF:Q4_K_M',
    name: 'Qwen3 8B',
    bytes: 5.03 * GB,
    kv: 147_456,
    context: 40_960,
    words: 'For a GPU with 8 GB or more',
  },
];

/** Models that the page's own server may have. */
export const SERVED = [
  {
    path: 'models/demo/rillm-demo-q8_0.gguf',
    name: 'Demo model, Q8_0',
    bytes: 14.9 * MB,
    kv: 0,
    context: 1024,
    words: 'Fourteen million parameters, for a look around',
  },
  { path: 'models/demo/rillm-demo-q4_0.gguf', name: 'Demo model, Q4_0', bytes: 9.0 * MB, kv: 0, context: 1024, words: 'The same, smaller' },
  {
    path: 'models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf',
    name: 'SmolLM2 135M Instruct, Q4_1',
    bytes: 98 * MB,
    kv: 23_040,
    context: 8192,
    words: 'Tiny: for a first try',
  },
];
