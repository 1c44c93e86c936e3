// Conversations that are saved and restored: with the same continuation, by name, wherever an engine runs, and whatever goes wrong meanwhile.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { openStage } from './browser.mjs';

const LIMIT = { timeout: 120_000 };
const MODEL = '/golden/tied-q8_0.gguf';
const OTHER = '/golden/tied-q4_0.gguf';
const FAILED = [/Failed to load resource/, /ERR_/];
const NAMES = ['a/b\\c', '..', '.', 'new.part', 'con', 'A', 'a', '🛶 Boot', '\ufeffmark', 'tab\tline\n\0', 'x'.repeat(120)];

/** A worker in which reading a Blob takes as long as a page says, so that something can happen meanwhile. */
const SLOW_READS = `
const read = Blob.prototype.arrayBuffer;
let ms = 0;
new BroadcastChannel('slow reads').onmessage = ({ data }) => (ms = data);
Blob.prototype.arrayBuffer = async function () {
  if (ms > 0) await new Promise((resolve) => setTimeout(resolve, ms));
  return read.call(this);
};
`;

let stage;
let opened;
let context;
before(async () => {
  stage = await openStage();
  writeFileSync(join(stage.made, 'slow_reads.js'), SLOW_READS);
  writeFileSync(join(stage.made, 'slow_worker.js'), "import './slow_reads.js';\nimport '/rillm/dist/worker.js';\n");
  opened = await stage.openPage({ allowed: FAILED });
  context = opened.page.context();
}, LIMIT);
after(async () => {
  await opened?.close();
  await stage?.close();
});

async function open() {
  const page = await context.newPage();
  await page.goto(`${stage.origin}/blank/`);
  await page.evaluate(prepare);
  return page;
}

/** Runs in the page: what the tests use there. */
async function prepare() {
  globalThis.rillm = await import('/rillm/dist/index.js');
  globalThis.failure = async (work) => {
    try {
      await (typeof work === 'function' ? work() : work);
    } catch (error) {
      const { name, code, message, session } = error;
      return { isEngineError: error instanceof rillm.EngineError, name, code, message, bytes: session?.size };
    }
    return { code: 'did not fail' };
  };
  globalThis.after = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  globalThis.slowReads = async (ms) => {
    const channel = new BroadcastChannel('slow reads');
    channel.postMessage(ms);
    await after(20);
    channel.close();
  };
  /** Aborts it after some milliseconds: what it rejects with at once, or that it does not. */
  globalThis.aborted = async (start, ms) => {
    const controller = new AbortController();
    if (ms < 0) controller.abort();
    const result = failure(start(controller.signal));
    if (ms >= 0) await after(ms);
    controller.abort(new DOMException('too late', 'TimeoutError'));
    return Promise.race([
      result,
      after(0)
        .then(() => after(0))
        .then(() => ({ code: 'late' })),
    ]);
  };
  /** In the middle of the engine's work; also how often that was done before. */
  globalThis.abortedInEngine = async (session) => {
    const found = [];
    for (const ms of [0, 2, 5, 10, 20]) {
      const conversation = [user(`Take in ${ms} ${'so many words '.repeat(10)}`)];
      found.push(await aborted((signal) => engine.sessions.save(conversation, { signal }), ms));
      found.push(await aborted((signal) => engine.sessions.restore(session, { signal }), ms));
    }
    return {
      failed: found.filter(({ code }) => code !== 'did not fail'),
      done: found.filter(({ code }) => code === 'did not fail').length,
    };
  };
  globalThis.user = (content) => ({ role: 'user', content });
  globalThis.GREEDY = { max_tokens: 24, temperature: 0, ignore_eos: true };
  globalThis.SEEDED = { ...GREEDY, temperature: 1, seed: 7 };
  globalThis.ask = async (messages, more = GREEDY, options = {}) => {
    const { choices, usage } = await engine.chat.completions.create({ messages, ...more }, options);
    const { message, token_ids } = choices[0];
    return { text: message.content, ids: [...token_ids], cached: usage.prompt_tokens_details.cached_tokens };
  };
  globalThis.folder = async () => {
    const root = await navigator.storage.getDirectory();
    return (await root.getDirectoryHandle('rillm', { create: true })).getDirectoryHandle('sessions', { create: true });
  };
  globalThis.filesKept = async () => {
    const names = [];
    for await (const [name] of await folder()) names.push(name);
    return names.sort();
  };
  /** The file of a name. */
  globalThis.fileOf = (name) =>
    `${Array.from(new TextEncoder().encode(name), (byte) => byte.toString(16).padStart(2, '0')).join('')}.session`;
  globalThis.put = async (name, bytes) => {
    const writable = await (await (await folder()).getFileHandle(name, { create: true })).createWritable();
    await writable.write(bytes);
    await writable.close();
  };
}

