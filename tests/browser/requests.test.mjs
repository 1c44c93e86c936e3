// Requests in OpenAI's shapes: answers, streams, stopping, cancelling, seeds and the order of requests.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { countsOf, sharedStage } from './browser.mjs';
import { isOnCpu } from './device.mjs';

const MODEL = '/golden/tied-q8_0.gguf';
const ASK = { messages: [{ role: 'user', content: 'The small boat' }], temperature: 0, ignore_eos: true };

const shared = sharedStage();

/** Runs `fn(engine, argument)` in the page of an engine that all tests with these options share. */
const withModel = (fn, argument = {}, options = {}) => shared.engines.use(MODEL, { worker: true, ...options }, fn, argument);

for (const worker of [true, false]) {
  const where = worker ? 'in the worker' : 'on the page';

  test(`chat: the whole answer has OpenAI's shape (${where})`, async () => {
    const answer = await withModel((engine, ask) => engine.chat.completions.create({ ...ask, model: 'any', max_tokens: 8 }), ASK, {
      worker,
    });
    assert.match(answer.id, /^chatcmpl-[0-9a-f]{24}$/);
    assert.equal(answer.object, 'chat.completion');
    assert.ok(Math.abs(answer.created - Date.now() / 1000) < 600);
    const { message, finish_reason, index, logprobs, token_ids } = answer.choices[0];
    assert.deepEqual(
      { index, logprobs, finish_reason, role: message.role },
      { index: 0, logprobs: null, finish_reason: 'length', role: 'assistant' },
    );
    assert.equal(typeof message.content, 'string');
    assert.equal(token_ids.length, 8);
    const { prompt_tokens, completion_tokens, total_tokens } = answer.usage;
    assert.ok(prompt_tokens > 3);
    assert.equal(completion_tokens, 8);
    assert.equal(total_tokens, prompt_tokens + 8);
    assert.ok(answer.timings.tokens_per_s > 0 && answer.timings.prompt_ms >= 0);
  });

  test(`chat: a stream adds up to the whole answer (${where})`, async () => {
    const { whole, chunks } = await withModel(
      async (engine, ask) => ({
        whole: await engine.chat.completions.create({ ...ask, max_tokens: 50 }),
        chunks: await collect(await engine.chat.completions.create({ ...ask, max_tokens: 50, stream: true })),
      }),
      ASK,
      { worker },
    );
    assert.ok(chunks.length > 2);
    assert.equal(new Set(chunks.map(({ id }) => id)).size, 1);
    assert.ok(chunks.every(({ object }) => object === 'chat.completion.chunk'));
    assert.deepEqual(chunks[0].choices[0].delta, { role: 'assistant', content: '' });
    assert.equal(chunks.map(({ choices }) => choices[0].delta.content ?? '').join(''), whole.choices[0].message.content);
    assert.deepEqual(
      chunks.flatMap(({ choices }) => choices[0].token_ids),
      whole.choices[0].token_ids,
    );
    assert.ok(chunks.slice(0, -1).every(({ choices, usage }) => choices[0].finish_reason === null && usage === undefined));
    assert.equal(chunks.at(-1).choices[0].finish_reason, 'length');
    assert.deepEqual(countsOf(chunks.at(-1).usage), countsOf(whole.usage));
  });
}

test('completions: answer and stream have the shape text_completion', async () => {
  const { whole, chunks } = await withModel(async (engine) => {
    const ask = { prompt: 'A lamp was', temperature: 0, ignore_eos: true, max_tokens: 12 };
    return {
      whole: await engine.completions.create(ask),
      chunks: await collect(await engine.completions.create({ ...ask, stream: true })),
    };
  });
  assert.match(whole.id, /^cmpl-/);
  assert.equal(whole.object, 'text_completion');
  assert.equal(whole.choices[0].finish_reason, 'length');
  assert.equal(chunks.map(({ choices }) => choices[0].text).join(''), whole.choices[0].text);
  assert.ok(chunks.every(({ object }) => object === 'text_completion'));
  assert.deepEqual(countsOf(chunks.at(-1).usage), countsOf(whole.usage));
});

test('include_usage sends the usage in a chunk without choices', async () => {
  const chunks = await withModel(
    async (engine, ask) =>
      collect(await engine.chat.completions.create({ ...ask, max_tokens: 4, stream: true, stream_options: { include_usage: true } })),
    ASK,
  );
  assert.deepEqual(chunks.at(-1).choices, []);
  assert.equal(chunks.at(-1).usage.completion_tokens, 4);
  assert.ok(chunks.slice(1, -1).every(({ usage }) => usage === null));
  assert.equal(chunks.at(-2).choices[0].finish_reason, 'length');
});

