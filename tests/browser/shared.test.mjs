// One engine for all tabs: who loads it, who is answered, and what becomes of answers when the tab that runs the model goes.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { golden, openStage, relativeError, root } from './browser.mjs';
import { serveFile } from './file_server.mjs';

// Ten takeovers take 40 s on an idle machine of two cores, and three times that on a busy one.
const LIMIT = { timeout: 300_000 };
/** A load compiles kernels, which takes as long as it takes beside what else runs. */
const SLOW = { timeout: 120_000 };
const MODEL = '/golden/tied-q8_0.gguf';
const model = readFileSync(join(golden, 'tied-q8_0.gguf'));
const FAILED = [/Failed to load resource/, /ERR_/];
/** Fills more than a stream is ahead of its reader. */
const LONG = { prompt: 'The small boat', max_tokens: 200, temperature: 0, ignore_eos: true };
const ENDLESS = { ...LONG, max_tokens: 100_000, context_shift: true };

let stage;
let server;
before(async () => {
  stage = await openStage();
  server = await serveFile(model);
});
after(async () => {
  await server?.close();
  await stage?.close();
});

/** Pages of one browser profile. */
const visiting = (work) =>
  stage.visiting(({ open }) => {
    const prepared = async () => {
      const page = await open();
      await page.evaluate(prepare);
      return page;
    };
    return work({ open: prepared });
  }, FAILED);

/** Runs in the page: what the tests use there. */
async function prepare() {
  globalThis.rillm = await import('/rillm/dist/index.js');
  globalThis.events = [];
  globalThis.share = async (source, options) => {
    globalThis.engine = await rillm.Engine.shared(source, {
      onEvent: (event) => {
        events.push(event);
        globalThis.heard?.(event);
      },
      onWarning: () => {},
      ...options,
    });
    return engine.info;
  };
  globalThis.failure = async (work) => {
    try {
      await (typeof work === 'function' ? work() : work);
    } catch (error) {
      return { code: error.code, message: error.message, isEngineError: error instanceof rillm.EngineError };
    }
    return { code: 'did not fail' };
  };
  /** A stream's texts by choice, with a stop in its middle until `go()`; `read` counts its chunks. */
  globalThis.readSlowly = async (kind, request, stopAt = 5) => {
    const endpoint = kind === 'chat' ? engine.chat.completions : engine.completions;
    const stream = await endpoint.create({ ...request, stream: true });
    const texts = [];
    const finished = [];
    let tokens = 0;
    let usage;
    globalThis.read = 0;
    for await (const chunk of stream) {
      usage ??= chunk.usage;
      // What was asked stays what it was, whatever the page does with it later.
      if (globalThis.read === 0) request.messages?.push({ role: 'user', content: 'And now?' });
      for (const { index, text, delta, token_ids, finish_reason } of chunk.choices) {
        texts[index] = (texts[index] ?? '') + (text ?? delta?.content ?? '');
        tokens += token_ids.length;
        if (finish_reason !== null) finished[index] = finish_reason;
      }
      if (++globalThis.read === stopAt) await new Promise((resolve) => (globalThis.go = resolve));
    }
    return { texts, finished, tokens, counted: usage.completion_tokens };
  };
  globalThis.complete = async (request, options) => (await engine.completions.create(request, options)).choices[0].text;
}

