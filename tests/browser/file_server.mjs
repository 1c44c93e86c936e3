// A server of one file that can be slow, break off, go silent, serve no ranges or change the file. It notes every request and the bytes
// that it sent.

import { createServer } from 'node:http';

/** → {url, origin, requests, sent(), set(options), close()}; options: {bytes, etag, ranges, delayMs, breakAfter, status, silentAfter}. */
export async function serveFile(bytes, initial = {}) {
  let options = { bytes, etag: '"1"', ranges: true, ...initial };
  const requests = [];

  const server = createServer(async (request, response) => {
    const { bytes, etag, ranges, delayMs = 0, breakAfter = Infinity, silentAfter = Infinity, status } = options;
    const note = { method: request.method, range: request.headers.range, sent: 0 };
    requests.push(note);
    response.setHeader('Access-Control-Allow-Origin', '*');
    response.setHeader('Access-Control-Allow-Headers', 'range');
    response.setHeader('Access-Control-Expose-Headers', 'Content-Range, ETag');
    response.setHeader('Cross-Origin-Resource-Policy', 'cross-origin');
    response.setHeader('Cache-Control', 'no-store');
    if (etag !== undefined) response.setHeader('ETag', etag);
    if (request.method === 'OPTIONS') return response.writeHead(204).end();
    if (status !== undefined || !request.url.startsWith('/model.gguf')) return response.writeHead(status ?? 404).end();
    const [, first, last] = (ranges && /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '')) || [];
    const start = Number(first ?? 0);
    const end = Math.min(Number(last ?? Infinity) + 1, bytes.length);
    if (first === undefined) response.writeHead(200, { 'content-length': bytes.length });
    else response.writeHead(206, { 'content-range': `bytes ${start}-${end - 1}/${bytes.length}`, 'content-length': end - start });
    const piece = 256 << 10;
    const closed = new Promise((resolve) => response.once('close', resolve));
    for (let at = start; at < end && !response.destroyed; at += piece) {
      const part = bytes.subarray(at, Math.min(at + piece, end));
      if (note.sent + part.length > silentAfter) return;
      if (note.sent + part.length > breakAfter) return response.destroy();
      note.sent += part.length;
      if (!response.write(part)) await Promise.race([closed, new Promise((resolve) => response.once('drain', resolve))]);
      if (delayMs > 0) await new Promise((resolve) => setTimeout(resolve, delayMs));
    }
    response.end();
  });
  await new Promise((resolve, reject) => server.once('error', reject).listen(0, resolve));

  return {
    origin: `http://localhost:${server.address().port}`,
    url: `http://localhost:${server.address().port}/model.gguf`,
    requests,
    /** Bytes of the file that were sent since `requests` was emptied. */
    sent: () => requests.reduce((sum, { sent }) => sum + sent, 0),
    set: (more) => (options = { ...options, ...more }),
    close: () => new Promise((resolve) => (server.close(resolve), server.closeAllConnections())),
  };
}
