// A worker whose script does not start: the error names the likely cause, and the page can go on without one.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { sharedChromium } from '../../scripts/chromium.mjs';
import { withDevice } from './device.mjs';
import { serve } from '../../scripts/serve.mjs';
import { golden, packedPackage } from './browser.mjs';

const LIMIT = { timeout: 120_000 };
let packed;
let browser;
before(async () => {
  packed = await packedPackage();
  browser = withDevice(await sharedChromium());
}, LIMIT);
after(() => browser?.close());

const BLANK = '<!doctype html><link rel="icon" href="data:,">';

/** Serves the package at `prefix`, and a page with these headers; `worker(response)` answers for the worker's script. */
async function site({ prefix = '/rillm/', headers = {}, worker }) {
  return serve(
    { [prefix]: packed, '/golden/': golden },
    {
      handle: (_, response, path) => {
        if (path === '/') {
          for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
          response.setHeader('Content-Type', 'text/html');
          response.end(BLANK);
          return true;
        }
        if (!path.endsWith('/worker.js') || worker === undefined) return false;
        return worker(response) ?? true;
      },
    },
  );
}

/** What `Engine.load` rejects with on a page of that site, and whether a load without a worker works then. */
async function failureOn(options, { from, load = {} } = {}) {
  const server = await site(options);
  const page = await browser.newPage();
  try {
    await page.goto(`${server.origin}/`);
    const address = `${from ?? server.origin}${options.prefix ?? '/rillm/'}dist/index.js`;
    return await page.evaluate(
      async ([address, make]) => {
        const { Engine, EngineError } = await import(address);
        const worker = make === undefined ? {} : { worker: (0, eval)(make) };
        const begin = performance.now();
        const failed = await Engine.inspect('/golden/tied-q8_0.gguf', worker).catch((error) => error);
        const { layers } = await Engine.inspect('/golden/tied-q8_0.gguf', { worker: false });
        const { code, message } = failed;
        return { isTyped: failed instanceof EngineError, code, message, ms: performance.now() - begin, layers, own: typeof Worker };
      },
      [address, load.worker],
    );
  } finally {
    await page.close();
    await server.close();
  }
}

const answer = (status, type, body) => (response) => {
  response.writeHead(status, { 'content-type': type, 'cross-origin-embedder-policy': 'require-corp' });
  response.end(body);
};

const CASES = {
  'not found': [{ worker: answer(404, 'text/plain', '') }, /status 404 for http\S+\/worker\.js; serve the package's folder dist/],
  'a page of HTML': [{ worker: answer(200, 'text/html', BLANK) }, /a page of HTML.*serve the package's folder dist/],
  "Vite's development server": [
    { prefix: '/node_modules/.vite/deps/', worker: answer(404, 'text/plain', '') },
    /optimizeDeps: \{exclude: \['rillm'\]\}/,
  ],
  'the wrong type': [
    { worker: answer(200, 'text/plain', '1') },
    /served as "text\/plain"; serve files that end in \.js as text\/javascript/,
  ],
  'a policy': [
    { headers: { 'Content-Security-Policy': "worker-src 'none'" } },
    /content security policy forbids it \(worker-src.*in worker-src/,
  ],
  'a file that it imports': [{ worker: answer(200, 'text/javascript', "import './nowhere.js';") }, /a file that it imports is missing/],
  'no embedder policy': [
    {
      worker: (response) => {
        response.removeHeader('Cross-Origin-Embedder-Policy');
        return false;
      },
    },
    /cross-origin isolated.*require-corp/,
  ],
};

for (const [name, [options, message]] of Object.entries(CASES)) {
  test(name, LIMIT, async () => {
    const failed = await failureOn(options);
    assert.match(failed.message, message);
    assert.match(failed.message, /worker: false/);
    assert.deepEqual([failed.isTyped, failed.code, failed.layers, failed.own], [true, 'worker_unavailable', 2, 'function'], failed.message);
  });
}

test('another origin that sends no Access-Control-Allow-Origin for it', LIMIT, async () => {
  const other = await serve(
    { '/rillm/': packed },
    {
      handle: (_, response, path) => {
        if (!path.endsWith('/worker.js')) response.setHeader('Access-Control-Allow-Origin', '*');
        return false;
      },
    },
  );
  try {
    const failed = await failureOn({}, { from: other.origin });
    assert.match(failed.message, /of another origin.*Access-Control-Allow-Origin/);
    // A policy without blob: keeps the worker of a package from another origin from starting, too.
    const forbidden = await failureOn(
      { headers: { 'Content-Security-Policy': `worker-src 'self' ${other.origin}` } },
      { from: other.origin },
    );
    assert.match(forbidden.message, /content security policy.*allow blob: in worker-src/);
    assert.deepEqual([failed.code, forbidden.code], ['worker_unavailable', 'worker_unavailable']);
  } finally {
    await other.close();
  }
});

test("an application's own worker, and a server that never answers again", LIMIT, async () => {
  const failed = await failureOn({}, { load: { worker: "() => new Worker('/nowhere.js', {type: 'module'})" } });
  assert.equal(failed.code, 'worker_unavailable');
  assert.match(failed.message, /the option worker made/);
  // The first request gets an error, the second nothing: the load ends all the same.
  let asked = 0;
  const silent = await failureOn({ worker: (response) => (asked++ === 0 ? answer(404, 'text/plain', '')(response) : true) });
  assert.equal(silent.code, 'worker_unavailable');
  assert.match(silent.message, /could not be fetched/);
  assert.ok(silent.ms < 20_000, `${silent.ms} ms`);
});

test('an abort while the cause is looked for: aborted, at once', LIMIT, async () => {
  let asked = 0;
  const server = await site({ worker: (response) => (asked++ === 0 ? answer(404, 'text/plain', '')(response) : true) });
  const page = await browser.newPage();
  await page.goto(`${server.origin}/`);
  const { code, ms } = await page.evaluate(async () => {
    const { Engine } = await import('/rillm/dist/index.js');
    const begin = performance.now();
    const { code } = await Engine.load('/golden/tied-q8_0.gguf', { signal: AbortSignal.timeout(500) }).catch((error) => error);
    return { code, ms: performance.now() - begin };
  });
  await page.close();
  await server.close();
  assert.equal(code, 'aborted');
  assert.ok(ms < 2500, `${ms} ms`);
});
