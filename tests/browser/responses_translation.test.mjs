// What the Responses API makes of requests and answers, without an engine: events of random answers, cut anywhere, and requests of any JSON.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';

import { modulesFolder } from '../../scripts/build.mjs';

const load = async (name) => import(pathToFileURL(join(modulesFolder, `${name}.js`)));

/** Numbers from 0 to below n, the same for the same seed. */
function random(seed) {
  let state = seed;
  return (n) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * n);
  };
}

const USAGE = {
  prompt_tokens: 5,
  completion_tokens: 7,
  total_tokens: 12,
  prompt_tokens_details: { cached_tokens: 2 },
  completion_tokens_details: { reasoning_tokens: 1 },
};

/** An answer as chunks: reasoning, texts and calls in any order, in pieces of any length, several in one chunk. */
function chunksOf(next) {
  const chunk = () => ({ index: 0, text: '', token_ids: [] });
  const chunks = [chunk()];
  let calls = 0;
  const token = (text) => ({ id: 0, token: text, bytes: [], logprob: -1, offset: 0, top: [] });
  for (let part = next(6); part > 0; part--) {
    const kind = next(3);
    const number = kind === 2 ? calls++ : 0;
    const pieces = 1 + next(4);
    for (let piece = 0; piece < pieces; piece++) {
      // Within a chunk reasoning comes before text and text before calls.
      const last = chunks.at(-1);
      const isLate = (kind === 0 && (last.text !== '' || last.tool_calls)) || (kind === 1 && last.tool_calls);
      if (isLate || next(2) === 0) chunks.push(chunk());
      const into = chunks.at(-1);
      const text = 'ab 😀'.slice(0, 1 + next(3));
      into.logprobs = [...(into.logprobs ?? []), token(text)];
      if (kind === 0) into.reasoning = (into.reasoning ?? '') + text;
      else if (kind === 1) into.text += text;
      else {
        const begin = piece === 0 ? { id: `call_${number}`, type: 'function' } : {};
        const name = piece === 0 ? { name: 'f' } : {};
        into.tool_calls = [
          ...(into.tool_calls ?? []),
          { index: number, ...begin, function: { ...name, arguments: piece === 0 ? '' : '1' } },
        ];
      }
    }
    if (kind === 2 && next(4) === 0) {
      chunks.push({ ...chunk(), text: 'broken', malformed_tool_calls: [{ index: number, text: 'broken', reason: 'no JSON' }] });
    }
  }
  const finish_reason = ['stop', 'tool_calls', 'length', 'cancelled'][next(4)];
  chunks.push({ ...chunk(), finish_reason, usage: USAGE, timings: { queue_ms: 0 } });
  return chunks;
}

/** What does not change from one answer to the next. */
function withoutIds(response) {
  const ids = new Map();
  const named = (id) => ids.get(id) ?? (ids.set(id, `#${ids.size}`), ids.get(id));
  return JSON.parse(JSON.stringify(response), (key, value) => (key === 'id' ? named(value) : key === 'completed_at' ? 0 : value));
}

test('events of any answer', async () => {
  const { ResponseEvents } = await load('responses/events');
  const kinds = new Set();
  for (let seed = 1; seed <= 3000; seed++) {
    const next = random(seed);
    const options = { summary: next(2) === 0, logprobs: next(2) === 0 };
    const chunks = chunksOf(next);
    const ended = [];
    const make = () => {
      const head = { id: 'resp', status: 'in_progress', output: [], output_text: '', incomplete_details: null, error: null };
      return new ResponseEvents(head, {
        ...options,
        onEnd: (response, malformed) => ended.push([structuredClone(response), [...malformed]]),
      });
    };
    const fails = next(10) === 0;
    const streamed = make();
    const events = [...streamed.opening()];
    for (const chunk of fails ? chunks.slice(0, -1) : chunks) events.push(...streamed.part(chunk));
    if (fails) events.push(...streamed.failed({ code: 'device_lost', message: 'gone' }));
    const what = `seed ${seed}`;
    const { response } = events.at(-1);
    assert.equal(ended.length, 1, what);
    assert.deepEqual(ended[0][0], response, what);
    if (fails) assert.equal(response.status, 'failed');
    else assert.deepEqual(withoutIds(make().whole(chunks)), withoutIds({ ...response }), what);
    // Numbers without gaps, items one after the other, each ended once, and their pieces together are the whole.
    assert.deepEqual(
      events.map(({ sequence_number }) => sequence_number),
      events.map((_, index) => index),
      what,
    );
    let open;
    let items = 0;
    for (const event of events) {
      kinds.add(event.type);
      if (event.type === 'response.output_item.added') {
        assert.equal(open, undefined, what);
        assert.equal(event.output_index, items++, what);
        open = { id: event.item.id, text: '' };
      } else if (event.item_id !== undefined) {
        assert.equal(event.item_id, open.id, what);
        if (event.delta !== undefined) open.text += event.delta;
        const whole = event.type.endsWith('_text.done') ? event.text : event.arguments;
        if (whole !== undefined) assert.equal(whole, open.text, what);
      } else if (event.type === 'response.output_item.done') {
        assert.deepEqual(event.item, response.output[event.output_index], what);
        assert.notEqual(event.item.status, 'in_progress', what);
        open = undefined;
      }
    }
    assert.equal(open, undefined, what);
    assert.equal(items, response.output.length, what);
    const said = response.output.flatMap(({ type, content }) => (type === 'message' ? content.map(({ text }) => text) : []));
    assert.equal(said.join(''), response.output_text, what);
    assert.equal(response.output_text, chunks.map(({ text }) => text).join(''), what);
    for (const id of ended[0][1]) assert.equal(response.output.find((item) => item.id === id).status, 'incomplete', what);
  }
  assert.ok(kinds.size >= 16, [...kinds].join());
});

