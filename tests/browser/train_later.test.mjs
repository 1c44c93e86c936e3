// An engine that was loaded without what trains gets it later: what it keeps, what waits meanwhile, and what becomes of it if that fails or is given up.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { openStage } from './browser.mjs';
import { makeLosses, prepareLosses } from './losses.mjs';
import { rememberWorkers } from './workers.mjs';

const LIMIT = { timeout: 120_000 };
const MODEL = '/golden/tied-q8_0.gguf';
const OPTIONS = { precision: 'exact', contextLength: 128, autotune: 'off', cache: 'none', maxSequences: 2 };

/** Runs in the page: how an engine is asked, and what it learns. */
function prepareAsking() {
  globalThis.ask = (engine, content, more) =>
    engine.chat.completions.create({ messages: [{ role: 'user', content }], temperature: 0, max_tokens: 12, ignore_eos: true, ...more });
  globalThis.said = async (...args) => (await ask(...args)).choices[0].message.content;
  const messages = [
    { role: 'user', content: 'wug?' },
    { role: 'assistant', content: 'dax blick' },
  ];
  globalThis.lesson = { data: [{ messages }], epochs: 1, name: 'game', seed: 3 };
}

let stage;
before(async () => {
  stage = await openStage();
  makeLosses(stage.made);
});
after(() => stage?.close());

async function first(page) {
  await page.evaluate(prepareLosses);
  await page.evaluate(prepareAsking);
  await page.evaluate(rememberWorkers);
}

const inPage = (fn, parameter, more) => stage.runWith({ first, ...more }, fn, parameter);

test('it keeps its answers, conversations and adapters, learns, and outlives later losses', LIMIT, async () => {
  const got = await inPage(
    async ([model, options]) => {
      const got = {};
      // An adapter that was loaded before.
      const file = await withEngine(model, { ...options, training: true }, async (engine) => {
        const [file] = (await engine.train.lora({ ...lesson, epochs: 8, learningRate: 2e-2 })).files('gguf');
        return file;
      });
      for (const worker of [true, false]) {
        const engine = await rillm.Engine.load(model, lossy(worker, options));
        await engine.adapters.load(file, { name: 'before', scale: 0.5 });
        const whole = await said(engine, 'wug?', { max_tokens: 60 });
        const early = [engine.train.isEnabled, await failure(engine.train.lora(lesson)), await failure(engine.train.plan(lesson))];
        const { id } = await engine.responses.create({ input: 'toma?', temperature: 0, max_output_tokens: 6 });
        const tensor = await engine.forward([1, 2, 3]);
        const stream = await ask(engine, 'wug?', { max_tokens: 60, stream: true });
        const pieces = [];
        for await (const { choices } of stream) {
          pieces.push(choices[0].delta.content ?? '');
          if (pieces.length === 2) break;
        }
        const progress = [];
        const told = (list) => (event) => list.push(event.phase);
        const running = [];
        const again = await ask(engine, 'wug?', { max_tokens: 60, stream: true });
        const read = (async () => {
          for await (const { choices } of again) running.push(choices[0].delta.content ?? '');
        })();
        const idle = [];
        const [, , meanwhile] = await Promise.all([
          engine.train.enable({ onProgress: told(progress) }),
          engine.train.enable({ onProgress: told(idle) }),
          said(engine, 'wug?', { max_tokens: 60 }),
        ]);
        await read;
        await engine.train.enable();
        const kept = {
          answers: [running.join('') === whole, meanwhile === whole, (await said(engine, 'wug?', { max_tokens: 60 })) === whole],
          adapters: (await engine.adapters.list()).map(({ name, scale }) => [name, scale]),
          response: (await engine.responses.create({ previous_response_id: id, input: 'wug?', max_output_tokens: 4 })).status,
          tensor: (await failure(tensor.readback())).code,
          events: eventTypes(),
          recoveries: (await engine.stats()).recoveries,
          isEnabled: engine.train.isEnabled,
        };
        const { losses } = await engine.train.lora(lesson);
        await lose();
        const answer = await said(engine, 'wug?', { max_tokens: 60, adapters: { before: 0.5 } });
        const later = [
          answer === whole,
          (await engine.train.plan(lesson)).steps,
          (await engine.adapters.list()).map(({ name }) => name),
          eventTypes(),
        ];
        await engine.dispose();
        got[worker] = { early, progress, idle, kept, losses: losses.length, later, device: engine.info.device };
      }
      return got;
    },
    [MODEL, OPTIONS],
  );
  for (const { early, progress, idle, kept, losses, later, device } of Object.values(got)) {
    const [isEnabled, ...refused] = early;
    assert.equal(isEnabled, false);
    for (const { code, message } of refused) {
      assert.equal(code, 'invalid_request');
      assert.match(message, /engine\.train\.enable\(\)/);
    }
    assert.equal(progress.at(-1), 'ready');
    assert.deepEqual(idle, []);
    assert.deepEqual(kept, {
      answers: [true, true, true],
      adapters: [['before', 0.5]],
      response: 'incomplete',
      tensor: 'device_lost',
      events: [],
      recoveries: 0,
      isEnabled: true,
    });
    assert.deepEqual([losses, device], [1, 'gpu']);
    assert.deepEqual(later, [true, 1, ['before', 'game'], ['lost', 'recovering', 'recovered']]);
  }
});