test('a stop string ends the answer and is not part of it', async () => {
  const { full, stopped, streamed, stop } = await withModel(async (engine, ask) => {
    const request = { ...ask, max_tokens: 60 };
    const whole = (await engine.chat.completions.create(request)).choices[0].message.content;
    // Whole characters only: random weights also make bytes that are no text.
    const middle = [...whole].findIndex((character, i) => i > 8 && /[a-z]/i.test(character));
    const stop = [...whole].slice(middle, middle + 3).join('');
    const answer = await engine.chat.completions.create({ ...request, stop });
    const chunks = await collect(await engine.chat.completions.create({ ...request, stop: ['never in there', stop], stream: true }));
    return {
      full: whole,
      stop,
      stopped: answer.choices[0],
      streamed: chunks.map(({ choices }) => choices[0].delta.content ?? '').join(''),
    };
  }, ASK);
  assert.equal(stopped.finish_reason, 'stop');
  assert.equal(stopped.message.content, full.slice(0, full.indexOf(stop)));
  assert.equal(streamed, stopped.message.content);
});

for (const truncation of [{}, { top_k: 40, top_p: 0.9, min_p: 0.01 }]) {
  test(`the same seed gives the same text, another seed another ${JSON.stringify(truncation)}`, async () => {
    const ask = { ...ASK, ...truncation, temperature: 1, max_tokens: 40 };
    const texts = await withModel(async (engine, ask) => {
      const answers = [];
      for (const seed of [7, 7, 8]) {
        const answer = await engine.chat.completions.create({ ...ask, seed });
        answers.push(answer.choices[0].token_ids.join());
      }
      return answers;
    }, ask);
    assert.equal(texts[0], texts[1]);
    assert.notEqual(texts[0], texts[2]);
  });
}

test('cancel() ends a stream with finish_reason "cancelled", break ends it at once, and the engine goes on', async () => {
  const { chunks, read, after } = await withModel(async (engine, ask) => {
    const request = { ...ask, max_tokens: 200 };
    const cancelled = await engine.chat.completions.create({ ...request, stream: true });
    const seen = [];
    for await (const chunk of cancelled) {
      seen.push(chunk);
      if (seen.length === 3) cancelled.cancel();
    }
    let count = 0;
    for await (const _ of await engine.chat.completions.create({ ...request, stream: true })) {
      if (++count === 3) break;
    }
    return { chunks: seen, read: count, after: await engine.chat.completions.create({ ...request, max_tokens: 3 }) };
  }, ASK);
  assert.equal(chunks.at(-1).choices[0].finish_reason, 'cancelled');
  assert.ok(chunks.at(-1).usage.completion_tokens < 200);
  assert.equal(read, 3);
  assert.equal(after.usage.completion_tokens, 3);
});

test('a signal rejects a promise with "aborted" and ends a stream early', async () => {
  const { before, during, reason, waiting } = await withModel(async (engine, ask) => {
    // It would go on for seconds.
    const request = { ...ask, max_tokens: 100_000, context_shift: true };
    const create = (more, signal) => engine.chat.completions.create({ ...request, ...more }, { signal });
    const before = await failure(create({}, AbortSignal.abort()));
    const promise = new AbortController();
    setTimeout(() => promise.abort(), 60);
    const during = await failure(create({}, promise.signal));
    const stream = new AbortController();
    const chunks = [];
    for await (const chunk of await create({ stream: true }, stream.signal)) {
      chunks.push(chunk);
      stream.abort();
    }
    // One that still waits for its turn never runs.
    const queued = new AbortController();
    const first = create({ max_tokens: 20 });
    const second = failure(create({}, queued.signal));
    queued.abort();
    await first;
    return { before, during, reason: chunks.at(-1).choices[0].finish_reason, waiting: await second };
  }, ASK);
  assert.equal(before.code, 'aborted');
  assert.equal(during.code, 'aborted');
  assert.equal(reason, 'cancelled');
  assert.equal(waiting.code, 'aborted');
});

