// The conversations of the page without a browser: a store in memory and an engine that answers what is planned. Questions, failures, versions, calls of tools, stops and
// deletions, in any order and twice.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Chat } from '../../www/chat/chat.js';

/** As `openStore` gives it. */
function memoryStore() {
  const all = new Map();
  return {
    all,
    list: async () => [...all.values()].map(({ conversation }) => conversation),
    read: async (id) => structuredClone(all.get(id)),
    async write(conversation, messages = []) {
      const known = all.get(conversation.id)?.messages ?? new Map();
      for (const message of messages) known.set(message.id, structuredClone(message));
      all.set(conversation.id, { conversation: structuredClone(conversation), messages: known });
    },
    async update(conversation, messages) {
      if (!all.has(conversation.id)) return false;
      await this.write(conversation, messages);
      return true;
    },
    delete: async (id) => all.delete(id),
    search: async () => new Set(),
  };
}

const HOLD = Symbol('until it is stopped');

function openChat({ faults = [], store = memoryStore() } = {}) {
  const plans = [];
  const requests = [];
  const problems = [];
  const ended = [];
  let users = 0;
  const engine = {
    stats: async () => ({}),
    chat: {
      completions: {
        async create(request, { signal }) {
          requests.push(structuredClone(request));
          const { parts = ['An answer'], finish = 'stop', error } = plans.shift() ?? {};
          if (error !== undefined && parts.length === 0) throw Object.assign(new Error('it failed'), { code: error });
          return (async function* () {
            for (const part of parts) {
              if (part === HOLD) await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
              if (signal.aborted) break;
              yield { choices: [{ delta: typeof part === 'string' ? { content: part } : part, token_ids: [1], finish_reason: null }] };
            }
            if (error !== undefined) throw Object.assign(new Error('it failed'), { code: error });
            const usage = { prompt_tokens: 5, completion_tokens: 1, total_tokens: 6, prompt_tokens_details: { cached_tokens: 2 } };
            yield { choices: [{ delta: {}, token_ids: [], finish_reason: signal.aborted ? 'cancelled' : finish }], usage, timings: {} };
          })();
        },
      },
    },
  };
  const use = () => {
    users += 1;
    return () => (users -= 1);
  };
  let host = { engine, name: 'a model', use };
  const chat = new Chat(store, {
    engine: () => host,
    settings: () => ({ fields: { temperature: 0 }, faults, tools: [], format: undefined }),
    onChange: () => {},
    onPart: () => {},
    onAnswer: () => {},
    onEnd: ({ meta }) => ended.push(meta.id),
    onKept: () => {},
    onProblem: ({ code }) => problems.push(code),
    onStoreProblem: ({ name }) => problems.push(name),
  });
  return {
    chat,
    store,
    plans,
    requests,
    problems,
    ended,
    users: () => users,
    unload: () => (host = undefined),
    load: () => (host = { engine, name: 'a model', use }),
  };
}

const texts = (chat) => chat.path.map(({ content }) => content);
const last = (chat) => chat.path.at(-1);
const call = (id, name, given) => ({
  tool_calls: [{ index: 0, id, type: 'function', function: { name, arguments: JSON.stringify(given) } }],
});
const twoCalls = (...all) => ({
  tool_calls: all.map(({ tool_calls: [one] }, index) => ({ ...one, index })),
});
const soon = () => new Promise((resolve) => setTimeout(resolve, 10));

test('a question is kept with its answer, and a second click while it is answered asks nothing', async () => {
  const { chat, store, requests, ended, users } = openChat();
  await Promise.all([chat.send('One'), chat.send('Two')]);
  assert.deepEqual(texts(chat), ['One', 'An answer']);
  assert.equal(requests.length, 1);
  assert.equal(users(), 0, 'the model is let go');
  assert.deepEqual(ended, [chat.shown.meta.id]);
  assert.equal([...store.all.values()][0].messages.size, 2);
  assert.equal(last(chat).cached, 2);
  assert.equal(chat.run, undefined);
});

/** Has these Web Locks until the test ends. */
function withLocks(t, locks) {
  const before = Object.getOwnPropertyDescriptor(globalThis, 'navigator');
  Object.defineProperty(globalThis, 'navigator', { configurable: true, value: { locks } });
  t.after(() => (before === undefined ? delete globalThis.navigator : Object.defineProperty(globalThis, 'navigator', before)));
}

