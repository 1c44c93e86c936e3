// A server behind the models of the page: what goes there, what comes back, and what stays. It replays a recorded one.

import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { golden } from './browser.mjs';
import { replay } from './clients/replay.mjs';
import { openServing } from './clients/serving.mjs';
import { readGguf, writeGguf } from './gguf.mjs';

const LIMIT = { timeout: 240_000 };
let serving;
let server;
const run = (fn, argument) => serving.run(fn, argument);

before(async () => {
  serving = await openServing();
  server = await replay();
  // A model of an architecture that there is not.
  const file = readGguf(readFileSync(join(golden, 'tied-q8_0.gguf')));
  const name = Buffer.from('another');
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(name.length));
  file.entries.set('general.architecture', { type: 8, bytes: Buffer.concat([length, name]) });
  writeFileSync(join(serving.stage.made, 'unsupported.gguf'), writeGguf(file));
  await run((url) => {
    globalThis.remote = url;
  }, `${server.origin}/v1`);
}, LIMIT);
after(async () => {
  await serving?.close();
  await server?.close();
});

test('without a fallback nothing leaves the page, and with one only what cannot run here does', LIMIT, async () => {
  server.seen.length = 0;
  const told = await run(async () => {
    const models = { here: small(), remote: '/made/unsupported.gguf', large: small() };
    const alone = rillm.serveModels(models);
    const refused = await ask(alone, { model: 'remote' });
    await alone.dispose();
    const events = [];
    const serving = rillm.serveModels(models, {
      fallback: { baseURL: `${remote}/`, apiKey: 'secret', headers: { 'x-extra': 'yes' }, models: { large: 'remote' } },
      onFallback: ({ method, path, model, url, error, body }) => {
        events.push([method, path, model, url.slice(remote.length), error?.code, body?.max_tokens]);
        throw new Error('an error of the application');
      },
    });
    const reported = [];
    const note = (event) => (event.preventDefault(), reported.push(event.message));
    addEventListener('error', note);
    const story = { messages: [{ role: 'user', content: 'Tell me a story.' }], max_tokens: 16, ignore_eos: undefined };
    const local = await ask(serving, { model: 'here' });
    const passed = await ask(
      serving,
      { model: 'remote', ...story },
      { headers: { authorization: 'Bearer of the client', 'x-stainless': '1' } },
    );
    const stream = await ask(serving, { model: 'remote', ...story, stream: true });
    const pieces = [];
    const reader = stream.body.getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) pieces.push(new TextDecoder().decode(part.value));
    // Mistakes stay here, and so does what is unknown.
    const mistake = await ask(serving, { model: 'here', messages: 'none' });
    const unknown = await ask(serving, { model: 'nobody' });
    // Its own mistakes come as they are, and so do responses that are kept there.
    const theirs = await ask(serving, {
      model: 'remote',
      messages: [{ role: 'user', content: 'a '.repeat(600) }],
      max_tokens: undefined,
      temperature: undefined,
      ignore_eos: undefined,
    });
    const kept = await serving.fetch('http://x/v1/responses/resp_elsewhere');
    removeEventListener('error', note);
    await serving.dispose();
    const tight = rillm.serveModels({ large: small() }, { budgetBytes: 10, fallback: { baseURL: remote, models: { large: 'remote' } } });
    const renamed = await ask(tight, { model: 'large', ...story });
    return {
      refused: [refused.status, refused.code, refused.backend],
      local: [local.status, local.backend, local.json.model],
      passed: [passed.status, passed.backend, passed.json],
      stream: [stream.status, stream.headers.get('content-type'), stream.headers.get('x-rillm-backend')],
      pieces,
      mistakes: [mistake, unknown].map(({ status, backend }) => [status, backend]),
      theirs: [theirs.status, theirs.backend],
      kept: [kept.status, kept.headers.get('x-rillm-backend')],
      renamed: [renamed.status, renamed.json.choices?.[0].message.content],
      events,
      reported: reported.length,
    };
  });
  assert.deepEqual(told.refused, [500, 'unsupported_architecture', 'local']);
  assert.deepEqual(told.local, [200, 'local', 'here']);
  const [, whole, streamed, , wrong, elsewhere] = server.recording.map(({ response }) => response);
  assert.deepEqual(told.passed, [whole.status, 'remote', JSON.parse(whole.chunks.join(''))]);
  assert.deepEqual(told.stream, [streamed.status, streamed.headers['content-type'], 'remote']);
  assert.equal(told.pieces.join(''), streamed.chunks.join(''));
  // It streams: what is paused over there comes in pieces here.
  assert.ok(told.pieces.length > 2, String(told.pieces.length));
  assert.deepEqual(told.mistakes, [
    [400, 'local'],
    [404, 'local'],
  ]);
  assert.deepEqual(
    [told.theirs, told.kept],
    [
      [wrong.status, 'remote'],
      [elsewhere.status, 'remote'],
    ],
  );
  assert.deepEqual(told.renamed, [200, told.passed[2].choices[0].message.content]);
  const unsupported = 'unsupported_architecture';
  assert.deepEqual(told.events, [
    ['POST', '/v1/chat/completions', 'remote', '/chat/completions', unsupported, 16],
    ['POST', '/v1/chat/completions', 'remote', '/chat/completions', unsupported, 16],
    ['POST', '/v1/chat/completions', 'remote', '/chat/completions', unsupported, undefined],
    ['GET', '/v1/responses/resp_elsewhere', undefined, '/responses/resp_elsewhere', undefined, undefined],
  ]);
  assert.equal(told.reported, 4);
  const [first] = server.seen;
  assert.deepEqual(
    [first.headers.authorization, first.headers['x-extra'], first.headers['x-stainless']],
    ['Bearer secret', 'yes', undefined],
  );
  // The body as it was, byte for byte.
  assert.equal(
    first.text,
    JSON.stringify({ messages: [{ role: 'user', content: 'Tell me a story.' }], max_tokens: 16, temperature: 0, model: 'remote' }),
  );
});

