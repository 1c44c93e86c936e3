// The Responses API on an engine: by itself, and through the `openai` package and the AI SDK, whose default it is.

import { after, before, test } from 'node:test';

import { LIMIT, openClients } from './clients/clients.mjs';
import { prepare } from './clients/responses.mjs';

let clients;

before(async () => {
  if (LIMIT.skip) return;
  clients = await openClients(prepare);
}, LIMIT);
after(() => clients?.close());

/** A test that runs in the page. */
function inPage(name, fn) {
  test(name, LIMIT, async () => {
    await clients.run(fn);
  });
}

inPage('what a stream puts together is the whole answer, and its events come in order', async () => {
  const thinking = { chat_template: THINKING, thinking_token_budget: 4, min_tokens: 10 };
  const requests = [
    STORY,
    { ...ASK, tools: TOOLS },
    { ...STORY, ...thinking },
    { ...STORY, ...thinking, reasoning: { summary: 'auto' } },
    { ...STORY, include: ['message.output_text.logprobs'], top_logprobs: 2 },
  ];
  const kinds = {
    message: ['content_part.added', 'output_text.delta', 'output_text.done', 'content_part.done'],
    function_call: ['function_call_arguments.delta', 'function_call_arguments.done'],
    reasoning: ['content_part.added', 'reasoning_text.delta', 'reasoning_text.done', 'content_part.done'],
    summary: ['reasoning_summary_part.added', 'reasoning_summary_text.delta', 'reasoning_summary_text.done', 'reasoning_summary_part.done'],
  };
  for (const request of requests) {
    const whole = await openai.responses.create(request);
    const events = await collected(await openai.responses.create({ ...request, stream: true }));
    assert.deepEqual(
      events.map(({ sequence_number }) => sequence_number),
      events.map((_, index) => index),
    );
    const end = events.at(-1);
    assert.equal(end.type, `response.${whole.status}`);
    assert.deepEqual(told(end.response), told(whole));
    const wanted = ['created', 'in_progress'];
    for (const item of whole.output) {
      const kind = item.type === 'reasoning' && request.reasoning !== undefined ? 'summary' : item.type;
      wanted.push('output_item.added', ...kinds[kind], 'output_item.done');
    }
    wanted.push(whole.status);
    // Deltas in a row count as one.
    const types = events.map(({ type }) => type.replace('response.', ''));
    assert.deepEqual(
      types.filter((type, index) => type !== types[index - 1]),
      wanted,
    );
    for (const event of events.filter(({ type }) => type === 'response.output_item.done')) {
      assert.deepEqual(event.item, end.response.output[event.output_index]);
    }
    const deltas = (type) =>
      events
        .filter((event) => event.type === type)
        .map(({ delta }) => delta)
        .join('');
    assert.equal(deltas('response.output_text.delta'), whole.output_text);
    // Its own accumulator agrees.
    assert.deepEqual(told(await openai.responses.stream(request).finalResponse()), told(whole));
  }
});

inPage('reasoning is an item, in its content or as its summary', async () => {
  const request = { ...STORY, chat_template: THINKING, thinking_token_budget: 4, min_tokens: 10 };
  const plain = await engine.responses.create(request);
  const summed = await engine.responses.create({ ...request, reasoning: { summary: 'detailed' } });
  const [[thought], [summary]] = [plain.output, summed.output];
  assert.deepEqual([thought.type, thought.summary, summary.content], ['reasoning', [], undefined]);
  assert.equal(thought.content[0].text, summary.summary[0].text);
  assert.ok(thought.content[0].text.length > 0 && plain.output_text.length > 0);
  assert.ok(plain.usage.output_tokens_details.reasoning_tokens >= 4);
  assert.deepEqual(summed.reasoning, { effort: null, summary: 'detailed' });
  // A conversation goes on from both.
  for (const { id } of [plain, summed]) {
    const next = await engine.responses.create({ ...request, previous_response_id: id, input: 'And then?' });
    assert.equal(next.status, 'incomplete');
  }
});

