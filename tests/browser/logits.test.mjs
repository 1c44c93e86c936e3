// What is said of an answer's tokens and done to their logits: log probabilities, several choices, logits processors.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { countsOf, openStage } from './browser.mjs';

const MODEL = '/golden/tied-q8_0.gguf';
const ASK = { messages: [{ role: 'user', content: 'The small boat' }], temperature: 0, ignore_eos: true };

let stage;
before(async () => (stage = await openStage()));
after(() => stage.close());

/** Runs `fn(engine, argument)` in a page; functions travel as source text. */
function withModel(fn, argument = {}, options = {}) {
  return stage.run(
    ([model, source, value, loadOptions]) => withEngine(model, loadOptions, (engine) => (0, eval)(`(${source})`)(engine, value)),
    MODEL,
    String(fn),
    argument,
    options,
  );
}

test('log probabilities of chats: whole and streamed, with bytes and the most probable tokens', async () => {
  const { whole, chunks, bare, logits } = await withModel(async (engine, ask) => {
    // With a seed, whatever the KV cache still holds, to the last bit.
    const request = { ...ask, seed: 1, max_tokens: 30, logprobs: true, top_logprobs: 3 };
    const whole = await engine.chat.completions.create(request);
    const chunks = await collect(await engine.chat.completions.create({ ...request, stream: true }));
    const bare = await engine.chat.completions.create({ ...ask, max_tokens: 3, logprobs: true });
    // The first token of a completion by a pass of its own.
    const [{ logprobs, token_ids }] = (await engine.completions.create({ prompt: [5, 6, 7], max_tokens: 1, temperature: 0, logprobs: 2 }))
      .choices;
    const tensor = await engine.forward([5, 6, 7]);
    const row = (await tensor.readback()).subarray(2 * 288);
    await tensor.dispose();
    const sum = row.reduce((sum, logit) => sum + Math.exp(logit), 0);
    return { whole, chunks, bare, logits: { got: logprobs.token_logprobs[0], wanted: row[token_ids[0]] - Math.log(sum) } };
  }, ASK);
  const [{ logprobs, token_ids }] = whole.choices;
  assert.equal(logprobs.content.length, token_ids.length);
  assert.equal(logprobs.refusal, null);
  for (const { token, bytes, logprob, top_logprobs } of logprobs.content) {
    assert.equal(new TextDecoder().decode(new Uint8Array(bytes)), token);
    assert.equal(top_logprobs.length, 3);
    assert.deepEqual(top_logprobs[0], { token, bytes, logprob }, 'greedy takes the most probable one');
    assert.ok(logprob <= 0 && top_logprobs[1].logprob <= logprob && top_logprobs[2].logprob <= top_logprobs[1].logprob);
  }
  assert.deepEqual(
    chunks.flatMap(({ choices }) => choices[0].logprobs?.content ?? []),
    logprobs.content,
  );
  assert.ok(chunks.every(({ choices }) => (choices[0].logprobs?.content.length ?? 0) === choices[0].token_ids.length));
  assert.deepEqual(
    bare.choices[0].logprobs.content.map(({ top_logprobs }) => top_logprobs),
    [[], [], []],
  );
  assert.ok(Math.abs(logits.got - logits.wanted) < 1e-3, JSON.stringify(logits));
});