/** An engine in a worker, and what it answered. */
let page;
let chat;

test('a conversation goes on as it did when the engine had forgotten it', LIMIT, async () => {
  page = await open();
  chat = await page.evaluate(async (model) => {
    globalThis.engine = await rillm.Engine.load(model, {
      maxSequences: 2,
      promptCacheBytes: 0,
      onWarning: () => {},
      worker: () => new Worker('/made/slow_worker.js', { type: 'module' }),
    });
    globalThis.messages = [user('The small boat')];
    const first = await ask(messages);
    messages.push({ role: 'assistant', content: first.text });
    globalThis.further = [...messages, user('And then?')];
    globalThis.session = await engine.sessions.save(messages, { name: 'chat' });
    const wanted = [await ask(further), await ask(further, SEEDED)];
    /** Both slots hold something else. */
    globalThis.forget = () => Promise.all([ask([user('of another thing')]), ask([user('and of one more')])]);
    await forget();
    const cold = await ask([...messages, user('And now?')], { ...GREEDY, max_tokens: 1 });
    await forget();
    const restored = await engine.sessions.restore(session);
    const found = [await ask(further), await ask(further, SEEDED)];
    const bytes = (await engine.sessions.save({ messages, tools: null }, {})).size;
    return { wanted, found, cold: cold.cached, restored, messages, size: session.size, type: session.type, bytes, info: engine.info };
  }, MODEL);
  const { wanted, found, restored, messages, size } = chat;
  assert.deepEqual(
    found.map(({ ids }) => ids),
    wanted.map(({ ids }) => ids),
  );
  assert.ok(
    found.every(({ cached }) => cached > chat.cold + 20),
    JSON.stringify([found, chat.cold]),
  );
  assert.deepEqual(restored.conversation, { messages });
  assert.deepEqual([restored.model.architecture, restored.model.quantization], ['llama', 'Q8_0']);
  assert.ok(Math.abs(Date.now() / 1000 - restored.created) < 60);
  assert.ok(found[0].cached >= restored.tokens - 1 && restored.tokens > 40);
  // Layers · 2 · heads · size of a head · bytes of an element, for each token.
  const states = restored.tokens * 2 * 2 * 32 * 4;
  assert.ok(size > states && size < states + 2000, `${size} bytes, ${states} of them states`);
  assert.ok(chat.bytes > states && chat.type === 'application/octet-stream');
});