const share = (page, source = MODEL, options = {}) => page.evaluate(([source, options]) => share(source, options), [source, options]);
const complete = (page, request = LONG) => page.evaluate((request) => complete(request), request);
const types = (page) => page.evaluate(() => events.map(({ type }) => type).filter((type) => type !== 'verified'));
const dispose = (page) => page.evaluate(() => engine.dispose());
/** Begins to read an answer; resolves when the reader has stopped in its middle. */
async function reading(page, kind, request) {
  const answer = page.evaluate(([kind, request]) => readSlowly(kind, request), [kind, request]);
  answer.catch(() => {});
  await page.waitForFunction(() => globalThis.read >= 5, undefined, SLOW);
  return {
    finish: async () => {
      await page.evaluate(() => go());
      return answer;
    },
  };
}
/** The end of a worker is heard of a moment after it. */
async function without(workers, why) {
  for (let tries = 0; tries < 1200 && workers() > 0; tries++) await new Promise((resolve) => setTimeout(resolve, 25));
  assert.equal(workers(), 0, why);
}
/** The ways in which a tab goes. */
const WAYS = {
  closed: (page) => page.close(),
  crashed: async (page) => {
    page.goto('chrome://crash').catch(() => {});
    await page.waitForEvent('crash');
    await page.close();
  },
  'put away': (page) => page.evaluate(() => dispatchEvent(new PageTransitionEvent('pagehide', { persisted: true }))),
};

test('three pages that start at once load one engine, and all are answered', LIMIT, async () => {
  await visiting(async ({ open }) => {
    const pages = [await open(), await open(), await open()];
    server.set({ bytes: model, status: undefined, delayMs: 0 });
    server.requests.length = 0;
    const infos = await Promise.all(pages.map((page) => share(page, server.url, { cache: 'none' })));
    assert.ok(infos.every(({ weight_bytes }) => weight_bytes === infos[0].weight_bytes && weight_bytes > 0));
    assert.ok(server.sent() <= model.length, `the weights came once: ${server.sent()} of ${model.length} bytes`);
    const told = (await Promise.all(pages.map(types))).map(String).sort();
    assert.deepEqual(told, ['follower', 'follower', 'leader']);
    const workers = () => pages.reduce((sum, page) => sum + page.workers().length, 0);
    assert.equal(workers(), 1);

    const texts = await Promise.all([complete(pages[0]), complete(pages[1])]);
    assert.ok(texts[0].length > 100 && texts[1] === texts[0]);
    const { texts: streamed, finished, tokens, counted } = await pages[2].evaluate((request) => readSlowly('completion', request, 0), LONG);
    assert.deepEqual([streamed, finished, tokens, counted], [[texts[0]], ['length'], 200, 200]);
    // The counters are one engine's, whoever asks.
    const [before, others] = [await pages[0].evaluate(() => engine.stats()), await pages[1].evaluate(() => engine.stats())];
    assert.deepEqual(others, before);

    const found = await pages[2].evaluate(async () => {
      const ids = await engine.tokenize('The small boat');
      const body = JSON.stringify({ messages: [{ role: 'user', content: 'Hi' }], max_tokens: 4, temperature: 0 });
      const response = await engine.fetch('http://rillm/v1/chat/completions', { method: 'POST', body });
      const first = await engine.responses.create({ input: 'The boat', max_output_tokens: 4, temperature: 0 });
      const next = await engine.responses.create({ input: 'Go on', previous_response_id: first.id, max_output_tokens: 4, temperature: 0 });
      await engine.sync();
      const chat = await engine.chat.completions.create({ messages: [{ role: 'user', content: 'Hi' }], max_tokens: 4, temperature: 0 });
      return {
        text: await engine.detokenize(ids),
        isTyped: ids instanceof Uint32Array,
        status: response.status,
        same: (await response.json()).choices[0].message.content === chat.choices[0].message.content,
        statuses: [first.status, next.status],
        queued: typeof chat.timings.queue_ms,
      };
    });
    assert.deepEqual(found, {
      text: 'The small boat',
      isTyped: true,
      status: 200,
      same: true,
      statuses: ['incomplete', 'incomplete'],
      queued: 'number',
    });

    // A tab may ask for it twice.
    const twins = await pages[2].evaluate(async (url) => {
      const [one, two] = await Promise.all([1, 2].map(() => rillm.Engine.shared(url, { cache: 'none', onWarning: () => {} })));
      const texts = await Promise.all([one, two].map((twin) => twin.tokenize('The small boat')));
      await Promise.all([one.dispose(), one.dispose()]);
      texts.push(await two.tokenize('The small boat'));
      await two.dispose();
      return texts.map(String);
    }, server.url);
    assert.deepEqual(new Set(twins).size, 1);
    assert.equal(workers(), 1);

    // The tab that leads leaves, and goes on for the others.
    const leader = pages[(await Promise.all(pages.map(types))).findIndex(([type]) => type === 'leader')];
    const [other, last] = pages.filter((page) => page !== leader);
    const slow = await reading(other, 'completion', LONG);
    await dispose(leader);
    assert.equal((await leader.evaluate(() => failure(engine.tokenize('x')))).code, 'disposed');
    assert.deepEqual((await slow.finish()).texts, [texts[0]]);
    assert.deepEqual(await types(other), ['follower']);
    await Promise.all([dispose(other), dispose(last)]);
    await last.waitForFunction(async () => (await navigator.locks.query()).held.length === 0);
    await without(workers, 'the engine goes with the last tab');
  });
});

