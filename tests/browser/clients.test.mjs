// The engine behind clients of OpenAI's API: the `openai` package and the AI SDK's provider for such APIs send their requests to it and read
// its answers, through `engine.fetch` in Chromium.

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateObject, generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai';
import OpenAI from 'openai';

import { openStage, root } from './browser.mjs';

const MODEL = 'models/demo/rillm-demo-q4_0.gguf';
const LIMIT = { timeout: 300_000, skip: !existsSync(join(root, MODEL)) && `not there: ${MODEL}` };
const ENCODER = '/encoders/bert/model.gguf';

const WEATHER = {
  name: 'get_weather',
  description: 'Get the weather in a city',
  parameters: {
    type: 'object',
    properties: { city: { type: 'string', description: 'Name of the city' } },
    required: ['city'],
    additionalProperties: false,
  },
};
const ASK = { model: 'rillm', temperature: 0, max_tokens: 100, messages: [{ role: 'user', content: 'What is the weather in Oslo?' }] };
const STORY = { ...ASK, max_tokens: 24, messages: [{ role: 'user', content: 'Tell me a story.' }] };
const TOOLS = [{ type: 'function', function: WEATHER }];
const RAIN = { city: 'Oslo', weather: 'rain', temperature: 7 };

let stage;
let page;
let openai;
let provider;
/** Bodies of the requests, the last one last. */
const sent = [];

before(async () => {
  if (LIMIT.skip) return;
  stage = await openStage();
  page = await stage.openPage();
  await page.page.evaluate(async (model) => {
    const { Engine } = await import('/rillm/dist/index.js');
    globalThis.engine = await Engine.load(model);
    globalThis.Engine = Engine;
  }, `/${MODEL}`);
  const options = { baseURL: 'http://engine.test/v1', apiKey: 'none', fetch: fetchFromEngine };
  openai = new OpenAI({ ...options, maxRetries: 0 });
  provider = createOpenAICompatible({ ...options, name: 'rillm', includeUsage: true, supportsStructuredOutputs: true });
}, LIMIT);
after(async () => {
  await page?.page.evaluate(() => engine.dispose());
  await page?.close();
  await stage?.close();
});

/** Hands a request to the engine's own `fetch`, in the page. */
async function fetchFromEngine(url, { method, headers, body }) {
  if (body !== undefined) sent.push(JSON.parse(body));
  const init = { method, headers: Object.fromEntries(new Headers(headers)), body };
  const answer = await page.page.evaluate(
    async ([url, init]) => {
      const served = new URL(url).pathname.endsWith('/embeddings') ? encoder : engine;
      const response = await served.fetch(url, init);
      return { status: response.status, headers: [...response.headers], body: await response.text() };
    },
    [url, init],
  );
  return new Response(answer.body, answer);
}

/** Of an answer that a client has put together, what its pieces leave of the extensions is not told. */
const told = ({ choices }) =>
  choices.map(({ index, finish_reason, logprobs, message: { role, content, refusal, tool_calls = [] } }) => {
    const calls = tool_calls.map(({ type, function: { name, arguments: text } }) => ({ type, name, text }));
    return { index, finish_reason, logprobs, role, content, refusal, calls };
  });

test('openai: a call, its answer handed back, and the end', LIMIT, async () => {
  const answer = await openai.chat.completions.create({ ...ASK, tools: TOOLS });
  const [{ message, finish_reason }] = answer.choices;
  assert.equal(finish_reason, 'tool_calls');
  const [call] = message.tool_calls;
  assert.deepEqual(JSON.parse(call.function.arguments), { city: 'Oslo' });
  const result = { role: 'tool', tool_call_id: call.id, content: JSON.stringify(RAIN) };
  const end = await openai.chat.completions.create({ ...ASK, tools: TOOLS, messages: [...ASK.messages, message, result] });
  assert.equal(end.choices[0].finish_reason, 'stop');
  assert.match(end.choices[0].message.content, /7/);
  assert.ok(end.usage.prompt_tokens_details.cached_tokens > 0 && end.usage.prompt_tokens_details.cached_tokens < end.usage.prompt_tokens);
});