inPage('log probabilities are those of the message alone', async () => {
  const ask = { ...STORY, include: ['message.output_text.logprobs'], top_logprobs: 2 };
  const { output } = await engine.responses.create(ask);
  const [{ logprobs, text }] = output[0].content;
  assert.equal(logprobs.map(({ token }) => token).join(''), text);
  assert.ok(logprobs.every(({ top_logprobs, bytes }) => top_logprobs.length === 2 && Array.isArray(bytes)));
  const chat = await engine.chat.completions.create({
    messages: [{ role: 'user', content: STORY.input }],
    temperature: 0,
    max_tokens: 12,
    logprobs: true,
    top_logprobs: 2,
  });
  assert.deepEqual(logprobs, chat.choices[0].logprobs.content);
  const thinking = await engine.responses.create({ ...ask, chat_template: THINKING, thinking_token_budget: 4, min_tokens: 10 });
  const part = thinking.output[1].content[0];
  assert.ok(
    part.logprobs
      .map(({ token }) => token)
      .join('')
      .trim()
      .endsWith(part.text.trim()),
  );
  assert.ok(part.logprobs.length <= thinking.usage.output_tokens - 4);
  const { output: without } = await engine.responses.create(STORY);
  assert.equal(without[0].content[0].logprobs, undefined);
});

inPage('a call, its output, and the end: by the id of the response, and by items', async () => {
  const first = await openai.responses.create({ ...ASK, tools: TOOLS, instructions: null });
  const [call] = first.output;
  assert.deepEqual([first.status, call.type, call.name, call.status], ['completed', 'function_call', 'get_weather', 'completed']);
  assert.deepEqual(JSON.parse(call.arguments), { city: 'Oslo' });
  const given = { type: 'function_call_output', call_id: call.call_id, output: JSON.stringify(RAIN) };
  const byId = await openai.responses.create({ ...ASK, tools: TOOLS, previous_response_id: first.id, input: [given] });
  assert.match(byId.output_text, /7/);
  assert.ok(byId.usage.input_tokens_details.cached_tokens > 0);
  const asked = { role: 'user', content: ASK.input };
  for (const input of [
    [asked, call, given],
    [asked, { type: 'item_reference', id: call.id }, { ...given, output: [{ type: 'input_text', text: given.output }] }],
    [{ ...asked, content: [{ type: 'input_text', text: ASK.input }] }, ...first.output, given],
  ]) {
    const byItems = await openai.responses.create({ ...ASK, tools: TOOLS, input, store: false });
    assert.deepEqual(told(byItems).tokens, told(byId).tokens);
    assert.equal(byItems.output_text, byId.output_text);
  }
  // The same as a chat.
  const { type, name, description, parameters } = TOOLS[0];
  const chat = await engine.chat.completions.create({
    messages: [{ role: 'user', content: ASK.input }],
    tools: [{ type, function: { name, description, parameters } }],
    temperature: 0,
  });
  assert.equal(chat.choices[0].message.tool_calls[0].function.arguments, call.arguments);
  const forced = await openai.responses.create({ ...STORY, max_output_tokens: 40, tools: TOOLS, tool_choice: { type: 'function', name } });
  const allowed = await openai.responses.create({
    ...STORY,
    max_output_tokens: 40,
    tools: [...TOOLS, { type, name: 'other', parameters }],
    tool_choice: { type: 'allowed_tools', mode: 'required', tools: [{ type, name }] },
  });
  for (const { output } of [forced, allowed]) assert.equal(output[0].name, 'get_weather');
  const none = await openai.responses.create({ ...ASK, tools: TOOLS, tool_choice: 'none' });
  assert.deepEqual([none.output[0].type, none.tool_choice], ['message', 'none']);
  // Cut in the middle of a call.
  const cut = await openai.responses.create({ ...ASK, tools: TOOLS, max_output_tokens: 8 });
  assert.deepEqual([cut.status, cut.output.at(-1).status], ['incomplete', 'incomplete']);
});

inPage('instructions and system messages at the beginning are one system message', async () => {
  const user = { role: 'user', content: 'Tell me a story.' };
  const chat = await engine.chat.completions.create({
    messages: [{ role: 'system', content: 'Be brief.\n\nBe kind.' }, user],
    temperature: 0,
    max_tokens: 12,
  });
  const input = [{ role: 'developer', content: 'Be kind.' }, user];
  const response = await engine.responses.create({ ...STORY, instructions: 'Be brief.', input });
  assert.equal(response.output_text, chat.choices[0].message.content);
  assert.equal(response.usage.input_tokens, chat.usage.prompt_tokens);
  // They are not carried over.
  const next = await engine.responses.create({ ...STORY, previous_response_id: response.id, input: 'And then?' });
  const again = await engine.chat.completions.create({
    messages: [{ role: 'system', content: 'Be kind.' }, user, chat.choices[0].message, { role: 'user', content: 'And then?' }],
    temperature: 0,
    max_tokens: 12,
  });
  assert.equal(next.usage.input_tokens, again.usage.prompt_tokens);
  // What a person writes as two messages of the assistant's stays two.
  const two = [user, { role: 'assistant', content: 'One.' }, { role: 'assistant', content: 'Two.' }, user];
  const [ours, chats] = [
    await engine.responses.create({ ...STORY, input: two, max_output_tokens: 1 }),
    await engine.chat.completions.create({ messages: two, max_tokens: 1, temperature: 0 }),
  ];
  assert.equal(ours.usage.input_tokens, chats.usage.prompt_tokens);
});

