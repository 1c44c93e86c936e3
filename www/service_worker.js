// Answers OpenAI's API for a whole origin: a model runs in this service worker, and every page's requests to /v1/* go to it. Pages need no
// package, only `fetch('/v1/chat/completions', …)` or any client of that API. An example, which the demo page does not use:
//
//   navigator.serviceWorker.register('/service_worker.js?model=hf:owner/name', { type: 'module' });
//
// Browsers end a service worker that has nothing to do; the next request starts it and loads the model again, from the disk.

import { Engine } from './rillm/dist/index.js';

const MODEL = new URL(location.href).searchParams.get('model') ?? './models/demo/rillm-demo-q4_0.gguf';

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
  let loaded;
  try {
    loaded = await engine();
  } catch ({ code, message }) {
    return Response.json({ error: { message, type: 'server_error', param: null, code } }, { status: 503 });
  }
  const response = await loaded.fetch(event.request);
  if (response.body === null) return response;
  // The browser may end a worker whose answer is still on its way, unless it is told of it.
  const { readable, writable } = new TransformStream();
  event.waitUntil(response.body.pipeTo(writable).catch(() => {}));
  return new Response(readable, response);
}

addEventListener('install', (event) => event.waitUntil(skipWaiting()));
// Also the pages that were opened before it.
addEventListener('activate', (event) => event.waitUntil(clients.claim()));
addEventListener('fetch', (event) => {
  const { origin, pathname } = new URL(event.request.url);
  // Any site may open an address or send a form to it; only this origin's pages may ask the model.
  if (event.request.mode === 'navigate') return;
  if (origin === location.origin && pathname.startsWith('/v1/')) event.respondWith(answer(event));
});