test('what fails or is given up leaves the engine as it was, and can be asked for again', LIMIT, async () => {
  const got = await inPage(
    async ([model, options]) => {
      const found = {};
      const code = async (name, work) => (found[name] = (await failure(work)).code);
      const bytes = new Uint8Array(await (await fetch(model)).arrayBuffer());
      let faults = 0;
      const source = {
        name: 'tied-q8_0.gguf',
        size: bytes.length,
        async read(offset, length) {
          if (faults > 0) {
            faults -= 1;
            throw new Error('the disk is gone');
          }
          return bytes.slice(offset, offset + length);
        },
      };
      for (const worker of [true, false]) {
        const at = (name) => `${name}, worker: ${worker}`;
        const own = { ...options, device: 'gpu', worker };
        await withEngine(source, own, async (engine) => {
          const answer = await said(engine, 'wug?');
          const same = async (name) => (found[at(name)] = (await said(engine, 'wug?')) === answer && engine.train.isEnabled);
          await code(at('an unknown option'), engine.train.enable({ rate: 1 }));
          await code(at('a number'), engine.train.enable(5));
          await code(at('aborted before'), engine.train.enable({ signal: AbortSignal.abort() }));
          const controller = new AbortController();
          const onProgress = () => controller.abort();
          await code(at('aborted meanwhile'), engine.train.enable({ signal: controller.signal, onProgress }));
          await same('after an abort');
          faults = 1;
          await code(at('a fault'), engine.train.enable());
          await same('after a fault');
          found[at('the faults')] = faults;
          await engine.train.enable({
            onProgress: () => {
              throw new Error('this is the caller');
            },
          });
          await same('in the end');
          found[at('learnt')] = (await engine.train.lora(lesson)).losses.length;
        });
        const gone = await rillm.Engine.load(source, own);
        faults = 1000;
        await code(at('a fault that stays'), gone.train.enable());
        await code(at('an answer after it'), said(gone, 'wug?'));
        faults = 0;
        await gone.dispose();
      }
      const own = { ...options, device: 'gpu' };
      const another = new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]);
      await withEngine(model, { ...own, trainingWasmModule: another }, async (engine) => {
        const tensor = await engine.forward([1, 2, 3]);
        await code('another module', engine.train.enable());
        // It was not loaded again.
        found['its tensor'] = (await tensor.readback()).length > 0;
      });
      const ended = await rillm.Engine.load(model, own);
      const enabling = failure(ended.train.enable());
      await ended.dispose();
      found['disposed of meanwhile'] = (await enabling).code;
      await code('disposed of', ended.train.enable());
      await withEngine(model, { ...options, device: 'cpu', worker: false }, async (engine) => {
        await code('a CPU that was asked for', engine.train.enable());
        found['its answer'] = (await said(engine, 'wug?')).length > 0;
      });
      // As it is: the tests' pages make a GPU of it.
      Object.defineProperty(GPUAdapter.prototype, 'info', { get: () => ({ isFallbackAdapter: true, architecture: 'swiftshader' }) });
      await withEngine(model, { ...options, worker: false }, async (engine) => {
        const before = engine.info.device;
        await engine.train.enable();
        found['a CPU that nobody asked for'] = `${before}, then ${engine.info.device}`;
        found['its lesson'] = (await engine.train.lora(lesson)).losses.length;
      });
      const shared = await rillm.Engine.shared(model, {});
      found['is a shared one enabled'] = shared.train.isEnabled;
      await code('a shared one', shared.train.enable());
      await code('a shared one that trains', shared.train.lora(lesson));
      await shared.dispose();
      return found;
    },
    [MODEL, OPTIONS],
    { allowed: [/this is the caller/] },
  );
  const each = {
    'an unknown option': 'invalid_request',
    'a number': 'invalid_request',
    'aborted before': 'aborted',
    'aborted meanwhile': 'aborted',
    'after an abort': false,
    'a fault': 'read',
    'after a fault': false,
    'the faults': 0,
    'in the end': true,
    learnt: 1,
    'a fault that stays': 'device_lost',
    'an answer after it': 'device_lost',
  };
  const wanted = Object.fromEntries(
    [true, false].flatMap((worker) => Object.entries(each).map(([name, code]) => [`${name}, worker: ${worker}`, code])),
  );
  assert.deepEqual(got, {
    ...wanted,
    'another module': 'wasm_unavailable',
    'its tensor': true,
    'disposed of meanwhile': 'disposed',
    'disposed of': 'disposed',
    'a CPU that was asked for': 'invalid_request',
    'its answer': true,
    'a CPU that nobody asked for': 'cpu, then gpu',
    'its lesson': 1,
    'is a shared one enabled': false,
    'a shared one': 'invalid_request',
    'a shared one that trains': 'invalid_request',
  });
});