inPage('answers in JSON: by a schema of zod, and any object', async () => {
  const Person = z.object({ name: z.string().max(20), age: z.int() });
  const request = { ...ASK, input: WHO, text: { format: zodTextFormat(Person, 'person') } };
  assert.deepEqual((await openai.responses.parse(request)).output_parsed, { name: 'Anna', age: 12 });
  assert.deepEqual((await openai.responses.stream(request).finalResponse()).output_parsed, { name: 'Anna', age: 12 });
  const any = await openai.responses.create({ ...ASK, input: WHO, text: { format: { type: 'json_object' }, verbosity: 'low' } });
  assert.equal(typeof JSON.parse(any.output_text), 'object');
  const choice = await engine.responses.create({ ...ASK, structured_outputs: { choice: ['yes', 'no'] } });
  assert.ok(['yes', 'no'].includes(choice.output_text));
});

inPage('responses that are kept: retrieved, listed, deleted', async () => {
  const metadata = { topic: 'stories' };
  const first = await openai.responses.create({ ...STORY, metadata });
  const second = await openai.responses.create({ ...STORY, previous_response_id: first.id, input: [{ role: 'user', content: 'Go on.' }] });
  const found = await openai.responses.retrieve(second.id);
  assert.deepEqual([found.id, found.output, found.previous_response_id], [second.id, second.output, first.id]);
  assert.deepEqual((await openai.responses.retrieve(first.id)).metadata, metadata);
  const texts = async (query) => {
    const page = await openai.responses.inputItems.list(second.id, query);
    return [page.data.map(({ content }) => content[0].text), page.has_more, page.data.at(-1)?.id];
  };
  const said = ['Tell me a story.', first.output_text, 'Go on.'];
  assert.deepEqual((await texts({ order: 'asc' }))[0], said);
  assert.deepEqual((await texts())[0], said.toReversed());
  const [page, more, last] = await texts({ order: 'asc', limit: 2 });
  assert.deepEqual([page, more], [said.slice(0, 2), true]);
  assert.deepEqual((await texts({ order: 'asc', limit: 2, after: last })).slice(0, 2), [said.slice(2), false]);
  const all = await collected(openai.responses.inputItems.list(second.id, { limit: 1, order: 'asc' }));
  assert.equal(all.length, 3);
  for (const query of [{ limit: 0 }, { limit: 101 }, { limit: 'x' }, { order: 'up' }, { after: 'msg_none' }]) {
    await assert.rejects(openai.responses.inputItems.list(second.id, query), ({ status }) => status === 400);
  }
  // What goes on from a deleted response has its items.
  await openai.responses.delete(first.id);
  await assert.rejects(
    openai.responses.retrieve(first.id),
    (error) => error instanceof OpenAI.NotFoundError && error.message.includes(first.id),
  );
  await assert.rejects(openai.responses.delete(first.id), ({ status }) => status === 404);
  assert.deepEqual((await texts({ order: 'asc' }))[0], said);
  await assert.rejects(openai.responses.create({ ...STORY, previous_response_id: first.id }), ({ status }) => status === 404);
  await assert.rejects(openai.responses.cancel(second.id), ({ status }) => status === 400);
  await assert.rejects(openai.responses.retrieve(second.id, { stream: true }), ({ status }) => status === 400);
  // Streams are kept too, and what shall not be kept is not. What the caller changes afterwards changes nothing.
  const [streamed, unkept] = [
    (await collected(await engine.responses.create({ ...STORY, stream: true }))).at(-1).response,
    await engine.responses.create({ ...STORY, store: false }),
  ];
  streamed.output[0].content[0].text = 'changed';
  const kept = await engine.responses.retrieve(streamed.id);
  assert.equal(kept.output_text, kept.output[0].content[0].text);
  assert.equal((await refusal(engine.responses.retrieve(unkept.id))).code, 'not_found');
  assert.equal(unkept.store, false);
});

