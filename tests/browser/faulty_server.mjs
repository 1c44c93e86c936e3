// A server of another origin whose next answers are faulty in the way that a test says: silent, dropped, cut, refused, another file. It notes
// every request.

import { createServer } from 'node:http';

const EXPOSED = 'Content-Range, ETag, Retry-After, Date, Content-Encoding';

/**
 * files: {path: bytes}. Resolves to {origin, requests, set(options), fault(path, ...faults), close()}.
 *
 * Options of all answers: {ranges, etag, modified, type, isLong: chunked and without a length, most: requests of a file at the same time, above
 * which it answers 429, pace: bytes in 10 ms}. `fault` lets the next requests for a file meet one
 * fault each, or each of them if the last is `always`: {silent}, {drop}, {status, headers}, {page, type}, {after: bytes, ending: 'silent', 'drop',
 * 'end' or 'wait', ms}, {redirect}, and any option or `bytes` for this answer alone.
 */
export async function serveFaulty(files) {
  let options = {};
  const faults = new Map();
  const requests = [];
  let running = 0;

  const server = createServer(async (request, response) => {
    const path = new URL(request.url, 'http://server').pathname.slice(1);
    response.setHeader('Access-Control-Allow-Origin', '*');
    response.setHeader('Access-Control-Allow-Headers', 'authorization, range');
    response.setHeader('Access-Control-Expose-Headers', EXPOSED);
    response.setHeader('Cross-Origin-Resource-Policy', 'cross-origin');
    response.setHeader('Cache-Control', 'no-store');
    // Chromium itself sends a request again that was dropped on a connection used before.
    response.setHeader('Connection', 'close');
    if (request.method === 'OPTIONS') return response.writeHead(204).end();
    const noted = { path, range: request.headers.range, authorization: request.headers.authorization, time: performance.now() };
    requests.push(noted);
    // Whether all of the answer went out; not there before its end.
    response.once('close', () => (noted.whole = response.writableFinished));
    const waiting = faults.get(path) ?? [];
    const fault = waiting[0]?.always ? waiting[0] : (waiting.shift() ?? {});
    const { ranges = true, etag, modified, type, isLong, most = Infinity, ...rest } = { ...options, ...fault };
    if (running >= most) return response.writeHead(429).end();
    running += 1;
    response.once('close', () => (running -= 1));
    if (rest.silent) return;
    if (rest.drop) return request.socket.destroy();
    if (rest.status !== undefined) return response.writeHead(rest.status, rest.headers).end();
    if (rest.redirect !== undefined) return response.writeHead(302, { location: rest.redirect }).end();
    if (rest.page !== undefined) {
      response.writeHead(200, { 'content-type': type ?? 'text/html', 'content-length': Buffer.byteLength(rest.page) });
      return response.end(rest.page);
    }
    const bytes = rest.bytes ?? files[path];
    if (bytes === undefined) return response.writeHead(404).end();
    if (etag) response.setHeader('ETag', etag);
    if (modified) response.setHeader('Last-Modified', modified);
    if (type) response.setHeader('Content-Type', type);
    const [, first, last] = (ranges && /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '')) || [];
    const start = Number(first ?? 0);
    const end = Math.min(Number(last ?? Infinity) + 1, bytes.length);
    if (start >= bytes.length && start > 0) return response.writeHead(416).end();
    const length = isLong ? {} : { 'content-length': end - start };
    if (first === undefined) response.writeHead(200, length);
    else response.writeHead(206, { 'content-range': rest.contentRange ?? `bytes ${start}-${end - 1}/${bytes.length}`, ...length });
    if (rest.pace !== undefined) return paced(response, bytes.subarray(start, end), rest.pace);
    if (rest.after === undefined) return response.end(bytes.subarray(start, end));
    const until = Math.min(start + rest.after, end);
    await new Promise((resolve) => response.write(bytes.subarray(start, until), resolve));
    if (rest.ending === 'silent') return;
    // What was written has to be read before the connection ends: it would be lost.
    await new Promise((resolve) => setTimeout(resolve, rest.ms ?? 120));
    if (rest.ending === 'wait') return response.end(bytes.subarray(until, end));
    if (rest.ending === 'end') return request.socket.end();
    request.socket.destroy();
  });
  await new Promise((resolve, reject) => server.once('error', reject).listen(0, resolve));

  return {
    origin: `http://localhost:${server.address().port}`,
    requests,
    /** Forgets faults and requests of before. */
    set(given = {}) {
      options = given;
      faults.clear();
      requests.length = 0;
    },
    fault: (path, ...more) => faults.set(path, [...more]),
    close: () => new Promise((resolve) => (server.close(resolve), server.closeAllConnections())),
  };
}

async function paced(response, bytes, pace) {
  for (let at = 0; at < bytes.length && !response.destroyed; at += pace) {
    response.write(bytes.subarray(at, at + pace));
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  response.end();
}
