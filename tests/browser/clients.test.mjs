// The engine behind clients of OpenAI's API: the `openai` package and the AI SDK's provider for such APIs send their requests to it and
// read its answers, by a `fetch` that hands requests to an engine in Chromium and writes its chunks as server-sent events.

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

/** What a server does with a request, without one. */
async function fetchFromEngine(url, { body }) {
  const request = JSON.parse(body);
  sent.push(request);
  const endpoint = new URL(url).pathname.replace('/v1/', '');
  const { parts, error } = await page.page.evaluate(
    async ([endpoint, request]) => {
      const create = {
        'chat/completions': engine.chat.completions,
        completions: engine.completions,
        embeddings: globalThis.encoder?.embeddings,
      }[endpoint];
      try {
        const answer = await create.create(request);
        if (!request.stream) return { parts: [answer] };
        const parts = [];
        for await (const part of answer) parts.push(part);
        return { parts };
      } catch ({ code, message }) {
        return { error: { code, message } };
      }
    },
    [endpoint, request],
  );
  if (error !== undefined) return Response.json({ error: { ...error, type: 'invalid_request_error', param: null } }, { status: 400 });
  if (!request.stream) return Response.json(parts[0]);
  const events = [...parts.map((part) => JSON.stringify(part)), '[DONE]'].map((data) => `data: ${data}\n\n`);
  return new Response(events.join(''), { headers: { 'content-type': 'text/event-stream' } });
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

test('openai: what is refused is an error of the API, by name', LIMIT, async () => {
  await assert.rejects(openai.chat.completions.create({ ...ASK, reasoning_effort: 'low' }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.match(error.message, /reasoning_effort/);
    return error.code === 'invalid_request';
  });
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
