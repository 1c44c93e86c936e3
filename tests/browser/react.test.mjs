// rillm/react in a real React, in Chromium: chats with engines that say what a test wants, in every order of calls, and with real ones that load,
// are lost and are disposed of.

import { after, before, test } from 'node:test';
import { dirname, join, relative, sep } from 'node:path';

import { build } from 'esbuild';

import { openStage, packedPackage, root } from './browser.mjs';

const LIMIT = { timeout: 60_000 };
const MODEL = '/golden/tied-q8_0.gguf';

let stage;
let page;
let close;

/** The harness as a module of a page, whose package is the one that is served. */
async function bundle(outfile) {
  const dist = join(await packedPackage(), 'dist');
  const served = {
    name: 'served',
    setup({ onResolve }) {
      onResolve({ filter: /^rillm\/react$/ }, () => ({ path: join(dist, 'react/index.js') }));
      onResolve({ filter: /^\./ }, ({ path, importer }) => {
        const file = join(dirname(importer), path);
        const isOutside = file.startsWith(dist) && !file.startsWith(join(dist, 'react'));
        return isOutside ? { path: `/rillm/dist/${relative(dist, file).replaceAll(sep, '/')}`, external: true } : undefined;
      });
    },
  };
  await build({
    entryPoints: [join(root, 'tests/browser/react/page.jsx')],
    bundle: true,
    format: 'esm',
    jsx: 'automatic',
    define: { 'process.env.NODE_ENV': '"development"' },
    nodePaths: [join(root, 'node_modules')],
    plugins: [served],
    outfile,
    logLevel: 'warning',
  });
}

before(async () => {
  stage = await openStage();
  await bundle(join(stage.made, 'react.js'));
  ({ page, close } = await stage.openPage());
  await page.evaluate(async () => {
    await import('/made/react.js');
    globalThis.rillm = await import('/rillm/dist/index.js');
    /** A chat with an engine that a test speaks for. */
    globalThis.scriptedChat = (options = {}, render = {}) => {
      const engine = scriptedEngine();
      const hook = renderHook(({ engine, fields }) => useChat(engine, fields), { props: { engine, fields: options }, ...render });
      return { engine, hook, asked: engine.asked, until: hook.until };
    };
    globalThis.ready = ({ status }) => status === 'ready';
    /** A conversation in short: `u:` and `a:` before what was said. */
    globalThis.told = ({ messages }) => messages.map(({ role, content }) => `${role[0]}:${content}`).join(' ');
    /** It is disposed of soon. */
    globalThis.isDisposed = async (engine) => {
      while (
        await engine.stats().then(
          () => true,
          ({ code }) => code !== 'disposed',
        )
      )
        await turn();
    };
    globalThis.turn = () => new Promise((resolve) => setTimeout(resolve, 20));
  });
}, LIMIT);
after(async () => {
  await close?.();
  await stage?.close();
});

/** A test that runs in the page. */
function inPage(name, fn) {
  test(name, LIMIT, async () => {
    await page.evaluate(([source, model]) => (0, eval)(`(${source})`)(model), [String(fn), MODEL]);
  });
}

inPage('an answer as it streams: messages, states, and what the engine is asked', async () => {
  const system = { role: 'system', content: 'Be brief.' };
  const { hook, asked, until } = scriptedChat({ initialMessages: [system], temperature: 0 });
  const { send } = await until(ready);
  const sending = send('Hi');
  await until(({ status }) => status === 'submitted');
  assert.equal(told(hook.current), 's:Be brief. u:Hi');
  assert.deepEqual(asked[0].request, { messages: [system, { role: 'user', content: 'Hi' }], temperature: 0, stream: true });
  asked[0].begin();
  await turn();
  assert.equal(hook.current.status, 'submitted', 'the opening chunk says nothing');
  asked[0].say({ reasoning_content: 'Hm.' });
  await until(({ status }) => status === 'streaming');
  asked[0].say('Hel');
  await until((chat) => told(chat).endsWith('a:Hel'));
  const before = hook.current.messages;
  asked[0].say('lo');
  asked[0].end();
  const answer = await sending;
  const { messages, error, chunk } = await until(ready);
  assert.deepEqual(answer, { role: 'assistant', content: 'Hello', reasoning_content: 'Hm.' });
  assert.deepEqual(messages.at(-1), answer);
  assert.equal(before.at(-1).content, 'Hel', 'what was rendered stays what it was');
  assert.deepEqual([error, chunk.choices[0].finish_reason, chunk.usage.total_tokens], [undefined, 'stop', 7]);
  // The options of the last render count, and the functions stay the same.
  hook.render({ engine: scriptedEngine(), fields: { temperature: 1, max_tokens: 3 } });
  assert.equal(hook.current.send, send);
  hook.unmount();
});