test('what is no conversation, no session or no name is refused, and names may be any text', LIMIT, async () => {
  const { refused, names, listed, deleted, missing, long } = await page.evaluate(async (names) => {
    const { save, restore, delete: remove } = engine.sessions;
    const cyclic = { messages };
    cyclic.self = cyclic;
    const throwing = {
      get messages() {
        throw new Error('why');
      },
    };
    let deep = [];
    for (let depth = 0; depth < 100_000; depth++) deep = [deep];
    const conversations = [
      undefined,
      null,
      5,
      5n,
      'text',
      () => {},
      Symbol('x'),
      cyclic,
      throwing,
      new Blob(['x']),
      new File(['x'], 'y'),
      {},
      [],
    ];
    conversations.push(
      [5],
      [user(5n)],
      [user(() => {})],
      [user(Number.NaN)],
      { messages: deep },
      { messages: 'x' },
      { messages, top_k: 1 },
    );
    conversations.push({ messages, thinking_token_budget: 1, reasoning_effort: 'low' }, { messages, reasoning_effort: 'much' });
    conversations.push({ response: 5 }, { response: 'x', messages }, { response: undefined });
    const sessions = [undefined, null, 5, 5n, {}, new ArrayBuffer(8), new Uint8Array(8), () => {}, [session]];
    const wrongNames = ['', 5, null, 5n, {}, () => {}, new Blob(['x']), '\ud800', 'a\udc00b', 'x'.repeat(10_000), 'ä'.repeat(61)];
    const options = ['name', 5, () => {}, { signal: 5 }, { signal: null }, { signal: {} }];
    const work = [
      ...conversations.map((conversation) => () => save(conversation)),
      ...sessions.map((session) => () => restore(session)),
      ...wrongNames.map((name) => () => save(messages, { name })),
      ...wrongNames.filter((name) => !(name instanceof Blob)).map((name) => () => restore(name)),
      ...wrongNames.map((name) => () => remove(name)),
      ...options.flatMap((options) => [() => save(messages, options), () => restore(session, options)]),
    ];
    const refused = [];
    for (const one of work) refused.push({ ...(await failure(one)), what: String(one) });
    const [a, b] = [await save(messages), await save([user('other')])];
    for (const [index, name] of names.entries()) await save(index % 2 ? messages : [user('other')], { name });
    const listed = await engine.sessions.list();
    const missing = [await failure(restore('nothing')), await failure(restore('chat ')), await failure(save({ response: 'resp_none' }))];
    const long = await failure(save([user('many words '.repeat(50))]));
    const sizes = {};
    for (const name of names) sizes[name] = (await restore(name)).conversation.messages.length;
    const deleted = [];
    for (const name of [...names, 'nothing']) deleted.push(await remove(name));
    return { refused, listed, deleted, missing, long, names: sizes, sizes: [a.size, b.size] };
  }, NAMES);
  for (const { code, isEngineError, message, what } of refused)
    assert.deepEqual([code, isEngineError], ['invalid_request', true], `${what}: ${message}`);
  assert.ok(
    refused.every(({ message }) => message.length < 400),
    'a message does not repeat what it refuses',
  );
  assert.deepEqual(
    missing.map(({ code }) => code),
    ['not_found', 'not_found', 'not_found'],
  );
  assert.equal(long.code, 'context_length_exceeded', long.message);
  assert.deepEqual(
    Object.entries(names),
    NAMES.map((name, index) => [name, index % 2 ? 2 : 1]),
  );
  assert.deepEqual(
    listed.map(({ name, damaged, tokens }) => [name, damaged, tokens > 0]),
    [...[...NAMES].reverse(), 'chat'].map((name) => [name, false, true]),
    'the newest first',
  );
  assert.deepEqual(deleted, [...NAMES.map(() => true), false]);
});

test('a file that is damaged, cut off, empty or something else is refused, and the engine goes on', LIMIT, async () => {
  const { failed, listed, text, usage, other } = await page.evaluate(async () => {
    const bytes = new Uint8Array(await session.arrayBuffer());
    const changed = (at, value) => {
      const copy = bytes.slice();
      copy[at] = value ?? copy[at] ^ 1;
      return new Blob([copy]);
    };
    const length = new DataView(bytes.buffer).getUint32(12, true);
    const files = {
      empty: new Blob([]),
      text: new Blob(['RILLMSES']),
      foreign: new Blob(['GGUF'.repeat(1000)]),
      json: new Blob(['{"messages": []}']),
      magic: changed(0),
      version: changed(8),
      long: changed(15, 255),
      header: changed(40),
      sum: changed(16 + length),
      sequence: changed(20 + length),
      tokens: changed(200 + length),
      states: changed(bytes.length - 1000),
      end: changed(bytes.length - 1),
      more: new Blob([bytes, 'x']),
      twice: new Blob([bytes, bytes]),
    };
    for (const cut of [1, 8, 15, 16 + length, 20 + length, bytes.length - 5, bytes.length - 1])
      files[`first ${cut}`] = session.slice(0, cut);
    const failed = [];
    for (const [name, file] of Object.entries(files)) failed.push([name, await failure(engine.sessions.restore(file))]);
    // As a File, and one that is read by its name.
    failed.push(['File', await failure(engine.sessions.restore(new File([files.states], 'my.session')))]);
    await put(fileOf('half'), files['first 8']);
    await put(fileOf('wrong'), files.header);
    await put(fileOf('states'), files.states);
    await put(fileOf('nothing'), new Blob([]));
    await put('not ours.txt', new Blob(['x']));
    await put('ff.session', new Blob(['x']));
    const listed = await engine.sessions.list();
    for (const name of ['half', 'wrong', 'states', 'nothing']) {
      failed.push([name, await failure(engine.sessions.restore(name))]);
      await engine.sessions.delete(name);
    }
    const usage = await rillm.models.usage();
    await (await folder()).removeEntry('not ours.txt');
    await (await folder()).removeEntry('ff.session');
    await engine.sessions.restore(session);
    const answer = await ask(further);
    return { failed, listed, text: answer.ids, usage, other: answer.cached };
  });
  for (const [name, { code, isEngineError, message }] of failed) {
    assert.deepEqual([code, isEngineError], ['invalid_file', true], `${name}: ${message}`);
  }
  assert.match(failed.find(([name]) => name === 'File')[1].message, /my\.session/);
  assert.match(failed.find(([name]) => name === 'states')[1].message, /damaged|checksum/);
  assert.deepEqual(listed.map(({ name, damaged, created }) => [name, damaged, created > 1.7e9]).sort(), [
    ['chat', false, true],
    ['half', true, true],
    ['nothing', true, true],
    ['states', false, true],
    ['wrong', true, true],
  ]);
  assert.ok(usage.session_bytes >= chat.size && usage.session_bytes < 2 * chat.size);
  assert.deepEqual(text, chat.wanted[0].ids);
  assert.ok(other > chat.cold + 20);
});