test('items become the messages of a chat, and the items of one answer one message', async () => {
  const { itemsOf, messagesOf, withoutOldest } = await load('responses/input');
  const user = (content) => ({ role: 'user', content });
  const call = (id) => ({ type: 'function_call', call_id: id, name: 'f', arguments: '{}' });
  const output = (id) => ({ type: 'function_call_output', call_id: id, output: 'x' });
  const said = (text) => ({ type: 'message', role: 'assistant', content: [{ type: 'output_text', text, annotations: [] }] });
  const thought = { type: 'reasoning', id: 'rs', summary: [{ type: 'summary_text', text: 'hm' }] };
  const messages = (input, instructions = null) =>
    messagesOf(
      instructions,
      itemsOf(input, () => undefined),
    );
  const chatCall = (id) => ({ id, type: 'function', function: { name: 'f', arguments: '{}' } });
  const tool = (id) => ({ role: 'tool', tool_call_id: id, name: 'f', content: 'x' });
  assert.deepEqual(messages([user('a'), thought, said('b'), call('1'), said('c'), call('2'), output('1'), output('2'), said('d')]), [
    user('a'),
    { role: 'assistant', content: 'bc', reasoning_content: 'hm', tool_calls: [chatCall('1'), chatCall('2')] },
    tool('1'),
    tool('2'),
    { role: 'assistant', content: 'd' },
  ]);
  assert.deepEqual(messages([user('a'), thought, user('b')]), [
    user('a'),
    { role: 'assistant', content: null, reasoning_content: 'hm' },
    user('b'),
  ]);
  assert.deepEqual(messages([said('a'), said('b')]), [
    { role: 'assistant', content: 'a' },
    { role: 'assistant', content: 'b' },
  ]);
  // System messages later on stay where they are.
  const late = messages([{ role: 'developer', content: 'b' }, user('c'), { role: 'system', content: 'd' }], 'a');
  assert.deepEqual(late, [{ role: 'system', content: 'a\n\nb' }, user('c'), { role: 'system', content: 'd' }]);
  assert.throws(() => messages([output('1'), call('1')]), { code: 'invalid_request' });
  // A call goes with what it gave, and the last message stays.
  const chat = messages([user('a'), call('1'), output('1'), user('b')], 'sys');
  const [system, , , , last] = chat;
  assert.deepEqual(withoutOldest(withoutOldest(chat)), [system, last]);
  assert.equal(withoutOldest([system, last]), undefined);
  assert.equal(withoutOldest([system]), undefined);
});

test('a request of whatever JSON is read, or refused with invalid_request', async () => {
  const { dataOf, readRequest } = await load('responses/request');
  const { itemsOf, messagesOf } = await load('responses/input');
  const { withReasoningEffort } = await load('reasoning_effort');
  const words = [
    'input',
    'type',
    'message',
    'role',
    'user',
    'assistant',
    'content',
    'output_text',
    'input_text',
    'text',
    'function',
    'name',
  ];
  words.push(
    'tools',
    'tool_choice',
    'allowed_tools',
    'mode',
    'auto',
    'function_call',
    'function_call_output',
    'call_id',
    'arguments',
    'output',
  );
  words.push('reasoning', 'effort', 'summary', 'summary_text', 'format', 'json_schema', 'schema', 'include', 'metadata', 'store', 'id');
  words.push(
    'item_reference',
    'instructions',
    'previous_response_id',
    'max_output_tokens',
    'truncation',
    'stream_options',
    'constructor',
    '__proto__',
  );
  let refused = 0;
  let taken = 0;
  for (let seed = 1; seed <= 20_000; seed++) {
    const next = random(seed);
    const value = (depth) => {
      const kind = next(depth > 4 ? 5 : 9);
      if (kind < 2) return words[next(words.length)];
      if (kind < 5) return [null, true, 0, -1, 1.5, 'text', '', 1e300][next(8)];
      if (kind < 7) return Array.from({ length: next(3) }, () => value(depth + 1));
      return Object.fromEntries(Array.from({ length: next(4) }, () => [words[next(words.length)], value(depth + 1)]));
    };
    const request = {
      input: value(1),
      ...Object.fromEntries(Array.from({ length: next(3) }, () => [words[next(words.length)], value(1)])),
    };
    try {
      const { chat, input, echo } = readRequest(dataOf(request));
      messagesOf(
        echo.instructions,
        itemsOf(input ?? [], () => undefined),
      );
      withReasoningEffort(chat);
      taken += 1;
    } catch (error) {
      assert.equal(error.code, 'invalid_request', `${JSON.stringify(request)}: ${error.stack}`);
      refused += 1;
    }
  }
  assert.ok(refused > 1000 && taken > 1000, `${refused} ${taken}`);
});