test('log probabilities of completions: texts, offsets and the chosen token among the others', async () => {
  const { text, logprobs, parts } = await withModel(async (engine) => {
    const request = { prompt: 'A lamp was', temperature: 1.8, seed: 4, ignore_eos: true, max_tokens: 40, logprobs: 2 };
    const [{ text, logprobs }] = (await engine.completions.create(request)).choices;
    const chunks = await collect(await engine.completions.create({ ...request, stream: true }));
    return { text, logprobs, parts: chunks.map(({ choices }) => choices[0].logprobs) };
  });
  const { tokens, token_logprobs, top_logprobs, text_offset } = logprobs;
  assert.deepEqual(
    [tokens, token_logprobs, top_logprobs, text_offset].map(({ length }) => length),
    [40, 40, 40, 40],
  );
  tokens.forEach((token, i) => {
    const piece = text.slice(text_offset[i], text_offset[i + 1]);
    // Bytes that never become a character come as a replacement sign in front of the token that shows it.
    if (!token.startsWith('bytes:') && !token.startsWith('<')) assert.equal(piece.replace(/^\ufffd+/, ''), token);
    assert.equal(top_logprobs[i][token], token_logprobs[i]);
    assert.ok([2, 3].includes(Object.keys(top_logprobs[i]).length));
  });
  for (const name of ['tokens', 'token_logprobs', 'text_offset'])
    assert.deepEqual(
      parts.flatMap((part) => part[name]),
      logprobs[name],
    );
});

for (const options of [{ worker: true, maxSequences: 3 }, { worker: false, maxSequences: 3 }, { worker: true }]) {
  test(`n choices, each with its index: ${JSON.stringify(options)}`, async () => {
    const { alone, whole, chunks, text, cancelled, aborted, others } = await withModel(
      async (engine, ask) => {
        const request = { ...ask, temperature: 1.4, seed: 20, max_tokens: 24 };
        const create = (more, options) => engine.chat.completions.create({ ...request, ...more }, options);
        const alone = [];
        for (const seed of [20, 21, 22, 23]) alone.push((await create({ seed })).choices[0].token_ids);
        const whole = await create({ n: 4 });
        const chunks = await collect(await create({ n: 4, stream: true }));
        const text = await engine.completions.create({ prompt: 'A lamp was', n: 2, max_tokens: 5, seed: 1, ignore_eos: true });
        const stream = await create({ n: 3, max_tokens: 200, stream: true });
        const cancelled = [];
        for await (const chunk of stream) {
          cancelled.push(chunk);
          if (cancelled.length === 5) stream.cancel();
        }
        const abort = new AbortController();
        setTimeout(() => abort.abort(), 60);
        const aborted = await failure(create({ n: 2, max_tokens: 200 }, { signal: abort.signal }));
        // Beside others, which have their turn.
        const others = await Promise.all([create({}), create({ n: 3 }), create({ seed: 21 }), create({ n: 2 })]);
        return { alone, whole, chunks, text, cancelled, aborted, others };
      },
      ASK,
      options,
    );
    assert.deepEqual(
      whole.choices.map(({ index }) => index),
      [0, 1, 2, 3],
    );
    assert.deepEqual(
      whole.choices.map(({ token_ids }) => token_ids),
      alone,
    );
    assert.equal(whole.usage.completion_tokens, 4 * 24);
    assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + 4 * 24);
    assert.deepEqual(
      chunks.slice(0, 4).map(({ choices: [{ index, delta }] }) => [index, delta.role]),
      [0, 1, 2, 3].map((index) => [index, 'assistant']),
    );
    for (const [index, { message, token_ids, finish_reason }] of whole.choices.entries()) {
      const own = chunks.filter(({ choices }) => choices[0].index === index).map(({ choices }) => choices[0]);
      assert.deepEqual(
        own.flatMap((choice) => choice.token_ids),
        token_ids,
      );
      assert.equal(own.map(({ delta }) => delta.content ?? '').join(''), message.content);
      assert.equal(own.at(-1).finish_reason, finish_reason);
    }
    assert.deepEqual(countsOf(chunks.at(-1).usage), countsOf(whole.usage));
    assert.deepEqual(
      text.choices.map(({ index, token_ids }) => [index, token_ids.length]),
      [
        [0, 5],
        [1, 5],
      ],
    );
    for (const index of [0, 1, 2]) {
      assert.equal(cancelled.filter(({ choices }) => choices[0].index === index).at(-1).choices[0].finish_reason, 'cancelled');
    }
    assert.equal(aborted.code, 'aborted');
    assert.deepEqual(
      others.map(({ choices }) => choices.map(({ token_ids }) => token_ids)),
      [[alone[0]], alone.slice(0, 3), [alone[1]], alone.slice(0, 2)],
    );
  });
}

