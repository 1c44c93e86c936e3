// The parts of the page that need no browser: the tree of messages, files of conversations, requests, settings, the calculator, sentences, what fits, and what to do
// without WebGPU.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { root } from '../../scripts/command.mjs';
import { has, tablesOf } from '../../www/bench/report.js';
import { headlinesOf } from '../../www/bench/view.js';
import { calculate } from '../../www/chat/calculator.js';
import { messagesOf, requestOf } from '../../www/chat/request.js';
import { Sentences } from '../../www/chat/sentences.js';
import { FIELDS, faultOf, readSettings } from '../../www/chat/settings.js';
import { runTool, TOOLS } from '../../www/chat/tools.js';
import { wellFormed } from '../../www/conversations/text.js';
import { fromJson, ImportProblem, toJson, toMarkdown } from '../../www/conversations/transfer.js';
import { newestLeaf, newId, pathTo, titleOf, versionsOf } from '../../www/conversations/tree.js';
import { deviceOf, faultOfContext, fitOf, fitOfInspection, fitOfRecommendation, neededBytes } from '../../www/loading/fit.js';
import { isAddress, searchIn } from '../../www/loading/hub.js';
import { KNOWN } from '../../www/loading/known.js';
import { askToPersist } from '../../www/persistence.js';
import { Figures } from '../../www/view/figures.js';
import { LogWindow } from '../../www/view/log_window.js';
import { adviceFor, browserOf } from '../../www/webgpu_advice.js';

const message = (id, parent, role = 'user', more = {}) => ({
  id,
  parent,
  role,
  content: id,
  created: Number(id.slice(1)),
  state: 'done',
  ...more,
});
const mapOf = (...all) => new Map(all.map((one) => [one.id, one]));

test('a path leads to its leaf, versions are siblings, and a circle ends', () => {
  const messages = mapOf(message('m1', null), message('m2', 'm1', 'assistant'), message('m3', 'm1', 'assistant'), message('m4', 'm3'));
  const ids = (list) => list.map(({ id }) => id);
  assert.deepEqual(ids(pathTo(messages, 'm4')), ['m1', 'm3', 'm4']);
  assert.deepEqual(ids(versionsOf(messages, messages.get('m2'))), ['m2', 'm3']);
  assert.equal(newestLeaf(messages, 'm1'), 'm4');
  assert.equal(newestLeaf(messages, 'm2'), 'm2');
  assert.deepEqual(pathTo(messages, null), []);
  const circle = mapOf(message('m1', 'm2'), message('m2', 'm1'));
  assert.deepEqual(ids(pathTo(circle, 'm2')), ['m1', 'm2']);
  assert.equal(newestLeaf(circle, 'm1'), 'm2');
  assert.notEqual(newId(), newId());
});

test('a title is the first line, and is never cut inside a character', () => {
  assert.equal(titleOf('  Hello\nworld'), 'Hello');
  const family = '👨‍👩‍👧‍👦';
  assert.equal(titleOf(family.repeat(3), 2), `${family.repeat(2)}…`);
  assert.equal(titleOf('', 5), '');
});

const CONVERSATION = {
  conversation: {
    id: 'c',
    title: 'A chat',
    system: 'Be brief.',
    created: 1,
    updated: 2,
    leaf: 'm3',
    tools: [TOOLS.clock.definition],
  },
  messages: mapOf(
    message('m1', null),
    message('m2', 'm1', 'assistant', { reasoning: 'Hm', calls: [{ id: 'x', name: 'clock', arguments: '{}' }], state: 'writing' }),
    message('m3', 'm2', 'tool', { call: 'x', content: '``` is a fence' }),
  ),
};

