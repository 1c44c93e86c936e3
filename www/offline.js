// The service worker that lets the page open without a network: it keeps the page's own files, and nothing else. Models are kept by the package, in the
// origin private file system, and are not this worker's.
//
// With a network the newest files are served. What is kept is one version of the page, as a whole: shell.json names its files with their digests. Each time
// that a page is opened with a network the list is looked at, and another version is fetched beside the one that is there, which it replaces when all
// of it is here. A page whose own address can't be fetched is one that is offline: then all of its files come from that version.

const SCOPE = new URL('./', location.href);
/** Caches of this page, which may have neighbours at the same origin: the rest of a name is the digest of the version. */
const CACHES = `rillm-page ${SCOPE.pathname} `;
/** The list, which is put into a cache last: a cache without one is not complete. */
const LIST = 'shell.json';
/** A network that has not answered by then is none. */
const PATIENCE_MS = 4000;
/** What some servers have: the prompts beside the demo model. */
const PROMPTS = new URL('models/demo/prompts.json', SCOPE).href;

/** Models have places of their own, and answers of the API are no files. */
function isOurs({ href, origin, pathname }) {
  if (origin !== SCOPE.origin || !pathname.startsWith(SCOPE.pathname)) return false;
  return href === PROMPTS || !/^(?:models|v1)\//.test(pathname.slice(SCOPE.pathname.length));
}

/** The version that is kept whole: {name, cache, shell}; undefined where there is none. */
let kept;

async function keptVersion() {
  kept ??= findVersion();
  return kept;
}

async function findVersion() {
  const names = (await caches.keys()).filter((name) => name.startsWith(CACHES));
  // The one that was begun last, if the worker was ended before it took the older one away.
  for (const name of names.reverse()) {
    const cache = await caches.open(name);
    const list = await cache.match(LIST);
    if (list !== undefined) return { name, cache, shell: await list.json() };
  }
  return undefined;
}

/** Keeps the version that the server has, if it is another one than what is kept. One worker at a time: a new one is installed beside the old one. */
const renew = () => navigator.locks.request(CACHES, renewAlone);

async function renewAlone() {
  const response = await fetch(LIST, { cache: 'no-cache' });
  if (!response.ok) throw new Error(`${LIST}: status ${response.status}`);
  const shell = await response.json();
  const old = await findVersion();
  const name = `${CACHES}${shell.digest}`;
  if (old?.name !== name) {
    await removeOthers(name, old?.name);
    await fill(name, shell, old);
  }
  kept = undefined;
  await removeOthers(name);
}

/** Rejects where a file is not there, or is not the one of the list, as in the middle of an upload: the next visit tries again, and what came is not fetched twice. */
async function fill(name, { digest, files }, old) {
  const cache = await caches.open(name);
  const ended = await Promise.allSettled(
    Object.entries(files).map(async ([path, wanted]) => {
      if ((await cache.match(path)) !== undefined) return;
      const same = old?.shell.files[path] === wanted ? await old.cache.match(path) : undefined;
      await cache.put(path, same ?? (await fetched(path, wanted)));
    }),
  );
  const failed = ended.find(({ status }) => status === 'rejected');
  if (failed !== undefined) {
    if (failed.reason.name === 'QuotaExceededError') await caches.delete(name);
    throw failed.reason;
  }
  await cache.add(PROMPTS).catch(() => {});
  await cache.put(LIST, Response.json({ digest, files }));
}

async function fetched(path, wanted) {
  const response = await fetch(path, { cache: 'no-cache' });
  if (response.status !== 200) throw new Error(`${path}: status ${response.status}`);
  const bytes = await response.arrayBuffer();
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
  if (Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('') !== wanted)
    throw new Error(`${path} is not the file that ${LIST} names`);
  // One of its own: browsers open no page from an answer that was redirected.
  return new Response(bytes, { headers: response.headers });
}

/** Also what the page's first worker kept, which had one cache for all versions. */
async function removeOthers(...names) {
  for (const name of await caches.keys())
    if ((name.startsWith(CACHES) && !names.includes(name)) || name === 'rillm-page') await caches.delete(name);
}

async function keptOf(request) {
  const version = await keptVersion();
  return version?.cache.match(request, { ignoreSearch: request.mode === 'navigate', ignoreVary: true });
}

/** Pages that were opened without a network, by client: all they ask for is answered from what is kept. */
const offline = new Set();

async function answer(event) {
  const { request } = event;
  const isPage = request.mode === 'navigate';
  // A page that is opened from one of these looks for the network again.
  if (!isPage && offline.has(event.clientId)) return (await keptOf(request)) ?? fetch(request);
  const asked = fetch(request);
  // Also if it is late.
  if (isPage) event.waitUntil(asked.then(renew).catch(() => {}));
  try {
    return await (isPage ? inTime(asked) : asked);
  } catch (error) {
    const file = await keptOf(request);
    if (file === undefined) throw error;
    if (isPage && event.resultingClientId) offline.add(event.resultingClientId);
    return file;
  }
}

function inTime(work) {
  return Promise.race([work, new Promise((_, reject) => setTimeout(() => reject(new Error('the network does not answer')), PATIENCE_MS))]);
}

addEventListener('install', (event) => event.waitUntil(renew().then(() => skipWaiting())));
addEventListener('activate', (event) => event.waitUntil(clients.claim()));
addEventListener('fetch', (event) => {
  const { request } = event;
  if (request.method === 'GET' && !request.headers.has('range') && isOurs(new URL(request.url))) event.respondWith(answer(event));
});