for (const worker of [true, false]) {
  test(`with maxSequences requests run together, each as if it were alone (${worker ? 'in the worker' : 'on the page'})`, async () => {
    const result = await withModel(
      async (engine) => {
        const prompts = ['The small boat', 'A lamp was lit', 'Where have you been', 'Once more'];
        const create = (i, more = {}) =>
          engine.completions.create({
            prompt: prompts[i],
            temperature: i % 2,
            seed: i,
            top_p: i === 3 ? 0.9 : 1,
            ignore_eos: true,
            max_tokens: 24 + i,
            ...more,
          });
        const ids = (answer) => answer.choices[0].token_ids.join();
        const alone = [];
        for (const i of prompts.keys()) alone.push(ids(await create(i)));
        const together = (await Promise.all(prompts.map((_, i) => create(i)))).map(ids);
        // Streams that are read side by side, of which one is left in the middle; a fourth that had to wait goes on.
        const streams = await Promise.all([0, 1, 2].map((i) => create(i, { stream: true })));
        const waiting = create(3);
        const read = async (stream, most) => {
          const chunks = [];
          for await (const chunk of stream) {
            chunks.push(chunk);
            if (chunks.length >= most) break;
          }
          return chunks.flatMap(({ choices }) => choices[0].token_ids).join();
        };
        const [first, left, third] = await Promise.all([read(streams[0], Infinity), read(streams[1], 2), read(streams[2], Infinity)]);
        return { alone, together, left, streamed: [first, third, ids(await waiting)], sequences: engine.info.max_sequences };
      },
      {},
      { worker, maxSequences: 3 },
    );
    assert.equal(result.sequences, 3);
    assert.deepEqual(result.together, result.alone);
    assert.deepEqual(result.streamed, [result.alone[0], result.alone[2], result.alone[3]]);
    assert.ok(result.alone[1].startsWith(result.left));
  });

  test(`a draft model drafts, and the answer stays the model's (${worker ? 'in the worker' : 'on the page'})`, async () => {
    const { plain, drafted, draft, timings } = await withModel(
      async (engine) => {
        const create = (more) =>
          engine.completions.create({ prompt: 'The small boat', temperature: 0, ignore_eos: true, max_tokens: 40, ...more });
        const plain = await create({});
        const drafted = await create({ speculation: { type: 'draft_model', max_tokens: 4 } });
        return { plain: plain.choices[0], drafted: drafted.choices[0], draft: engine.info.draft, timings: drafted.timings };
      },
      {},
      { worker, draft: '/golden/tied-q4_0.gguf' },
    );
    assert.deepEqual(drafted, plain);
    assert.equal(draft.quantization, 'Q4_0');
    assert.ok(timings.draft_tokens > 0 && timings.accepted_draft_tokens <= timings.draft_tokens);
    const { error, progress } = await shared.stage.run(
      async ([model, worker]) => {
        const progress = [];
        const error = await failure(rillm.Engine.load(model, { worker, draft: '/golden/untied-q8_0.gguf' }));
        const engine = await rillm.Engine.load(model, { worker, draft: '/golden/tied-q4_0.gguf', onProgress: (now) => progress.push(now) });
        await engine.dispose();
        return { error, progress };
      },
      MODEL,
      worker,
    );
    assert.equal(error.code, 'vocabulary_mismatch');
    assert.equal(progress.filter(({ phase }) => phase === 'ready').length, 1);
    assert.equal(progress.at(-1).loaded, progress.at(-1).total);
    const loaded = progress.filter(({ phase }) => phase !== 'header').map((now) => now.loaded);
    assert.deepEqual(
      loaded,
      [...loaded].sort((a, b) => a - b),
    );
  });

  test(`requests at the same time are answered in order, each as if it were alone (${worker ? 'in the worker' : 'on the page'})`, async () => {
    const { alone, together, order } = await withModel(
      async (engine) => {
        const prompts = ['The small boat', 'A lamp was lit', 'Where have you been'];
        const create = (prompt) => engine.completions.create({ prompt, temperature: 0, ignore_eos: true, max_tokens: 16 });
        const alone = [];
        for (const prompt of prompts) alone.push((await create(prompt)).choices[0].text);
        const order = [];
        const together = await Promise.all(prompts.map((prompt, i) => create(prompt).finally(() => order.push(i))));
        return { alone, together: together.map(({ choices }) => choices[0].text), order };
      },
      {},
      { worker },
    );
    assert.deepEqual(together, alone);
    assert.deepEqual(order, [0, 1, 2]);
  });

  test(`a stream that nobody reads does not hold up the next request (${worker ? 'in the worker' : 'on the page'})`, async () => {
    const { next, late } = await withModel(
      async (engine, ask) => {
        const unread = await engine.chat.completions.create({ ...ask, max_tokens: 80, stream: true });
        const next = await engine.chat.completions.create({ ...ask, max_tokens: 5 });
        return { next: next.usage.completion_tokens, late: (await collect(unread)).flatMap(({ choices }) => choices[0].token_ids).length };
      },
      ASK,
      { worker },
    );
    assert.equal(next, 5);
    assert.equal(late, 80);
  });
}

