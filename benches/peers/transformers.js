// transformers.js as both tasks set it up: models from this server alone, and ONNX Runtime from dist/vendor.

import { cpuOf } from './place.js';

/**
 * → {library, name, facts}: `name` is what it calls the model in `folder`. `runtime` is the file of ONNX Runtime: `asyncify` is the one that
 * transformers.js takes by itself, `plain` the one without WebGPU, which is a tenth faster on the CPU.
 */
export async function openTransformersHere({
  folder,
  versions,
  webGpu,
  device,
  threads,
  runtime = device === 'cpu' ? 'plain' : 'asyncify',
}) {
  const library = await import('@huggingface/transformers');
  const { env } = library;
  // It takes what is not a path for a model of the Hub.
  const [, base, name] = new URL(folder, document.baseURI).pathname.match(/^(.*\/)([^/]+)\/?$/);
  Object.assign(env, {
    allowLocalModels: true,
    allowRemoteModels: false,
    localModelPath: base,
    useBrowserCache: false,
    useWasmCache: false,
  });
  const file = new URL(`vendor/onnxruntime-web/ort-wasm-simd-threaded${runtime === 'plain' ? '' : '.asyncify'}`, document.baseURI).href;
  Object.assign(env.backends.onnx.wasm, { wasmPaths: { mjs: `${file}.mjs`, wasm: `${file}.wasm` } });
  if (device === 'cpu') env.backends.onnx.wasm.numThreads = threads;
  return {
    library,
    name,
    facts: {
      version: `${versions['@huggingface/transformers']} (onnxruntime-web ${versions['onnxruntime-web']})`,
      backend: device === 'cpu' ? cpuOf(threads) : webGpu,
    },
  };
}