test('conversations come back from a file as they went, under other ids', () => {
  const [{ conversation, messages }] = fromJson(toJson([CONVERSATION]));
  assert.notEqual(conversation.id, 'c');
  assert.equal(conversation.title, 'A chat');
  const path = pathTo(messages, conversation.leaf);
  assert.deepEqual(
    path.map(({ role, content, reasoning, state }) => [role, content, reasoning, state]),
    [
      ['user', 'm1', undefined, 'done'],
      ['assistant', 'm2', 'Hm', 'interrupted'],
      ['tool', '``` is a fence', undefined, 'done'],
    ],
  );
  assert.deepEqual(path[1].calls, [{ id: 'x', name: 'clock', arguments: '{}' }]);
  assert.ok(path.every((one) => one.conversation === conversation.id));
  assert.deepEqual(conversation.tools, CONVERSATION.conversation.tools);
  assert.deepEqual(fromJson(toJson([])), []);
});

test('what an import has by halves does not break the page: figures without a number, and halves of characters', () => {
  const data = JSON.parse(toJson([CONVERSATION]));
  const [given] = data.conversations;
  given.title = `${'a'.repeat(499)}😀😀`;
  given.system = 'b\ud83d';
  Object.assign(given.messages[1], {
    content: '\ud83d!',
    usage: { prompt_tokens: 1, completion_tokens: null, total_tokens: 2 },
    timings: { tokens_per_s: null, prompt_ms: null },
    format: { type: 'json_schema', json_schema: { name: 'answer', schema: { type: 'object' } } },
  });
  given.messages[1].calls[0].arguments = '{"a":"\ude00"}';
  Object.assign(given.messages[0], {
    usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3, prompt_tokens_details: null },
    timings: { tokens_per_s: 5, decode_ms: null },
  });
  const [{ conversation, messages }] = fromJson(JSON.stringify(data));
  const [question, answer] = messages.values();
  given.title = ' ';
  assert.equal(fromJson(JSON.stringify(data))[0].conversation.title, 'Imported');
  assert.equal(conversation.title, `${'a'.repeat(499)}😀…`);
  assert.equal(conversation.system, 'b\ufffd');
  assert.deepEqual([answer.content, answer.calls[0].arguments], ['\ufffd!', '{"a":"\ufffd"}']);
  assert.deepEqual([answer.usage, answer.timings], [undefined, undefined]);
  assert.equal(answer.format.json_schema.schema.type, 'object');
  assert.deepEqual(question.usage, { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 });
  assert.deepEqual(question.timings, { tokens_per_s: 5 });
});

test('a file that is broken is refused with the place and the reason', () => {
  const broken = (change) => {
    const data = JSON.parse(toJson([CONVERSATION]));
    change(data);
    return JSON.stringify(data);
  };
  for (const [text, words] of [
    ['{"format', /no JSON/],
    ['[]', /no conversations of this page/],
    ['null', /no conversations/],
    [broken((data) => (data.version = 9)), /version 9.*reads version 1/],
    [broken((data) => (data.conversations[0].messages = 3)), /Conversation 1 has no list/],
    [broken((data) => (data.conversations[0].messages[1].role = 'robot')), /message 2: its role is "robot"/],
    [broken((data) => (data.conversations[0].messages[1].content = 7)), /message 2: content has to be a string/],
    [broken((data) => (data.conversations[0].messages[1].id = 'm1')), /no id of its own/],
    [broken((data) => (data.conversations[0].messages[1].calls = [{ id: 1 }])), /calls have to be a list/],
    [broken((data) => (data.conversations[0].title = {})), /title/],
    [
      broken((data) => (data.conversations[0].messages[1].format = { type: 'json_schema' })),
      /message 2: its format has to be one of OpenAI/,
    ],
    [broken((data) => (data.conversations[0].tools = [{ type: 'function' }])), /tools have to be a list of functions/],
    [broken((data) => (data.conversations[0].messages[1].usage = [])), /message 2: prompt_tokens of usage has to be a number/],
    [broken((data) => (data.conversations[0].messages[1].timings = { tokens_per_s: '5' })), /tokens_per_s of timings has to be a number/],
    [broken((data) => (data.conversations[0].messages[1].error = { code: 'x' })), /message of error has to be a string/],
  ])
    assert.throws(() => fromJson(text), { constructor: ImportProblem, message: words }, text.slice(0, 60));
  // A parent that is not there makes the message the first of its branch.
  const [{ messages }] = fromJson(broken((data) => (data.conversations[0].messages[1].parent = 'gone')));
  assert.equal([...messages.values()].filter(({ parent }) => parent === null).length, 2);
});