test('a browser that refuses locks, as in a frame of a sandbox: answers come all the same, and what breaks off is told once', async (t) => {
  const refuse = async () => {
    throw new DOMException('no locks here', 'SecurityError');
  };
  withLocks(t, { request: refuse, query: refuse });
  const { chat, plans, problems, requests } = openChat();
  await chat.send('One');
  assert.deepEqual(texts(chat), ['One', 'An answer']);
  assert.equal(last(chat).state, 'done');
  plans.push({ parts: ['Half'], error: 'device_lost' });
  await chat.send('Two');
  assert.deepEqual([last(chat).state, last(chat).content, problems], ['failed', 'Half', ['device_lost']]);
  assert.equal(requests.length, 2);
  await chat.heard({ id: chat.shown.meta.id });
  assert.equal(texts(chat).length, 4);
});

test('an answer is being written from the moment it is there, however long its lock takes', async (t) => {
  withLocks(t, { request: async (_name, work) => (await soon(), work()) });
  const { chat } = openChat();
  const states = new Set();
  const asked = chat.send('One');
  for (let turn = 0; turn < 50 && last(chat)?.content !== 'An answer'; turn++) {
    const { role, content, state } = last(chat) ?? {};
    if (role === 'assistant') states.add(`${state} ${content === '' ? 'and empty' : ''}`);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  await asked;
  assert.deepEqual([...states], ['writing and empty']);
  assert.equal(last(chat).state, 'done');
});

test('what fails stays with its question: it is asked again in its place, and goes on where it broke off', async () => {
  const { chat, plans, requests, problems } = openChat();
  plans.push({ parts: [], error: 'context_length_exceeded' });
  await chat.send('Long');
  assert.deepEqual([last(chat).state, last(chat).error.code, problems], ['failed', 'context_length_exceeded', ['context_length_exceeded']]);
  await chat.send('Shorter');
  assert.deepEqual(requests.at(-1).messages, [{ role: 'user', content: 'Long\n\nShorter' }]);
  plans.push({ parts: ['Half'], error: 'device_lost' });
  await chat.regenerate(last(chat).id);
  assert.equal(last(chat).content, 'Half');
  await chat.resume(last(chat).id);
  assert.equal(last(chat).content, 'HalfAn answer');
  assert.equal(requests.at(-1).continue_final_message, true);
  assert.equal(last(chat).error, undefined);
});

test('without a model, or with a wrong setting, the question is kept and told why', async () => {
  const { chat, unload, requests } = openChat();
  unload();
  await chat.send('Anybody?');
  assert.match(last(chat).error.message, /no model yet/);
  const wrong = openChat({ faults: ['Temperature has to be a number from 0 to 2.'] });
  await wrong.chat.send('Hi');
  assert.match(last(wrong.chat).error.message, /Temperature/);
  assert.deepEqual([requests, wrong.requests], [[], []]);
});

test('an edit and an answer that is written again are versions; nothing is lost', async () => {
  const { chat, plans } = openChat();
  await chat.send('One');
  const [first] = chat.path;
  plans.push({ parts: ['Another'] });
  await chat.regenerate(last(chat).id);
  await chat.edit(first.id, 'Two');
  assert.deepEqual(texts(chat), ['Two', 'An answer']);
  await chat.choose(first.id);
  assert.deepEqual(texts(chat), ['One', 'Another']);
  assert.equal(chat.shown.messages.size, 5);
  await chat.edit('no such message', 'x');
  await chat.regenerate('no such message');
  assert.equal(chat.shown.messages.size, 5);
});

test('built-in tools run and the model goes on; at some point it has to end', async () => {
  const { chat, plans, requests } = openChat();
  plans.push({ parts: [call('a', 'calculator', { expression: '6*7' })], finish: 'tool_calls' });
  await chat.send('Compute');
  assert.deepEqual(texts(chat), ['Compute', '', '42', 'An answer']);
  requests.length = 0;
  for (let i = 0; i < 20; i++) plans.push({ parts: [call(`c${i}`, 'clock', {})], finish: 'tool_calls' });
  await chat.send('For ever');
  assert.equal(requests.length, 8);
  assert.equal(chat.run, undefined);
  // A person may let it go on.
  await chat.resume(last(chat).id);
  assert.equal(requests.length, 15);
});

test('a call that the page does not know waits for a person, who answers it once', async () => {
  const { chat, plans } = openChat();
  plans.push({ parts: [call('w', 'get_weather', {})], finish: 'tool_calls' });
  await chat.send('Weather?');
  const { id } = last(chat);
  await Promise.all([chat.answerCall(id, 'w', 'sun'), chat.answerCall(id, 'w', 'rain')]);
  await chat.answerCall(id, 'w', 'snow');
  assert.deepEqual(texts(chat).slice(-2), ['sun', 'An answer']);
});

test('of several calls the page runs its own, and each of the others takes a result, in any order', async () => {
  const { chat, plans, requests } = openChat();
  plans.push({ parts: [twoCalls(call('w', 'get_weather', {}), call('n', 'get_news', {}))], finish: 'tool_calls' });
  await chat.send('Weather and news?');
  const { id } = last(chat);
  await chat.answerCall(id, 'n', 'none');
  assert.equal(requests.length, 1, 'one is missing');
  await chat.answerCall(id, 'n', 'twice');
  await chat.answerCall(id, 'w', 'sun');
  assert.deepEqual(texts(chat), ['Weather and news?', '', 'none', 'sun', 'An answer']);
  await chat.answerCall(id, 'w', 'too late');
  assert.equal(chat.path.length, 5);

  plans.push({ parts: [twoCalls(call('w', 'get_weather', {}), call('s', 'calculator', { expression: '6*7' }))], finish: 'tool_calls' });
  await chat.send('Weather and a sum?');
  assert.deepEqual(texts(chat).slice(-2), ['', '42']);
  await chat.answerCall(chat.path.at(-2).id, 'w', 'rain');
  assert.deepEqual(texts(chat).slice(-3), ['42', 'rain', 'An answer']);
  assert.deepEqual(
    requests
      .at(-1)
      .messages.slice(-2)
      .map(({ tool_call_id, content }) => [tool_call_id, content]),
    [
      ['s', '42'],
      ['w', 'rain'],
    ],
  );
});

test('a call that waited when the page was loaded again can be answered, or goes on', async () => {
  const { chat, store, plans } = openChat();
  plans.push({
    parts: [twoCalls(call('f', 'fetch_address', { url: 'https://a.example/' }), call('w', 'get_weather', {}))],
    finish: 'tool_calls',
  });
  void chat.send('Fetch');
  await soon();
  assert.equal(chat.run.consent.url, 'https://a.example/');
  for (const isAllowedFirst of [true, false]) {
    // Another page, with what is kept.
    const later = openChat({ store: { ...memoryStore(), list: store.list, read: store.read, update: async () => true } });
    await later.chat.open(chat.shown.meta.id);
    const { id } = last(later.chat);
    const allowing = async (asked) => {
      await soon();
      later.chat.run.consent.answer(false);
      await asked;
    };
    if (isAllowedFirst) {
      await allowing(later.chat.resume(id));
      await later.chat.answerCall(id, 'w', 'sun');
    } else await allowing(later.chat.answerCall(id, 'w', 'sun'));
    const results = later.chat.path.filter(({ role }) => role === 'tool').map(({ call: of }) => of);
    assert.deepEqual(results, isAllowedFirst ? ['f', 'w'] : ['w', 'f']);
    assert.equal(last(later.chat).content, 'An answer');
  }
  chat.stop();
});

test('calls whose results are there go on when there is a model again', async () => {
  const { chat, plans, unload, load } = openChat();
  plans.push({ parts: [call('w', 'get_weather', {})], finish: 'tool_calls' });
  await chat.send('Weather?');
  const { id } = last(chat);
  unload();
  await chat.answerCall(id, 'w', 'sun');
  assert.match(chat.shown.messages.get(id).error.message, /no model yet/);
  assert.deepEqual(texts(chat), ['Weather?', '', 'sun']);
  load();
  await chat.resume(id);
  assert.deepEqual(texts(chat), ['Weather?', '', 'sun', 'An answer']);
  assert.equal(chat.shown.messages.get(id).error, undefined);
});

test('an id of a call that comes again later has a result of its own', async () => {
  const { chat, plans, requests } = openChat();
  for (const result of ['sun', 'rain']) {
    plans.push({ parts: [call('call_0', 'get_weather', {})], finish: 'tool_calls' });
    await chat.send('Weather?');
    await chat.answerCall(last(chat).id, 'call_0', result);
  }
  assert.deepEqual(texts(chat), ['Weather?', '', 'sun', 'An answer', 'Weather?', '', 'rain', 'An answer']);
  assert.deepEqual(
    requests
      .at(-1)
      .messages.filter(({ role }) => role === 'tool')
      .map(({ content }) => content),
    ['sun', 'rain'],
  );
});

test('a stop ends one conversation and not another, also while a tool waits for consent', async () => {
  const { chat, plans, problems } = openChat();
  plans.push({ parts: ['Of the first', HOLD] });
  const first = chat.send('First');
  await soon();
  const { id } = chat.shown.meta;
  chat.startNew();
  plans.push({ parts: [call('f', 'fetch_address', { url: 'https://a.example/' })], finish: 'tool_calls' });
  const second = chat.send('Second');
  await soon();
  assert.equal(chat.run.consent.url, 'https://a.example/');
  chat.stop(chat.shown.meta.id);
  await second;
  assert.equal(chat.run, undefined);
  assert.ok(chat.isRunning(id));
  await chat.open(id);
  assert.equal(last(chat).content, 'Of the first');
  chat.stop();
  await first;
  assert.equal(last(chat).state, 'interrupted');
  assert.deepEqual(problems, []);
});

test('what is deleted in mid-answer, here or in another tab, does not come back', async () => {
  for (const elsewhere of [false, true]) {
    const { chat, store, plans } = openChat();
    plans.push({ parts: ['Half', HOLD] });
    const asked = chat.send('Doomed');
    await soon();
    const { id } = chat.shown.meta;
    if (elsewhere) {
      store.all.delete(id);
      await chat.heard({ id, deleted: true });
    } else await chat.delete(id);
    await asked;
    assert.equal(store.all.size, 0);
    assert.equal(chat.shown.messages.size, 0);
    await chat.delete(id);
    assert.equal(await chat.open(id), false);
  }
});

test('where nothing can be kept the answer is shown, and is kept whole when there is room again', async () => {
  const { chat, store, problems, plans } = openChat();
  const { write } = store;
  store.write = async () => {
    throw new DOMException('no room', 'QuotaExceededError');
  };
  await chat.send('Full');
  assert.deepEqual(texts(chat), ['Full', 'An answer']);
  assert.ok(problems.length > 0 && problems.every((name) => name === 'QuotaExceededError'));
  // It is exported, and another one begins beside it.
  const { id } = chat.shown.meta;
  const exported = async () => (await chat.export([id]))[0]?.messages.size;
  assert.equal(await exported(), 2);
  chat.startNew();
  assert.deepEqual(
    chat.list.map((one) => one.id),
    [id],
  );
  assert.deepEqual([await exported(), [...(await chat.search('an answer'))]], [2, [id]]);
  assert.equal(await chat.open(id), true);
  store.write = write;
  await chat.send('Room');
  assert.equal([...store.all.values()][0].messages.size, 4);
  // What is already kept and grows has the same right.
  const { update } = store;
  store.update = async () => {
    throw new DOMException('no room', 'QuotaExceededError');
  };
  await chat.send('Full again');
  assert.deepEqual([await exported(), store.all.get(id).messages.size], [6, 4]);
  store.update = update;
  await chat.rename(id, 'A title');
  assert.equal(store.all.get(id).messages.size, 6);
  // One that was never kept is deleted for good, also in mid-answer.
  store.write = async () => {
    throw new DOMException('no room', 'QuotaExceededError');
  };
  chat.startNew();
  plans.push({ parts: ['Half', HOLD] });
  const asked = chat.send('Doomed');
  await soon();
  store.write = write;
  await chat.delete(chat.shown.meta.id);
  await asked;
  assert.deepEqual([chat.list.length, store.all.size], [1, 1]);
});

test('a running conversation is exported with what there is of its answer', async () => {
  const { chat, plans } = openChat();
  plans.push({ parts: ['Half', HOLD] });
  const asked = chat.send('First');
  await soon();
  const [{ messages }] = await chat.export([chat.shown.meta.id]);
  assert.deepEqual(
    [...messages.values()].map(({ content }) => content),
    ['First', 'Half'],
  );
  chat.stop();
  await asked;
});

/** A store whose reads end when they are let: `let(id)`. */
function slowStore() {
  const store = memoryStore();
  const { read } = store;
  const waiting = new Map();
  store.let = (id, error) => waiting.get(id)(error);
  store.read = async (id) => {
    const error = await new Promise((resolve) => waiting.set(id, resolve));
    if (error !== undefined) throw error;
    return await read(id);
  };
  return store;
}

test('what is asked while a conversation is being opened is asked there, and the one that was chosen last is shown', async () => {
  const { chat, store, problems } = openChat({ store: slowStore() });
  const ids = [];
  for (const text of ['A', 'B']) {
    chat.startNew();
    await chat.send(text);
    ids.push(chat.shown.meta.id);
  }
  const [a, b] = ids;
  const opening = chat.open(a);
  const sending = chat.send('More of A');
  const again = chat.send('Twice');
  store.let(a);
  assert.deepEqual(await Promise.all([opening, sending, again]), [true, true, false]);
  assert.deepEqual(texts(chat), ['A', 'An answer', 'More of A', 'An answer']);
  assert.equal(store.all.get(b).messages.size, 2, 'not in the one that was shown before');
  // Reads that end in another order.
  chat.startNew();
  const both = [chat.open(a), chat.open(b)];
  const toB = chat.send('More of B');
  store.let(b);
  await soon();
  store.let(a);
  assert.deepEqual(await Promise.all([...both, toB]), [true, true, true]);
  assert.equal(chat.shown.meta.id, b);
  assert.deepEqual(texts(chat), ['B', 'An answer', 'More of B', 'An answer']);
  // A new one, begun meanwhile, stays; what was asked before it goes where it was meant to.
  const late = [chat.open(a), chat.send('Still A')];
  const fresh = chat.startNew();
  store.let(a);
  assert.deepEqual(await Promise.all(late), [true, true]);
  assert.equal(chat.shown, fresh);
  assert.equal(store.all.get(a).messages.size, 6);
  assert.equal(fresh.messages.size, 0);
  // Deleted in another tab while it is read.
  const gone = chat.open(b);
  await store.delete(b);
  await chat.heard({ id: b, deleted: true });
  store.let(b);
  assert.equal(await gone, false);
  assert.equal(chat.shown, fresh);
  // One that can't be read, and nothing is asked.
  const broken = [chat.open(a), chat.send('Nowhere')];
  store.let(a, new DOMException('the database is closed', 'InvalidStateError'));
  await assert.rejects(broken[0], { name: 'InvalidStateError' });
  assert.equal(await broken[1], false);
  assert.deepEqual(problems, []);
  assert.equal(chat.shown, fresh);
  assert.equal(await chat.send('Here'), true);
  assert.deepEqual(texts(chat), ['Here', 'An answer']);
  // The one that is shown needs no reading. If another tab deletes it, the one that is being opened is shown all the same.
  assert.equal(await chat.open(fresh.meta.id), true);
  assert.equal(chat.shown, fresh);
  const next = chat.open(a);
  await chat.heard({ id: fresh.meta.id, deleted: true });
  store.let(a);
  assert.equal(await next, true);
  assert.equal(chat.shown.meta.id, a);
});

test('an answer that nobody writes any more was interrupted', async () => {
  const { chat, store } = openChat();
  const conversation = { id: 'c', title: 'A chat', system: '', created: 1, updated: 1, leaf: 'm' };
  await store.write(conversation, [
    { id: 'm', conversation: 'c', parent: null, role: 'assistant', content: 'Half', created: 1, state: 'writing' },
  ]);
  await chat.open('c');
  assert.equal(last(chat).state, 'interrupted');
});

/** A conversation of another tab, and its message in this state. */
function written(store, state, content) {
  const conversation = { id: 'c', title: 'A chat', system: '', created: 1, updated: 1, leaf: 'm' };
  return store.write(conversation, [{ id: 'm', conversation: 'c', parent: null, role: 'assistant', content, created: 1, state }]);
}

test('an answer that another tab ends while it is being read is done, and was not interrupted', async (t) => {
  const store = memoryStore();
  await written(store, 'writing', 'Half');
  // Its lock is free by the time that it is asked for, because the answer has ended.
  withLocks(t, {
    query: async () => {
      await written(store, 'done', 'Half and half');
      return { held: [] };
    },
    request: async () => {},
  });
  const { chat } = openChat({ store });
  await chat.open('c');
  assert.deepEqual([last(chat).state, last(chat).content], ['done', 'Half and half']);
  // The same where it is heard of.
  await written(store, 'writing', 'Again');
  await chat.heard({ id: 'c' });
  assert.deepEqual([last(chat).state, last(chat).content], ['done', 'Half and half']);
});

test('what is heard of another tab is shown in its order, however long each reading takes', async (t) => {
  const store = memoryStore();
  await written(store, 'done', 'Before');
  let slow;
  withLocks(t, { query: () => new Promise((resolve) => (slow = resolve)), request: () => new Promise(() => {}) });
  const { chat } = openChat({ store });
  await chat.open('c');
  await written(store, 'writing', 'Half');
  const first = chat.heard({ id: 'c' });
  await soon();
  await written(store, 'done', 'All of it');
  const second = chat.heard({ id: 'c' });
  await soon();
  slow({ held: [{ name: 'rillm-answer-m' }] });
  await Promise.all([first, second]);
  assert.deepEqual([last(chat).state, last(chat).content], ['done', 'All of it']);
  // One that can't be read holds nobody up.
  const { list } = store;
  store.list = async () => Promise.reject(new Error('the database is closed'));
  await assert.rejects(chat.heard({ id: 'c' }));
  store.list = list;
  await written(store, 'done', 'More');
  await chat.heard({ id: 'c' });
  assert.equal(last(chat).content, 'More');
});
