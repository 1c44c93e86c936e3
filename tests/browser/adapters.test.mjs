// Adapters (LoRA) in pages: from addresses and files, in a worker and on the page's thread, named by requests, and after a lost GPU.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { openStage, relativeError, root } from './browser.mjs';
import { serveFaulty } from './faulty_server.mjs';
import { makeLosses, prepareLosses } from './losses.mjs';
import { readNpy } from '../../scripts/rill/npy.mjs';

const LIMIT = { timeout: 120_000 };
const CASE = join(root, 'tests/golden/adapters/llama_q4_0');
const MODEL = '/golden/tied-q4_0.gguf';
const ADAPTER = '/adapters/llama_q4_0/adapter0/';
const { ids } = JSON.parse(readFileSync(join(CASE, 'golden.json'), 'utf8'));
// What is asked for and refused leaves a line in the console.
const REFUSED = { allowed: [/status of 404/] };

let stage;
before(async () => {
  stage = await openStage();
  makeLosses(stage.made);
});
after(() => stage?.close());

test('an adapter from the options of a load, from files, and by name in requests', LIMIT, async () => {
  const got = await stage.run(
    async ([model, adapter, ids]) => {
      const got = {};
      const ask = async (engine, more) => {
        const { choices, usage } = await engine.completions.create({
          prompt: ids,
          max_tokens: 16,
          temperature: 0,
          ignore_eos: true,
          ...more,
        });
        return [choices[0].text, usage.prompt_tokens_details.cached_tokens];
      };
      for (const worker of [true, false]) {
        await withEngine(model, { worker, adapters: [{ source: adapter, name: 'first' }], maxSequences: 2 }, async (engine) => {
          const logits = [...(await (await engine.forward(ids)).readback())];
          const answers = { with: await ask(engine), without: await ask(engine, { adapters: {} }), again: await ask(engine) };
          answers.half = await ask(engine, { adapters: { first: 0.5 } });
          const names = ['adapter_config.json', 'adapter_model.safetensors'];
          const files = names.map(async (name) => new File([await (await fetch(adapter + name)).blob()], name));
          const progress = [];
          const options = { name: 'second', scale: 0, onProgress: ({ loaded, total }) => progress.push([loaded, total]) };
          const loaded = await engine.adapters.load(await Promise.all(files), options);
          await engine.adapters.setScale('first', 0);
          answers.off = await ask(engine);
          await engine.adapters.setScale('second', 1);
          answers.second = await ask(engine);
          const body = JSON.stringify({ prompt: ids, max_tokens: 16, temperature: 0, ignore_eos: true, adapters: { first: 1 } });
          const response = await engine.fetch('http://x/v1/completions', { method: 'POST', body });
          answers.fetched = (await response.json()).choices[0].text;
          const [list, bytes] = [await engine.adapters.list(), (await engine.stats()).memory.adapters];
          await engine.adapters.unload('second');
          answers.unloaded = await ask(engine);
          const left = (await engine.adapters.list()).map(({ name }) => name);
          got[worker] = { logits, answers, loaded, list, bytes, left, progress };
        });
      }
      return got;
    },
    [MODEL, ADAPTER, ids],
  );
  const wanted = readNpy(readFileSync(join(CASE, 'logits.npy'))).data;
  for (const { logits, answers, loaded, list, bytes, left, progress } of Object.values(got)) {
    assert.ok(relativeError(logits, wanted) < 1e-3, `${relativeError(logits, wanted)}`);
    const [text, none] = [answers.with[0], answers.without[0]];
    assert.notEqual(text, none);
    assert.notEqual(answers.half[0], text);
    assert.deepEqual(
      [answers.again, answers.off[0], answers.second[0], answers.fetched, answers.unloaded[0]],
      [[text, ids.length - 1], none, text, text, none],
    );
    // Nobody else's keys and values are reused.
    assert.deepEqual([answers.without[1], answers.half[1]], [0, 0]);
    const targets = ['attn_k', 'attn_output', 'attn_q', 'attn_v', 'ffn_down', 'ffn_gate', 'ffn_up'];
    const first = { name: 'first', scale: 0, rank: 8, format: 'peft', targets, bytes: bytes / 2 };
    assert.deepEqual(list, [first, { ...first, name: 'second', scale: 1 }]);
    assert.deepEqual([loaded, left], [{ ...first, name: 'second' }, ['first']]);
    assert.ok(progress.length > 2 && progress.at(-1)[0] === progress.at(-1)[1], JSON.stringify(progress));
  }
});