test('requests fail as they do alone, are aborted and given up at any time, and what one tab holds is refused by name', LIMIT, async () => {
  await visiting(async ({ open }) => {
    const [first, second] = [await open(), await open()];
    await share(first);
    await share(second);
    const errors = await second.evaluate(async (model) => {
      const chat = (request, options) =>
        failure(() => engine.chat.completions.create({ messages: [{ role: 'user', content: 'x' }], ...request }, options));
      return {
        temperature: await chat({ temperature: 3 }),
        unknown: await chat({ unknown_field: 1 }),
        streamed: await chat({ stream: true, temperature: 'hot' }),
        long: await failure(() => engine.completions.create({ prompt: 'word '.repeat(400) })),
        embeddings: await failure(() => engine.embeddings.create({ input: 'x' })),
        prompt: await failure(() => engine.completions.create({ prompt: { not: 'a prompt' } })),
        text: await failure(() => engine.tokenize({ toString: () => 'x', method() {} })),
        ids: await failure(() => engine.detokenize([-1])),
        logitsProcessor: await chat({}, { logitsProcessor: () => {} }),
        forward: await failure(() => engine.forward([1])),
        resetStats: await failure(() => engine.resetStats()),
        setProfiling: await failure(() => engine.setProfiling(true)),
        kernelTimes: await failure(() => engine.kernelTimes()),
        file: await failure(async () => rillm.Engine.shared(await (await fetch(model)).blob())),
        source: await failure(() => rillm.Engine.shared({ size: 1, read: () => new Uint8Array(1) })),
        draft: await failure(() => rillm.Engine.shared(model, { draft: new Blob(['x']) })),
        worker: await failure(() => rillm.Engine.shared(model, { worker: 'yes' })),
        cache: await failure(() => rillm.Engine.shared(model, { cache: 'disk' })),
        aborted: await failure(() => rillm.Engine.shared(model, { signal: AbortSignal.abort() })),
      };
    }, MODEL);
    const { long, aborted, ...others } = errors;
    assert.equal(long.code, 'context_length_exceeded');
    assert.equal(aborted.code, 'aborted');
    for (const [name, { code, isEngineError, message }] of Object.entries(others)) {
      assert.deepEqual([code, isEngineError], ['invalid_request', true], `${name}: ${code}: ${message}`);
    }
    for (const name of ['logitsProcessor', 'forward', 'resetStats', 'setProfiling', 'kernelTimes', 'draft', 'worker']) {
      assert.ok(errors[name].message.includes(name), errors[name].message);
    }

    // Aborted before, while they wait and in the middle.
    const before = await second.evaluate(
      (request) => failure(() => engine.completions.create(request, { signal: AbortSignal.abort() })),
      LONG,
    );
    assert.equal(before.code, 'aborted');

    // The other tab has the only place.
    await first.evaluate(async (request) => {
      globalThis.stream = await engine.completions.create({ ...request, stream: true });
      await stream.next();
    }, ENDLESS);
    const waiting = await second.evaluate(async (request) => {
      const [one, two] = [new AbortController(), new AbortController()];
      const waiting = [
        failure(engine.completions.create(request, { signal: one.signal })),
        failure(engine.completions.create({ ...request, stream: true }, { signal: two.signal })),
      ];
      await new Promise((resolve) => setTimeout(resolve, 50));
      one.abort();
      two.abort(new DOMException('too late', 'TimeoutError'));
      return (await Promise.all(waiting)).map(({ code }) => code);
    }, LONG);
    assert.deepEqual(waiting, ['aborted', 'aborted']);
    await first.evaluate(() => stream.return());

    const middle = await second.evaluate(async (request) => {
      const controller = new AbortController();
      const stream = await engine.completions.create({ ...request, stream: true }, { signal: controller.signal });
      const finished = [];
      for await (const { choices } of stream) {
        finished.push(choices[0]?.finish_reason);
        controller.abort();
      }
      const whole = new AbortController();
      setTimeout(() => whole.abort(), 100);
      return [finished.at(-1), (await failure(engine.completions.create(request, { signal: whole.signal }))).code];
    }, ENDLESS);
    assert.deepEqual(middle, ['cancelled', 'aborted']);

    // A tab that dies in the middle gives its place back.
    await second.evaluate(async (request) => {
      const stream = await engine.completions.create({ ...request, stream: true });
      await stream.next();
    }, ENDLESS);
    await WAYS.crashed(second);
    assert.ok((await complete(first)).length > 100);
    // And so does one that leaves.
    const third = await open();
    await share(third);
    const ended = await third.evaluate(async (request) => {
      const stream = await engine.completions.create({ ...request, stream: true });
      await stream.next();
      const waiting = failure(engine.completions.create(request));
      await Promise.all([engine.dispose(), engine.dispose()]);
      return [
        (
          await failure(async () => {
            for await (const _ of stream);
          })
        ).code,
        (await waiting).code,
        (await failure(engine.stats())).code,
      ];
    }, ENDLESS);
    assert.deepEqual(ended, ['disposed', 'disposed', 'disposed']);
    assert.ok((await complete(first)).length > 100);
  });
});