inPage('a next question has the whole conversation; an answer without a word is one too', async () => {
  const { hook, asked, until } = scriptedChat();
  const { send } = await until(ready);
  for (const [at, [question, answer]] of [
    ['A', ''],
    ['B', 'b'],
  ].entries()) {
    const sending = send(question);
    asked[at].begin();
    if (answer !== '') asked[at].say(answer);
    asked[at].end('length');
    assert.equal((await sending).content, answer);
  }
  assert.equal(told(asked[1].request), 'u:A a: u:B');
  await until(ready);
  assert.equal(told(hook.current), 'u:A a: u:B a:b');
  hook.unmount();
});

inPage('stop, in every phase: what has come stays, and nothing comes after it', async () => {
  for (const phase of ['waiting', 'begun', 'speaking', 'ended']) {
    const { hook, asked, until } = scriptedChat();
    const { send, stop } = await until(ready);
    stop();
    const sending = send('A');
    const [first] = asked;
    if (phase !== 'waiting') first.begin();
    if (phase === 'speaking' || phase === 'ended') {
      first.say('par');
      await until(({ status }) => status === 'streaming');
    }
    if (phase === 'ended') {
      first.end();
      await sending;
    }
    stop();
    stop();
    const { error } = await until(ready);
    first.say('tial');
    const answer = await sending;
    await turn();
    const spoke = phase === 'speaking' || phase === 'ended';
    assert.deepEqual([error, answer?.content, first.signal.aborted], [undefined, spoke ? 'par' : undefined, true], phase);
    assert.equal(told(hook.current), spoke ? 'u:A a:par' : 'u:A', phase);
    // A question that nothing came of makes way for the next one.
    const next = send('B');
    assert.equal(told(asked[1].request), spoke ? 'u:A a:par u:B' : 'u:B', phase);
    asked[1].begin();
    asked[1].say('b');
    asked[1].end();
    assert.equal((await next).content, 'b');
    hook.unmount();
  }
});

inPage('one answer at a time: what is asked meanwhile is not taken', async () => {
  const { hook, asked, until } = scriptedChat();
  const { send, regenerate } = await until(ready);
  const [first, second, third] = [send('A'), send('B'), regenerate()];
  assert.deepEqual([await second, await third, asked.length], [undefined, undefined, 1]);
  asked[0].begin();
  asked[0].say('a');
  asked[0].end();
  assert.equal((await first).content, 'a');
  await until(ready);
  assert.equal(told(hook.current), 'u:A a:a');
  hook.unmount();
});

inPage('errors: before an answer and in its middle; the chat goes on, and the question is asked again', async () => {
  const { hook, asked, until } = scriptedChat();
  const { send, regenerate } = await until(ready);
  const failure = new rillm.EngineError('context_length_exceeded', 'too long');
  const long = send('long');
  asked[0].fail(failure);
  assert.equal(await long, undefined);
  const failed = await until(({ status }) => status === 'error');
  assert.deepEqual([failed.error, told(failed)], [failure, 'u:long']);
  const again = regenerate();
  assert.equal((await until(({ status }) => status === 'submitted')).error, undefined);
  asked[1].begin();
  asked[1].fail(new TypeError('of no engine'));
  assert.equal(await again, undefined);
  assert.deepEqual([(await until(({ status }) => status === 'error')).error.code, told(asked[1].request)], ['internal', 'u:long']);
  // The next question takes its place: what is too long would fail for ever.
  const short = send('short');
  assert.equal(told(asked[2].request), 'u:short');
  asked[2].begin();
  asked[2].say('ha');
  asked[2].fail(failure);
  assert.equal((await short).content, 'ha');
  assert.equal(told(await until(({ status }) => status === 'error')), 'u:short a:ha');
  // What had come of it is an answer, unless it is asked for again.
  const once = regenerate();
  assert.equal(told(asked[3].request), 'u:short');
  asked[3].begin();
  asked[3].say('whole');
  asked[3].end();
  await once;
  assert.equal(told(await until(ready)), 'u:short a:whole');
  hook.unmount();
});

