// Several models behind one `fetch`: what is loaded when, and who waits for whom.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { openServing } from './clients/serving.mjs';

const LIMIT = { timeout: 240_000 };
let serving;
const run = (fn, argument) => serving.run(fn, argument);

before(async () => {
  serving = await openServing();
}, LIMIT);
after(() => serving?.close());

test('the model of a request chooses, and models are loaded when they are asked for', LIMIT, async () => {
  const told = await run(async () => {
    const server = rillm.serveModels({ a: small(), b: { ...small('tied-f32') }, c: '/golden/never.gguf' });
    const before = states(server);
    const a = await ask(server, { model: 'a' });
    const between = states(server);
    const b = await ask(server, { model: 'b' });
    const list = await (await server.fetch('http://x/v1/models')).json();
    const one = await (await server.fetch('http://x/v1/models/b')).json();
    const unknown = await ask(server, { model: 'd' });
    const none = await ask(server, {});
    const wrong = await ask(server, { model: 3 });
    const missing = await ask(server, { model: 'c' });
    // Broken JSON loads nothing.
    const broken = await (await server.fetch('http://x/v1/chat/completions', { method: 'POST', body: '{' })).status;
    const [, bytes] = server.list().map(({ bytes }) => bytes);
    await server.dispose();
    await server.dispose();
    const after = await ask(server, { model: 'a' });
    const refused = [];
    for (const make of [() => null, () => 'a.gguf', () => ({}), () => ({ a: undefined }), () => ({ a: small() })]) {
      try {
        rillm.serveModels(make(), make()?.a === undefined ? {} : { budgetBytes: 0 });
      } catch ({ code }) {
        refused.push(code);
      }
    }
    return {
      states: [before, between, states(server)],
      models: [a.json.model, b.json.model],
      backend: a.backend,
      list: list.data.map(({ id }) => id),
      one: one.id,
      errors: [unknown, none, wrong, missing, after].map(({ status, code }) => [status, code]),
      broken,
      bytes,
      refused,
    };
  });
  assert.deepEqual(told.states, [
    { a: 'unloaded', b: 'unloaded', c: 'unloaded' },
    { a: 'loaded', b: 'unloaded', c: 'unloaded' },
    { a: 'unloaded', b: 'unloaded', c: 'unloaded' },
  ]);
  assert.deepEqual([told.models, told.backend, told.list, told.one], [['a', 'b'], 'local', ['a', 'b', 'c'], 'b']);
  assert.deepEqual(told.errors, [
    [404, 'model_not_found'],
    [400, 'invalid_request'],
    [400, 'invalid_request'],
    [500, 'http'],
    [503, 'disposed'],
  ]);
  assert.ok(told.broken === 400 && told.bytes > 0);
  assert.deepEqual(told.refused, Array(5).fill('invalid_request'));
});

test('one load at a time, for all who wait; an abort ends the waiting, and the load if nobody else waits', LIMIT, async () => {
  const told = await run(async () => {
    const sources = { a: await gated('/golden/tied-q8_0.gguf'), b: await gated('/golden/tied-f32.gguf') };
    const server = rillm.serveModels({ a: { source: sources.a, options: quiet }, b: { source: sources.b, options: quiet } });
    const aborted = async (asked) => {
      try {
        await asked;
        return 'it did not reject';
      } catch (thrown) {
        return thrown.message;
      }
    };
    const [first, second] = [new AbortController(), new AbortController()];
    const waiting = [
      aborted(ask(server, { model: 'a' }, { signal: first.signal })),
      ask(server, { model: 'a' }),
      aborted(ask(server, { model: 'b' }, { signal: second.signal })),
    ];
    await until(() => sources.a.reads > 0);
    const during = states(server);
    const readsOfB = sources.b.reads;
    // One of two goes: the load goes on. The only one that waits for b goes before its load began.
    first.abort(new Error('enough'));
    second.abort(new Error('no more'));
    const reasons = [await waiting[0], await waiting[2]];
    const still = states(server);
    sources.a.open();
    const answered = await waiting[1];
    const bNever = sources.b.reads;
    // The only one goes while its model is read: the load ends, and a new request begins another.
    const third = new AbortController();
    const gone = aborted(ask(server, { model: 'b' }, { signal: third.signal }));
    await until(() => sources.b.reads > 0);
    third.abort(new Error('too slow'));
    reasons.push(await gone);
    const unloaded = states(server);
    const again = ask(server, { model: 'b' });
    sources.b.open();
    const { status } = await again;
    // Aborted before it begins.
    reasons.push(await aborted(ask(server, { model: 'b' }, { signal: third.signal })));
    await server.dispose();
    return { during, readsOfB, reasons, still, answered: answered.status, bNever, unloaded, status };
  });
  assert.deepEqual(told, {
    during: { a: 'loading', b: 'loading' },
    readsOfB: 0,
    reasons: ['enough', 'no more', 'too slow', 'too slow'],
    still: { a: 'loading', b: 'unloaded' },
    answered: 200,
    bNever: 0,
    unloaded: { a: 'loaded', b: 'unloaded' },
    status: 200,
  });
});