for (const worker of [true, false]) {
  const where = worker ? 'in the worker' : 'on the page';

  test(`a logits processor sees and changes logits (${where})`, async () => {
    const { plain, same, calls, banned, replaced, choices, logprobs } = await withModel(
      async (engine, ask) => {
        const request = { ...ask, max_tokens: 12 };
        const create = (logitsProcessor, more = {}) => engine.chat.completions.create({ ...request, ...more }, { logitsProcessor });
        const plain = (await engine.chat.completions.create(request)).choices[0].token_ids;
        const calls = [];
        const same = await create(
          (logits, tokens, step) => void calls.push([logits.length, tokens.length, step, [...tokens.slice(tokens.length - step)]]),
        );
        const first = plain[0];
        const banned = await create((logits) => void (logits[first] = -Infinity), { temperature: 1, seed: 3 });
        // One array for all calls stays the caller's.
        const own = new Float32Array(engine.info.vocab_size).fill(-Infinity);
        const replaced = await create(async (_, _tokens, step) => {
          await new Promise((resolve) => setTimeout(resolve, 1));
          own.fill(-Infinity);
          own[50 + step] = 1;
          return own;
        });
        const several = await create((logits) => logits, { n: 2, temperature: 1, seed: 5 });
        const logprobs = (await create((logits) => void logits.fill(0), { logprobs: true, max_tokens: 2 })).choices[0].logprobs.content;
        return {
          plain,
          same: same.choices[0].token_ids,
          calls,
          banned: banned.choices[0].token_ids.includes(first),
          replaced: replaced.choices[0].token_ids,
          choices: several.choices.map(({ token_ids }) => token_ids.length),
          logprobs,
        };
      },
      ASK,
      { worker },
    );
    assert.deepEqual(same, plain);
    assert.deepEqual(
      calls.map(([vocabulary, , step]) => [vocabulary, step]),
      plain.map((_, step) => [288, step]),
    );
    assert.deepEqual(
      calls.map(([, , , answer]) => answer),
      plain.map((_, step) => plain.slice(0, step)),
    );
    assert.equal(new Set(calls.map(([, length, step]) => length - step)).size, 1, 'the prompt stays');
    assert.equal(banned, false);
    assert.deepEqual(
      replaced,
      plain.map((_, step) => 50 + step),
    );
    assert.deepEqual(choices, [12, 12]);
    assert.ok(
      logprobs.every(({ logprob }) => Math.abs(logprob + Math.log(288)) > 1e-3),
      'those of the model',
    );
  });

  test(`what goes wrong in a logits processor rejects the request (${where})`, async () => {
    const { thrown, rejected, nan, nothing, wrong, short, refused, field, hanging, streamed, after } = await withModel(
      async (engine, ask) => {
        const request = { ...ask, max_tokens: 20 };
        const create = (logitsProcessor, more = {}, options = {}) =>
          engine.chat.completions.create({ ...request, ...more }, { logitsProcessor, ...options });
        const own = new RangeError('words of my own');
        const about = async (promise) => {
          try {
            await promise;
            return {};
          } catch (error) {
            return { code: error.code, message: error.message, isOwn: error.cause === own };
          }
        };
        const thrown = await about(
          create((_, __, step) => {
            if (step === 2) throw own;
          }),
        );
        const rejected = await about(create(() => Promise.reject(own)));
        const nan = await about(create((logits) => void (logits[3] = NaN)));
        const nothing = await about(create((logits) => void logits.fill(-Infinity)));
        const wrong = await about(create(() => 'text'));
        const short = await about(create((logits) => logits.subarray(1)));
        const refused = await about(create(() => {}, { speculation: { type: 'prompt_lookup' } }));
        const field = await about(engine.chat.completions.create({ ...request, logitsProcessor: () => {} }));
        // One that never comes back: the signal ends it all the same.
        const abort = new AbortController();
        setTimeout(() => abort.abort(), 50);
        const hanging = await about(create(() => new Promise(() => {}), {}, { signal: abort.signal }));
        const stream = await create(
          (_, __, step) => {
            if (step === 3) throw own;
          },
          { stream: true },
        );
        let tokens = 0;
        const streamed = await about(
          (async () => {
            for await (const { choices } of stream) tokens += choices[0].token_ids.length;
          })(),
        );
        return {
          thrown,
          rejected,
          nan,
          nothing,
          wrong,
          short,
          refused,
          field,
          hanging,
          streamed: { ...streamed, tokens },
          after: (await create(undefined, { max_tokens: 2 })).usage.completion_tokens,
        };
      },
      ASK,
      { worker },
    );
    for (const error of [thrown, rejected, streamed]) {
      assert.equal(error.code, 'logits_processor');
      assert.match(error.message, /words of my own/);
      assert.ok(error.isOwn, 'the cause is what was thrown');
    }
    assert.ok(streamed.tokens <= 3);
    assert.deepEqual([nan.code, nothing.code], ['numerical_error', 'numerical_error']);
    assert.deepEqual([wrong.code, short.code], ['logits_processor', 'logits_processor']);
    assert.deepEqual([refused.code, field.code], ['invalid_request', 'invalid_request']);
    assert.match(field.message, /logitsProcessor.*second argument/);
    assert.equal(hanging.code, 'aborted');
    assert.equal(after, 2);
  });
}

