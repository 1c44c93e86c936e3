// A page with a frame in a sandbox, which has no origin, as those of playgrounds. The frame loads engines and tells the page around it.

import { serve } from '../../scripts/serve.mjs';
import { golden, packedPackage } from './browser.mjs';

/** Asks with the options of each of these names. */
const FRAME = (names) => `<!doctype html><link rel="icon" href="data:,"><script type="module">
let made = 0;
const Own = Worker;
globalThis.Worker = class extends Own {
  constructor(...args) {
    super(...args);
    made += 1;
  }
};
const { Engine } = await import('/rillm/dist/index.js');
const files = new Map();
const cache = { get: async (key) => files.get(key), put: async (key, bytes) => void files.set(key, bytes), delete: async (key) => void files.delete(key) };
const ALL = {
  gpu: { device: 'gpu' },
  cpu: { device: 'cpu' },
  kept: { device: 'cpu', cache },
  again: { device: 'cpu', cache },
};
async function answer(options) {
  const events = [];
  const before = made;
  const told = { onWarning: () => {}, onEvent: ({ type, reason }) => events.push([type, reason].filter(Boolean).join(' ')) };
  try {
    const engine = await Engine.load('/golden/tied-q8_0.gguf', { ...options, ...told });
    const { choices } = await engine.completions.create({ prompt: 'The small boat', max_tokens: 4, temperature: 0, ignore_eos: true });
    await engine.dispose();
    return { ids: choices[0].token_ids, device: engine.info.device, inWorker: made > before, events };
  } catch ({ code }) {
    return { code };
  }
}
const found = {};
for (const name of ${JSON.stringify(names)}) found[name] = await answer(ALL[name]);
parent.postMessage({ origin: globalThis.origin, found, files: files.size }, '*');
</script>`;

const AROUND = `<!doctype html><link rel="icon" href="data:,">
<script>addEventListener('message', ({ data }) => (globalThis.told = data));</script>
<iframe sandbox="allow-scripts" src="/frame.html"></iframe>`;

/** Serves the page at its root, where `told` becomes {origin, found, files}: what it found by name, and how many files its store has. */
export async function serveFrame(names) {
  const pages = { '/': AROUND, '/frame.html': FRAME(names) };
  return serve(
    { '/rillm/': await packedPackage(), '/golden/': golden },
    {
      handle: (_, response, path) => {
        response.setHeader('Access-Control-Allow-Origin', '*');
        response.setHeader('Access-Control-Expose-Headers', 'Content-Range, ETag');
        response.setHeader('Cross-Origin-Resource-Policy', 'cross-origin');
        if (!(path in pages)) return false;
        response.setHeader('Content-Type', 'text/html');
        response.end(pages[path]);
        return true;
      },
    },
  );
}