test('Markdown has the branch that is shown, with fences longer than those in it', () => {
  const text = toMarkdown(CONVERSATION);
  assert.match(text, /^# A chat\n/);
  assert.match(text, /> Be brief\./);
  assert.match(text, /````\n``` is a fence\n````/);
  assert.match(text, /\*\*Call of clock\*\*/);
});

test('a request has turns in order, one question for several, and a result for every call', () => {
  const call = { id: 'x', name: 'clock', arguments: '{}' };
  const path = [
    message('m1', null),
    message('m2', 'm1', 'assistant', { content: '', state: 'failed' }),
    message('m3', 'm2'),
    message('m4', 'm3', 'assistant', { content: '', calls: [call] }),
    message('m5', 'm4'),
  ];
  assert.deepEqual(messagesOf(path, ' Be brief. '), [
    { role: 'system', content: ' Be brief. ' },
    { role: 'user', content: 'm1\n\nm3' },
    { role: 'assistant', content: '', tool_calls: [{ id: 'x', type: 'function', function: { name: 'clock', arguments: '{}' } }] },
    { role: 'tool', tool_call_id: 'x', content: 'There is no result.' },
    { role: 'user', content: 'm5' },
  ]);
  const asked = requestOf({
    path,
    system: '',
    fields: { temperature: 0 },
    tools: [TOOLS.clock.definition],
    format: { type: 'json_object' },
    goesOn: true,
  });
  assert.equal(asked.tools, undefined, 'JSON goes without tools');
  assert.equal(asked.continue_final_message, true);
  assert.equal(requestOf({ path, system: '', fields: {}, tools: [TOOLS.clock.definition] }).tools.length, 1);
});

test('settings are read in words: what is wrong names the field and its bounds', () => {
  assert.deepEqual(readSettings({ temperature: '0.7', top_k: '40', stop: 'a\n\nb', mirostat: true, seed: '' }), {
    fields: { temperature: 0.7, top_k: 40, stop: ['a', 'b'], mirostat: 2 },
    faults: [],
  });
  assert.equal(readSettings({}).fields.temperature, 0);
  const { faults } = readSettings({ temperature: 'warm', top_p: '0', top_k: '1.5', max_tokens: '0', stop: '1\n2\n3\n4\n5' });
  assert.deepEqual(faults, [
    'Longest answer, tokens has to be a whole number of at least 1.',
    'Temperature has to be a number from 0 to 2.',
    'Top k has to be a whole number of at least 0.',
    'Top p has to be a number above 0 and at most 1.',
    'Stop texts: 5 lines, at most 4 are possible.',
  ]);
  for (const field of FIELDS) {
    assert.ok(field.words.endsWith('.'), field.name);
    assert.equal(faultOf(field, ''), undefined);
    for (const [bound, beyond] of [
      [field.max, 1],
      [field.min, -1],
    ])
      if (bound !== undefined && field.above !== bound) {
        assert.equal(faultOf(field, String(bound)), undefined, `${field.name} ${bound}`);
        if (Math.abs(bound) < Number.MAX_SAFE_INTEGER)
          assert.notEqual(faultOf(field, String(bound + beyond)), undefined, `${field.name} ${bound + beyond}`);
      }
  }
});

test('settings of several lines: texts with new lines in them, ids of tokens, and what is added to their logits', () => {
  const { fields, faults } = readSettings({
    stop: 'END\n\\n\\n\na\\\\nb',
    dry_sequence_breakers: '\\n\n\\t\n:',
    suppress_tokens: '5, 7\n9',
    stop_token_ids: ' 2 ',
    logit_bias: '50 -100\n7: 1.5\n\n9=0',
  });
  assert.deepEqual(faults, []);
  assert.deepEqual(fields, {
    temperature: 0,
    stop: ['END', '\n\n', 'a\\nb'],
    dry_sequence_breakers: ['\n', '\t', ':'],
    suppress_tokens: [5, 7, 9],
    stop_token_ids: [2],
    logit_bias: { 50: -100, 7: 1.5, 9: 0 },
  });
  for (const [name, text, words] of [
    ['suppress_tokens', '5 -1', /"-1" is not the id/],
    ['suppress_tokens', '5 1.5', /"1.5" is not the id/],
    ['suppress_tokens', String(2 ** 32), /is not the id/],
    ['stop_token_ids', Array.from({ length: 65 }, (_, i) => i).join(' '), /65 ids, at most 64/],
    ['logit_bias', '5', /"5" is not the id of a token and a number/],
    ['logit_bias', '5 101', /from -100 to 100/],
    ['logit_bias', '5 1 2', /"5 1 2"/],
    ['logit_bias', 'the 5', /"the 5"/],
    ['logit_bias', '5 NaN', /"5 NaN"/],
  ]) {
    const read = readSettings({ [name]: text });
    assert.match(read.faults[0], words);
    assert.equal(read.fields[name], undefined);
  }
});

test('every setting of sampling, of penalties and of what ends an answer is on the page, and no other name', () => {
  const typesIn = (file) => readFileSync(join(root, 'pkg-template/src', file), 'utf8');
  const types = typesIn('generated/requests.ts');
  const bodyOf = (name) => types.match(new RegExp(`export interface ${name} \\{\\n([\\s\\S]*?)\\n\\}`))[1];
  const ofInterface = (name) => Array.from(bodyOf(name).matchAll(/^ {2}(\w+)\?/gm), ([, field]) => field);
  const onPage = FIELDS.map(({ name }) => name);
  // The newer name of `max_tokens`.
  const wanted = ['SamplingFields', 'PenaltyFields', 'EndingFields']
    .flatMap(ofInterface)
    .filter((name) => name !== 'max_completion_tokens');
  assert.deepEqual(
    wanted.filter((name) => !onPage.includes(name)),
    [],
  );
  for (const name of onPage) assert.match(types + typesIn('requests.ts'), new RegExp(`^ {2}${name}\\?`, 'm'));
});

test('the calculator computes, and says what it can’t read', async () => {
  for (const [sum, value] of [
    ['12 + 30', 42],
    ['2 + 3 * 4 - 6 / 2', 11],
    ['-2^2', -4],
    ['2^3^2', 512],
    ['2^-1', 0.5],
    ['(1 + 2) × 3 ÷ 4', 2.25],
    ['0.1 + 0.2', 0.3],
    ['sqrt(16) + max(1, 7, 3)', 11],
    ['PI', Math.PI],
    ['1e3 % 7', 6],
    ['347*586', 203_342],
  ])
    assert.ok(Math.abs(calculate(sum) - value) < 1e-12, `${sum} = ${calculate(sum)}`);
  for (const [sum, words] of [
    ['', /ends too early/],
    ['1 +', /ends too early/],
    ['1 2', /“2” at position 3/],
    ['alert(1)', /no “alert”/],
    ['constructor', /no “constructor”/],
    ['1 / 0', /no number/],
    ['a=1', /“=”|no “a”/],
    ['('.repeat(500), /too many parentheses/],
    ['2 ☃ 3', /“☃” at position/],
  ])
    assert.throws(() => calculate(sum), words, sum);
  const signal = new AbortController().signal;
  assert.equal(await runTool({ name: 'calculator', arguments: '{"expression": "6 * 7"}' }, { signal }), '42');
  assert.match(await runTool({ name: 'calculator', arguments: '{"expr' }, { signal }), /^Error: /);
  assert.match(await runTool({ name: 'calculator', arguments: '[]' }, { signal }), /no object/);
  assert.match(await runTool({ name: 'clock', arguments: '{"time_zone": "Europe/Oslo"}' }, { signal }), /\d\d:\d\d:\d\d/);
  assert.match(await runTool({ name: 'clock', arguments: '{"time_zone": "Nowhere"}' }, { signal }), /^Error: /);
  assert.match(
    await runTool({ name: 'fetch_address', arguments: '{"url": "javascript:alert(1)"}' }, { signal, consent: () => assert.fail('asked') }),
    /^Error: only addresses of http/,
  );
  assert.match(
    await runTool({ name: 'fetch_address', arguments: '{"url": "https://a.example/"}' }, { signal, consent: async () => false }),
    /did not allow/,
  );
});

test('an address that leads to another one is not followed', async () => {
  const { fetch } = globalThis;
  const asked = [];
  globalThis.fetch = async (url, { redirect }) => {
    asked.push([url.href, redirect]);
    return { type: 'opaqueredirect', ok: false, status: 0 };
  };
  try {
    const context = { signal: new AbortController().signal, consent: async () => true };
    const result = await runTool({ name: 'fetch_address', arguments: '{"url": "https://a.example/x"}' }, context);
    assert.match(result, /^Error: a\.example redirects to another address, which the user has not allowed/);
    assert.deepEqual(asked, [['https://a.example/x', 'manual']]);
  } finally {
    globalThis.fetch = fetch;
  }
});

test('the browser is asked to keep what there is, and not each day', async () => {
  const values = {};
  const preferences = { get: (name, fallback) => values[name] ?? fallback, set: (name, value) => (values[name] = value) };
  let asked = 0;
  const storage = { persisted: async () => false, persist: async () => (asked += 1) };
  await askToPersist(preferences, { ...storage, persisted: async () => true });
  await askToPersist(preferences, {});
  assert.equal(asked, 0);
  await askToPersist(preferences, storage);
  await askToPersist(preferences, storage);
  assert.equal(asked, 1);
  values.askedToPersist -= 8 * 86_400_000;
  await askToPersist(preferences, { ...storage, persist: () => Promise.reject(new Error('no')) });
  assert.ok(Date.now() - values.askedToPersist < 60_000);
});

test('the figures of an answer are known while it comes', () => {
  const figures = new Figures();
  const stats = (dispatches, maps) => ({ dispatches, maps, syncs: 0, live_bytes: 1 });
  figures.look(stats(0, 0));
  figures.tokens(1, 250);
  figures.tokens(1, undefined);
  figures.look(stats(20, 1));
  assert.deepEqual([figures.first, figures.series.first], [250, [250]]);
  assert.deepEqual([figures.series.dispatches, figures.series.waits], [[10], [0.5]]);
  figures.answer({
    before: stats(0, 0),
    after: stats(30, 3),
    message: { usage: { completion_tokens: 3 }, timings: { tokens_per_s: 8 } },
  });
  assert.deepEqual([figures.series.first, figures.series.dispatches], [[250], [10, 10]]);
});

test('half of a character is no text for a tokenizer', () => {
  assert.equal(wellFormed('a\ud83d'), 'a\ufffd');
  assert.equal(wellFormed('\ude00b😀'), '\ufffdb😀');
});

test('sentences are spoken when they are whole, without signs of Markdown', () => {
  const sentences = new Sentences();
  assert.equal(sentences.push('The **answ'), '');
  assert.equal(sentences.push('er** is 4.2'), '');
  assert.equal(sentences.push('. And'), 'The answer is 4.2.');
  assert.equal(sentences.push(' more'), '');
  assert.equal(sentences.push('\n# Title\n'), 'And more Title');
  assert.equal(sentences.push('- last'), '');
  assert.equal(sentences.end(), 'last');
  assert.equal(sentences.end(), '');
});

test('what fits follows the adapter, the memory and what was inspected', async () => {
  const GIB = 2 ** 30;
  const gpu = { max_buffer_bytes: 2 * GIB, is_on_cpu: false, memory_gib: 8 };
  const verdict = (needed, device, problem) => fitOf({ needed, problem }, device).verdict;
  assert.equal(verdict(1 * GIB, gpu), 'fits');
  assert.equal(verdict(5 * GIB, gpu), 'tight');
  assert.equal(verdict(11 * GIB, gpu), 'too large');
  assert.equal(verdict(5 * GIB, { ...gpu, memory_gib: 4 }), 'too large');
  assert.equal(verdict(3 * GIB, { ...gpu, memory_gib: 4 }), 'tight');
  assert.equal(verdict(3 * GIB, { ...gpu, memory_gib: undefined }), 'tight');
  assert.equal(verdict(1 * GIB, undefined), 'unknown');
  assert.equal(verdict(1, gpu, { code: 'adapter_limits', message: '' }), 'too large');
  assert.equal(verdict(1, gpu, { code: 'unsupported_architecture', message: '' }), 'unknown');
  const inspected = { weight_bytes: GIB, kv_cache_bytes: 0, adapter: { max_buffer_bytes: GIB / 8 } };
  assert.equal(fitOfInspection(inspected, gpu).verdict, 'too large');
  const cpu = { max_buffer_bytes: 4 * GIB, is_on_cpu: true, memory_gib: 8 };
  assert.equal(verdict(0.3 * GIB, cpu), 'fits');
  assert.deepEqual(
    [1, 4.5].map((gib) => fitOf({ needed: gib * GIB }, cpu)),
    [
      { verdict: 'slow', words: 'It needs 1.07 GB, and the CPU runs it here: answers will be slow.' },
      { verdict: 'too large', words: 'It needs 4.83 GB, and a model on the CPU has 4.29 GB at most.' },
    ],
  );
  assert.equal(verdict(3 * GIB, { ...cpu, memory_gib: 2 }), 'too large');
  assert.equal(verdict(0.3 * GIB, { ...cpu, memory_gib: 0.5 }), 'tight');
  assert.equal(fitOfInspection({ ...inspected, weight_bytes: 0.3 * GIB }, cpu).verdict, 'fits', 'an adapter that is not used says nothing');
  const offering = (adapter) => ({ gpu: { requestAdapter: async () => adapter }, deviceMemory: 8 });
  const limits = { maxBufferSize: 2 * GIB };
  const failing = { requestAdapter: () => Promise.reject(new Error('no')) };
  for (const where of [
    { gpu: undefined, deviceMemory: 8 },
    { gpu: failing, deviceMemory: 8 },
    offering(null),
    offering({ limits, isFallbackAdapter: true }),
    offering({ limits, info: { isFallbackAdapter: true } }),
    offering({ limits, info: { isFallbackAdapter: false, architecture: 'swiftshader' } }),
  ]) {
    assert.deepEqual(await deviceOf(where), cpu);
  }
  // Threads have memories of their own for weights.
  assert.deepEqual(await deviceOf({ gpu: undefined, deviceMemory: 8 }, true), { ...cpu, max_buffer_bytes: 60 * GIB });
  assert.deepEqual(await deviceOf(offering({ limits, info: { isFallbackAdapter: false, architecture: 'xe' } })), gpu);
  const told = { fits: true, tokens_per_s: 8, reason: 'it runs on the CPU' };
  assert.deepEqual(fitOfRecommendation(told, 6), { verdict: 'fits', words: 'It runs on the CPU.' });
  assert.equal(fitOfRecommendation({ ...told, tokens_per_s: 5 }, 6).verdict, 'slow');
  assert.equal(fitOfRecommendation({ ...told, fits: false, tokens_per_s: undefined }, 6).verdict, 'too large');
  const problem = { code: 'unsupported_architecture', message: 'no' };
  assert.deepEqual(fitOfRecommendation({ ...told, fits: false, problem }, 6), { verdict: 'unknown', words: 'no' });
  for (const text of [undefined, '', '1', '4096']) assert.equal(faultOfContext(text), undefined, text);
  for (const text of ['0', '-1', '1.5', 'long', ' ']) assert.match(faultOfContext(text), /whole number/, text);
  const known = { bytes: 1000, kv: 16, context: 8192 };
  assert.deepEqual(
    [{}, { contextLength: 100 }, { contextLength: 10_000 }, { contextLength: 100, kvCache: 'q8_0' }, { kvCache: 'f32' }].map(
      (options) => neededBytes(known, options) - 1000,
    ),
    [16 * 4096, 1600, 16 * 8192, 850, 32 * 4096],
  );
  for (const model of KNOWN) assert.ok(neededBytes(model) >= model.bytes && model.source.startsWith('hf:'), model.name);
  assert.deepEqual(
    KNOWN.map(({ bytes }) => bytes),
    KNOWN.map(({ bytes }) => bytes).sort((a, b) => a - b),
  );
});

test('a long conversation is drawn from its end, and more of it when it is asked for', () => {
  const window = new LogWindow();
  assert.equal(window.from('a', 3), 0);
  assert.equal(window.grow(), false);
  assert.equal(window.from('b', 500), 440);
  assert.equal(window.from('b', 502), 440, 'what is drawn stays');
  assert.equal(window.grow(), true);
  assert.equal(window.from('b', 502), 380);
  assert.equal(window.from('b', 2), 0, 'another branch is shorter');
  assert.equal(window.from('c', 100), 40);
  while (window.grow());
  assert.equal(window.from('c', 100), 0);
});

test('an address is told from words', () => {
  for (const text of ['hf:a/b', 'https://x.example/m.gguf', './m.gguf', '/models/', 'm.gguf', 'opfs:m'])
    assert.equal(isAddress(text), true, text);
  for (const text of ['qwen', 'llama 3.2', '']) assert.equal(isAddress(text), false, text);
  assert.equal(searchIn(KNOWN, 'qwen 4b').length, 2);
  assert.equal(searchIn(KNOWN, '').length, KNOWN.length);
});

const AGENTS = {
  chromeLinux: 'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36',
  chromeOld: 'Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/110.0.0.0 Safari/537.36',
  edge: 'Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36 Edg/140.0.0.0',
  android: 'Mozilla/5.0 (Linux; Android 13; Pixel 7) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Mobile Safari/537.36',
  samsung:
    'Mozilla/5.0 (Linux; Android 13; SM-S901B) AppleWebKit/537.36 (KHTML, like Gecko) SamsungBrowser/20.0 Chrome/106.0.0.0 Mobile Safari/537.36',
  firefoxWindows: 'Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:130.0) Gecko/20100101 Firefox/130.0',
  firefoxLinux: 'Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0',
  safariMac: 'Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.4 Safari/605.1.15',
  iphone:
    'Mozilla/5.0 (iPhone; CPU iPhone OS 17_4 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) CriOS/123.0 Mobile/15E148 Safari/604.1',
};

test('without WebGPU the advice is for this browser and this system', () => {
  const advice = (agent, more) => adviceFor(browserOf({ userAgent: AGENTS[agent] }), more).join('\n');
  assert.deepEqual(browserOf({ userAgent: AGENTS.edge }), { browser: 'Edge', version: 140, system: 'Windows' });
  assert.deepEqual(browserOf({ userAgent: AGENTS.iphone }), { browser: 'Safari', version: 17, system: 'iOS' });
  assert.deepEqual(browserOf({ userAgent: AGENTS.safariMac, maxTouchPoints: 5 }).system, 'iOS');
  assert.match(advice('chromeLinux'), /chrome:\/\/flags\/#enable-unsafe-webgpu/);
  assert.match(advice('chromeOld'), /from version 113 on, and this is 110/);
  assert.match(advice('edge'), /edge:\/\/settings\/system/);
  assert.doesNotMatch(advice('edge'), /flags/);
  assert.match(advice('android'), /Android 12/);
  assert.match(advice('samsung'), /Chrome, version 121/);
  assert.match(advice('firefoxWindows'), /from version 141 on, and this is 130/);
  assert.match(advice('firefoxLinux'), /dom\.webgpu\.enabled/);
  assert.match(advice('safariMac'), /Safari 26/);
  assert.match(advice('iphone'), /iOS 26/);
  assert.match(advice('chromeLinux', { isSecure: false }), /https:\/\//);
  assert.match(advice('chromeLinux', { hasGpu: true }), /chrome:\/\/gpu/);
  for (const agent of Object.keys(AGENTS)) assert.ok(advice(agent).length > 20, agent);
  assert.deepEqual(adviceFor(browserOf({})), ['Open this page in Chrome or Edge, version 113 or newer.']);
  assert.match(advice('firefoxLinux'), /\nOr open this page in Chrome/);
});

test('the content security policy of the page has the digest of its import map', () => {
  const page = readFileSync(join(root, 'www/index.html'), 'utf8');
  const [, map] = page.match(/<script type="importmap">([\s\S]*?)<\/script>/);
  assert.ok(page.includes(`'sha256-${createHash('sha256').update(map).digest('base64')}'`));
  assert.equal(page.match(/<script/g).length, 2, 'no other script stands in the page');
});

test('the recording of the README is an animation below 1 MB whose frames lie within it', () => {
  const file = readFileSync(join(root, 'docs/recording.webp'));
  assert.ok(file.length < 1_000_000, `${file.length} bytes`);
  assert.equal(file.toString('latin1', 0, 4) + file.toString('latin1', 8, 16), 'RIFFWEBPVP8X');
  assert.equal(file.readUInt32LE(4), file.length - 8);
  const uint24 = (at) => file.readUIntLE(at, 3);
  const [width, height] = [uint24(24) + 1, uint24(27) + 1];
  let [frames, ms] = [0, 0];
  for (let at = 12; at < file.length; at += 8 + file.readUInt32LE(at + 4) + (file.readUInt32LE(at + 4) % 2)) {
    if (file.toString('latin1', at, at + 4) !== 'ANMF') continue;
    const [x, y, right, bottom] = [uint24(at + 8) * 2, uint24(at + 11) * 2, uint24(at + 14) + 1, uint24(at + 17) + 1];
    assert.ok(x + right <= width && y + bottom <= height, `frame ${frames}`);
    frames += 1;
    ms += uint24(at + 20);
  }
  assert.ok(frames > 20 && ms > 3000, `${frames} frames, ${ms} ms`);
});

test('a benchmark that is still running shows what it knows', () => {
  const report = {};
  assert.deepEqual([tablesOf(report), headlinesOf(report)], [[], []]);
  report.bandwidth = { bytes_per_s: 5e10, buffer_bytes: 2 ** 28 };
  report.load = { ms: 2000, bytes: 1e8, bytes_per_s: 5e7 };
  assert.deepEqual(headlinesOf(report), [['2', 's', 'to load']]);
  Object.assign(report, { decode: [], prefill: [] });
  assert.equal(has(report, 'decode'), false);
  report.decode.push({
    prompt_tokens: 16,
    new_tokens: 128,
    tokens_per_s: 40,
    ms_per_token: 25,
    bytes_per_token: 1e8,
    percent_of_bandwidth: 8,
  });
  assert.deepEqual(
    headlinesOf(report).map(([, unit]) => unit),
    ['tokens/s', '%', 's'],
  );
  assert.deepEqual(
    tablesOf(report).map(({ title }) => title),
    ['Decode'],
  );
  report.kernels = null;
  assert.equal(tablesOf(report).at(-1).title, 'Kernels');
});
