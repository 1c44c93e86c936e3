// Engines whose GPU device or worker is lost: what runs goes on with the tokens that it would have had.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { openStage } from './browser.mjs';
import { makeLosses, prepareLosses } from './losses.mjs';
import { rememberWorkers } from './workers.mjs';

const LIMIT = { timeout: 120_000 };
const MODEL = '/golden/tied-q8_0.gguf';
const RECOVERED = ['lost', 'recovering', 'recovered'];

let stage;
before(async () => {
  stage = await openStage();
  makeLosses(stage.made);
});
after(() => stage.close());

/** Runs in a page whose engines can lose their GPU. */
const onPage = (fn, argument, options = {}) =>
  stage.runWith(
    {
      ...options,
      first: async (page) => {
        await page.evaluate(prepareLosses);
        await page.evaluate(rememberWorkers);
        await page.evaluate((model) => {
          globalThis.MODEL = model;
          globalThis.BOAT = { prompt: 'The small boat', max_tokens: 40, temperature: 0, ignore_eos: true };
          globalThis.textOf = ({ choices }) => choices.map(({ text, message }) => text ?? message.content);
        }, MODEL);
      },
    },
    fn,
    argument,
  );

for (const worker of [true, false]) {
  // What is the same code on both threads runs on one.
  const ofEither = worker ? test : () => {};

  describe(`a GPU that is lost (worker: ${worker})`, () => {
    test('at each phase: load, prefill, decode, read-back, idle', LIMIT, async () => {
      const found = await onPage(async (worker) => {
        const found = {};
        const engine = await rillm.Engine.load(MODEL, lossy(worker, { maxRecoveries: 100 }));
        const wanted = textOf(await engine.completions.create(BOAT));
        const check = async (name, work, more = 0) => {
          const texts = await work();
          found[name] = { same: JSON.stringify(texts) === JSON.stringify(wanted), events: eventTypes(), more };
        };
        for (const [name, command, count] of [
          ['prefill', 'submit', 1],
          ['decode', 'submit', 4],
          ['the first read-back', 'mapAsync', 1],
          ['a read-back', 'mapAsync', 3],
        ]) {
          await check(name, async () => {
            await loseAt(command, count);
            return textOf(await engine.completions.create(BOAT));
          });
        }
        await check('idle', async () => {
          lose();
          while (!events.some(({ type }) => type === 'recovered')) await after(10);
          return textOf(await engine.completions.create(BOAT));
        });
        // Submits are held back until it is known whether there is room, and wait for their turn.
        await engine.setSmoothness('frames');
        for (const [name, command, count] of [
          ['a scope of a held prompt', 'popErrorScope', 1],
          ['a piece of a prompt', 'submit', 3],
          ['a piece of an answer', 'submit', 9],
        ]) {
          await check(name, async () => {
            await loseAt(command, count);
            return textOf(await engine.completions.create({ ...BOAT, prompt: 'The small boat' }));
          });
        }
        await check('changes of smoothness meanwhile', async () => {
          const asked = engine.completions.create(BOAT);
          lose();
          const kinds = ['throughput', 'frames', 'throughput', 'frames'];
          await Promise.all(kinds.map((kind) => engine.setSmoothness(kind)));
          return textOf(await asked);
        });
        found.recoveries = (await engine.stats()).recoveries;
        await engine.dispose();
        for (const [name, command, count] of [
          ['load: a buffer', 'createBuffer', 3],
          ['load: kernels', 'createComputePipelineAsync', 4],
          ['load: a submit', 'submit', 1],
        ]) {
          await check(name, async () => {
            const engine = await rillm.Engine.load(MODEL, lossy(worker, {}, [{ command, left: count }]));
            const texts = textOf(await engine.completions.create(BOAT));
            await engine.dispose();
            return texts;
          });
        }
        const { recoveries, ...phases } = found;
        return { found: phases, recoveries };
      }, worker);
      for (const [name, { same, events }] of Object.entries(found.found)) {
        assert.equal(same, true, name);
        assert.deepEqual(events, RECOVERED, name);
      }
      assert.equal(found.recoveries, 9);
    });

    test('while the model is tuned', LIMIT, async () => {
      const events = await onPage(async (worker) => {
        const engine = await rillm.Engine.load(MODEL, lossy(worker, { autotune: 'always' }, [{ command: 'submit', left: 12 }]));
        await engine.dispose();
        return eventTypes();
      }, worker);
      assert.deepEqual(events, RECOVERED);
    });

    ofEither('under each kind of request, several at once', LIMIT, async () => {
      const { results, events } = await onPage(async (worker) => {
        const chat = [{ role: 'user', content: 'Tell of a boat.' }];
        const long = { max_tokens: 30, ignore_eos: true };
        const kinds = {
          plain: (engine) => engine.completions.create(BOAT),
          seeded: (engine) => engine.completions.create({ ...BOAT, temperature: 1.2, seed: 7, top_p: 0.9, repetition_penalty: 1.2 }),
          'three choices': (engine) => engine.completions.create({ ...BOAT, temperature: 1.2, seed: 11, n: 3 }),
          'log probabilities': (engine) => engine.completions.create({ ...BOAT, logprobs: 2 }),
          lookup: (engine) =>
            engine.completions.create({ ...BOAT, prompt: 'a boat a boat a boat', speculation: { type: 'prompt_lookup' } }),
          schema: (engine) =>
            engine.chat.completions.create({
              messages: chat,
              temperature: 0,
              max_tokens: 60,
              response_format: {
                type: 'json_schema',
                json_schema: { name: 'x', schema: { type: 'object', properties: { n: { enum: [1, 22, 333] } }, required: ['n'] } },
              },
            }),
          processor: (engine) =>
            engine.completions.create(BOAT, {
              logitsProcessor: (logits, { length }) => {
                logits[(length * 7) % 100] += 5;
                return logits;
              },
            }),
          chat: (engine) => engine.chat.completions.create({ messages: chat, temperature: 0, ...long }),
          embedding: async (engine) => await engine.completions.create({ ...BOAT, max_tokens: 3 }),
        };
        const engine = await rillm.Engine.load(MODEL, lossy(worker, { maxSequences: 3, maxRecoveries: 100 }));
        const said = ({ choices }) =>
          choices.map(({ text, message, logprobs, finish_reason }) => [text ?? message.content, logprobs?.tokens, finish_reason]);
        const results = {};
        for (const [name, ask] of Object.entries(kinds)) results[name] = { wanted: said(await ask(engine)) };
        for (const count of [5]) {
          await loseAt('submit', count);
          const asked = Object.entries(kinds).map(async ([name, ask]) => (results[name][`after ${count}`] = said(await ask(engine))));
          await Promise.all(asked);
        }
        await engine.dispose();
        return { results, events: eventTypes() };
      }, worker);
      for (const [name, { wanted, ...others }] of Object.entries(results)) {
        for (const [when, got] of Object.entries(others)) assert.deepEqual(got, wanted, `${name} ${when}`);
      }
      assert.deepEqual(events, RECOVERED);
    });

    test('a stream has no gap and nothing twice; what samples without a seed goes on too', LIMIT, async () => {
      const found = await onPage(async (worker) => {
        const engine = await rillm.Engine.load(MODEL, lossy(worker, { maxRecoveries: 100 }));
        const read = async (more, at) => {
          const asked = { ...BOAT, max_tokens: 120, ...more, stream: true, stream_options: { include_usage: true } };
          const stream = await engine.completions.create(asked);
          let text = '';
          let usage;
          let parts = 0;
          for await (const chunk of stream) {
            text += chunk.choices[0]?.text ?? '';
            usage = chunk.usage ?? usage;
            if (++parts === at) lose();
          }
          return [text, usage.completion_tokens];
        };
        const wanted = await read({});
        const lost = await read({}, 3);
        const sampled = await read({ temperature: 1.5 }, 3);
        await engine.dispose();
        return { wanted, lost, sampled, events: eventTypes() };
      }, worker);
      assert.deepEqual(found.lost, found.wanted);
      assert.equal(found.sampled[1], 120);
      assert.deepEqual(found.events, [...RECOVERED, ...RECOVERED]);
    });

    test('abort, cancel, dispose and other calls while it comes back', LIMIT, async () => {
      const found = await onPage(async (worker) => {
        const found = {};
        const within = async (work) => {
          const begin = performance.now();
          const result = await work;
          return [result, performance.now() - begin];
        };
        const open = async () => {
          const engine = await rillm.Engine.load(MODEL, lossy(worker));
          const stream = await engine.completions.create({ ...BOAT, max_tokens: 200, context_shift: true, stream: true });
          await stream.next();
          const lost = new Promise((resolve) => {
            const look = setInterval(() => events.some(({ type }) => type === 'recovering') && (clearInterval(look), resolve()), 1);
          });
          lose();
          await lost;
          return { engine, stream };
        };
        {
          const { engine, stream } = await open();
          const controller = new AbortController();
          const waiting = engine.completions.create(BOAT, { signal: controller.signal });
          const embedding = engine.embeddings.create({ input: 'a' }, { signal: controller.signal });
          const tokens = engine.tokenize('a boat');
          controller.abort();
          const aborted = await within(Promise.all([failure(waiting), failure(embedding)]));
          stream.cancel?.() ?? stream.controller?.abort();
          found.aborted = [aborted[0].map(({ code }) => code), aborted[1]];
          found.tokens = (await tokens).length;
          found.rest = await Promise.race([collect(stream).then(() => 'ended'), after(10_000).then(() => 'hangs')]);
          found.text = textOf(await engine.completions.create(BOAT))[0].length > 0;
          await engine.dispose();
          events.length = 0;
        }
        {
          const { engine, stream } = await open();
          const asked = [failure(collect(stream)), failure(engine.completions.create(BOAT))];
          const [, ms] = await within(engine.dispose());
          const ends = await Promise.all([...asked, failure(engine.tokenize('a')), failure(engine.dispose())]);
          found.disposed = [ends.map(({ code }) => code), ms];
        }
        return found;
      }, worker);
      assert.deepEqual(found.aborted[0], ['aborted', 'aborted']);
      assert.ok(found.aborted[1] < 500, `${found.aborted[1]} ms`);
      assert.ok(found.tokens > 0);
      assert.equal(found.rest, 'ended');
      assert.equal(found.text, true);
      assert.deepEqual(found.disposed[0].slice(1), ['disposed', 'disposed', 'did not fail']);
      assert.match(found.disposed[0][0], /disposed|did not fail/);
    });

    ofEither('more often than maxRecoveries allows: a typed error that says so', LIMIT, async () => {
      const found = await onPage(async (worker) => {
        const found = [];
        for (const maxRecoveries of [0, 2]) {
          const engine = await rillm.Engine.load(MODEL, lossy(worker, { maxRecoveries }));
          for (let losses = 0; losses <= maxRecoveries; losses++) {
            const begun = events.length;
            lose();
            const ends = () => events.slice(begun).some(({ type }) => type === (losses === maxRecoveries ? 'lost' : 'recovered'));
            while (!ends()) await after(5);
          }
          const errors = [
            await failure(engine.completions.create(BOAT)),
            await failure(engine.tokenize('a')),
            await failure(engine.stats()),
          ];
          await engine.dispose();
          found.push({ errors, events: eventTypes() });
        }
        return found;
      }, worker);
      for (const { errors } of found) {
        for (const { code, isEngineError } of errors) assert.deepEqual([code, isEngineError], ['device_lost', true]);
      }
      assert.deepEqual(found[0].events, ['lost']);
      assert.deepEqual(found[1].events, [...RECOVERED, ...RECOVERED, 'lost']);
      assert.match(found[1].errors[0].message, /recovered 2 times in the last 10 minutes, as many as maxRecoveries allows/);
    });

    test('with a tensor on it: the tensor is lost and says so, and what is computed later is there', LIMIT, async () => {
      const found = await onPage(async (worker) => {
        const engine = await rillm.Engine.load(MODEL, lossy(worker));
        const tensor = await engine.forward([1, 2, 3]);
        const other = await engine.forward([1, 2, 3]);
        const wanted = await other.readback();
        lose();
        while (!events.some(({ type }) => type === 'recovered')) await after(5);
        const { code, message } = await failure(tensor.readback());
        const again = await engine.forward([1, 2, 3]);
        const got = await again.readback();
        await tensor.dispose();
        await other.dispose();
        // It has the handle that the first one had on its host.
        const still = await again.readback();
        await engine.dispose();
        return { code, message, same: [got, still].every((values) => values.every((value, at) => value === wanted[at])) };
      }, worker);
      assert.equal(found.code, 'device_lost');
      assert.match(found.message, /tensor was lost/);
      assert.equal(found.same, true);
    });
  });
}

