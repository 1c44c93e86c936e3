// The engines that write text, each behind the same face: open() loads a model and gives {facts, generate, close}. `generate` tells
// every arrival of tokens to a callback, so that all are timed by the same clock. Each engine is set up as its documentation
// says, and where there is a choice, as it is fastest.

import { cpuOf } from './place.js';
import { openTransformersHere } from './transformers.js';
import { fetchBlob, openWllamaHere } from './wllama.js';

/** Tokens that every engine's context holds. */
const CONTEXT_LENGTH = 1024;

/** `precision` is that on the CPU; on the GPU rillm takes the one that it takes by itself. */
const openRillm = (precision) => async (source) => {
  const { gguf, versions, shaderF16, webGpu, device, threads } = source;
  const { Engine } = await import('rillm');
  const onCpu = { device, precision, threads };
  const engine = await Engine.load(gguf, { contextLength: CONTEXT_LENGTH, ...(device === 'cpu' ? onCpu : {}) });
  const note = device === 'cpu' ? `, ${engine.info.precision}` : shaderF16 ? '' : ', no shader-f16';
  return {
    facts: {
      version: versions.rillm,
      backend: engine.info.device === 'cpu' ? cpuOf(engine.info.threads) : webGpu,
      dtype: `${engine.info.quantization}${note}`,
    },
    async generate(prompt, newTokens, onTokens) {
      let last;
      for await (const chunk of await engine.completions.create({
        prompt,
        max_tokens: newTokens,
        temperature: 0,
        ignore_eos: true,
        stream: true,
      })) {
        onTokens(chunk.choices[0].token_ids.length);
        last = chunk;
      }
      const { usage, timings } = last;
      return { promptTokens: usage.prompt_tokens, own: { decode: timings.tokens_per_s, prefill: timings.prompt_tokens_per_s } };
    },
    close: () => engine.dispose(),
  };
};

async function openWllama(source) {
  const { wllama, log, facts } = await openWllamaHere(source);
  const onCpu = source.device === 'cpu' ? { n_gpu_layers: 0, n_threads: source.threads } : {};
  await wllama.loadModel([await fetchBlob(source.gguf)], { n_ctx: CONTEXT_LENGTH, n_parallel: 1, ...onCpu });
  return {
    facts: facts(),
    log,
    async generate(prompt, newTokens, onTokens) {
      let last;
      let usage;
      for await (const chunk of await wllama.createCompletion({
        prompt,
        max_tokens: newTokens,
        temperature: 0,
        ignore_eos: true,
        stream: true,
      })) {
        if (chunk.choices[0]?.text !== undefined && chunk.choices[0].finish_reason === null) onTokens(1);
        usage = chunk.usage ?? usage;
        if (chunk.timings !== undefined) last = chunk.timings;
      }
      // What it counts itself, where it tells: without its own prompt cache.
      return {
        promptTokens: last === undefined ? usage?.prompt_tokens : last.prompt_n + last.cache_n,
        newTokens: last?.predicted_n,
        own: last === undefined ? undefined : { decode: last.predicted_per_second, prefill: last.prompt_per_second },
      };
    },
    close: () => wllama.exit(),
  };
}

const ACTIVATIONS = { q8: ', 8-bit activations', fp32: '' };
ACTIVATIONS.q4 = ACTIVATIONS.q4f16 = `${ACTIVATIONS.q8} (accuracy_level 4)`;

/** `dtype` is that on the CPU: on the GPU it is what fits best what the adapter can do. */
const openTransformers = (dtypeOnCpu) => async (source) => {
  const { library, name, facts } = await openTransformersHere(source);
  const { AutoModelForCausalLM, AutoTokenizer, Tensor } = library;
  const onGpu = source.device === 'gpu';
  const dtype = onGpu ? (source.shaderF16 ? 'q4f16' : 'q4') : dtypeOnCpu;
  const tokenizer = await AutoTokenizer.from_pretrained(name);
  const model = await AutoModelForCausalLM.from_pretrained(name, { dtype, device: onGpu ? 'webgpu' : 'wasm' });
  return {
    facts: { ...facts, dtype: `${dtype}${ACTIVATIONS[dtype]}` },
    async generate(prompt, newTokens, onTokens) {
      const ids = tokenizer.encode(prompt, { add_special_tokens: false });
      const tensor = (values) => new Tensor('int64', BigInt64Array.from(values, BigInt), [1, ids.length]);
      let promptSeen = false;
      const streamer = {
        // The prompt comes first.
        put: (tokens) => (promptSeen ? onTokens(tokens[0].length) : (promptSeen = true)),
        end() {},
      };
      await model.generate({
        input_ids: tensor(ids),
        attention_mask: tensor(ids.map(() => 1)),
        max_new_tokens: newTokens,
        do_sample: false,
        streamer,
      });
      return { promptTokens: ids.length };
    },
    close: () => model.dispose(),
  };
};

export const ENGINES = {
  rillm: openRillm('fast'),
  'rillm-exact': openRillm('exact'),
  wllama: openWllama,
  // By itself it takes q8 on the CPU.
  'transformers.js': openTransformers('q8'),
  'transformers.js-q4': openTransformers('q4'),
  'transformers.js-fp32': openTransformers('fp32'),
};

/** Those that run if nothing else is asked for. */
export const DEFAULTS = {
  gpu: ['rillm', 'wllama', 'transformers.js'],
  cpu: ['rillm', 'rillm-exact', 'wllama', 'transformers.js'],
};
