// Every place where an engine can run: a page, its worker, an application's own workers, shared and service workers.

import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { launchWithExtension } from '../../scripts/chromium.mjs';
import { golden, openStage, packedPackage } from './browser.mjs';
import { serveFrame } from './frame.mjs';

const LIMIT = { timeout: 240_000 };
const MODEL = '/golden/tied-q8_0.gguf';

/** A worker of an application's: answers each message by an engine with the options in it. */
const OWN_WORKER = `
import { Engine } from '/rillm/dist/index.js';
async function answer({ data: options }, port) {
  try {
    const engine = await Engine.load('${MODEL}', options);
    const { choices } = await engine.completions.create({ prompt: 'The small boat', max_tokens: 4, temperature: 0, ignore_eos: true });
    await engine.dispose();
    port.postMessage({ ids: choices[0].token_ids, hasWorkers: typeof Worker !== 'undefined' });
  } catch ({ code, message }) {
    port.postMessage({ code, message });
  }
}
if ('onconnect' in globalThis) {
  addEventListener('connect', ({ ports: [port] }) => (port.onmessage = (event) => answer(event, port)));
} else addEventListener('message', (event) => answer(event, globalThis));
`;

let stage;
/** What the engine answers on a page. */
let ids;
before(async () => {
  stage = await openStage();
  writeFileSync(join(stage.made, 'own_worker.js'), OWN_WORKER);
}, LIMIT);
after(() => stage?.close());

test('a page, and its dedicated worker', LIMIT, async () => {
  const [inWorker, onPage] = await stage.run(async (model) => {
    const answers = [];
    for (const worker of [undefined, false]) {
      answers.push(
        await withEngine(model, { worker }, async (engine) => {
          const { choices } = await engine.completions.create({
            prompt: 'The small boat',
            max_tokens: 4,
            temperature: 0,
            ignore_eos: true,
          });
          return choices[0].token_ids;
        }),
      );
    }
    return answers;
  }, MODEL);
  assert.equal(inWorker.length, 4);
  assert.deepEqual(onPage, inWorker);
  ids = inWorker;
});

test("an application's own worker, with a worker of its own", LIMIT, async () => {
  const answer = await stage.run(async () => {
    const worker = new Worker('/made/own_worker.js', { type: 'module' });
    const answered = new Promise((resolve) => worker.addEventListener('message', ({ data }) => resolve(data)));
    worker.postMessage({});
    const answer = await answered;
    worker.terminate();
    return answer;
  });
  assert.deepEqual(answer, { ids, hasWorkers: true });
});

test('a frame in a sandbox, which has no origin: in a worker, by the GPU and by the CPU', LIMIT, async () => {
  const { page, close } = await stage.openPage();
  const frame = await serveFrame(['gpu', 'cpu', 'kept', 'again']);
  try {
    await page.goto(frame.origin);
    await page.waitForFunction(() => globalThis.told !== undefined);
    const { origin, found, files } = await page.evaluate(() => globalThis.told);
    assert.equal(origin, 'null');
    assert.deepEqual(found, {
      gpu: { ids, device: 'gpu', inWorker: true, events: ['fallback unavailable'] },
      cpu: { ids, device: 'cpu', inWorker: true, events: ['fallback unavailable'] },
      kept: { ids, device: 'cpu', inWorker: true, events: [] },
      again: { ids, device: 'cpu', inWorker: true, events: [] },
    });
    assert.ok(files >= 2, `${files} files`);
  } finally {
    await close();
    await frame.close();
  }
});

test('a shared worker', LIMIT, async () => {
  const [answer, insisted] = await stage.run(async () => {
    const { port } = new SharedWorker('/made/own_worker.js', { type: 'module' });
    const ask = (options) =>
      new Promise((resolve) => {
        port.onmessage = ({ data }) => resolve(data);
        port.postMessage(options);
      });
    return [await ask({}), await ask({ worker: true })];
  });
  assert.deepEqual(answer.ids, ids, JSON.stringify(answer));
  assert.equal(answer.hasWorkers, false);
  assert.deepEqual([insisted.code, /leave the option worker out/.test(insisted.message)], ['worker_unavailable', true]);
});

/** Lets a service worker answer for the origin, and waits until it does. */
async function serveBy(page, model) {
  await page.evaluate(async (model) => {
    const controlled = new Promise((resolve) => navigator.serviceWorker.addEventListener('controllerchange', resolve, { once: true }));
    await navigator.serviceWorker.register(`/service_worker.js?model=${encodeURIComponent(model)}`, { type: 'module' });
    await controlled;
  }, model);
}

