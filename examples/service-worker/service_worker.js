// Answers requests to /v1/* by a model in this service worker. Browsers end one that has nothing to do; the next request starts it again and
// loads the model from the disk.

import { Engine } from '/node_modules/rillm/dist/index.js';

const MODEL = new URL(location.href).searchParams.get('model') ?? 'hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M';
let loading;

/** Loads the model when it is first asked for. After a failure the next request tries again. */
function engine() {
  loading ??= Engine.load(MODEL).catch((error) => {
    loading = undefined;
    throw error;
  });
  return loading;
}

async function answer(event) {
  try {
    const { fetch } = await engine();
    const response = await fetch(event.request);
    if (response.body === null) return response;
    // The browser may end a worker whose answer is still on its way, unless it is told of it.
    const { readable, writable } = new TransformStream();
    event.waitUntil(response.body.pipeTo(writable).catch(() => {}));
    return new Response(readable, response);
  } catch ({ code, message }) {
    return Response.json({ error: { message, type: 'server_error', param: null, code } }, { status: 503 });
  }
}

addEventListener('install', (event) => event.waitUntil(skipWaiting()));
for (const type of ['activate', 'message']) addEventListener(type, (event) => event.waitUntil(clients.claim()));
addEventListener('fetch', (event) => {
  const { origin, pathname } = new URL(event.request.url);
  // Any site may open an address or send a form to it; only this origin's pages may ask the model.
  if (event.request.mode === 'navigate') return;
  if (origin === location.origin && pathname.startsWith('/v1/')) event.respondWith(answer(event));
});
