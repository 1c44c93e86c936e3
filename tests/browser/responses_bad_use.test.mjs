// The Responses API used badly: what is refused, what does not fit, what is stopped and what fails. With a model without sense, which is small.

import { after, before, test } from 'node:test';

import { openClients } from './clients/clients.mjs';
import { prepare } from './clients/responses.mjs';

const LIMIT = { timeout: 240_000 };
let clients;

before(async () => {
  clients = await openClients(prepare, '/golden/tied-f32.gguf', { contextLength: 256 });
}, LIMIT);
after(() => clients?.close());

/** A test that runs in the page. */
function inPage(name, fn) {
  test(name, LIMIT, async () => {
    await clients.run(fn);
  });
}

inPage('what is not supported is refused by name', async () => {
  const item = (value) => ({ input: [value] });
  const cases = [
    [{ input: undefined }, /^input is missing/],
    [{ input: [] }, /^input is empty/],
    [{ input: 3 }, /^input is number 3/],
    [item('text'), /^input\[0\] is string "text"/],
    [item({ type: 'web_search_call', id: 'x' }), /^input\[0\]\.type .*web_search_call/],
    [item({ role: 'tool', content: '' }), /^input\[0\]\.role/],
    [item({ role: 'user', content: [{ type: 'input_image', image_url: 'x' }] }), /^input\[0\]\.content\[0\]\.type .*input_image/],
    [item({ role: 'assistant', content: [{ type: 'refusal', refusal: 'x' }] }), /^input\[0\]\.content\[0\]\.type .*refusal/],
    [item({ role: 'user', content: null }), /^input\[0\]\.content/],
    [item({ type: 'item_reference', id: 'msg_0' }), /^input\[0\] .*msg_0/],
    [item({ type: 'function_call_output', call_id: 'c', output: 'x' }), /function_call .*\bc\b/],
    [item({ type: 'function_call', call_id: 'c', name: 'f', arguments: {} }), /^input\[0\]\.arguments/],
    [item({ type: 'reasoning', id: 'rs', summary: [], encrypted_content: 'x' }), /^input\[0\]\.encrypted_content/],
    [{ tools: [{ type: 'web_search' }] }, /^tools\[0\]\.type .*web_search/],
    [{ tools: [{ type: 'function', function: { name: 'f' } }] }, /^tools\[0\]\.function/],
    [{ tools: [{ ...TOOLS[0], defer_loading: true }] }, /^tools\[0\]\.defer_loading/],
    [{ tools: TOOLS, tool_choice: { type: 'function', name: 'other' } }, /^tool_choice\.name .*other/],
    [{ tools: TOOLS, tool_choice: { type: 'web_search' } }, /^tool_choice\.type .*web_search/],
    [{ tools: TOOLS, tool_choice: 'always' }, /^tool_choice .*always/],
    [{ text: { format: { type: 'grammar' } } }, /^text\.format\.type .*grammar/],
    [{ text: { format: { type: 'json_schema', name: 'x' } } }, /^text\.format\.schema/],
    [{ text: { form: 1 } }, /^text\.form /],
    [{ reasoning: { effort: 'some' } }, /^reasoning\.effort .*some/],
    [{ reasoning: { summary: 'short' } }, /^reasoning\.summary .*short/],
    [{ reasoning: { mode: 'pro' } }, /^reasoning\.mode .*pro/],
    [{ include: ['everything'] }, /^include\[0\] .*everything/],
    [{ include: 'x' }, /^include/],
    [{ top_logprobs: 21 }, /^top_logprobs .*21/],
    [{ max_output_tokens: 0 }, /^max_output_tokens .*0/],
    [{ metadata: { a: 1 } }, /^metadata\.a/],
    [{ truncation: 'some' }, /^truncation .*some/],
    [{ store: 'yes' }, /^store/],
    [{ stream: 'yes' }, /^stream/],
    [{ background: true }, /^background/],
    [{ conversation: 'conv_1' }, /^conversation/],
    [{ prompt: { id: 'p' } }, /^prompt/],
    [{ n: 2 }, /^n is not supported/],
    [{ messages: [] }, /^messages .*input/],
    [{ max_tokens: 3 }, /^max_tokens .*max_output_tokens/],
    [{ response_format: { type: 'text' } }, /^response_format .*text\.format/],
    [{ continue_final_message: true }, /^continue_final_message/],
    [{ temperature: 3 }, /temperature/],
    [{ model: 3 }, /^model/],
    [{ max_outputs: 3 }, /max_outputs/],
    [{ seed: () => 3 }, /^seed is a function/],
  ];
  for (const [more, pattern] of cases) {
    for (const stream of [false, true]) {
      const { code, message } = await refusal(engine.responses.create({ ...STORY, stream, ...more }));
      assert.equal(code, 'invalid_request', message);
      assert.match(message, pattern);
    }
  }
  const circle = {};
  circle.circle = circle;
  for (const request of [null, 'text', [], { ...STORY, metadata: circle }]) {
    assert.equal((await refusal(engine.responses.create(request))).code, 'invalid_request');
  }
  // Null counts as left out.
  const nulls = [
    'instructions',
    'tools',
    'tool_choice',
    'text',
    'reasoning',
    'include',
    'metadata',
    'store',
    'stream',
    'conversation',
    'n',
  ];
  const { status } = await engine.responses.create({
    ...STORY,
    max_output_tokens: 1,
    ...Object.fromEntries(nulls.map((name) => [name, null])),
  });
  assert.equal(status, 'incomplete');
});

