// The engine in WebKit, which runs it on the CPU: answers of the demo model and of the tiny ones against their references, as in the other browsers; what is
// kept, and what is where nothing can be kept; requests of OpenAI's API; aborts in every phase; and the demo page. Where there is no driver it is skipped.

import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { HOW_TO_GET_WEBKIT, webkitDriver } from '../../scripts/webkit.mjs';
import { goldenJson, relativeError, root } from '../browser/browser.mjs';
import { askByClients, bundleClients } from '../browser/clients/clients.mjs';
import { MODEL, NO_MODEL, prompt, testAnswers } from '../browser/demo_answers.mjs';
import { serveFrame } from '../browser/frame.mjs';
import { screenshot } from '../browser/page/stage.mjs';
import { openWebkit } from './stage.mjs';

const TINY = '/golden/tied-q8_0.gguf';
const NO_DRIVER = webkitDriver() === undefined ? `there is no WebKit to drive: ${HOW_TO_GET_WEBKIT}` : false;
const LIMIT = { timeout: 120_000, skip: NO_DRIVER };
const DEMO = { ...LIMIT, skip: NO_DRIVER || NO_MODEL };
/** A file system for pages, which WebKitGTK has and does not switch on. The driver's sessions are private, and there it fails, as in a private window of Safari. */
const FAILING_FILES = ['StorageAPI', 'FileSystem'];

let stage;
before(async () => {
  if (!NO_DRIVER) stage = await openWebkit();
}, LIMIT);
after(() => stage?.close());