/** A field and values that it can't have; `message` names the field. */
const WRONG = {
  temperature: [-1, 3, 'warm'],
  top_p: [0, 2, null, 'x'],
  top_k: [-1, 1.5],
  min_p: [1, -1],
  seed: [1.5, 'a'],
  n: [0, 129, 'two', 1.5],
  max_tokens: [0, -1, 'many'],
  stop: [1, [''], ['a', 'b', 'c', 'd', 'e']],
  stop_token_ids: ['a', [-1], [1e9]],
  ignore_eos: ['yes'],
  include_stop_str_in_output: [1],
  response_format: ['json', { type: 'xml' }],
  structured_outputs: [{ regex: 1 }, 'a'],
  speculation: ['x', { type: 'oracle' }],
  logprobs: [3, 'yes'],
  top_logprobs: [2, 21],
  tools: ['a', [1]],
  tool_choice: ['maybe'],
  parallel_tool_calls: ['yes'],
  chat_template: [1],
  chat_template_kwargs: [[1]],
  add_generation_prompt: ['yes'],
  continue_final_message: [1],
  reasoning_format: ['some'],
  include_reasoning: ['no'],
  thinking_token_budget: [-1],
  max_completion_tokens: [0],
  messages: ['hello', 1],
  stream: ['yes', 1],
  stream_options: [{ include_usage: true }, 3],
  model: [3],
  no_such_field: [1],
  best_of: [2],
  prompt_logprobs: [1],
  echo: [true],
};

test('wrong values of each field reject with "invalid_request" that names it', async () => {
  const { failures, after } = await withModel(
    async (engine, { ask, wrong }) => {
      const failures = [];
      for (const [name, values] of Object.entries(wrong)) {
        for (const value of values) {
          // Null counts as left out.
          if (value === null) await engine.chat.completions.create({ ...ask, max_tokens: 1, [name]: value });
          else failures.push([name, value, await failure(engine.chat.completions.create({ ...ask, max_tokens: 3, [name]: value }))]);
        }
      }
      for (const value of [NaN, Infinity])
        failures.push(['temperature', String(value), await failure(engine.chat.completions.create({ ...ask, temperature: value }))]);
      return { failures, after: (await engine.chat.completions.create({ ...ask, max_tokens: 2 })).usage.completion_tokens };
    },
    { ask: ASK, wrong: WRONG },
  );
  for (const [name, value, error] of failures) {
    const what = `${name}: ${JSON.stringify(value)}: ${error?.code} ${error?.message}`;
    assert.equal(error?.code, 'invalid_request', what);
    assert.ok(error.isEngineError && error.message.includes(name), what);
  }
  assert.equal(after, 2);
});