test('saves and restores at the same time, beside streams, twice, and of a conversation that changes meanwhile', LIMIT, async () => {
  const found = await page.evaluate(async () => {
    const { save, restore, delete: remove, list } = engine.sessions;
    const many = await Promise.all([
      save([user('one')], { name: 'same' }),
      save([user('two')], { name: 'same' }),
      save([user('three')], { name: 'same' }),
      restore(session),
      restore(session),
      ask(further),
      restore('chat'),
    ]);
    const same = (await restore('same')).conversation.messages[0].content;
    const mine = [user('before')];
    const saving = save(mine);
    mine[0].content = 'after';
    mine.push(user('later'));
    const copied = (await restore(await saving)).conversation;

    // A stream runs, and another one has the second place.
    const streams = [];
    for (let index = 0; index < 2; index++) {
      const stream = await engine.chat.completions.create({ messages: [user(`story ${index}`)], ...GREEDY, max_tokens: 150, stream: true });
      await stream.next();
      streams.push(stream);
    }
    const waiting = save(messages);
    let text = '';
    for await (const { choices } of streams[0]) text += choices[0]?.delta?.content ?? '';
    await streams[1].return();
    const size = (await waiting).size;
    // With one place free it does not wait.
    const running = await engine.chat.completions.create({ messages: [user('story 0')], ...GREEDY, max_tokens: 150, stream: true });
    const beside = [(await running.next()).value.choices[0].delta.content ?? ''];
    await restore(await save(messages));
    for await (const { choices } of running) beside.push(choices[0]?.delta?.content ?? '');

    // Replaced while it is read.
    await slowReads(30);
    const restoring = restore('same');
    await after(60);
    await save([user('the newest')], { name: 'same' });
    const newest = await restoring;
    await slowReads(0);
    const names = (await list()).map(({ name }) => name);
    await remove('same');
    return {
      same,
      copied,
      size,
      names,
      text,
      beside: beside.join(''),
      newest: newest.conversation.messages[0].content,
      answer: many[5].ids,
      left: await filesKept(),
    };
  });
  assert.ok(['one', 'two', 'three'].includes(found.same), found.same);
  assert.deepEqual(found.copied, { messages: [{ role: 'user', content: 'before' }] });
  assert.equal(found.size, chat.size);
  assert.deepEqual(found.names, ['same', 'chat']);
  assert.ok(found.beside.endsWith(found.text) && found.text.length > 50, 'the stream is not disturbed');
  assert.equal(found.newest, 'the newest');
  assert.deepEqual(found.answer, chat.wanted[0].ids);
  assert.equal(found.left.length, 1, found.left.join());
});