inPage('regenerate: nothing to ask again, a system message alone, an answer to a tool', async () => {
  const { hook, asked, until } = scriptedChat();
  const { regenerate, setMessages } = await until(ready);
  for (const role of [undefined, 'system', 'assistant']) {
    setMessages(role === undefined ? [] : [{ role, content: 'x' }]);
    assert.equal(await regenerate(), undefined);
  }
  assert.equal(asked.length, 0);
  const calls = { role: 'assistant', content: '', tool_calls: [{ id: '1', type: 'function', function: { name: 'f', arguments: '{}' } }] };
  const given = [
    { role: 'user', content: 'A' },
    calls,
    { role: 'tool', tool_call_id: '1', content: '{}' },
    { role: 'assistant', content: 'old' },
  ];
  setMessages(given);
  regenerate();
  assert.deepEqual(asked[0].request.messages, given.slice(0, 3));
  assert.equal(given.length, 4);
  hook.unmount();
});

inPage('setMessages in mid-answer: what comes late changes nothing, and the next question is of the new ones', async () => {
  const { hook, asked, until } = scriptedChat();
  const { send, setMessages } = await until(ready);
  const sending = send('A');
  asked[0].begin();
  asked[0].say('a');
  await until(({ status }) => status === 'streaming');
  const mine = [{ role: 'user', content: 'context' }];
  setMessages(mine);
  asked[0].say('late');
  await sending;
  assert.equal(told(await until(ready)), 'u:context');
  send('B');
  assert.equal(told(asked[1].request), 'u:context u:B', 'a message that was set is no question that failed');
  assert.equal(mine.length, 1);
  hook.unmount();
});

inPage('calls of tools: put together, without those that are none, and their results sent', async () => {
  const tools = [{ type: 'function', function: { name: 'f' } }];
  const { hook, asked, until } = scriptedChat({ tools });
  const { send } = await until(ready);
  const sending = send('A');
  asked[0].begin();
  const call = (index, name, text) => ({
    index,
    ...(name ? { id: `id${index}`, type: 'function' } : {}),
    function: { ...(name && { name }), arguments: text },
  });
  asked[0].say({ tool_calls: [call(0, 'f', '{"a"')] });
  asked[0].say({ tool_calls: [call(0, undefined, ':1}'), call(1, 'g', '{')] });
  asked[0].say('{"g', { malformed_tool_calls: [{ index: 1, text: '{"g', reason: 'cut' }] });
  asked[0].end('tool_calls');
  const answer = await sending;
  assert.deepEqual(answer.tool_calls, [{ id: 'id0', type: 'function', function: { name: 'f', arguments: '{"a":1}' } }]);
  assert.equal(answer.content, '{"g');
  send([{ role: 'tool', tool_call_id: 'id0', content: '2' }]);
  assert.deepEqual(asked[1].request.tools, tools);
  assert.deepEqual(asked[1].request.messages.slice(1), [answer, { role: 'tool', tool_call_id: 'id0', content: '2' }]);
  hook.unmount();
});

inPage('a component that goes in mid-answer ends it, and asks no more', async () => {
  const { hook, asked, until } = scriptedChat();
  const { send } = await until(ready);
  const sending = send('A');
  asked[0].begin();
  asked[0].say('a');
  await until(({ status }) => status === 'streaming');
  hook.unmount();
  const answer = await sending;
  assert.deepEqual([asked[0].signal.aborted, answer.content, await send('B'), asked.length], [true, 'a', undefined, 1]);
});

inPage('StrictMode: a child that asks as an effect is answered once', async () => {
  const { hook, asked, until } = scriptedChat({}, { isStrict: true, childEffect: ({ send }) => void send('Hi') });
  await until(({ status }) => status === 'submitted');
  await turn();
  // The first was ended when React took the effect back.
  assert.deepEqual(
    asked.map(({ signal }) => signal.aborted),
    [true, false],
  );
  assert.equal(told(asked[1].request), 'u:Hi');
  asked[1].begin();
  asked[1].say('ho');
  asked[1].end();
  assert.equal(told(await until(ready)), 'u:Hi a:ho');
  hook.unmount();
});