test('what is no adapter, an unknown name and an abort leave the engine as it was', LIMIT, async () => {
  const got = await stage.runWith(
    REFUSED,
    async ([model, adapter]) => {
      const found = {};
      const codes = async (name, work) => (found[name] = (await failure(work)).code);
      await codes('a load without a source', () => rillm.Engine.load(model, { adapters: [{}] }));
      await codes('a load with an unknown field', () => rillm.Engine.load(model, { adapters: [{ source: adapter, size: 1 }] }));
      const unreadable = {
        get source() {
          throw new Error('mine');
        },
      };
      for (const [name, adapters] of Object.entries({ unreadable: [unreadable], hole: new Array(1), many: new Array(2 ** 32 - 1) })) {
        await codes(`a load with adapters: ${name}`, () => rillm.Engine.load(model, { adapters }));
      }
      await codes('a load with one that is not there', () => rillm.Engine.load(model, { adapters: [{ source: '/adapters/none/' }] }));
      await codes('a shared engine', () => rillm.Engine.shared(model, { adapters: [{ source: adapter }] }));
      await withEngine(model, {}, async (engine) => {
        const { adapters } = engine;
        for (const value of [5, null, {}, ['a'], Symbol('s')]) {
          await codes(`source ${String(value?.toString?.call(value))}`, () => adapters.load(value));
          await codes(`options ${String(value?.toString?.call(value))}`, () => adapters.load(adapter, { name: value }));
          await codes(`name ${String(value?.toString?.call(value))}`, () => adapters.unload(value));
        }
        for (const scale of [Number.NaN, '1', undefined, 1e300]) await codes(`scale ${scale}`, () => adapters.setScale('a', scale));
        await codes('another model', () => adapters.load('/adapters/llama/adapter0/'));
        await codes('a model', () => adapters.load('/golden/tied-q8_0.gguf'));
        await codes('nothing there', () => adapters.load('/adapters/none/'));
        await codes('an unknown name', () => adapters.setScale('a', 1));
        await codes('an unknown name in a request', () => engine.completions.create({ prompt: 'a', adapters: { a: 1 } }));
        await codes('no object in a request', () => engine.completions.create({ prompt: 'a', adapters: ['a'] }));
        await codes('a Map in a request', () => engine.completions.create({ prompt: 'a', adapters: new Map([['a', 1]]) }));
        await codes('aborted before', () => adapters.load(adapter, { signal: AbortSignal.abort() }));
        const controller = new AbortController();
        const aborted = { name: 'aborted', cache: 'none', signal: controller.signal, onProgress: () => controller.abort() };
        await codes('aborted meanwhile', () => adapters.load(adapter, aborted));
        const [one, two, three] = await Promise.all([
          failure(adapters.load(adapter, { name: 'a' })),
          failure(adapters.load(adapter, { name: 'a' })),
          failure(adapters.load(adapter, { name: 'b' })),
        ]);
        Object.assign(found, { one: one.code, two: two.code, three: three.code });
        found.names = (await adapters.list()).map(({ name }) => name);
        await codes('an infinite scale', () => adapters.setScale('a', 1e300));
        found.kept = adapters;
      });
      const { kept, ...rest } = found;
      const disposed = await failure(kept.load(adapter));
      return { ...rest, disposed: disposed.code };
    },
    [MODEL, ADAPTER],
  );
  const { 'scale 1e+300': unknown, ...found } = got;
  assert.equal(unknown, 'unknown_adapter');
  const own = {
    'a load with one that is not there': /not_found|invalid_file|http/,
    'another model': /adapter_mismatch/,
    'a model': /invalid_file/,
    'nothing there': /not_found|invalid_file|http/,
    'an unknown name': /unknown_adapter/,
    'an unknown name in a request': /unknown_adapter/,
    'aborted before': /aborted/,
    'aborted meanwhile': /aborted/,
    one: /did not fail/,
    three: /did not fail/,
    disposed: /disposed/,
  };
  assert.deepEqual(found.names, ['a', 'b']);
  for (const [name, code] of Object.entries(found)) if (name !== 'names') assert.match(code, own[name] ?? /invalid_request/, name);
});