test('openai: what its stream puts together is the whole answer', LIMIT, async () => {
  for (const request of [
    { ...ASK, tools: TOOLS },
    STORY,
    { ...STORY, n: 2, temperature: 1, seed: 3, logprobs: true, top_logprobs: 2, user: 'somebody', stop: null },
  ]) {
    const whole = await openai.chat.completions.create(request);
    const stream = openai.chat.completions.stream({ ...request, stream_options: { include_usage: true } });
    const [texts, calls] = [[], []];
    stream.on('content', (delta) => texts.push(delta));
    stream.on('tool_calls.function.arguments.done', ({ name, arguments: text }) => calls.push({ name, text }));
    const streamed = await stream.finalChatCompletion();
    assert.deepEqual(told(streamed), told(whole));
    assert.equal(streamed.object, 'chat.completion');
    assert.match(streamed.id, /^chatcmpl-/);
    // Events are those of all choices, which come one after the other here.
    assert.equal(texts.join(''), streamed.choices.map(({ message }) => message.content ?? '').join(''));
    assert.deepEqual(
      calls,
      told(whole).flatMap((choice) => choice.calls.map(({ name, text }) => ({ name, text }))),
    );
    for (const count of ['prompt_tokens', 'completion_tokens', 'total_tokens']) {
      assert.equal((await stream.totalUsage())[count], whole.usage[count], count);
    }
  }
});

test('openai: its loop calls the function and ends with the answer', LIMIT, async () => {
  const asked = [];
  const get_weather = ({ city }) => (asked.push(city), RAIN);
  const tools = [{ type: 'function', function: { ...WEATHER, function: get_weather, parse: JSON.parse } }];
  for (const stream of [false, true]) {
    const runner = openai.chat.completions.runTools({ ...ASK, stream, tools });
    assert.match(await runner.finalContent(), /7/);
    assert.deepEqual(
      runner.messages.map(({ role }) => role),
      ['user', 'assistant', 'tool', 'assistant'],
    );
  }
  assert.deepEqual(asked, ['Oslo', 'Oslo']);
});

test('openai: completions, whole and streamed', LIMIT, async () => {
  const request = { model: 'rillm', prompt: 'Once upon a time', max_tokens: 16, temperature: 0, logprobs: 1 };
  const whole = await openai.completions.create(request);
  let [text, tokens, reason, usage] = ['', [], null, null];
  for await (const part of await openai.completions.create({ ...request, stream: true, stream_options: { include_usage: true } })) {
    assert.equal(part.id.slice(0, 5), 'cmpl-');
    for (const choice of part.choices) {
      text += choice.text;
      tokens.push(...choice.logprobs.tokens);
      reason = choice.finish_reason;
    }
    usage = part.usage;
  }
  assert.deepEqual(
    [text, tokens, reason, usage.completion_tokens],
    [whole.choices[0].text, whole.choices[0].logprobs.tokens, 'length', 16],
  );
});

test('openai: embeddings, which it asks for in base64', LIMIT, async () => {
  await page.page.evaluate(async (url) => (globalThis.encoder = await Engine.load(url)), ENCODER);
  const input = ['a small boat', 'a little ship'];
  const { data } = await openai.embeddings.create({ model: 'rillm', input });
  assert.equal(sent.at(-1).encoding_format, 'base64');
  const plain = await page.page.evaluate(async (input) => {
    const { data } = await encoder.embeddings.create({ input });
    await encoder.dispose();
    return data.map(({ embedding }) => embedding);
  }, input);
  assert.deepEqual(
    data.map(({ embedding }) => Array.from(embedding)),
    plain,
  );
});

test('openai: models', LIMIT, async () => {
  const { data } = await openai.models.list();
  assert.equal(data.length, 1);
  const [{ id, object, created, owned_by }] = data;
  assert.deepEqual([object, typeof created, owned_by], ['model', 'number', 'rillm']);
  assert.equal((await openai.models.retrieve(id)).id, id);
  await assert.rejects(
    openai.models.retrieve('another'),
    (error) => error instanceof OpenAI.NotFoundError && /another/.test(error.message),
  );
});