/** A tab that cancels an answer when nobody runs the model, and doesn't wait for the next one. */
async function canceller(page) {
  await share(page);
  await page.evaluate(async (request) => {
    globalThis.stream = await engine.completions.create({ ...request, seed: 5, temperature: 1, stream: true });
    await stream.next();
    // The next tab to run the model is known before it can answer.
    globalThis.cancelled = new Promise((resolve) => {
      globalThis.heard = ({ type }) => {
        if (type === 'follower') resolve(stream.cancel());
      };
    });
  }, LONG);
  return async () => {
    const found = await page.evaluate(async () => {
      await cancelled;
      const ends = [];
      for await (const { choices } of stream) ends.push(...choices.map(({ finish_reason }) => finish_reason));
      return [ends.filter((end) => end !== null), events.filter(({ requests }) => requests > 0)];
    });
    // It may hear of the next one before it has read its end, which took nothing along.
    assert.deepEqual(found, [['cancelled'], []]);
    await page.close();
  };
}

test(
  'ten times the tab that runs the model goes in the middle of an answer, and ten answers are what they are without',
  LIMIT,
  async () => {
    await visiting(async ({ open }) => {
      const messages = [{ role: 'user', content: 'Say something' }];
      const requests = [
        ['completion', LONG],
        ['completion', { ...LONG, temperature: 1, seed: 7 }],
        ['chat', { messages, max_tokens: 200, temperature: 0.8, seed: -3, ignore_eos: true }],
        ['completion', { ...LONG, temperature: 1, seed: 11, n: 2, max_tokens: 150 }],
        ['completion', { ...LONG, temperature: 1, prompt: 'Nobody gave a seed' }],
      ];
      let leader = await open();
      await share(leader);
      const expected = [];
      for (const [kind, request] of requests) {
        expected.push(await leader.evaluate(([kind, request]) => readSlowly(kind, request, 0), [kind, request]));
      }
      for (let round = 0; round < 10; round++) {
        const [kind, request] = requests[round % requests.length];
        const way = Object.keys(WAYS)[round % 3];
        const follower = await open();
        await share(follower);
        const own = round === 2 ? await reading(leader, ...requests[0]) : undefined;
        const slow = await reading(follower, kind, request);
        // Another one waits until it is done.
        const waiting = round === 3 ? complete(follower) : undefined;
        if (waiting !== undefined) await follower.evaluate(() => engine.tokenize('The call was sent'));
        const cancelling = round === 6 ? await canceller(await open()) : undefined;
        await WAYS[way](leader);
        await cancelling?.();
        const answer = await slow.finish();
        if (waiting !== undefined) assert.equal(await waiting, expected[0].texts[0]);
        const wanted = expected[round % requests.length];
        if (request.seed === undefined && request.temperature > 0) answer.texts = wanted.texts;
        assert.deepEqual(answer, wanted, `round ${round}: ${kind}, ${way}`);
        const told = await follower.evaluate(() => events);
        // On a busy machine the one that waits may have had its turn before the tab goes.
        const expectedOpen = waiting === undefined ? [1] : [1, 2];
        assert.deepEqual(
          told.map(({ type }) => type),
          ['follower', 'leader', 'takeover'],
          `round ${round}: ${way}`,
        );
        assert.ok(expectedOpen.includes(told[2].requests), `round ${round}: ${told[2].requests} requests were open`);
        if (way === 'put away') {
          // It comes back, and asks the one that runs the model now.
          await without(() => leader.workers().length, 'the engine goes with its tab');
          await leader.evaluate(() => dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true })));
          if (own !== undefined) assert.deepEqual(await own.finish(), expected[0], 'its own answer goes on too');
          const text = await complete(leader);
          assert.deepEqual([text, (await types(leader)).slice(-2)], [expected[0].texts[0], ['follower', 'takeover']]);
          await leader.close();
        }
        leader = follower;
      }
    });
  },
);