test('an abort ends every phase at once, and what follows works', LIMIT, async () => {
  const { failed, done, kept, text, first } = await page.evaluate(async () => {
    const { save, restore } = engine.sessions;
    const failed = {};
    failed.before = [
      await aborted((signal) => save(messages, { signal }), -1),
      await aborted((signal) => restore(session, { signal }), -1),
    ];
    // Both places are taken.
    const streams = [];
    for (let index = 0; index < 2; index++) {
      streams.push(
        await engine.chat.completions.create({ messages: [user('go')], ...GREEDY, max_tokens: 10_000, context_shift: true, stream: true }),
      );
      await streams[index].next();
    }
    failed.waiting = await Promise.all([
      aborted((signal) => save(messages, { signal }), 5),
      aborted((signal) => save(messages, { signal, name: 'waiting' }), 5),
      aborted((signal) => restore(session, { signal }), 5),
      aborted((signal) => restore('chat', { signal }), 5),
    ]);
    for (const stream of streams) await stream.return();
    // While the conversation is taken in, or its states are read.
    await slowReads(10);
    const inEngine = await abortedInEngine(session);
    failed.engine = inEngine.failed;
    await slowReads(0);
    // While it is written, over what was kept, and while another waits to write.
    const { write } = FileSystemWritableFileStream.prototype;
    let go;
    const held = new Promise((resolve) => (go = resolve));
    let began;
    const writing = new Promise((resolve) => (began = resolve));
    FileSystemWritableFileStream.prototype.write = async function (data) {
      began();
      await held;
      return write.call(this, data);
    };
    const controller = new AbortController();
    const keep = (text) => failure(save([user(text)], { name: 'chat', signal: controller.signal }));
    const both = [keep('never kept')];
    await writing;
    both.push(keep('nor this'));
    while (!(await navigator.locks.query()).pending.some(({ name }) => name === 'rillm:sessions')) await after(1);
    controller.abort();
    failed.writing = await Promise.race([Promise.all(both), after(2000).then(() => [{ code: 'late' }])]);
    go();
    FileSystemWritableFileStream.prototype.write = write;
    await restore('chat');
    await save([user('at last')], { name: 'other' });
    await engine.sessions.delete('other');
    return { failed, done: inEngine.done, kept: await filesKept(), text: (await ask(further)).ids, first: (await ask(further)).cached };
  });
  for (const [phase, found] of Object.entries(failed)) {
    for (const { code, message } of found) assert.equal(code, 'aborted', `${phase}: ${message}`);
  }
  assert.ok(failed.engine.length > 5, `${done} were faster`);
  assert.equal(kept.length, 1, kept.join());
  assert.deepEqual(text, chat.wanted[0].ids);
  assert.ok(first > 0);
});

test('a file system that never answers ends what waits for it, and nothing else', LIMIT, async () => {
  const found = await page.evaluate(async () => {
    const { save, restore, list, delete: remove } = engine.sessions;
    // What is waited for half a minute, in ten ticks, takes a second here.
    const { setInterval: original } = globalThis;
    globalThis.setInterval = (work, ms, ...rest) => original(work, ms === 3_000 ? 100 : ms, ...rest);
    const never = () => new Promise(() => {});
    const hangs = async (prototype, name, work) => {
      const { [name]: kept } = prototype;
      prototype[name] = never;
      const error = await failure(work());
      prototype[name] = kept;
      return [name, error];
    };
    const [file, folder, stream] = [FileSystemFileHandle, FileSystemDirectoryHandle, FileSystemWritableFileStream].map(
      (type) => type.prototype,
    );
    const results = [
      await hangs(file, 'createWritable', () => save(messages, { name: 'silent' })),
      await hangs(stream, 'write', () => save(messages, { name: 'silent' })),
      await hangs(stream, 'close', () => save(messages, { name: 'silent' })),
      await hangs(file, 'move', () => save(messages, { name: 'silent' })),
      await hangs(file, 'getFile', () => restore('chat')),
      await hangs(file, 'getFile', () => list()),
      await hangs(folder, 'removeEntry', () => remove('chat')),
      await hangs(folder, 'getDirectoryHandle', () => list()),
    ];
    globalThis.setInterval = original;
    return { results, names: (await list()).map(({ name }) => name), conversation: (await restore('chat')).conversation };
  });
  for (const [name, { code, message, bytes }] of found.results) {
    assert.equal(code, 'cache_unavailable', `${name}: ${message}`);
    assert.match(message, /did not answer for 30 seconds/, name);
    if (['createWritable', 'write', 'close', 'move'].includes(name)) assert.ok(bytes > 1000, `${name}: ${message}`);
  }
  assert.ok(found.names.includes('chat') && !found.names.includes('silent'), String(found.names));
  assert.deepEqual(found.conversation, { messages: chat.messages });
});