inPage('another engine: the answer under way ends, the messages stay; without one nothing is asked', async () => {
  const { hook, asked, until } = scriptedChat();
  const { send } = await until(ready);
  const sending = send('A');
  asked[0].begin();
  asked[0].say('a');
  await until(({ status }) => status === 'streaming');
  for (const none of [undefined, null]) {
    hook.render({ engine: none, fields: {} });
    await until(({ status }) => status === 'loading');
    assert.equal(await send('nobody'), undefined);
  }
  assert.deepEqual([(await sending).content, asked[0].signal.aborted, told(hook.current)], ['a', true, 'u:A a:a']);
  const second = scriptedEngine();
  hook.render({ engine: second, fields: { temperature: 1 } });
  await until(ready);
  send('B');
  assert.deepEqual([told(second.asked[0].request), second.asked[0].request.temperature, asked.length], ['u:A a:a u:B', 1, 1]);
  hook.unmount();
});

inPage('useEngine, StrictMode: one engine is left; another address, a bad one, none; it is disposed of', async (model) => {
  const progress = [];
  const options = { onProgress: ({ loaded }) => progress.push(loaded), worker: false, onWarning: () => {} };
  const hook = renderHook((source) => useEngine(source, options), { props: new URL(model, location.href), isStrict: true });
  const { engine } = await hook.until(({ engine }) => engine);
  assert.ok(progress.length > 0 && hook.seen.some((one) => one.progress));
  // An address that is another object and the same text loads nothing.
  hook.render(new URL(model, location.href));
  await turn();
  assert.equal(hook.current.engine, engine);
  hook.render('opfs:nothing.gguf');
  const { error } = await hook.until(({ error }) => error);
  assert.deepEqual([error.code, hook.current.engine], ['not_found', undefined]);
  await isDisposed(engine);
  hook.current.reload();
  await hook.until((next) => next.error !== undefined && next.error !== error);
  hook.render(undefined);
  await hook.until((next) => next.error === undefined && next.engine === undefined);
  hook.render(model);
  const last = (await hook.until((next) => next.engine)).engine;
  hook.unmount();
  await isDisposed(last);
});

inPage('real engines: two chats at once, a device that is lost for good, a disposed one, and one that goes on', async (model) => {
  const load = () => rillm.Engine.load(model, { worker: false, maxRecoveries: 0, onWarning: () => {} });
  const engine = await load();
  const fields = { temperature: 0, max_tokens: 12, ignore_eos: true };
  const open = () => renderHook(({ engine, fields }) => useChat(engine, fields), { props: { engine, fields }, isStrict: true });
  const hooks = [open(), open()];
  for (const hook of hooks) await hook.until(ready);
  const questions = ['The small boat', 'on'];
  const answers = await Promise.all(hooks.map((hook, at) => hook.current.send(questions[at])));
  for (const [at, { content }] of answers.entries()) {
    const messages = [{ role: 'user', content: questions[at] }];
    const { choices } = await engine.chat.completions.create({ ...fields, messages });
    assert.equal(content, choices[0].message.content);
    assert.equal((await hooks[at].until(ready)).chunk.usage.completion_tokens, 12);
  }
  const [hook, other] = hooks;
  hook.render({ engine, fields: { ...fields, max_tokens: 100_000, context_shift: true } });
  const endless = hook.current.send('And then?');
  await hook.until(({ messages }) => messages.at(-1).content.length > 20);
  engine.gpuDevice.destroy();
  const said = await endless;
  const { error, messages } = await hook.until(({ status }) => status === 'error');
  assert.equal(error.code, 'device_lost');
  assert.ok(said.content.length > 20 && messages.length === 4);
  await engine.dispose();
  assert.equal(await other.current.send('Still there?'), undefined);
  assert.equal((await other.until(({ status }) => status === 'error')).error.code, 'disposed');
  const next = await load();
  other.render({ engine: next, fields });
  const again = await other.current.regenerate();
  assert.ok(again.content.length > 0);
  assert.equal((await other.until(ready)).messages.length, 4);
  for (const each of hooks) each.unmount();
  await next.dispose();
});