test('openai: what changes nothing on this device is taken, and of another type refused', LIMIT, async () => {
  const fields = {
    store: false,
    metadata: { a: 'b' },
    service_tier: 'auto',
    prompt_cache_key: 'k',
    safety_identifier: 's',
    modalities: ['text'],
    prediction: { type: 'content', content: 'x' },
    verbosity: 'low',
    user: null,
  };
  const text = ({ choices }) => choices[0].message.content;
  assert.equal(text(await openai.chat.completions.create({ ...STORY, ...fields })), text(await openai.chat.completions.create(STORY)));
  for (const [name, value] of Object.entries({ store: 1, metadata: [], verbosity: {}, modalities: ['audio'] })) {
    await assert.rejects(
      openai.chat.completions.create({ ...STORY, [name]: value }),
      (error) => error.status === 400 && error.message.includes(name),
    );
  }
});

test('openai: what is refused is an error of the API, by name', LIMIT, async () => {
  await assert.rejects(openai.chat.completions.create({ ...ASK, reasoning_effort: 'low' }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.match(error.message, /reasoning_effort/);
    return error.code === 'invalid_request';
  });
});

test('fetch: statuses, methods, bodies and paths', LIMIT, async () => {
  const answers = await page.page.evaluate(async (ask) => {
    const { fetch } = engine;
    const told = async (response) => [response.status, (await response.json()).error?.code];
    const post = (path, body) => fetch(`https://any.test${path}`, { method: 'POST', body });
    const long = { ...ask, messages: [{ role: 'user', content: 'a '.repeat(5000) }] };
    return {
      empty: await told(await post('/v1/chat/completions', '')),
      noJson: await told(await post('/v1/chat/completions', '{')),
      noObject: await told(await post('/v1/chat/completions', '3')),
      long: await told(await post('/v1/chat/completions', JSON.stringify(long))),
      longStream: await told(await post('/v1/chat/completions', JSON.stringify({ ...long, stream: true }))),
      path: await told(await post('/v1/constructor', '{}')),
      noPath: await told(await post('/', '{}')),
      method: await told(await fetch('https://any.test/v1/chat/completions')),
      models: await told(await post('/v1/models', '{}')),
      encoder: await told(await post('/v1/embeddings', '{"input":"a"}')),
      request: await told(await fetch(new Request('https://any.test/v1/models'))),
      prefix: await told(await fetch(new URL('https://any.test/deep/er/v1/models/'))),
    };
  }, ASK);
  assert.deepEqual(answers, {
    empty: [400, 'invalid_request'],
    noJson: [400, 'invalid_request'],
    noObject: [400, 'invalid_request'],
    long: [400, 'context_length_exceeded'],
    longStream: [400, 'context_length_exceeded'],
    path: [404, 'not_found'],
    noPath: [404, 'not_found'],
    method: [405, 'method_not_allowed'],
    models: [405, 'method_not_allowed'],
    encoder: [400, 'invalid_request'],
    request: [200, undefined],
    prefix: [200, undefined],
  });
});

test('fetch: events come while the answer is written, and stop when the reader or the signal does', LIMIT, async () => {
  const told = await page.page.evaluate(async (ask) => {
    const post = (more, init = {}) =>
      engine.fetch('/v1/chat/completions', {
        method: 'POST',
        body: JSON.stringify({ ...ask, ignore_eos: true, max_tokens: 200, stream: true, ...more }),
        ...init,
      });
    const whole = await (await post({ max_tokens: 5 })).text();
    // A reader that stops.
    const stopped = (await post()).body.getReader();
    const { value } = await stopped.read();
    await stopped.cancel();
    // A signal that aborts: before, while the request waits, and in the middle.
    const abort = async (when) => {
      const controller = new AbortController();
      if (when === 'before') controller.abort(new Error('why'));
      try {
        const answering = post({}, { signal: controller.signal });
        if (when === 'waiting') controller.abort(new Error('why'));
        const reader = (await answering).body.getReader();
        await reader.read();
        controller.abort(new Error('why'));
        for (;;) if ((await reader.read()).done) return 'it ended';
      } catch ({ message }) {
        return message;
      }
    };
    const aborts = [];
    for (const when of ['before', 'waiting', 'reading']) aborts.push(await abort(when));
    // What comes after works.
    const after = await (await post({ max_tokens: 2, stream: false })).json();
    return { whole, first: new TextDecoder().decode(value), aborts, after: after.usage.completion_tokens };
  }, STORY);
  const events = told.whole.split('\n\n');
  assert.deepEqual([events.at(-1), events.at(-2)], ['', 'data: [DONE]']);
  assert.ok(events.slice(0, -2).every((event) => JSON.parse(event.replace(/^data: /, '')).object === 'chat.completion.chunk'));
  assert.match(told.first, /^data: \{.*\}\n\n$/);
  assert.deepEqual(told.aborts, ['why', 'why', 'why']);
  assert.equal(told.after, 2);
});