test('a worker that is ended, by the page and by the browser: another one goes on', LIMIT, async () => {
  const found = await onPage(async () => {
    const engine = await rillm.Engine.load(MODEL, { onEvent: (event) => events.push(event) });
    const wanted = textOf(await engine.completions.create(BOAT));
    const texts = [];
    for (const how of ['terminate', 'the browser']) {
      const stream = await engine.completions.create({ ...BOAT, stream: true });
      const first = await stream.next();
      const waiting = engine.completions.create(BOAT);
      kill(how, [workers.pop()]);
      const rest = await collect(stream);
      texts.push([first.value, ...rest].map(({ choices }) => choices[0]?.text ?? '').join(''), ...textOf(await waiting));
    }
    await engine.dispose();
    return { wanted, texts, events: events.map(({ type, code }) => code ?? type) };
  });
  assert.deepEqual(found.texts, Array(4).fill(found.wanted[0]));
  assert.deepEqual(found.events, Array(2).fill(['worker_lost', 'recovering', 'recovered']).flat());
});

test('a wasm that traps, on the page and in a worker: what began then ends, and answers under way go on', LIMIT, async () => {
  for (const isInWorker of [true, false]) {
    const found = await onPage(
      async (isInWorker) => {
        const { Engine } = await import('/trap/dist/index.js');
        let traps = 1;
        const worker = isInWorker && (() => new Worker(`/trap/dist/worker.js?traps=${traps--}`, { type: 'module' }));
        globalThis.traps = 1;
        const engine = await Engine.load(MODEL, lossy(false, { worker, maxSequences: 3 }));
        const wanted = textOf(await engine.completions.create(BOAT))[0];
        const codes = () => events.splice(0).map(({ type, code }) => code ?? type);
        const read = async (begin) => {
          const stream = await engine.completions.create({ ...BOAT, stream: true });
          const first = await stream.next();
          const failed = failure(begin());
          const text = [first.value, ...(await collect(stream))].map(({ choices }) => choices[0]?.text ?? '').join('');
          return [text === wanted, (await failed).code, codes()];
        };
        const found = [
          await read(() => engine.forward([1, 2, 3])),
          await read(() => engine.completions.create({ ...BOAT, prompt: 'trap' })),
          (await engine.forward([1, 2, 3])).shape[0],
        ];
        await engine.dispose();
        return found;
      },
      isInWorker,
      { allowed: [/unreachable in rillm/] },
    );
    const wentOn = [true, 'internal', ['internal', 'recovering', 'recovered']];
    assert.deepEqual(found, [wentOn, wentOn, 3]);
  }
});