test('wrong requests are rejected with "invalid_request" that names the field, and the engine goes on', async () => {
  const { failures, after } = await withModel(async (engine, ask) => {
    const chat = engine.chat.completions;
    const failures = {
      messages: await failure(chat.create({})),
      'an object': await failure(chat.create(undefined)),
      temperature: await failure(chat.create({ ...ask, temperature: -1 })),
      top_k: await failure(chat.create({ ...ask, top_k: 1.5 })),
      top_p: await failure(chat.create({ ...ask, top_p: 0 })),
      min_p: await failure(chat.create({ ...ask, min_p: 1 })),
      max_tokens: await failure(chat.create({ ...ask, max_tokens: 'many' })),
      stream_options: await failure(chat.create({ ...ask, stream_options: { include_usage: true } })),
      stream: await failure(chat.create({ ...ask, stream: 'yes' })),
      no_such_field: await failure(chat.create({ ...ask, no_such_field: 1 })),
      stop: await failure(chat.create({ ...ask, stop: ['a', 'b', 'c', 'd', 'e'] })),
      prompt: await failure(engine.completions.create({ prompt: 7 })),
      'token ids': await failure(engine.forward([1.5])),
      function: await failure(chat.create({ ...ask, user: () => {} })),
    };
    return { failures, after: (await chat.create({ ...ask, max_tokens: 2 })).usage.completion_tokens };
  }, ASK);
  for (const [field, { code, message, isEngineError }] of Object.entries(failures)) {
    assert.equal(code, 'invalid_request', `${field}: ${code} ${message}`);
    assert.ok(isEngineError, field);
    if (field !== 'function') assert.ok(message.includes(field), `"${message}" names ${field}`);
  }
  assert.equal(after, 2);
});

test('a prompt that does not fit the context is rejected with "context_length_exceeded"', async () => {
  const { code } = await withModel((engine) => failure(engine.completions.create({ prompt: 'the boat and the lamp '.repeat(200) })));
  assert.equal(code, 'context_length_exceeded');
});

test('tensors: read back, dispose, and not afterwards', async () => {
  const { shape, length, code } = await withModel(async (engine) => {
    const tensor = await engine.forward(new Uint32Array([1, 2, 3, 4, 5]));
    const { length } = await tensor.readback();
    await tensor.dispose();
    await tensor.dispose();
    return { shape: [...tensor.shape], length, code: (await failure(tensor.readback())).code };
  });
  assert.deepEqual(shape, [5, 288]);
  assert.equal(length, 5 * 288);
  assert.equal(code, 'disposed');
});

test('sync, stats and resetStats', async () => {
  const { before, reset } = await withModel(async (engine, ask) => {
    await engine.chat.completions.create({ ...ask, max_tokens: 4 });
    await engine.sync();
    const before = await engine.stats();
    await engine.resetStats();
    return { before, reset: await engine.stats() };
  }, ASK);
  for (const counter of [
    'dispatches',
    'passes',
    'submits',
    'maps',
    'buffers_created',
    'bind_groups_created',
    // The CPU compiles nothing.
    ...(isOnCpu ? [] : ['pipelines_created']),
    'bytes_uploaded',
    'bytes_read_back',
    'live_bytes',
    'wasm_memory_bytes',
  ]) {
    assert.ok(before[counter] > 0, `${counter} is ${before[counter]}`);
  }
  for (const cache of ['uniforms', 'bind_groups', 'pipelines']) {
    for (const counter of ['hits', 'misses', 'evictions', 'entries'])
      assert.equal(typeof before[cache][counter], 'number', `${cache}.${counter}`);
  }
  assert.equal(reset.dispatches, 0);
  assert.equal(reset.submits, 0);
  assert.equal(reset.live_bytes, before.live_bytes, 'what is held is not reset');
});

test('renderTemplate renders, and rejects a broken template with "chat_template"', async () => {
  const { text, broken } = await shared.stage.run(async () => ({
    text: await rillm.renderTemplate('{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}', {
      messages: [{ role: 'user', content: ' hi ' }],
    }),
    broken: await failure(rillm.renderTemplate('{% for m in %}', {})),
  }));
  assert.equal(text, '<user>hi');
  assert.equal(broken.code, 'chat_template');
});