test('an engine that lost its GPU has its adapters again', LIMIT, async () => {
  for (const worker of [true, false]) {
    const { page, prepare, close } = await stage.openPage();
    await prepare('/rillm/dist/index.js');
    await page.evaluate(prepareLosses);
    const got = await page.evaluate(
      async ([model, adapter, ids, worker]) => {
        const engine = await rillm.Engine.load(model, lossy(worker, { adapters: [{ source: adapter, name: 'a' }] }));
        // Half of a surrogate pair is U+FFFD, here too.
        await engine.adapters.load(adapter, { name: 'b\ud800', scale: 1 });
        await engine.adapters.setScale('b\ud800', 0.25);
        await engine.adapters.load(adapter, { name: 'c\udc00' });
        await engine.adapters.unload('c\udc00');
        const request = { prompt: ids, max_tokens: 40, temperature: 0, ignore_eos: true };
        const ask = async () => (await engine.completions.create(request)).choices[0].text;
        const [wanted, before] = [await ask(), await engine.adapters.list()];
        await loseAt('submit', 6);
        const got = [await ask()];
        const events = eventTypes();
        await lose();
        got.push(await ask());
        const list = await engine.adapters.list();
        await engine.dispose();
        return { wanted, got, before, list, events };
      },
      [MODEL, ADAPTER, ids, worker],
    );
    assert.deepEqual(got.events, ['lost', 'recovering', 'recovered']);
    assert.deepEqual(got.got, [got.wanted, got.wanted]);
    assert.deepEqual(got.list, got.before);
    assert.deepEqual(
      got.list.map(({ name, scale }) => [name, scale]),
      [
        ['a', 1],
        ['b\ufffd', 0.25],
      ],
    );
    await close();
  }
});

test('an answer that a loss begins again keeps the adapters and scales that it began with', LIMIT, async () => {
  const { page, prepare, close } = await stage.openPage();
  await prepare('/rillm/dist/index.js');
  await page.evaluate(prepareLosses);
  const got = await page.evaluate(
    async ([model, adapter, ids]) => {
      const engine = await rillm.Engine.load(model, lossy(true, { maxRecoveries: 20, adapters: [{ source: adapter, name: 'a' }] }));
      const request = { prompt: ids, max_tokens: 96, temperature: 0, ignore_eos: true };
      const ask = async (more) => (await engine.completions.create({ ...request, ...more })).choices[0].text;
      const texts = { with: await ask(), without: await ask({ adapters: {} }), half: await ask({ adapters: { a: 0.5 } }) };
      const { adapters: bytes } = (await engine.stats()).memory;
      /** The text of a stream in whose midst something happens. */
      const streamed = async (act) => {
        let text = '';
        let chunks = 0;
        for await (const { choices } of await engine.completions.create({ ...request, stream: true })) {
          text += choices[0]?.text ?? '';
          if (++chunks !== 2) continue;
          await act();
          await lose();
        }
        return text;
      };
      const found = {};
      found.scaled = await streamed(() => engine.adapters.setScale('a', 0));
      found.after = await ask();
      await engine.adapters.setScale('a', 1);
      found.unloaded = await streamed(() => engine.adapters.unload('a'));
      found.gone = await ask();
      const list = [await engine.adapters.list(), (await engine.stats()).memory.adapters];
      found.loaded = await streamed(() => engine.adapters.load(adapter, { name: 'a' }));
      // Another takes its name.
      found.renamed = await streamed(async () => {
        await engine.adapters.unload('a');
        await engine.adapters.load(adapter, { name: 'a', scale: 0.5 });
      });
      found.half = await ask();
      list.push(
        (await engine.adapters.list()).map(({ name, scale }) => [name, scale]),
        (await engine.stats()).memory.adapters,
      );
      await engine.adapters.setScale('a', 1);
      await loseAt('submit', 6);
      found.named = await ask({ adapters: { a: 1 } });
      await engine.dispose();
      return { texts, found, list, bytes, events: eventTypes() };
    },
    [MODEL, ADAPTER, ids],
  );
  const { texts } = got;
  assert.equal(new Set(Object.values(texts)).size, 3);
  assert.deepEqual(got.found, {
    scaled: texts.with,
    after: texts.without,
    unloaded: texts.with,
    gone: texts.without,
    loaded: texts.without,
    renamed: texts.with,
    half: texts.half,
    named: texts.with,
  });
  // What was loaded again for an answer is gone with it.
  assert.deepEqual(got.list, [[], 0, [['a', 0.5]], got.bytes]);
  assert.deepEqual(got.events, Array(5).fill(['lost', 'recovering', 'recovered']).flat());
  await close();
});

/** What a server does while it sends an adapter: the file at which it stands still, and how far it has come by then. */
const STALLS = [
  ['adapter_config.json', { silent: true }],
  ['adapter_model.safetensors', { after: 20_000, ending: 'silent' }],
];