// A driver has one browser at a time.
describe('an engine of the demo model', DEMO, () => {
  let demo;
  /** What it told while it was loaded. */
  let told;
  before(async () => {
    if (DEMO.skip) return;
    demo = await stage.openPage();
    told = await demo.run(async (url) => {
      const events = [];
      globalThis.engine = await rillm.Engine.load(url, { maxSequences: 4, onEvent: (event) => events.push(event), onWarning: () => {} });
      globalThis.ask = (request, options) => engine.chat.completions.create({ temperature: 0, max_tokens: 120, ...request }, options);
      const { device, device_reason, precision } = engine.info;
      return { events, device, device_reason, precision, hasGpu: navigator.gpu !== undefined, agent: navigator.userAgent };
    }, `/${MODEL}`);
  }, LIMIT);
  after(async () => {
    await demo?.run(() => engine.dispose());
    await demo?.close();
  });

  test('auto takes the CPU where there is no WebGPU', DEMO, (t) => {
    t.diagnostic(`${demo.session.browser}: ${told.agent}`);
    if (told.hasGpu) return t.skip('this WebKit has WebGPU');
    assert.deepEqual([told.device, told.device_reason, told.precision], ['cpu', 'no_webgpu', 'fast']);
  });

  testAnswers(DEMO, (...args) => demo.run(...args));

  test('a schema is followed, and a tool is called because the request says so', DEMO, async () => {
    const { messages, tools, text } = prompt('tool call');
    const schema = { type: 'object', properties: { pet: { enum: ['duck', 'cat'] } }, required: ['pet'], additionalProperties: false };
    const got = await demo.run(
      async ([messages, tools, pets, schema]) => {
        const response_format = { type: 'json_schema', json_schema: { name: 'pet', strict: true, schema } };
        return {
          calls: (await ask({ messages, tools, tool_choice: 'required' })).choices[0].message.tool_calls,
          json: (await ask({ messages: pets, response_format })).choices[0].message.content,
        };
      },
      [messages, tools, prompt('json').messages, schema],
    );
    const [{ function: called }] = got.calls;
    const wanted = JSON.parse(/<tool_call>\n(.*)\n<\/tool_call>/.exec(text)[1]);
    assert.deepEqual({ name: called.name, arguments: JSON.parse(called.arguments) }, wanted);
    assert.ok(['duck', 'cat'].includes(JSON.parse(got.json).pet), got.json);
  });

  test("OpenAI's requests by engine.fetch, whole and streamed", DEMO, async () => {
    const { messages, text } = prompt('rillm facts');
    const got = await demo.run(async (messages) => {
      const post = (body) =>
        engine.fetch('http://localhost/v1/chat/completions', {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: JSON.stringify({ model: 'any', messages, temperature: 0, max_tokens: 120, ...body }),
        });
      const whole = (await (await post({})).json()).choices[0].message.content;
      const response = await post({ stream: true });
      // WebKit does not iterate over streams.
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let events = '';
      for (let read = await reader.read(); !read.done; read = await reader.read()) events += read.value;
      const lines = events.split('\n\n').filter(Boolean);
      const streamed = lines
        .slice(0, -1)
        .map((line) => JSON.parse(line.replace(/^data: /, '')).choices[0]?.delta.content ?? '')
        .join('');
      const wrong = await post({ messages: 'none' });
      const error = (await wrong.json()).error;
      const type = response.headers.get('content-type');
      return { whole, streamed, last: lines.at(-1), type, wrong: [wrong.status, error.code] };
    }, messages);
    assert.deepEqual(got, {
      whole: text,
      streamed: text,
      last: 'data: [DONE]',
      type: got.type,
      wrong: [400, 'invalid_request'],
    });
    assert.match(got.type, /^text\/event-stream/);
  });

  test('clients of OpenAI’s API say what the engine says, whole and streamed, and call a tool', DEMO, async () => {
    await bundleClients(stage.made);
    await demo.run(async () => {
      const script = Object.assign(document.createElement('script'), { type: 'module', src: '/made/clients/page.js' });
      await new Promise((resolve, reject) => {
        Object.assign(script, { onload: resolve, onerror: () => reject(new Error('the clients are not there')) });
        document.head.append(script);
      });
    });
    const { messages, tools, text } = prompt('tool call');
    const { said, calls } = await demo.run(askByClients, { messages: prompt('rillm facts').messages, tools, calling: messages });
    assert.ok(said[0].length > 0);
    assert.deepEqual(said, Array(7).fill(said[0]));
    assert.deepEqual(calls, [JSON.parse(/<tool_call>\n(.*)\n<\/tool_call>/.exec(text)[1])]);
  });

  test('aborts while it loads, takes a prompt in, waits and answers; what comes after is as ever', DEMO, async () => {
    const { messages, text } = prompt('word work');
    const got = await demo.run(
      async ([messages, url]) => {
        const codes = {};
        const after = (ms) => {
          const controller = new AbortController();
          setTimeout(() => controller.abort(), ms);
          return controller.signal;
        };
        codes.before = (await failure(rillm.Engine.load(url, { signal: AbortSignal.abort() }))).code;
        codes.load = (await failure(rillm.Engine.load(`${url}?again`, { signal: after(5) }))).code;
        const long = [{ role: 'user', content: 'word '.repeat(300) }];
        codes.prompt = (await failure(ask({ messages: long }, { signal: after(5) }))).code;
        const busy = Array.from({ length: 4 }, () => ask({ messages, ignore_eos: true, max_tokens: 100 }));
        codes.waiting = (await failure(ask({ messages }, { signal: after(1) }))).code;
        await Promise.all(busy);
        const controller = new AbortController();
        const endless = { messages, ignore_eos: true, max_tokens: 400, stream: true };
        // A stream that has begun ends with a reason.
        for await (const { choices } of await ask(endless, { signal: controller.signal })) {
          if (choices[0]?.delta.content) controller.abort();
          codes.answer = choices[0]?.finish_reason ?? codes.answer;
        }
        let pieces = 0;
        for await (const { choices } of await ask(endless)) {
          if (choices[0]?.delta.content && ++pieces === 2) break;
        }
        return { codes, pieces, text: (await ask({ messages })).choices[0].message.content };
      },
      [messages, `/${MODEL}`],
    );
    const codes = Object.fromEntries(['before', 'load', 'prompt', 'waiting'].map((phase) => [phase, 'aborted']));
    assert.deepEqual(got, { codes: { ...codes, answer: 'cancelled' }, pieces: 2, text });
  });
});