test("tabs that share an engine go on when the leader's GPU is lost", LIMIT, async () => {
  const found = await onPage(async () => {
    const options = lossy(true);
    const [one, two] = [await rillm.Engine.shared(MODEL, options), await rillm.Engine.shared(MODEL, { autotune: 'off' })];
    const wanted = textOf(await two.completions.create(BOAT));
    const asked = [one, two].map((engine) => engine.completions.create(BOAT));
    await after(30);
    lose();
    const texts = (await Promise.all(asked)).flatMap(textOf);
    await Promise.all([one.dispose(), two.dispose()]);
    return { same: texts.every((text) => text === wanted[0]), events: eventTypes() };
  });
  assert.equal(found.same, true);
  assert.deepEqual(found.events, ['leader', ...RECOVERED]);
});

test('a loss while it comes back, an abort of a load that comes back, and a worker that can not be made again', LIMIT, async () => {
  const found = await onPage(async () => {
    const found = {};
    const plan = [
      { command: 'createBuffer', left: 3 },
      { command: 'submit', left: 1 },
    ];
    const engine = await rillm.Engine.load(MODEL, lossy(true, {}, plan));
    found.tokens = (await engine.completions.create(BOAT)).usage.completion_tokens;
    await engine.dispose();
    found.twice = eventTypes();

    const controller = new AbortController();
    const onEvent = ({ type }) => type === 'recovering' && controller.abort(new Error('enough'));
    found.aborted = (await failure(rillm.Engine.load(MODEL, lossy(true, { signal: controller.signal, onEvent }, [plan[0]])))).code;

    const { worker, ...options } = lossy(true);
    let made = 0;
    const once = () => {
      if (made++ > 0) throw new RangeError('one is enough');
      return worker();
    };
    const other = await rillm.Engine.load(MODEL, { ...options, worker: once });
    const asked = failure(other.completions.create({ ...BOAT, max_tokens: 200 }));
    lose();
    found.unmade = await asked;
    found.later = (await failure(other.tokenize('a'))).code;
    await other.dispose();
    return found;
  });
  assert.deepEqual([found.tokens, found.aborted, found.later], [40, 'aborted', 'device_lost']);
  assert.deepEqual(found.twice, ['lost', 'recovering', ...RECOVERED]);
  assert.deepEqual([found.unmade.code, found.unmade.isEngineError], ['device_lost', true]);
  assert.match(found.unmade.message, /could not be loaded again.*one is enough/);
});