test('no file system, no room, and a tab that dies while it writes', LIMIT, async () => {
  const found = await page.evaluate(async () => {
    const { save, restore, list, delete: remove } = engine.sessions;
    const { getDirectory } = navigator.storage;
    navigator.storage.getDirectory = () => Promise.reject(new DOMException('not here', 'SecurityError'));
    const before = (await engine.stats()).dispatches;
    const denied = await Promise.all([save(messages, { name: 'x' }), restore('x'), list(), remove('x')].map(failure));
    const isIdle = (await engine.stats()).dispatches === before;
    const withoutName = (await save(messages)).size;
    const usage = await rillm.models.usage({ cache: 'memory' });
    navigator.storage.getDirectory = getDirectory;

    const { prototype } = FileSystemWritableFileStream;
    const { write, close } = prototype;
    prototype.write = () => Promise.reject(new DOMException('the disk is full', 'QuotaExceededError'));
    const full = await failure(save([user('too much')], { name: 'chat' }));
    prototype.write = write;
    prototype.close = () => Promise.reject(new DOMException('the disk is gone', 'UnknownError'));
    const broken = await failure(save([user('too much')], { name: 'chat' }));
    prototype.close = close;
    return { denied, isIdle, withoutName, usage, full, broken, kept: await filesKept(), again: await restore('chat') };
  });
  assert.deepEqual(
    found.denied.map(({ code }) => code),
    Array(4).fill('cache_unavailable'),
    JSON.stringify(found.denied),
  );
  assert.ok(found.isIdle, 'nothing is computed for a session that can’t be kept');
  assert.deepEqual([found.withoutName, found.usage.session_bytes], [chat.size, 0]);
  for (const { code, message, bytes } of [found.full, found.broken]) {
    assert.equal(code, 'cache_unavailable', message);
    assert.ok(bytes > 1000 && message.includes(`${bytes} bytes`), message);
  }
  assert.deepEqual([found.kept.length, found.again.conversation], [1, { messages: chat.messages }]);

  // The browser's own quota.
  const client = await context.newCDPSession(page);
  await client.send('Storage.overrideQuotaForOrigin', { origin: stage.origin, quotaSize: 10_000 });
  const quota = await page.evaluate(() => failure(engine.sessions.save([user('no room')], { name: 'chat' })));
  await client.send('Storage.overrideQuotaForOrigin', { origin: stage.origin });
  assert.deepEqual([quota.code, quota.bytes > 1000], ['cache_unavailable', true], quota.message);
  assert.match(quota.message, /no room/);

  // It dies; the next tab finds what was kept before.
  await page.evaluate(async () => {
    let isWritten;
    const written = new Promise((resolve) => (isWritten = resolve));
    FileSystemWritableFileStream.prototype.close = () => new Promise(isWritten);
    void engine.sessions.save([user('never kept')], { name: 'chat' });
    await written;
  });
  page.goto('chrome://crash').catch(() => {});
  await page.waitForEvent('crash');
  await page.close();
});

test('after a reload, without a network and on the page itself it goes on by its name', LIMIT, async () => {
  page = await open();
  await page.evaluate(async (model) => {
    globalThis.engine = await rillm.Engine.load(model, { worker: false, onWarning: () => {} });
  }, MODEL);
  await context.setOffline(true);
  try {
    const found = await page.evaluate(async () => {
      const left = await filesKept();
      const [only, ...more] = await engine.sessions.list();
      // As if the browser had died, too.
      await put('new.part.crswap', 'x');
      await engine.sessions.delete('nothing');
      const cleaned = await filesKept();
      const { conversation, tokens } = await engine.sessions.restore('chat');
      const further = [...conversation.messages, user('And then?')];
      const answers = [await ask(further), await ask(further, SEEDED)];
      const session = await engine.sessions.save(conversation, { name: 'next' });
      const { failed } = await abortedInEngine(session);
      answers.push(await ask(further));
      const kept = await filesKept();
      await engine.sessions.delete('next');
      return { left, cleaned, only, more, tokens, answers, failed, size: session.size, kept };
    });
    assert.ok(found.left.length >= 2, `what the dead tab has left: ${found.left}`);
    assert.deepEqual([found.only.name, found.only.tokens, found.more], ['chat', found.tokens, []]);
    assert.deepEqual(
      found.answers.map(({ ids }) => ids),
      [...chat.wanted, chat.wanted[0]].map(({ ids }) => ids),
    );
    assert.ok(found.answers.slice(0, 2).every(({ cached }) => cached > chat.cold + 20));
    assert.ok(found.failed.length > 2);
    for (const { code, message } of found.failed) assert.equal(code, 'aborted', message);
    assert.equal(found.size, chat.size);
    assert.deepEqual([found.cleaned.length, found.kept.length], [1, 2], `what the dead tab has left is gone: ${found.cleaned}`);
  } finally {
    await context.setOffline(false);
  }
});

