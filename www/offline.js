// The service worker that lets the page open without a network: it keeps the page's own files, and nothing else. Models are kept by the package, in the
// origin private file system, and are not this worker's.
//
// With a network the newest files are served, and kept. A page whose own address can't be fetched is one that is offline: then all of its files come from
// what was kept together, so that no page is made of two versions.

const CACHE = 'rillm-page';
/** A network that has not answered by then is none. */
const PATIENCE_MS = 4000;
const isOurs = ({ origin, pathname }) => origin === location.origin && !pathname.includes('/models/') && !pathname.includes('/v1/');
const promptsOf = () => new URL('models/demo/prompts.json', location.href).href;

/** The files of the page, as its server lists them. */
async function keepAll() {
  const cache = await caches.open(CACHE);
  const response = await fetch('shell.json', { cache: 'no-cache' });
  if (!response.ok) throw new Error(`shell.json: status ${response.status}`);
  await cache.addAll(await response.json());
  // What is there on some servers only.
  await cache.add(promptsOf()).catch(() => {});
}

const keptOf = async (request) => (await caches.open(CACHE)).match(request, { ignoreSearch: request.mode === 'navigate' });

async function fromNetwork(request) {
  const response = await fetch(request);
  // Parts and pages of errors are not the file, and what is no file of the page is not kept.
  if (response.status === 200 && (await keptOf(request)) !== undefined) {
    const cache = await caches.open(CACHE);
    await cache.put(request, response.clone()).catch(() => {});
  }
  return response;
}

/** Pages that were opened without a network, by client: all they ask for is answered from what is kept. */
const offline = new Set();

async function answer(event) {
  const { request } = event;
  if (offline.has(event.clientId)) return (await keptOf(request)) ?? fetch(request);
  const asked = fromNetwork(request);
  // If it is late, it is kept for the next time all the same.
  event.waitUntil(asked.catch(() => {}));
  try {
    return await (request.mode === 'navigate' ? inTime(asked) : asked);
  } catch (error) {
    const kept = await keptOf(request);
    if (kept === undefined) throw error;
    if (request.mode === 'navigate' && event.resultingClientId) offline.add(event.resultingClientId);
    return kept;
  }
}

function inTime(work) {
  return Promise.race([work, new Promise((_, reject) => setTimeout(() => reject(new Error('the network does not answer')), PATIENCE_MS))]);
}

addEventListener('install', (event) => event.waitUntil(keepAll().then(() => skipWaiting())));
addEventListener('activate', (event) => event.waitUntil(clients.claim()));
addEventListener('fetch', (event) => {
  const { request } = event;
  if (request.method === 'GET' && !request.headers.has('range') && (isOurs(new URL(request.url)) || request.url === promptsOf()))
    event.respondWith(answer(event));
});