test('an answer that would come out otherwise, twice, goes on after what was said', LIMIT, async () => {
  const found = await onPage(async () => {
    const engine = await rillm.Engine.load(MODEL, lossy(true));
    // On each host it chooses other tokens, of one letter each.
    const losses = () => events.filter(({ type }) => type === 'lost').length;
    const logitsProcessor = (logits, { length }) => {
      const wanted = 40 + ((length + 7 * losses()) % 30);
      return logits.map((_, id) => (id === wanted ? 9 : 0));
    };
    const stream = await engine.completions.create({ ...BOAT, n: 2, stream: true }, { logitsProcessor });
    const parts = [];
    for await (const chunk of stream) {
      parts.push(...chunk.choices);
      if (parts.length === 12 || parts.length === 30) lose();
    }
    await engine.dispose();
    const texts = [0, 1].map((index) => parts.filter((part) => part.index === index).map(({ text }) => text));
    return { texts, ends: parts.map(({ finish_reason }) => finish_reason).filter(Boolean), events: eventTypes() };
  });
  assert.deepEqual(found.events, [...RECOVERED, ...RECOVERED]);
  assert.deepEqual(found.ends, ['length', 'length']);
  for (const parts of found.texts) assert.equal(parts.join('').length, 40, parts.join(''));
});