test('a conversation of the Responses API goes on by previous_response_id', LIMIT, async () => {
  const found = await page.evaluate(async () => {
    const { save, restore } = engine.sessions;
    const settings = { temperature: 0, max_output_tokens: 8, ignore_eos: true, instructions: 'Short.', reasoning: { effort: 'none' } };
    const first = await engine.responses.create({ input: 'Hi', ...settings });
    const second = await engine.responses.create({ input: 'On', previous_response_id: first.id, ...settings });
    const third = { input: 'And?', previous_response_id: second.id, ...settings };
    const wanted = await engine.responses.create(third);
    const session = await save({ response: second.id, chat_template_kwargs: { x: 1 } });
    const again = await restore(session);
    await engine.responses.delete(second.id);
    const gone = await failure(engine.responses.create(third));
    const restored = await restore(session);
    const answer = await engine.responses.create(third);
    const items = await engine.responses.inputItems.list(second.id);
    await engine.responses.delete(second.id);
    const notKept = await failure(save({ response: second.id }));

    // What says that it has a response, and has none.
    const bytes = new Uint8Array(await session.arrayBuffer());
    const length = new DataView(bytes.buffer).getUint32(12, true);
    const header = JSON.parse(new TextDecoder().decode(bytes.subarray(16, 16 + length)));
    const crc32 = (bytes) => {
      let sum = -1;
      for (const byte of bytes) for (let bit = (sum ^= byte) && 0; bit < 8; bit++) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
      return ~sum >>> 0;
    };
    const rewritten = (change) => {
      const copy = structuredClone(header);
      change(copy);
      const text = new TextEncoder().encode(JSON.stringify(copy));
      const head = new Uint8Array(16 + text.length);
      head.set(bytes.subarray(0, 12));
      new DataView(head.buffer).setUint32(12, text.length, true);
      head.set(text, 16);
      return new Blob([head, Uint32Array.of(crc32(head)), bytes.subarray(20 + length)]);
    };
    const changes = [
      (header) => (header.attachment = 5),
      (header) => (header.attachment = {}),
      (header) => (header.attachment.response = { id: 5 }),
      (header) => (header.attachment.input = 'x'),
      (header) => (header.attachment.output = [{ id: 'x', type: 'constructor' }]),
      (header) => (header.conversation = undefined),
    ];
    const crafted = [];
    for (const change of changes) crafted.push(await failure(restore(rewritten(change))));
    const others = [];
    for (const change of [
      (header) => (header.model.name = 'X'),
      (header) => (header.model.kv_cache = 'f16'),
      (header) => (header.model.fingerprint = 'f'),
    ]) {
      others.push(await failure(restore(rewritten(change))));
    }
    await put(
      fileOf('no model'),
      rewritten((header) => delete header.model),
    );
    const listed = (await engine.sessions.list()).map(({ name, damaged }) => [name, damaged]);
    crafted.push(await failure(restore('no model')));
    await engine.sessions.delete('no model');
    const strange = rewritten((header) => (header.conversation = { messages: 'of another program' }));
    const conversation = (await restore(strange)).conversation;
    return { second, wanted, again, gone, restored, answer, items, notKept, crafted, listed, others, conversation };
  });
  assert.deepEqual(found.again.response, found.second);
  assert.deepEqual(found.restored.response, found.second);
  assert.deepEqual([found.gone.code, found.notKept.code], ['not_found', 'not_found']);
  assert.deepEqual(
    found.restored.conversation.messages.map(({ role }) => role),
    ['system', 'user', 'assistant', 'user', 'assistant'],
  );
  assert.deepEqual(found.restored.conversation.chat_template_kwargs, {
    enable_thinking: false,
    thinking: false,
    reasoning_effort: 'none',
    x: 1,
  });
  assert.equal(found.answer.output_text, found.wanted.output_text);
  assert.ok(found.answer.usage.input_tokens_details.cached_tokens >= found.restored.tokens - 1);
  assert.equal(found.items.data.length, 3);
  for (const { code, message } of found.crafted) assert.equal(code, 'invalid_file', message);
  assert.deepEqual(found.listed, [
    ['no model', true],
    ['chat', false],
  ]);
  for (const { code, message } of found.others) assert.equal(code, 'session_mismatch', message);
  assert.match(found.others[0].message, /"X"/);
  assert.match(found.others[1].message, /kvCache: "f16"/);
  assert.deepEqual(found.conversation, { messages: 'of another program' });
});