const ask = (page, path, body) =>
  page.evaluate(
    async ([path, body]) => {
      const response = await fetch(path, body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) });
      return { status: response.status, backend: response.headers.get('x-rillm-backend'), json: await response.json() };
    },
    [path, body],
  );

const REQUEST = { prompt: 'The small boat', max_tokens: 4, temperature: 0, ignore_eos: true };

test("a service worker answers OpenAI's API for its origin, also after it was ended", LIMIT, async () => {
  const { page, close } = await stage.openPage({ allowed: [/Failed to load resource/] });
  await serveBy(page, MODEL);
  const first = await ask(page, '/v1/completions', REQUEST);
  assert.deepEqual(first.json.choices?.[0].token_ids, ids, JSON.stringify(first.json));
  assert.equal(first.backend, 'local');
  const { json: models } = await ask(page, '/v1/models');
  assert.equal(models.data.length, 1);
  assert.equal((await ask(page, '/v1/completions', { prompt: 3 })).status, 400);
  assert.equal((await ask(page, '/v1/nothing', {})).status, 404);
  // What is not below /v1/ goes to the server.
  assert.equal(
    await page.evaluate(async () => (await fetch('/golden/tied-q8_0.gguf', { method: 'HEAD' })).headers.get('x-rillm-backend')),
    null,
  );

  // A form that any site may send, and an address that is opened, ask no model.
  const form = await page.context().newPage();
  await form.goto('about:blank');
  const sent = form.waitForResponse((response) => response.url().endsWith('/v1/completions'));
  await form.evaluate(
    ([origin, request]) => {
      const form = document.createElement('form');
      Object.assign(form, { method: 'post', enctype: 'text/plain', action: `${origin}/v1/completions` });
      const field = document.createElement('input');
      // The value begins after a sign that the form adds.
      Object.assign(field, { name: `${JSON.stringify(request).slice(0, -1)},"user":"`, value: '"}' });
      form.append(field);
      document.body.append(form);
      form.submit();
    },
    [stage.origin, REQUEST],
  );
  assert.deepEqual([(await sent).status(), (await sent).fromServiceWorker()], [405, false]);
  const address = await page.context().newPage();
  const opened = await address.goto(`${stage.origin}/v1/models`);
  assert.deepEqual([opened.status(), opened.fromServiceWorker()], [404, false]);
  await form.close();
  await address.close();

  // Another page of the origin, with a stream: one that is read to its end and one that is left.
  const second = await page.context().newPage();
  await second.goto(`${stage.origin}/blank/`);
  const streamed = await second.evaluate(async (request) => {
    const stream = (max_tokens, signal) =>
      fetch('/v1/completions', { method: 'POST', body: JSON.stringify({ ...request, max_tokens, stream: true }), signal });
    const text = await (await stream(4)).text();
    const abort = new AbortController();
    const left = (await stream(200, abort.signal)).body.getReader();
    await left.read();
    abort.abort();
    const ended = await left.read().then(
      () => 'ended',
      ({ name }) => name,
    );
    return { text, ended };
  }, REQUEST);
  assert.match(streamed.text, /^data: \{.*data: \[DONE\]\s*$/s);
  assert.equal(streamed.ended, 'AbortError');

  // The browser ends the worker amid an answer: its reader hears of it, and the next request starts it and loads the model again.
  const cdp = await page.context().newCDPSession(page);
  await cdp.send('ServiceWorker.enable');
  await second.evaluate(async (request) => {
    const body = JSON.stringify({ ...request, max_tokens: 100_000, context_shift: true, stream: true });
    globalThis.reader = (await fetch('/v1/completions', { method: 'POST', body })).body.getReader();
    await reader.read();
  }, REQUEST);
  await cdp.send('ServiceWorker.stopAllWorkers');
  const broken = await second.evaluate(async () => {
    try {
      for (let part = await reader.read(); !part.done; part = await reader.read());
      return 'ended';
    } catch ({ name }) {
      return name;
    }
  });
  assert.equal(broken, 'TypeError');
  const again = await ask(second, '/v1/completions', REQUEST);
  assert.deepEqual(again.json.choices?.[0].token_ids, ids, JSON.stringify(again.json));
  await close();
});

test('a service worker whose model does not load says so, and tries again', LIMIT, async () => {
  const { page, close } = await stage.openPage({ allowed: [/Failed to load resource/] });
  await serveBy(page, '/made/later.gguf');
  const { status, json } = await ask(page, '/v1/completions', REQUEST);
  assert.deepEqual([status, json.error.code], [503, 'http'], JSON.stringify(json));
  cpSync(join(golden, 'tied-q8_0.gguf'), join(stage.made, 'later.gguf'));
  const { json: later } = await ask(page, '/v1/completions', REQUEST);
  assert.deepEqual(later.choices?.[0].token_ids, ids, JSON.stringify(later));
  await close();
});

/** An extension: its service worker answers messages, and so does its offscreen document. */
const EXTENSION = {
  'manifest.json': JSON.stringify({
    manifest_version: 3,
    name: 'rillm test',
    version: '1',
    permissions: ['offscreen'],
    background: { service_worker: 'background.js', type: 'module' },
    content_security_policy: { extension_pages: "script-src 'self' 'wasm-unsafe-eval'; object-src 'self'" },
  }),
  'complete.js': `
import { Engine } from './rillm/dist/index.js';
export async function complete() {
  // Files of an extension come without their size.
  const engine = await Engine.load(await (await fetch('model.gguf')).blob());
  const { choices } = await engine.completions.create(${JSON.stringify(REQUEST)});
  await engine.dispose();
  return { ids: choices[0].token_ids, hasWorkers: typeof Worker !== 'undefined' };
}`,
  'background.js': `
import { complete } from './complete.js';
globalThis.here = complete;
globalThis.offscreen = async () => {
  await chrome.offscreen.createDocument({ url: 'offscreen.html', reasons: ['WORKERS'], justification: 'runs a model' });
  return chrome.runtime.sendMessage('complete');
};`,
  'offscreen.html': '<!doctype html><script type="module" src="offscreen.js"></script>',
  'offscreen.js': `
import { complete } from './complete.js';
chrome.runtime.onMessage.addListener((message, sender, respond) => {
  complete().then(respond, ({ code, message }) => respond({ code, message }));
  return true;
});`,
};

test('an extension (MV3): its service worker and its offscreen document', LIMIT, async () => {
  const folder = mkdtempSync(join(tmpdir(), 'rillm-extension-'));
  const profile = mkdtempSync(join(tmpdir(), 'rillm-profile-'));
  for (const [name, text] of Object.entries(EXTENSION)) writeFileSync(join(folder, name), text);
  cpSync(join(golden, 'tied-q8_0.gguf'), join(folder, 'model.gguf'));
  cpSync(join(await packedPackage(), 'dist'), join(folder, 'rillm/dist'), { recursive: true });
  const context = await launchWithExtension(folder, profile);
  try {
    const worker = context.serviceWorkers()[0] ?? (await context.waitForEvent('serviceworker', { timeout: 30_000 }));
    assert.deepEqual(await worker.evaluate(() => here()), { ids, hasWorkers: false });
    assert.deepEqual(await worker.evaluate(() => offscreen()), { ids, hasWorkers: true });
  } finally {
    await context.close();
    for (const made of [folder, profile]) rmSync(made, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  }
});

test('nothing keeps an engine that was disposed of, of this thread or of a worker', LIMIT, async () => {
  const { page, prepare, close } = await stage.openPage();
  try {
    await prepare('/rillm/dist/index.js');
    await page.evaluate(async (model) => {
      globalThis.kept = [];
      for (const worker of [false, true]) {
        const engine = await rillm.Engine.load(model, { worker, cache: 'none', onProgress: () => {} });
        await engine.completions.create({ prompt: 'The small boat', max_tokens: 2, temperature: 0 });
        await engine.dispose();
        kept.push(new WeakRef(engine));
      }
    }, MODEL);
    const session = await page.context().newCDPSession(page);
    let kept;
    // What the browser itself still holds of a promise or a message goes soon.
    for (let turn = 0; turn < 10 && (kept === undefined || kept.includes(true)); turn++) {
      if (turn > 0) await page.waitForTimeout(200);
      await session.send('HeapProfiler.collectGarbage');
      kept = await page.evaluate(() => globalThis.kept.map((engine) => engine.deref() !== undefined));
    }
    assert.deepEqual(kept, [false, false]);
  } finally {
    await close();
  }
});