test('vectors, rankings and labels go on, two requests at once, when the GPU or the worker goes away', LIMIT, async () => {
  const found = await onPage(async () => {
    const documents = ['one boat', 'and another', 'no ship'];
    const kinds = {
      '/encoders/bert/': async (engine) => (await engine.embeddings.create({ input: documents })).data.map(({ embedding }) => embedding),
      '/classifiers/bert_reranker/': async (engine) => (await engine.rerank.create({ query: 'a boat', documents })).results,
      '/classifiers/bert_nli/': async (engine) => (await engine.classify.create({ input: documents })).data,
    };
    const found = {};
    for (const [model, ask] of Object.entries(kinds)) {
      const options = lossy(true);
      let worker;
      const engine = await rillm.Engine.load(model, { ...options, worker: () => (worker = options.worker()) });
      const both = async () => JSON.stringify(await Promise.all([ask(engine), ask(engine)]));
      const wanted = await both();
      await loseAt('submit', 1);
      const without = [(await both()) === wanted, eventTypes()];
      const asked = both();
      worker.terminate();
      found[model] = [...without, (await asked) === wanted, eventTypes()];
      await engine.dispose();
    }
    return found;
  });
  assert.equal(Object.keys(found).length, 3);
  for (const [model, ends] of Object.entries(found)) assert.deepEqual(ends, [true, RECOVERED, true, RECOVERED], model);
});