test('in a worker and on the page: greedy tokens of the reference, with both precisions of a model without sense', LIMIT, async () => {
  const { run, close } = await stage.openPage();
  const greedy = goldenJson('tied.greedy.json').Q8_0.slice(0, 8);
  const found = await run(
    async ([url, prompt, max_tokens]) => {
      const found = [];
      for (const worker of [true, false]) {
        const tokens = await withEngine(url, { worker, device: 'cpu', precision: 'exact' }, async (engine) => {
          const { choices } = await engine.completions.create({ prompt, max_tokens, temperature: 0, ignore_eos: true });
          return [...choices[0].token_ids];
        });
        const fast = await withEngine(url, { worker, device: 'cpu', precision: 'fast' }, async (engine) => {
          const { choices } = await engine.completions.create({ prompt, max_tokens: 1, temperature: 0, ignore_eos: true });
          return [...choices[0].token_ids];
        });
        found.push({ tokens, fast });
      }
      return found;
    },
    [TINY, goldenJson('tied.ids.json'), greedy.length],
  );
  for (const { tokens, fast } of found) assert.deepEqual({ tokens, fast }, { tokens: greedy, fast: greedy.slice(0, 1) });
  await close();
});

test(
  'nothing is kept where there is no file system, or where a private window has none, and that is told; a store of the page keeps',
  LIMIT,
  async () => {
    for (const features of process.platform === 'darwin' ? [[]] : [[], FAILING_FILES]) {
      const { run, close } = await stage.openPage({ features });
      const got = await run(async (url) => {
        let requests = 0;
        const { fetch } = globalThis;
        globalThis.fetch = (asked, ...more) => {
          if (String(asked?.url ?? asked).endsWith('.gguf')) requests += 1;
          return fetch(asked, ...more);
        };
        const load = async (options) => {
          const events = [];
          const before = requests;
          const text = await withEngine(
            url,
            { onEvent: ({ type, reason }) => events.push([type, reason]), worker: false, ...options },
            async (engine) => {
              const { choices } = await engine.completions.create({
                prompt: 'The small boat',
                max_tokens: 8,
                temperature: 0,
                ignore_eos: true,
              });
              return choices[0].text;
            },
          );
          return { text, events, asks: requests > before };
        };
        const store = await caches.open('models of the page');
        const address = (key) => `/kept/${encodeURIComponent(key)}`;
        const own = {
          get: async (key) => (await store.match(address(key)))?.blob(),
          put: (key, bytes) => store.put(address(key), new Response(bytes)),
          delete: (key) => store.delete(address(key)),
        };
        return {
          usual: [await load({}), await load({})],
          own: [await load({ cache: own }), await load({ cache: own })],
          list: (await failure(rillm.models.list())).code,
          stored: (await store.keys()).length,
        };
      }, TINY);
      const [first] = got.usual;
      assert.ok(first.text.length > 0);
      const kept = { text: first.text, events: [] };
      const fallback = { text: first.text, events: [['fallback', 'unavailable']], asks: true };
      if (got.list !== 'did not fail') {
        assert.deepEqual(got.usual, [fallback, fallback], String(features));
        assert.equal(got.list, 'cache_unavailable');
      }
      assert.deepEqual(got.own, [
        { ...kept, asks: true },
        { ...kept, asks: false },
      ]);
      assert.ok(got.stored > 0);
      await close();
    }
  },
);

