// A server of OpenAI's API that answers as a recorded one did (scripts/record_server.mjs), to pages of any origin.

import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';

import { root } from '../browser.mjs';

const RECORDING = join(root, 'tests/golden/openai_server/recording.json');
const CORS = {
  'access-control-allow-origin': '*',
  'access-control-allow-headers': '*, authorization',
  'access-control-allow-methods': '*',
};
/** Between the pieces of a stream: long enough that a busy machine hands them out one by one. */
const PAUSE_MS = 100;

/**
 * → {origin, recording, seen: [{method, path, headers, text, aborted}], holdStreams, close}. A request that was not recorded is answered with
 * 418. After `holdStreams(true)` a stream stops in the middle until its client goes.
 */
export async function replay() {
  const recording = JSON.parse(readFileSync(RECORDING, 'utf8'));
  const seen = [];
  let isHeld = false;
  const server = createServer(async (request, response) => {
    if (request.method === 'OPTIONS') return response.writeHead(204, CORS).end();
    let text = '';
    for await (const bytes of request) text += bytes;
    const path = request.url.replace(/^\/v1/, '');
    const entry = { method: request.method, path, headers: request.headers, text, aborted: false };
    seen.push(entry);
    const body = text === '' ? undefined : JSON.parse(text);
    const found = recording.find(
      (known) => known.request.method === request.method && known.request.path === path && isDeepStrictEqual(known.request.body, body),
    );
    if (found === undefined) return response.writeHead(418, { ...CORS, 'content-type': 'application/json' }).end('{}');
    response.on('close', () => (entry.aborted = !response.writableFinished));
    response.writeHead(found.response.status, { ...CORS, ...found.response.headers });
    const gone = new Promise((resolve) => response.on('close', resolve));
    // Whether it is held stands when it begins, whatever is set while the client leaves.
    const stays = isHeld && body?.stream;
    for (const [index, chunk] of found.response.chunks.entries()) {
      response.write(chunk);
      await (stays && index === 1 ? gone : new Promise((resolve) => setTimeout(resolve, PAUSE_MS)));
    }
    response.end();
  });
  await new Promise((resolve) => server.listen(0, 'localhost', resolve));
  return {
    origin: `http://localhost:${server.address().port}`,
    recording,
    seen,
    holdStreams: (hold) => (isHeld = hold),
    close: () =>
      new Promise((resolve) => {
        server.close(resolve);
        server.closeAllConnections();
      }),
  };
}