test('a worker that is ended or a network that stalls meanwhile: an error, and the engine as it was', LIMIT, async () => {
  const got = await inPage(
    async ([model, options]) => {
      const found = {};
      const own = { ...options, device: 'gpu' };
      for (const phase of ['header', 'weights']) {
        await withEngine(model, own, async (engine) => {
          const answer = await said(engine, 'wug?');
          let kills = 1;
          // As the browser ends one that takes too much.
          const onProgress = (event) => {
            if (event.phase === phase && kills-- > 0) kill('the browser', [workers.at(-1)]);
          };
          const { code } = await failure(engine.train.enable({ onProgress }));
          const later = await said(engine, 'wug?');
          const isEnabled = engine.train.isEnabled;
          await engine.train.enable();
          found[phase] = { code, kills, later: later === answer, isEnabled, learnt: (await engine.train.lora(lesson)).losses.length };
        });
      }
      // Bytes that do not come: an abort is heard, and the old engine answers again.
      const bytes = new Uint8Array(await (await fetch(model)).arrayBuffer());
      let stalls = false;
      const source = {
        name: 'tied-q8_0.gguf',
        size: bytes.length,
        read: (offset, length) => (stalls ? new Promise(() => {}) : Promise.resolve(bytes.slice(offset, offset + length))),
      };
      await withEngine(source, own, async (engine) => {
        const answer = await said(engine, 'wug?');
        const controller = new AbortController();
        stalls = true;
        const enabling = failure(engine.train.enable({ signal: controller.signal }));
        const meanwhile = said(engine, 'wug?');
        await new Promise((resolve) => setTimeout(resolve, 300));
        stalls = false;
        const begin = performance.now();
        controller.abort();
        const { code } = await enabling;
        const took = performance.now() - begin;
        found.stalled = { code, isSoon: took < 1000, later: [(await meanwhile) === answer, (await said(engine, 'wug?')) === answer] };
      });
      return found;
    },
    [MODEL, OPTIONS],
  );
  const ended = { code: 'worker_lost', kills: 0, later: true, isEnabled: false, learnt: 1 };
  assert.deepEqual(got, {
    header: ended,
    weights: ended,
    stalled: { code: 'aborted', isSoon: true, later: [true, true] },
  });
});