test('dispose ends what runs, and what comes is refused', LIMIT, async () => {
  const codes = await page.evaluate(async () => {
    const { save, restore, list, delete: remove } = engine.sessions;
    const session = await save([user('x')]);
    const open = [
      save([user('so many words '.repeat(12))]),
      save([user('waits')], { name: 'waits' }),
      restore(session),
      restore('chat'),
    ].map(failure);
    await after(5);
    await engine.dispose();
    const later = [() => save([user('x')]), () => restore(session), () => restore('chat'), () => list(), () => remove('chat')].map(failure);
    return (await Promise.all([...open, ...later])).map(({ code }) => code);
  });
  assert.deepEqual(codes, Array(9).fill('disposed'));
});

test('tabs share an engine: each saves and restores, and a save outlives the tab that runs the model', LIMIT, async () => {
  const share = (page) =>
    page.evaluate(async (model) => {
      globalThis.events = [];
      globalThis.engine = await rillm.Engine.shared(model, {
        onWarning: () => {},
        onEvent: ({ type, requests }) => events.push(requests === undefined ? type : `${type} ${requests}`),
        worker: () => (globalThis.made = new Worker('/made/slow_worker.js', { type: 'module' })),
      });
    }, OTHER);
  await page.close();
  const [leader, follower] = [await open(), await open()];
  await share(leader);
  await share(follower);
  const work = async () => {
    const { save, restore } = engine.sessions;
    const other = await failure(restore('chat'));
    const conversation = [user('In two tabs')];
    globalThis.session ??= await save(conversation, { name: 'shared' });
    const { tokens } = await restore(session);
    const controller = new AbortController();
    const aborted = failure(save([user('so many words '.repeat(8))], { signal: controller.signal }));
    // In the same task: on a busy machine any timer may come after the save is done.
    controller.abort();
    const damaged = await failure(restore(session.slice(0, -9)));
    const response = await engine.responses.create({ input: 'Hi', temperature: 0, max_output_tokens: 4, ignore_eos: true });
    const { response: kept } = await restore(await save({ response: response.id }));
    const { ids } = await ask(conversation);
    const names = (await engine.sessions.list()).map(({ name }) => name);
    return { other, tokens, codes: [(await aborted).code, damaged.code], isSame: kept.id === response.id, ids, names };
  };
  const [one, two] = [await leader.evaluate(work), await follower.evaluate(work)];
  for (const { other, tokens, codes, isSame, names } of [one, two]) {
    assert.equal(other.code, 'session_mismatch', other.message);
    assert.match(other.message, /tied, Q8_0.*tied, Q4_0/);
    assert.ok(tokens > 10 && isSame);
    assert.deepEqual(
      [codes, names],
      [
        ['aborted', 'invalid_file'],
        ['shared', 'chat'],
      ],
    );
  }
  assert.deepEqual(one.ids, two.ids);
  assert.deepEqual(
    [await leader.evaluate(() => events.join()), await follower.evaluate(() => events.join())].map((told) => told.split(',')[0]),
    ['leader', 'follower'],
  );

  // The leader goes while it saves: the next one is asked. What it has saved before stays.
  await follower.evaluate(async () => {
    await slowReads(2000);
    globalThis.saving = engine.sessions.save([user('It outlives the tab')]);
    globalThis.restoring = engine.sessions.restore(session);
  });
  await leader.waitForTimeout(100);
  await leader.close();
  const after = await follower.evaluate(async () => {
    const [saved, restored] = [await saving, await restoring];
    const conversation = (await engine.sessions.restore(saved)).conversation;
    const { tokens } = await engine.sessions.restore(session);
    return {
      conversation,
      tokens,
      restored: restored.tokens,
      told: events.filter((event) => !event.startsWith('verified')),
      ids: (await ask([user('In two tabs')])).ids,
    };
  });
  assert.deepEqual(after.conversation, { messages: [{ role: 'user', content: 'It outlives the tab' }] });
  assert.deepEqual([after.tokens, after.restored, after.ids], [two.tokens, two.tokens, two.ids]);
  assert.deepEqual(after.told, ['follower', 'leader', 'takeover 2']);

  // Its worker dies while it saves.
  const broken = await follower.evaluate(async () => {
    // What is saved waits for what is read.
    await slowReads(2000);
    const open = [engine.sessions.restore(session), engine.sessions.save([user('so many words '.repeat(8))])].map(failure);
    await after(100);
    made.dispatchEvent(new ErrorEvent('error', { message: 'killed by a test' }));
    return Promise.all(open);
  });
  for (const { code, message } of broken) assert.equal(code, 'internal', message);
  await follower.evaluate(() => engine.dispose());
  await follower.close();
});
