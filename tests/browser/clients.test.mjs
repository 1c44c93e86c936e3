// The engine behind clients of OpenAI's API: the `openai` package, the AI SDK and LangChain send their requests to it and read its answers,
// through `engine.fetch`, all in one page of Chromium.

import { after, before, test } from 'node:test';

import { LIMIT, openClients } from './clients/clients.mjs';

let clients;

before(async () => {
  if (LIMIT.skip) return;
  clients = await openClients(async () => {
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
    /** Bodies of the requests, the last one last. */
    const sent = [];
    const fetch = (url, init) => {
      if (init?.body != null) sent.push(JSON.parse(init.body));
      const served = new URL(url).pathname.endsWith('/embeddings') ? encoder : engine;
      return served.fetch(url, init);
    };
    Object.assign(globalThis, {
      WEATHER,
      ASK,
      STORY: { ...ASK, max_tokens: 8, messages: [{ role: 'user', content: 'Tell me a story.' }] },
      TOOLS: [{ type: 'function', function: WEATHER }],
      RAIN: { city: 'Oslo', weather: 'rain', temperature: 7 },
      AI: { temperature: 0, maxOutputTokens: 100, maxRetries: 0, prompt: ASK.messages[0].content },
      sent,
      encoder: await rillm.Engine.load('/encoders/bert/model.gguf'),
      ...clientsOf(fetch),
      aiTools: (asked) => ({
        get_weather: ai.tool({
          description: WEATHER.description,
          inputSchema: ai.jsonSchema(WEATHER.parameters),
          execute: async ({ city }) => (asked.push(city), RAIN),
        }),
      }),
      /** Of an answer that a client has put together, what its pieces leave of the extensions is not told. */
      told: ({ choices }) =>
        choices.map(({ index, finish_reason, logprobs, message: { role, content, refusal, tool_calls = [] } }) => {
          const calls = tool_calls.map(({ type, function: { name, arguments: text } }) => ({ type, name, text }));
          // A stream begins with an empty text, before it is known whether there will be one.
          return { index, finish_reason, logprobs, role, content: content || null, refusal, calls };
        }),
    });
  });
}, LIMIT);
after(async () => {
  await clients?.run(() => encoder.dispose());
  await clients?.close();
});

/** A test that runs in the page. */
function inPage(name, fn) {
  test(name, LIMIT, async () => {
    await clients.run(fn);
  });
}

