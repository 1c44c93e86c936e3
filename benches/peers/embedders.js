// The engines that make vectors of texts, each behind the same face: open() loads a model and gives {facts, embed, close}. Vectors are means of those of a
// text's tokens, of length 1.

import { cpuOf } from './place.js';
import { openTransformersHere } from './transformers.js';

const openRillm = (precision) => async (source) => {
  const { gguf, versions, webGpu, device, threads } = source;
  const { Engine } = await import('rillm');
  const onCpu = { device, precision, threads };
  const engine = await Engine.load(gguf, device === 'cpu' ? onCpu : {});
  return {
    facts: {
      version: versions.rillm,
      backend: engine.info.device === 'cpu' ? cpuOf(engine.info.threads) : webGpu,
      dtype: `${engine.info.quantization}, ${engine.info.precision}`,
    },
    async embed(input) {
      const { data, usage } = await engine.embeddings.create({ input });
      return { vectors: data.map(({ embedding }) => embedding), tokens: usage.prompt_tokens };
    },
    close: () => engine.dispose(),
  };
};

const openTransformers = (dtype) => async (source) => {
  const { library, name, facts } = await openTransformersHere(source);
  const extract = await library.pipeline('feature-extraction', name, { dtype, device: source.device === 'gpu' ? 'webgpu' : 'wasm' });
  return {
    facts: { ...facts, dtype },
    async embed(texts) {
      const vectors = (await extract(texts, { pooling: 'mean', normalize: true })).tolist();
      return { vectors };
    },
    close: () => extract.dispose(),
  };
};

export const EMBEDDERS = {
  rillm: openRillm('fast'),
  'rillm-exact': openRillm('exact'),
  // By itself it takes q8 on the CPU.
  'transformers.js': openTransformers('q8'),
  'transformers.js-fp32': openTransformers('fp32'),
};

/** Those that run if nothing else is asked for. */
export const DEFAULTS = {
  gpu: ['rillm', 'transformers.js-fp32'],
  cpu: ['rillm', 'rillm-exact', 'transformers.js', 'transformers.js-fp32'],
};
