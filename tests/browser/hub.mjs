// A server that behaves as the Hugging Face hub does, of another origin than the page: the API's list of files, resolve addresses that
// send on to a store on yet another origin, gated and private repositories, error codes in headers, CORS. It fails as a test says, and notes
// every request.

import { createHash } from 'node:crypto';
import { createReadStream, existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';

export const TOKEN = 'hf_a_token_for_tests';
const COMMIT = '0123456789abcdef0123456789abcdef01234567';
/** Files of these kinds lie in the store, as LFS files do; others come from the hub itself. */
const STORED = /\.(gguf|safetensors)$/;

/**
 * repositories: {"owner/name": {files: {path: file on disk}, gated?, private?, revisions?, digests?: {path: SHA-256 in place of the file's}}}.
 * Resolves to {endpoint, store, requests, expire(), fail(), close()}.
 */
export async function serveHub(repositories) {
  const requests = [];
  let signature = 1;
  let faults = {};
  /** True if the next fault of the server has answered. `half`: the file breaks off in its middle. */
  const isFaulty = (server, request, response) => {
    const fault = faults[server]?.shift();
    response.isHalf = fault === 'half';
    if (fault === undefined || fault === 200 || response.isHalf) return false;
    if (fault === 'drop') request.socket.destroy();
    else end(response, fault);
    return true;
  };

  const store = createServer((request, response) => {
    requests.push({ server: 'store', method: request.method, url: request.url, headers: request.headers });
    cors(request, response);
    if (request.method === 'OPTIONS') return end(response, 204);
    if (isFaulty('store', request, response)) return;
    const url = new URL(request.url, 'http://store');
    if (url.searchParams.get('signature') !== String(signature)) return end(response, 403);
    sendFile(request, response, Buffer.from(url.pathname.slice(1), 'hex').toString());
  });
  await listen(store);
  const storeOrigin = `http://127.0.0.1:${store.address().port}`;

  const hub = createServer((request, response) => {
    requests.push({ server: 'hub', method: request.method, url: request.url, headers: request.headers });
    cors(request, response);
    if (request.method === 'OPTIONS') return end(response, 204);
    if (isFaulty('hub', request, response)) return;
    const refuse = (status, code) => {
      response.setHeader('X-Error-Code', code);
      end(response, status);
    };
    const parts = new URL(request.url, 'http://hub').pathname.split('/').slice(1).map(decodeURIComponent);
    const isApi = parts[0] === 'api' && parts[1] === 'models';
    const [owner, name, kind, revision, ...path] = isApi ? parts.slice(2) : parts;
    const repository = repositories[`${owner}/${name}`];
    const token = request.headers.authorization;
    if (token !== undefined && token !== `Bearer ${TOKEN}` && token !== 'Bearer of_a_stranger') return refuse(401, 'InvalidToken');
    const allowed = token === `Bearer ${TOKEN}`;
    // Strangers are not told which repositories exist.
    if (repository === undefined || (repository.private && !allowed)) return refuse(token === undefined ? 401 : 404, 'RepoNotFound');
    if (!['main', COMMIT, ...(repository.revisions ?? [])].includes(revision)) return refuse(404, 'RevisionNotFound');
    if (isApi && kind === 'revision') {
      response.setHeader('content-type', 'application/json');
      const siblings = Object.entries(repository.files).map(([rfilename, file]) =>
        sibling(rfilename, file, repository, new URL(request.url, 'http://hub')),
      );
      return response.end(JSON.stringify({ id: `${owner}/${name}`, sha: COMMIT, gated: repository.gated ?? false, siblings }));
    }
    if (kind !== 'resolve') return refuse(404, 'EntryNotFound');
    if (repository.gated && !allowed) return refuse(token === undefined ? 401 : 403, 'GatedRepo');
    const file = repository.files[path.join('/')];
    if (file === undefined) return refuse(404, 'EntryNotFound');
    if (STORED.test(path.join('/')) && !repository.withoutStore) {
      response.writeHead(302, { location: `${storeOrigin}/${Buffer.from(file).toString('hex')}?signature=${signature}` });
      return response.end();
    }
    sendFile(request, response, file);
  });
  await listen(hub);

  return {
    endpoint: `http://localhost:${hub.address().port}`,
    store: storeOrigin,
    requests,
    /** From now on, addresses in the store that were given out before are refused. */
    expire: () => signature++,
    /** What the next requests meet, by server (`hub`, `store`): statuses, `drop` before the headers, or `half`. */
    fail: (given) => (faults = given),
    close: () => Promise.all([hub, store].map((server) => new Promise((resolve) => (server.close(resolve), server.closeAllConnections())))),
  };
}

/** What the list says of a file; its digest only with `?blobs=true`, and only of what lies in the store. */
function sibling(rfilename, file, { withoutStore, digests = {} }, url) {
  if (url.searchParams.get('blobs') !== 'true' || !existsSync(file)) return { rfilename };
  const { size } = statSync(file);
  if (!STORED.test(rfilename) || withoutStore) return { rfilename, size };
  const sha256 = digests[rfilename] ?? createHash('sha256').update(readFileSync(file)).digest('hex');
  return { rfilename, size, lfs: { sha256, size, pointerSize: 130 } };
}

/** The files of a folder, for `serveHub`. */
export function filesOf(folder) {
  return Object.fromEntries(readdirSync(folder).map((name) => [name, join(folder, name)]));
}

function cors(request, response) {
  response.setHeader('Access-Control-Allow-Origin', request.headers.origin ?? '*');
  response.setHeader('Access-Control-Allow-Headers', 'authorization, range');
  response.setHeader('Access-Control-Expose-Headers', 'X-Error-Code, Content-Range, ETag, Content-Encoding');
  response.setHeader('Cross-Origin-Resource-Policy', 'cross-origin');
  // Chromium itself sends a request again that was dropped on a connection used before.
  response.setHeader('Connection', 'close');
}

function sendFile(request, response, file) {
  if (!existsSync(file)) return end(response, 404);
  const { size, mtimeMs } = statSync(file);
  response.setHeader('ETag', `"${size}-${Math.round(mtimeMs)}"`);
  response.setHeader('Accept-Ranges', 'bytes');
  const range = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '');
  const start = Number(range?.[1] ?? 0);
  const last = Math.min(Number(range?.[2] || size - 1), size - 1);
  if (start >= size) return end(response, 416);
  const length = { 'content-length': last - start + 1 };
  if (range === null) response.writeHead(200, length);
  else response.writeHead(206, { 'content-range': `bytes ${start}-${last}/${size}`, ...length });
  if (!response.isHalf) return createReadStream(file, { start, end: last }).pipe(response);
  const half = createReadStream(file, { start, end: (start + last) >> 1 });
  half.pipe(response, { end: false });
  half.once('end', () => setTimeout(() => response.destroy(), 20));
}

function end(response, status) {
  response.statusCode = status;
  response.end();
}

function listen(server) {
  return new Promise((resolve, reject) => server.once('error', reject).listen(0, resolve));
}