test('a load that fails, or whose tab goes, an engine that breaks, and tabs that are not the same', LIMIT, async () => {
  await visiting(async ({ open }) => {
    const fresh = { cache: 'none', retries: 0, maxRecoveries: 0 };
    const fail = (page) => page.evaluate(([url, options]) => failure(share(url, options)), [server.url, fresh]);
    let [first, second] = [await open(), await open()];
    server.set({ status: 500 });
    assert.deepEqual(
      (await Promise.all([fail(first), fail(second)])).map(({ code }) => code),
      ['http', 'http'],
    );
    // Locks are let go a moment after the calls have failed.
    await first.waitForFunction(async () => (await navigator.locks.query()).held.length === 0);

    // The tab that loads is closed.
    server.set({ status: undefined, delayMs: 400 });
    const stopped = first.evaluate(([url, options]) => failure(share(url, options)), [server.url, fresh]).catch(() => 'closed');
    await first.waitForFunction(() => events.some(({ type }) => type === 'leader'));
    const follows = share(second, server.url, { ...fresh, worker: undefined });
    await second.waitForFunction(() => events.some(({ type }) => type === 'follower'));
    await first.close();
    await stopped;
    server.set({ delayMs: 0 });
    assert.ok((await follows).weight_bytes > 0);
    assert.ok((await types(second)).includes('leader'));
    const text = await complete(second);

    // What others write on the channels is not heard, nor what makes no sense.
    first = await open();
    await first.evaluate(async () => {
      const names = (await navigator.locks.query()).held.map(({ name }) => name);
      const messages = [
        'text',
        null,
        {},
        { rillm: 1, leader: '', message: { type: 'leader' } },
        { rillm: 1, leader: '', message: { type: 'failed', error: { code: 'http', message: 'of another version' } } },
        { rillm: 3, leader: '', message: null },
        { rillm: 3, leader: 5, message: { type: 'bye' } },
        { rillm: 3, leader: 'nobody', message: { type: 'bye' } },
        { rillm: 3, leader: '', message: { type: 'hello', seat: 5 } },
        { rillm: 3, leader: '', message: { type: 'hello', seat: 'without a lock' } },
        { rillm: 3, leader: '', message: { type: 'constructor' } },
      ];
      for (const name of names) {
        const channel = new BroadcastChannel(name);
        for (const message of messages) channel.postMessage(message);
        channel.close();
      }
    });
    assert.equal(await complete(second), text);

    // The next tab can't load it: who waits hears why, and the next call begins anew.
    await first.evaluate(
      ([url, options]) =>
        share(url, { ...options, worker: () => (globalThis.made = new Worker('/rillm/dist/worker.js', { type: 'module' })) }),
      [server.url, fresh],
    );
    const slow = await reading(first, 'completion', LONG);
    server.set({ status: 500 });
    await second.close();
    await assert.rejects(slow.finish(), /answered 500|500/);
    assert.equal((await first.evaluate(() => failure(engine.tokenize('x')))).code, 'http');
    second = await open();
    assert.equal((await fail(second)).code, 'http');
    server.set({ status: undefined });
    assert.equal(await complete(first), text);

    // Other options are another engine, which here does not load.
    server.set({ status: 500 });
    const other = await second.evaluate((url) => failure(share(url, { cache: 'none', retries: 0, contextLength: 64 })), server.url);
    assert.equal(other.code, 'http');
    server.set({ status: undefined });

    // The worker of the tab that runs the model breaks.
    await share(second, server.url, fresh);
    const streaming = second.evaluate(async (request) => {
      const stream = await engine.completions.create({ ...request, stream: true });
      await stream.next();
      globalThis.isStreaming = true;
      const failed = await failure(async () => {
        for await (const _ of stream);
      });
      return [failed, await complete({ ...request, context_shift: false, max_tokens: 200 })];
    }, ENDLESS);
    await second.waitForFunction(() => globalThis.isStreaming);
    await first.evaluate(() => made.dispatchEvent(new ErrorEvent('error', { message: 'broken by a test' })));
    const [failed, again] = await streaming;
    assert.deepEqual([failed.code, failed.isEngineError], ['internal', true], failed.message);
    assert.match(failed.message, /broken by a test/);
    assert.equal(again, text);
    assert.deepEqual((await types(second)).slice(-2), ['leader', 'takeover']);
  });
});