test('the least recently used engine goes if the budget is used up, but none that a request uses', LIMIT, async () => {
  const told = await run(async () => {
    const probe = await rillm.Engine.load('/golden/tied-q8_0.gguf', quiet);
    const bytes = probe.info.weight_bytes + probe.info.kv_cache_bytes;
    // Room for two of them; the engine that was handed in counts as one.
    const server = rillm.serveModels({ a: small(), b: small(), c: small(), own: probe, alias: probe }, { budgetBytes: 3 * bytes + 10 });
    const seen = [];
    const loaded = () =>
      seen.push(
        server
          .list()
          .filter(({ id, state }) => state === 'loaded' && id !== 'alias')
          .map(({ id }) => id)
          .join(),
      );
    await ask(server, { model: 'a' });
    await ask(server, { model: 'b' });
    loaded();
    await ask(server, { model: 'a' });
    await ask(server, { model: 'c' });
    loaded();
    // A stream that is not read to its end keeps a, and c goes though it was used later.
    const stream = await ask(server, { model: 'a', stream: true, max_tokens: 60 });
    const reader = stream.body.getReader();
    await reader.read();
    await ask(server, { model: 'c' });
    await ask(server, { model: 'b' });
    loaded();
    const running = server.list().map((model) => model.running);
    await reader.cancel();
    const idle = server.list().map((model) => model.running);
    await ask(server, { model: 'own' });
    loaded();
    // All run: the budget is exceeded until one ends.
    const [one, two] = [
      await ask(server, { model: 'a', stream: true, max_tokens: 60 }),
      await ask(server, { model: 'b', stream: true, max_tokens: 60 }),
    ];
    const { status } = await ask(server, { model: 'c' });
    loaded();
    await one.text();
    await two.text();
    // A model that is larger than the budget, and a conversation that goes on after its engine went.
    const tight = rillm.serveModels({ a: small(), b: small() }, { budgetBytes: bytes + 10 });
    const large = await ask(rillm.serveModels({ a: small() }, { budgetBytes: bytes - 10 }), { model: 'a' });
    const respond = (more) =>
      ask(tight, { messages: undefined, max_tokens: undefined, max_output_tokens: 2, input: 'The boat', ...more }, {}, 'responses');
    const first = await respond({ model: 'a' });
    const second = await respond({ model: 'b', previous_response_id: first.json.id });
    const listed = await (await tight.fetch(`http://x/v1/responses/${first.json.id}`)).json();
    const ends = [first, second].map(({ json }) => [json.model, json.status]);
    const inputs = [first, second].map(({ json }) => json.usage.input_tokens);
    await tight.dispose();
    await server.dispose();
    // What was handed in is the application's.
    const alive = (await probe.tokenize('a')).length > 0;
    await probe.dispose();
    const gone = await ask(server, { model: 'own' });
    return {
      seen,
      running,
      idle,
      status,
      large: [large.status, large.code],
      ends,
      inputs,
      same: listed.id === first.json.id,
      alive,
      gone: gone.code,
    };
  });
  assert.deepEqual(told.seen, ['a,b,own', 'a,c,own', 'a,b,own', 'a,b,own', 'a,b,own']);
  assert.deepEqual(
    [told.running, told.idle],
    [
      [1, 0, 0, 0, 0],
      [0, 0, 0, 0, 0],
    ],
  );
  assert.deepEqual([told.status, told.large], [200, [503, 'out_of_memory']]);
  assert.deepEqual(told.ends, [
    ['a', 'incomplete'],
    ['b', 'incomplete'],
  ]);
  assert.ok(told.inputs[0] < told.inputs[1]);
  assert.deepEqual([told.same, told.alive, told.gone], [true, true, 'disposed']);
});

test('to dispose of the server ends what runs, what loads and what waits', LIMIT, async () => {
  const told = await run(async () => {
    const source = await gated('/golden/tied-f32.gguf');
    const server = rillm.serveModels({ a: small(), b: { source, options: quiet } });
    const stream = await ask(server, { model: 'a', stream: true, max_tokens: 100_000, context_shift: true });
    const reader = stream.body.getReader();
    await reader.read();
    const waiting = ask(server, { model: 'b' });
    await until(() => source.reads > 0);
    const disposed = server.dispose();
    const { status, code } = await waiting;
    let text = '';
    for (let part = await reader.read(); !part.done; part = await reader.read()) text += new TextDecoder().decode(part.value);
    await disposed;
    source.open();
    return { status, code, text, states: states(server) };
  });
  assert.deepEqual([told.status, told.code, told.states], [503, 'disposed', { a: 'unloaded', b: 'unloaded' }]);
  assert.match(told.text, /"code":"disposed"/);
});