test(
  'drafts by the head of a model: answers go on when the GPU or the worker goes away, and an abort leaves nothing behind',
  LIMIT,
  async () => {
    const found = await onPage(async () => {
      const options = lossy(true, { multiTokenPrediction: true, maxSequences: 3, maxRecoveries: 100 });
      let worker;
      const engine = await rillm.Engine.load('/mtp/qwen3_5/model.gguf', { ...options, worker: () => (worker = options.worker()) });
      const plain = { ...BOAT, max_tokens: 24 };
      const drafted = { ...plain, speculation: { type: 'mtp', max_tokens: 3 } };
      const kinds = [
        plain,
        { ...plain, n: 2, prompt: 'and over' },
        { ...plain, ignore_eos: false, structured_outputs: { regex: '[a-z ]{24}' } },
      ];
      const ask = async (request) => textOf(await engine.completions.create(request));
      const all = (more) => Promise.all(kinds.map((kind) => ask({ ...kind, ...more })));
      const wanted = JSON.stringify(await all({}));
      const check = async (texts) => [JSON.stringify(await texts) === wanted, eventTypes()];
      const { speculation } = drafted;
      const found = { drafts: (await engine.completions.create(drafted)).timings.draft_tokens };
      for (const [command, count] of [
        ['submit', 5],
        ['mapAsync', 4],
      ]) {
        await loseAt(command, count);
        found[command] = await check(all({ speculation }));
      }
      const stream = await engine.completions.create({ ...drafted, stream: true });
      await stream.next();
      const asked = all({ speculation });
      worker.terminate();
      found.worker = await check(asked);
      found.rest = (await collect(stream)).length > 0;
      // While it drafts, and while its prompt waits to hear whether there is room.
      await engine.setSmoothness('frames');
      const before = (await engine.stats()).live_bytes;
      for (const wait of [0, 1, 5, 20, 60]) {
        const controller = new AbortController();
        const aborted = failure(engine.completions.create({ ...drafted, prompt: `${wait} boats` }, { signal: controller.signal }));
        const beside = ask(drafted);
        await after(wait);
        controller.abort();
        const [{ code }, text] = [await aborted, await beside];
        if (!['aborted', 'did not fail'].includes(code) || JSON.stringify([text]) !== JSON.stringify([JSON.parse(wanted)[0]]))
          found.abort = [wait, code, text];
      }
      found.again = await check(all({ speculation }));
      found.grown = (await engine.stats()).live_bytes / before;
      await engine.dispose();
      return found;
    });
    assert.ok(found.drafts > 0);
    for (const name of ['submit', 'mapAsync', 'worker']) assert.deepEqual(found[name], [true, RECOVERED], name);
    assert.deepEqual([found.rest, found.abort, found.again], [true, undefined, [true, []]]);
    assert.ok(found.grown < 1.3, `bytes on the GPU grew by ${found.grown}`);
  },
);