test('embeddings are shared too, and their waiting ends with the signal', LIMIT, async () => {
  await visiting(async ({ open }) => {
    const reference = JSON.parse(readFileSync(join(root, 'tests/golden/encoders/bert/golden.json'), 'utf8'));
    const [first, second] = [await open(), await open()];
    await share(first, '/encoders/bert/model.gguf');
    await share(second, '/encoders/bert/model.gguf');
    const [answer, codes] = await second.evaluate(async (input) => {
      const controller = new AbortController();
      const many = Array.from({ length: 3 }, () => engine.embeddings.create({ input: Array(100).fill(input).flat() }));
      const waiting = failure(engine.embeddings.create({ input }, { signal: controller.signal }));
      controller.abort();
      const codes = [(await waiting).code, (await failure(engine.completions.create({ prompt: 'x' }))).code];
      await Promise.all(many);
      return [await engine.embeddings.create({ input }), codes];
    }, reference.texts);
    assert.deepEqual(codes, ['aborted', 'invalid_request']);
    for (const [n, { embedding }] of answer.data.entries()) assert.ok(relativeError(embedding, reference.vectors[n]) < 1e-4, `text ${n}`);
  });
});

test('where tabs cannot find each other, each has an engine of its own and is told', LIMIT, async () => {
  await visiting(async ({ open }) => {
    const page = await open();
    await page.evaluate(() => Object.defineProperty(navigator, 'locks', { value: undefined }));
    await share(page, MODEL, { contextLength: 64 });
    const [told] = await page.evaluate(() => events);
    assert.match(`${told.type}: ${told.message}`, /^unshared: .*navigator\.locks/);
    assert.ok((await complete(page, { ...LONG, max_tokens: 8 })).length > 0);
    assert.equal(page.workers().length, 1);
    await dispose(page);
  });
});