inPage('what does not fit is refused, or with truncation its oldest messages are left out', async () => {
  const input = [{ role: 'system', content: 'Be brief.' }];
  for (let turn = 0; turn < 20; turn++) {
    input.push({ role: 'user', content: 'The small boat.' }, { type: 'function_call', call_id: `c${turn}`, name: 'f', arguments: '{}' });
    input.push({ type: 'function_call_output', call_id: `c${turn}`, output: 'yes' });
  }
  input.push({ role: 'user', content: 'Go on.' });
  const request = { max_output_tokens: 1, input };
  assert.equal((await refusal(engine.responses.create(request))).code, 'context_length_exceeded');
  for (const stream of [false, true]) {
    const answer = await engine.responses.create({ ...request, truncation: 'auto', stream });
    const { usage } = stream ? (await collected(answer)).at(-1).response : answer;
    assert.ok(usage.input_tokens < 256 && usage.input_tokens > 128, String(usage.input_tokens));
  }
  const alone = { ...request, truncation: 'auto', input: 'The small boat. '.repeat(100) };
  assert.equal((await refusal(engine.responses.create(alone))).code, 'context_length_exceeded');
});

inPage('the store is bounded: the oldest responses go first, and shared items count once', async () => {
  const { ResponseStore } = await import('/modules/responses/store.js');
  const response = (id) => ({ id, output: [] });
  const item = (id, text = '') => ({ type: 'message', id, role: 'user', content: text });
  const three = new ResponseStore(3, 1e9);
  for (const id of ['a', 'b', 'c', 'd']) three.put(response(id), [item(`in_${id}`)], []);
  assert.deepEqual(
    ['a', 'b', 'c', 'd'].map((id) => three.has(id)),
    [false, true, true, true],
  );
  assert.deepEqual([three.item('in_a'), three.item('in_b')?.id], [undefined, 'in_b']);
  // A conversation of ten turns with a large item at its beginning.
  const bytes = new ResponseStore(100, 10_000);
  let conversation = [item('large', 'x'.repeat(3000))];
  for (let turn = 0; turn < 10; turn++) {
    const answer = item(`answer_${turn}`);
    bytes.put(response(`r${turn}`), conversation, [answer]);
    conversation = bytes.conversation(`r${turn}`);
  }
  assert.ok(bytes.has('r0') && bytes.has('r9'));
  bytes.put(response('other'), [item('second', 'x'.repeat(1500))], []);
  assert.ok(!bytes.has('r0') && bytes.has('other'));
  // What is larger than all is not kept, and the others stay. What just fits drives them out.
  bytes.put(response('huge'), [item('huge', 'x'.repeat(6000))], []);
  assert.ok(!bytes.has('huge') && bytes.has('other'));
  bytes.put(response('last'), [item('small', 'x'.repeat(4800))], []);
  assert.ok(bytes.has('last') && !bytes.has('other') && !bytes.has('r9'));
  assert.equal(bytes.item('large'), undefined);
});

inPage('cancelled, aborted, broken off and failed', async () => {
  const stream = await engine.responses.create({ ...STORY, max_output_tokens: 100, ignore_eos: true, stream: true });
  const events = [];
  for await (const event of stream) {
    events.push(event);
    if (event.type === 'response.output_text.delta') stream.cancel();
  }
  const { type, response } = events.at(-1);
  assert.deepEqual([type, response.status, response.output[0].status], ['response.incomplete', 'cancelled', 'incomplete']);
  assert.equal((await engine.responses.retrieve(response.id)).status, 'cancelled');
  for (const stream of [false, true]) {
    for (const abortFirst of [false, true]) {
      const controller = new AbortController();
      if (abortFirst) controller.abort();
      const work = async () => {
        const options = { signal: controller.signal };
        const answer = engine.responses.create({ ...STORY, max_output_tokens: 200, ignore_eos: true, stream }, options);
        if (!stream) setTimeout(() => controller.abort(), 50);
        const answered = await answer;
        const read = [];
        for await (const event of answered) {
          read.push(event);
          controller.abort();
        }
        return read.at(-1).response.status;
      };
      if (stream && !abortFirst) assert.equal(await work(), 'cancelled');
      else assert.equal((await refusal(work())).code, 'aborted');
    }
  }
  // A processor that fails in the middle.
  const failing = await engine.responses.create(
    { ...STORY, stream: true },
    {
      logitsProcessor: (_, __, step) => {
        if (step === 3) throw new Error('no more');
      },
    },
  );
  const before = [];
  const error = await refusal(
    (async () => {
      for await (const event of failing) before.push(event);
    })(),
  );
  assert.equal(error.code, 'logits_processor');
  const failed = before.at(-1);
  assert.deepEqual([failed.type, failed.response.status, failed.response.error.code], ['response.failed', 'failed', 'server_error']);
  assert.match(failed.response.error.message, /logits_processor/);
  // The same on the wire: an engine that goes while it answers.
  const other = await rillm.Engine.load('/golden/tied-f32.gguf', { onWarning: () => {} });
  const client = new OpenAI({ baseURL: 'http://x/v1', apiKey: '-', fetch: other.fetch, maxRetries: 0, dangerouslyAllowBrowser: true });
  const types = [];
  await assert.rejects(
    (async () => {
      for await (const event of await client.responses.create({ input: 'a', ignore_eos: true, stream: true })) {
        types.push(event.type);
        if (types.length === 6) await other.dispose();
      }
    })(),
    (error) => error instanceof OpenAI.APIError && /disposed/.test(error.message),
  );
  assert.equal(types.at(-1), 'response.failed');
  assert.equal((await refusal(other.responses.retrieve('x'))).code, 'disposed');
});