test('when says so: before a request is tried here, and after it failed; aborts go through', LIMIT, async () => {
  server.seen.length = 0;
  server.holdStreams(true);
  const told = await run(async () => {
    const engine = await rillm.Engine.load('/golden/tied-q8_0.gguf', quiet);
    const asked = [];
    const story = { model: 'remote', messages: [{ role: 'user', content: 'Tell me a story.' }], max_tokens: 16, ignore_eos: undefined };
    const fetchWith = (when, more = {}) => ({ fetch: engine.createFetch({ fallback: { baseURL: remote, when, ...more } }) });
    const first = await ask(
      fetchWith((request, error) => (asked.push([request.path, request.model, error?.code]), error === undefined)),
      story,
    );
    const second = await ask(
      fetchWith(async (request, error) => (asked.push([request.path, request.model, error?.code]), error?.code === 'invalid_request')),
      { ...story, temperature: 0, no_such_field: 1 },
    );
    const never = await ask(
      fetchWith(() => 'yes'),
      { model: 'remote' },
    );
    const thrown = await ask(
      fetchWith(() => {
        throw new Error('a fault of the application');
      }),
      story,
    );
    // A stream that is aborted, one that nobody reads on, and one whose server is not there.
    const controller = new AbortController();
    const remoteOnly = fetchWith(() => true);
    const stream = await ask(remoteOnly, { ...story, stream: true }, { signal: controller.signal });
    const reader = stream.body.getReader();
    await reader.read();
    controller.abort(new Error('enough'));
    let reason;
    try {
      while (!(await reader.read()).done);
    } catch (error) {
      reason = error.message;
    }
    const cancelled = (await ask(remoteOnly, { ...story, stream: true })).body.getReader();
    await cancelled.read();
    await cancelled.cancel();
    let before;
    try {
      await ask(remoteOnly, story, { signal: controller.signal });
    } catch (error) {
      before = error.message;
    }
    const nobody = await ask(
      fetchWith(() => true, { baseURL: 'http://localhost:9/v1' }),
      story,
    );
    const bad = [];
    for (const fallback of [{ baseURL: 'nowhere' }, { baseURL: remote, when: true }]) {
      try {
        engine.createFetch({ fallback });
      } catch ({ code }) {
        bad.push(code);
      }
    }
    const plain = await ask(engine, { model: 'any' });
    await engine.dispose();
    return {
      asked,
      backends: [first, second, never, thrown, nobody, plain].map(({ status, backend, code }) => [status, backend, code]),
      reason,
      before,
      bad,
    };
  });
  assert.deepEqual(told.asked, [
    ['/v1/chat/completions', 'remote', undefined],
    ['/v1/chat/completions', 'remote', undefined],
    ['/v1/chat/completions', 'remote', 'invalid_request'],
  ]);
  assert.deepEqual(told.backends, [
    [200, 'remote', undefined],
    // It was not recorded.
    [418, 'remote', undefined],
    [200, 'local', undefined],
    [500, 'local', 'internal'],
    [502, 'remote', 'network'],
    [200, 'local', undefined],
  ]);
  assert.deepEqual([told.reason, told.before, told.bad], ['enough', 'enough', ['invalid_request', 'invalid_request']]);
  // The server hears of it, while it still holds the streams: one that had ended could not be aborted.
  const streams = server.seen.filter(({ text }) => text.includes('"stream":true'));
  for (let tries = 0; tries < 500 && !streams.every(({ aborted }) => aborted); tries++)
    await new Promise((resolve) => setTimeout(resolve, 20));
  server.holdStreams(false);
  assert.deepEqual(
    streams.map(({ aborted }) => aborted),
    [true, true],
  );
});

test('where there is no WebGPU and a model wants it, all goes to the server', LIMIT, async () => {
  const { page: other, close } = await serving.stage.openPage({ allowed: [/Failed to load resource/] });
  const told = await other.evaluate(async (baseURL) => {
    delete Navigator.prototype.gpu;
    const { serveModels } = await import('/rillm/dist/index.js');
    const models = { remote: { source: '/golden/tied-q8_0.gguf', options: { device: 'gpu', worker: false } } };
    const body = JSON.stringify({ model: 'remote', prompt: 'Once upon a time', max_tokens: 8, temperature: 0 });
    const codes = [];
    const statuses = [];
    for (const options of [{}, { fallback: { baseURL }, onFallback: ({ error }) => codes.push(error.code) }]) {
      const server = serveModels(models, options);
      const response = await server.fetch('http://x/v1/completions', { method: 'POST', body });
      statuses.push([response.status, response.headers.get('x-rillm-backend'), (await response.json()).error?.code]);
      await server.dispose();
    }
    return { codes, statuses };
  }, `${server.origin}/v1`);
  await close();
  assert.deepEqual(told, {
    codes: ['webgpu_unavailable'],
    statuses: [
      [500, 'local', 'webgpu_unavailable'],
      [200, 'remote', undefined],
    ],
  });
});