const aiTools = (asked) => ({
  get_weather: tool({
    description: WEATHER.description,
    inputSchema: jsonSchema(WEATHER.parameters),
    execute: async ({ city }) => (asked.push(city), RAIN),
  }),
});
const AI = { temperature: 0, maxOutputTokens: 100, maxRetries: 0, prompt: ASK.messages[0].content };

test('AI SDK: generateText calls the tool and answers', LIMIT, async () => {
  const asked = [];
  const { steps, text, totalUsage, warnings } = await generateText({
    ...AI,
    model: provider('rillm'),
    tools: aiTools(asked),
    stopWhen: stepCountIs(3),
  });
  assert.deepEqual(asked, ['Oslo']);
  assert.deepEqual(
    steps.map(({ finishReason }) => finishReason),
    ['tool-calls', 'stop'],
  );
  assert.match(text, /7/);
  assert.equal(totalUsage.totalTokens, totalUsage.inputTokens + totalUsage.outputTokens);
  assert.ok(totalUsage.inputTokenDetails.cacheReadTokens > 0);
  assert.deepEqual(warnings ?? [], []);
});

test('AI SDK: streamText gives what generateText gives', LIMIT, async () => {
  const asked = [];
  const ask = { ...AI, model: provider('rillm'), tools: aiTools(asked), stopWhen: stepCountIs(3) };
  const whole = await generateText(ask);
  const errors = [];
  const stream = streamText({ ...ask, onError: ({ error }) => errors.push(error) });
  const deltas = [];
  for await (const part of stream.fullStream) if (part.type === 'tool-input-delta') deltas.push(part.delta);
  const steps = await stream.steps;
  assert.deepEqual(errors, []);
  assert.deepEqual(JSON.parse(deltas.join('')), { city: 'Oslo' });
  assert.deepEqual(asked, ['Oslo', 'Oslo']);
  assert.deepEqual(
    steps.map(({ finishReason }) => finishReason),
    whole.steps.map(({ finishReason }) => finishReason),
  );
  assert.equal(await stream.text, whole.text);
  assert.equal((await stream.totalUsage).outputTokens, whole.totalUsage.outputTokens);
});

test('AI SDK: reasoning, and an object by its schema', LIMIT, async () => {
  // A template that opens reasoning, which the demo model never closes by itself.
  const chat_template =
    '{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n<think>\n';
  const thinking = { rillm: { chat_template, thinking_token_budget: 4, min_tokens: 16 } };
  const { reasoningText, text, usage } = await generateText({
    ...AI,
    maxOutputTokens: 20,
    model: provider('rillm'),
    providerOptions: thinking,
  });
  assert.ok(reasoningText.length > 0 && text.length > 0);
  assert.ok(usage.outputTokenDetails.reasoningTokens >= 4);
  const schema = jsonSchema({
    type: 'object',
    properties: { name: { type: 'string', maxLength: 20 }, age: { type: 'integer' } },
    required: ['name', 'age'],
    additionalProperties: false,
  });
  const { object } = await generateObject({
    ...AI,
    model: provider('rillm'),
    schema,
    prompt: 'Anna is 12 years old. Answer in JSON with the keys name and age.',
  });
  assert.deepEqual(object, { name: 'Anna', age: 12 });
});