test('embeddings agree with the reference, tensors say that they need WebGPU, and models are recommended for the CPU', LIMIT, async () => {
  const { texts, vectors } = JSON.parse(readFileSync(join(root, 'tests/golden/encoders/bert/golden.json'), 'utf8'));
  const { run, close } = await stage.openPage();
  const got = await run(
    async ([input, url]) => ({
      vectors: await withEngine('/encoders/bert/model.gguf', { device: 'cpu' }, async (engine) =>
        (await engine.embeddings.create({ input })).data.map(({ embedding }) => embedding),
      ),
      gpu: navigator.gpu === undefined ? (await failure(rillm.Engine.load(url, { device: 'gpu' }))).code : 'webgpu_unavailable',
      best: (await rillm.Engine.recommend([url], { device: 'cpu', contextLength: 64 }))[0],
    }),
    [texts, TINY],
  );
  for (const [n, embedding] of got.vectors.entries()) assert.ok(relativeError(embedding, vectors[n]) < 1e-4, `text ${n}`);
  assert.equal(got.gpu, 'webgpu_unavailable');
  assert.ok(got.best.fits && got.best.device === 'cpu' && got.best.tokens_per_s > 1, JSON.stringify(got.best));
  await close();
});

test('a frame in a sandbox, which has no origin: by the CPU in a worker, and nothing is kept', LIMIT, async (t) => {
  const frame = await serveFrame(['cpu']);
  t.after(() => frame.close());
  const { run, close } = await stage.openPage({ url: `${frame.origin}/` });
  const { origin, found } = await run(async () => {
    while (globalThis.told === undefined) await new Promise((resolve) => setTimeout(resolve, 10));
    return globalThis.told;
  });
  assert.equal(origin, 'null');
  const { ids } = found.cpu;
  assert.equal(ids?.length, 4, JSON.stringify(found));
  assert.deepEqual(found.cpu, { ids, device: 'cpu', inWorker: true, events: ['fallback unavailable'] });
  await close();
});

test('the demo page says that the CPU runs models, loads its own and answers, streamed', DEMO, async () => {
  const { session, run, close } = await stage.openPage({ url: `${stage.origin}/` });
  const until = async (what, condition) => {
    for (const end = performance.now() + 60_000; performance.now() < end; ) {
      if (await run(condition)) return;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    assert.fail(`${what}: ${await run(() => document.body.innerText.slice(0, 2000))}`);
  };
  await session.resize({ width: 1280, height: 900 });
  await until('the model is not loaded', () => document.getElementById('model-summary')?.textContent.includes('Loaded in') ?? false);
  // It is gone with the first question.
  const notice = await run(() => document.getElementById('notice').textContent);
  const ask = async (question) => {
    await run((question) => {
      globalThis.lengths = new Set();
      globalThis.before = document.querySelectorAll('.message.assistant').length;
      const answers = () => [...document.querySelectorAll('.message.assistant')].slice(before);
      new MutationObserver(() => lengths.add(answers()[0]?.textContent.length)).observe(document.getElementById('log'), {
        childList: true,
        subtree: true,
        characterData: true,
      });
      const field = document.getElementById('prompt');
      field.value = question;
      field.dispatchEvent(new Event('input', { bubbles: true }));
      document.getElementById('composer').requestSubmit();
    }, question);
    await until('there is no answer', () => document.querySelectorAll('.message.assistant:not([aria-busy])').length > before);
  };
  await ask('What is 12 plus 30?');
  const got = await run(() => ({
    answer: document.querySelector('.message.assistant').textContent,
    hasGpu: navigator.gpu !== undefined,
    isWider: document.documentElement.scrollWidth > document.documentElement.clientWidth,
  }));
  mkdirSync(dirname(screenshot('webkit')), { recursive: true });
  writeFileSync(`${screenshot('webkit')}.png`, await session.picture());
  assert.match(got.answer, /\b42\b/);
  if (!got.hasGpu) assert.match(notice, /gives this page no GPU, so the CPU runs the models/);
  assert.equal(got.isWider, false);
  // A long one: what comes between two frames is shown at once.
  await ask('Tell me a story.');
  const pieces = await run(() => lengths.size);
  assert.ok(pieces > 2, `the answer came in ${pieces} pieces`);
  await close();
});