inPage('openai: a call, its answer handed back, and the end', async () => {
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

inPage('openai: what its stream puts together is the whole answer', async () => {
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

inPage('openai: its loop calls the function and ends with the answer', async () => {
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

inPage('openai: completions, whole and streamed', async () => {
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

inPage('openai: embeddings, which it asks for in base64', async () => {
  const input = ['a small boat', 'a little ship'];
  const { data } = await openai.embeddings.create({ model: 'rillm', input });
  assert.equal(sent.at(-1).encoding_format, 'base64');
  const plain = (await encoder.embeddings.create({ input })).data.map(({ embedding }) => embedding);
  assert.deepEqual(
    data.map(({ embedding }) => Array.from(embedding)),
    plain,
  );
});

inPage('openai: models', async () => {
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

inPage('openai: what changes nothing on this device is taken, and of another type refused', async () => {
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

inPage('openai: what is refused is an error of the API, by name', async () => {
  await assert.rejects(openai.chat.completions.create({ ...ASK, reasoning_efort: 'low' }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.match(error.message, /reasoning_efort/);
    return error.code === 'invalid_request';
  });
});

inPage('openai: an answer read by a schema of zod', async () => {
  const Person = z.object({ name: z.string().max(20), age: z.int() });
  const content = 'Anna is 12 years old. Answer in JSON with the keys name and age.';
  const request = { ...ASK, messages: [{ role: 'user', content }], response_format: zodResponseFormat(Person, 'person') };
  const { choices } = await openai.chat.completions.parse(request);
  assert.deepEqual(choices[0].message.parsed, { name: 'Anna', age: 12 });
});

inPage('fetch: statuses, methods, bodies and paths', async () => {
  const answers = await (async (ask) => {
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
  })(ASK);
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

inPage('fetch: events come while the answer is written, and stop when the reader or the signal does', async () => {
  const told = await (async (ask) => {
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
  })(STORY);
  const events = told.whole.split('\n\n');
  assert.deepEqual([events.at(-1), events.at(-2)], ['', 'data: [DONE]']);
  assert.ok(events.slice(0, -2).every((event) => JSON.parse(event.replace(/^data: /, '')).object === 'chat.completion.chunk'));
  assert.match(told.first, /^data: \{.*\}\n\n$/);
  assert.deepEqual(told.aborts, ['why', 'why', 'why']);
  assert.equal(told.after, 2);
});

inPage('AI SDK: generateText calls the tool and answers', async () => {
  const asked = [];
  const { steps, text, totalUsage, warnings } = await ai.generateText({
    ...AI,
    model: provider('rillm'),
    tools: aiTools(asked),
    stopWhen: ai.stepCountIs(3),
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

inPage('AI SDK: streamText gives what generateText gives', async () => {
  const asked = [];
  const ask = { ...AI, model: provider('rillm'), tools: aiTools(asked), stopWhen: ai.stepCountIs(3) };
  const whole = await ai.generateText(ask);
  const errors = [];
  const stream = ai.streamText({ ...ask, onError: ({ error }) => errors.push(error) });
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

inPage('AI SDK: reasoning, and an object by its schema', async () => {
  // A template that opens reasoning, which the demo model never closes by itself.
  const chat_template =
    '{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n<think>\n';
  const thinking = { rillm: { chat_template, thinking_token_budget: 4, min_tokens: 16 } };
  const { reasoningText, text, usage } = await ai.generateText({
    ...AI,
    maxOutputTokens: 20,
    model: provider('rillm'),
    providerOptions: thinking,
  });
  assert.ok(reasoningText.length > 0 && text.length > 0);
  assert.ok(usage.outputTokenDetails.reasoningTokens >= 4);
  const schema = ai.jsonSchema({
    type: 'object',
    properties: { name: { type: 'string', maxLength: 20 }, age: { type: 'integer' } },
    required: ['name', 'age'],
    additionalProperties: false,
  });
  const { object } = await ai.generateObject({
    ...AI,
    model: provider('rillm'),
    schema,
    prompt: 'Anna is 12 years old. Answer in JSON with the keys name and age.',
  });
  assert.deepEqual(object, { name: 'Anna', age: 12 });
  const streamed = ai.streamObject({
    ...AI,
    model: provider('rillm'),
    schema,
    prompt: 'Anna is 12 years old. Answer in JSON with the keys name and age.',
  });
  const parts = [];
  for await (const part of streamed.partialObjectStream) parts.push(part);
  assert.ok(parts.length > 1);
  assert.deepEqual(parts.at(-1), object);
});

inPage('AI SDK: embeddings', async () => {
  const values = ['a small boat', 'a little ship'];
  const { embeddings } = await ai.embedMany({ model: provider.embeddingModel('rillm'), values });
  const { data } = await encoder.embeddings.create({ input: values });
  assert.deepEqual(
    embeddings,
    data.map(({ embedding }) => embedding),
  );
});

inPage('LangChain: invoke and stream, by chat completions and by responses', async () => {
  const text = (await engine.chat.completions.create(STORY)).choices[0].message.content;
  for (const more of [{}, { useResponsesApi: true }]) {
    const model = chain({ maxTokens: 8, ...more });
    const whole = await model.invoke('Tell me a story.');
    let streamed;
    for await (const chunk of await model.stream('Tell me a story.')) streamed = streamed?.concat(chunk) ?? chunk;
    for (const answer of [whole, streamed]) {
      assert.equal(answer.text, text);
      assert.equal(answer.usage_metadata.output_tokens, 8);
    }
  }
});

inPage('LangChain: bindTools, and an object by its schema', async () => {
  const asked = [];
  const get_weather = langchain.tool(async ({ city }) => (asked.push(city), JSON.stringify(RAIN)), {
    name: 'get_weather',
    description: WEATHER.description,
    schema: z.object({ city: z.string() }),
  });
  for (const more of [{}, { useResponsesApi: true }]) {
    const model = chain(more).bindTools([get_weather]);
    const messages = [new langchain.HumanMessage(ASK.messages[0].content)];
    const call = await model.invoke(messages);
    assert.deepEqual(
      call.tool_calls.map(({ name, args }) => ({ name, args })),
      [{ name: 'get_weather', args: { city: 'Oslo' } }],
    );
    messages.push(call, await get_weather.invoke(call.tool_calls[0]));
    assert.match((await model.invoke(messages)).text, /7/);
  }
  assert.deepEqual(asked, ['Oslo', 'Oslo']);
  const Person = z.object({ name: z.string().max(20), age: z.int() });
  const person = chain().withStructuredOutput(Person, { method: 'jsonSchema' });
  const answer = await person.invoke('Anna is 12 years old. Answer in JSON with the keys name and age.');
  assert.deepEqual(answer, { name: 'Anna', age: 12 });
});