test('drafts by another model: answers go on when the GPU or the worker goes away', LIMIT, async () => {
  const found = await onPage(async () => {
    const options = lossy(true, { draft: '/golden/tied-q4_0.gguf', maxSequences: 3, maxRecoveries: 100 });
    let worker;
    const engine = await rillm.Engine.load(MODEL, { ...options, worker: () => (worker = options.worker()) });
    const kinds = [
      BOAT,
      { ...BOAT, n: 2, prompt: 'and over' },
      { ...BOAT, ignore_eos: false, structured_outputs: { regex: '[a-z ]{24}' } },
    ];
    const speculation = { type: 'draft_model', max_tokens: 4 };
    const all = (more) => Promise.all(kinds.map(async (kind) => textOf(await engine.completions.create({ ...kind, ...more }))));
    const wanted = JSON.stringify(await all({}));
    const check = async (asked) => [JSON.stringify(await asked) === wanted, eventTypes()];
    const found = { without: await check(all({ speculation })) };
    await loseAt('submit', 17);
    found.lost = await check(all({ speculation }));
    const stream = await engine.completions.create({ ...BOAT, max_tokens: 120, speculation, stream: true });
    const [{ value: begun }] = [await stream.next()];
    worker.terminate();
    const rest = await collect(stream);
    const text = [begun, ...rest].map(({ choices }) => choices[0]?.text ?? '').join('');
    found.stream = [text === textOf(await engine.completions.create({ ...BOAT, max_tokens: 120 }))[0], eventTypes()];
    const { timings } = await engine.completions.create({ ...BOAT, speculation });
    found.drafts = timings.draft_tokens;
    found.draft = engine.info.draft?.quantization;
    await engine.dispose();
    return found;
  });
  const { without, drafts, draft, ...losses } = found;
  assert.deepEqual(without, [true, []]);
  // The model that drafts was loaded again as well.
  assert.ok(drafts > 0);
  assert.equal(draft, 'Q4_0');
  assert.equal(Object.keys(losses).length, 2);
  for (const [name, ended] of Object.entries(losses)) assert.deepEqual(ended, [true, RECOVERED], name);
});

/** `npm run soak` has 100. */
const LOSSES = process.env.RILLM_SOAK ? 100 : 6;

test(`20 requests at ${LOSSES} losses: as many recoveries, the same texts, and bytes stay`, { timeout: 1_200_000 }, async () => {
  const found = await onPage(async (losses) => {
    const engine = await rillm.Engine.load(MODEL, lossy(true, { maxRecoveries: 1000, maxSequences: 4 }));
    const requests = Array.from({ length: 20 }, (_, at) => ({
      ...BOAT,
      prompt: `Boat ${at} goes`,
      max_tokens: 20 + at,
      ...(at % 2 ? { temperature: 1.1, seed: at } : {}),
    }));
    const wanted = await Promise.all(requests.map(async (request) => textOf(await engine.completions.create(request))[0]));
    const before = await engine.stats();
    let over = false;
    const losing = (async () => {
      for (let loss = 0; loss < losses; loss++) {
        const recovered = events.filter(({ type }) => type === 'recovered').length;
        loseAt('submit', 3 + ((loss * 7) % 11));
        while (events.filter(({ type }) => type === 'recovered').length === recovered) {
          if (over) lose();
          await after(5);
        }
      }
    })();
    const texts = await Promise.all(requests.map(async (request) => textOf(await engine.completions.create(request))[0]));
    over = true;
    await losing;
    const again = await Promise.all(requests.map(async (request) => textOf(await engine.completions.create(request))[0]));
    const stats = await engine.stats();
    await engine.dispose();
    return {
      same: texts.every((text, at) => text === wanted[at] && again[at] === wanted[at]),
      recoveries: stats.recoveries,
      bytes: [before.live_bytes, stats.live_bytes],
      heap: [before.wasm_memory_bytes, stats.wasm_memory_bytes],
      ms: events.flatMap(({ ms }) => ms ?? []).sort((a, b) => a - b),
      events: eventTypes(),
    };
  }, LOSSES);
  assert.equal(found.same, true);
  assert.equal(found.recoveries, LOSSES);
  const { bytes, heap, ms } = found;
  if (LOSSES > 10)
    console.log(`bytes on the GPU ${bytes}, in wasm ${heap}; a recovery took ${ms[0]} to ${ms.at(-1)} ms, median ${ms[ms.length >> 1]}`);
  assert.deepEqual(found.events, Array(LOSSES).fill(RECOVERED).flat());
  assert.ok(Math.abs(found.bytes[1] - found.bytes[0]) <= 0.1 * found.bytes[0], String(found.bytes));
});
