// wllama as both tasks set it up, and what its log says of where it computes.

import { cpuOf } from './place.js';

/** → {wllama, log, facts}; `facts()` is asked when the model is loaded. */
export async function openWllamaHere({ versions, webGpu }) {
  const { Wllama } = await import('@wllama/wllama');
  const log = [];
  const keep = (...parts) => log.push(parts.join(' '));
  const wllama = new Wllama(
    { default: new URL('vendor/wllama/wllama.wasm', document.baseURI).href },
    { logger: { debug: keep, log: keep, warn: keep, error: keep } },
  );
  const facts = () => ({
    version: `${versions['@wllama/wllama']} (llama.cpp ${Wllama.getLibllamaVersion()})`,
    backend: backendOf(log, wllama, webGpu),
    dtype: 'the same file',
  });
  return { wllama, log, facts };
}

/** Its loader by URL would also store the file in the browser; that is left out of its loading time. */
export async function fetchBlob(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: status ${response.status}`);
  return response.blob();
}

/** llama.cpp writes what it offloaded into its log. */
function backendOf(log, wllama, webGpu) {
  const text = log.join('\n');
  const offloaded = text.match(/offloaded (\d+)\/(\d+) layers to GPU/);
  if (offloaded !== null && offloaded[1] !== '0') return `${webGpu}, ${offloaded[1]} of ${offloaded[2]} layers`;
  // It needs shader-f16 of the adapter, and else computes on the CPU.
  const onGpu = /load_tensors:\s+WebGPU\S* model buffer size/.test(text);
  return onGpu ? webGpu : cpuOf(wllama.isMultithread() ? wllama.getNumThreads() : 1);
}