inPage('AI SDK: its default model calls the tool, answers and makes objects', async () => {
  const asked = [];
  const get_weather = ai.tool({
    description: TOOLS[0].description,
    inputSchema: ai.jsonSchema(parameters),
    execute: async ({ city }) => (asked.push(city), RAIN),
  });
  const base = { model: hosted('rillm'), temperature: 0, maxOutputTokens: 100, maxRetries: 0 };
  const ask = { ...base, prompt: ASK.input, tools: { get_weather }, stopWhen: ai.stepCountIs(3) };
  const whole = await ai.generateText(ask);
  assert.deepEqual(
    whole.steps.map(({ finishReason }) => finishReason),
    ['tool-calls', 'stop'],
  );
  assert.match(whole.text, /7/);
  const errors = [];
  const stream = ai.streamText({ ...ask, onError: ({ error }) => errors.push(error) });
  assert.equal(await stream.text, whole.text);
  assert.deepEqual(errors, []);
  assert.deepEqual(asked, ['Oslo', 'Oslo']);
  // It refers to earlier answers by the ids of their items.
  const messages = [{ role: 'user', content: 'Tell me a story.' }];
  const first = await ai.generateText({ ...base, maxOutputTokens: 12, messages });
  messages.push(...first.response.messages, { role: 'user', content: 'And then?' });
  const second = await ai.generateText({ ...base, maxOutputTokens: 12, messages });
  assert.ok(second.usage.inputTokens > first.usage.inputTokens + 12);
  const schema = ai.jsonSchema({
    type: 'object',
    properties: { name: { type: 'string', maxLength: 20 }, age: { type: 'integer' } },
    required: ['name', 'age'],
    additionalProperties: false,
  });
  const { object } = await ai.generateObject({ ...base, schema, prompt: WHO });
  assert.deepEqual(object, { name: 'Anna', age: 12 });
});

inPage('reasoning_effort is told to the template and bounds the reasoning', async () => {
  // Its length shows what it was told.
  const chat_template =
    '{{ messages[0].content }}{% if enable_thinking is defined and not enable_thinking and not thinking %} a a a a a a{% endif %}' +
    "{% if reasoning_effort == 'low' %} a a a{% endif %}";
  const length = async (more) => {
    const messages = [{ role: 'user', content: 'a' }];
    const { usage } = await engine.chat.completions.create({ messages, chat_template, max_tokens: 1, ...more });
    return usage.prompt_tokens;
  };
  const none = await length({});
  assert.ok((await length({ reasoning_effort: 'none' })) > none + 4);
  assert.ok((await length({ reasoning_effort: 'low' })) > none + 2);
  for (const effort of [null, 'minimal', 'medium', 'high', 'xhigh', 'max']) assert.equal(await length({ reasoning_effort: effort }), none);
  // What the request says itself goes before it.
  assert.equal(await length({ reasoning_effort: 'none', chat_template_kwargs: { enable_thinking: true } }), none);
  const think = { ...STORY, chat_template: THINKING, max_output_tokens: 24, min_tokens: 20 };
  const tokens = async (more) => (await engine.responses.create({ ...think, ...more })).usage.output_tokens_details.reasoning_tokens;
  const [unbound, not, own] = [
    await tokens({ reasoning: { effort: 'xhigh' } }),
    await tokens({ reasoning: { effort: 'none' } }),
    await tokens({ reasoning: { effort: 'none' }, thinking_token_budget: 8 }),
  ];
  assert.ok(unbound >= 20 && not < 8 && own >= 8 && own < unbound, `${unbound} ${not} ${own}`);
  for (const effort of ['some', 1, {}]) {
    const { code, message } = await refusal(engine.chat.completions.create({ messages: [], reasoning_effort: effort }));
    assert.equal(code, 'invalid_request');
    assert.match(message, /^reasoning_effort/);
  }
  // Completions know no reasoning.
  assert.match((await refusal(engine.completions.create({ prompt: 'a', reasoning_effort: 'low' }))).message, /reasoning_effort/);
});

inPage('timings tell how long a request waited', async () => {
  const [first, second] = await Promise.all([
    engine.responses.create(STORY),
    engine.chat.completions.create({ messages: [{ role: 'user', content: 'a' }], max_tokens: 1 }),
  ]);
  assert.ok(first.timings.queue_ms < 20, String(first.timings.queue_ms));
  assert.ok(second.timings.queue_ms >= first.timings.decode_ms, `${second.timings.queue_ms} ${first.timings.decode_ms}`);
});