test(
  'a load of an adapter that stalls is given up, or loses the GPU or the worker: the engine is as it was, or has it',
  LIMIT,
  async () => {
    const names = ['adapter_config.json', 'adapter_model.safetensors'];
    const server = await serveFaulty(Object.fromEntries(names.map((name) => [name, readFileSync(join(CASE, 'adapter0', name))])));
    for (const worker of [true, false]) {
      server.set();
      const { page, prepare, close } = await stage.openPage(REFUSED);
      await prepare('/rillm/dist/index.js');
      await page.evaluate(prepareLosses);
      const [without, wanted] = await page.evaluate(
        async ([model, origin, ids, worker]) => {
          const options = lossy(worker, { maxRecoveries: 20 });
          globalThis.workers = [];
          const remembered = () => {
            workers.push(options.worker());
            return workers.at(-1);
          };
          globalThis.engine = await rillm.Engine.load(model, { ...options, worker: worker && remembered });
          globalThis.ask = async () => {
            const { choices } = await engine.completions.create({ prompt: ids, max_tokens: 8, temperature: 0, ignore_eos: true });
            return choices[0].text;
          };
          globalThis.begin = (more) => {
            globalThis.controller = new AbortController();
            const loading = engine.adapters.load(`${origin}/`, { name: 'a', cache: 'none', signal: controller.signal, ...more });
            globalThis.ended = loading.then(
              ({ name }) => name,
              ({ code }) => code,
            );
          };
          const without = await ask();
          begin();
          await ended;
          const wanted = await ask();
          await engine.adapters.unload('a');
          return [without, wanted];
        },
        [MODEL, server.origin, ids, worker],
      );
      assert.notEqual(wanted, without);
      const ways = { aborted: () => controller.abort(), lost: () => lose(), ...(worker && { killed: () => workers.at(-1).terminate() }) };
      for (const [file, fault] of STALLS) {
        for (const [way, act] of Object.entries(ways)) {
          server.set();
          server.fault(file, fault);
          await page.evaluate(() => begin());
          while (!server.requests.some(({ path }) => path === file)) await page.waitForTimeout(5);
          if (fault.after !== undefined) await page.waitForTimeout(50);
          const began = performance.now();
          await page.evaluate(act);
          const ended = await page.evaluate(() => ended);
          const ms = performance.now() - began;
          const why = `${way} at ${file}, worker: ${worker}`;
          assert.equal(ended, way === 'aborted' ? 'aborted' : 'a', why);
          if (way === 'aborted') assert.ok(ms < 1000, `${why}: ${ms} ms`);
          const [names, text] = await page.evaluate(async () => [(await engine.adapters.list()).map(({ name }) => name), await ask()]);
          assert.deepEqual([names, text], way === 'aborted' ? [[], without] : [['a'], wanted], why);
          if (names.length > 0) await page.evaluate(() => engine.adapters.unload('a'));
        }
      }
      // While its matrices go to the GPU.
      server.set();
      for (const count of [1, 2]) {
        const found = await page.evaluate(async (count) => {
          eventTypes();
          await loseAt('submit', count);
          begin();
          const found = [await ended, await ask(), eventTypes()];
          await engine.adapters.unload('a');
          return found;
        }, count);
        assert.deepEqual(found, ['a', wanted, ['lost', 'recovering', 'recovered']], `submit ${count}, worker: ${worker}`);
      }
      // A silence that is short enough to be tried again.
      server.fault('adapter_model.safetensors', { after: 20_000, ending: 'silent' });
      assert.equal(await page.evaluate(() => (begin({ stallTimeoutMs: 200 }), ended)), 'a');
      assert.equal(await page.evaluate(() => ask()), wanted);
      await page.evaluate(() => engine.adapters.unload('a'));
      // One stands still, and others wait for it: one gives up, and the rest hear of the end of the engine.
      server.set();
      server.fault('adapter_config.json', { silent: true, always: true });
      const codes = await page.evaluate(async () => {
        const loads = ['a', 'b', 'c'].map((name) => (begin({ name }), ended));
        await after(50);
        const began = performance.now();
        controller.abort();
        const codes = [await loads.pop()];
        await Promise.all([engine.dispose(), engine.dispose()]);
        codes.push(...(await Promise.all(loads)));
        return [codes, performance.now() - began < 3000];
      });
      assert.deepEqual(codes, [['aborted', 'disposed', 'disposed'], true]);
      await close();
    }
    await server.close();
  },
);
