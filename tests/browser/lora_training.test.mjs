// Trainings of adapters in pages: what is learnt, in a worker and on the page's thread, beside answers; what is refused; aborts, lost GPUs, and
// checkpoints. That gradients and steps are PyTorch's is held natively; `training_bad_use.test.mjs` has what goes wrong around them.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { openStage } from './browser.mjs';
import { MODEL, OPTIONS, openGame, prepareGame } from './game.mjs';
import { makeLosses, prepareLosses } from './losses.mjs';

const LIMIT = { timeout: 60_000 };

let stage;
before(async () => {
  stage = await openStage();
  makeLosses(stage.made);
});
after(() => stage?.close());

const opened = (allowed) => openGame(stage, { allowed, prepare: [prepareLosses] });

const ofGame = (fn, ...parameters) => stage.runWith({ first: (page) => page.evaluate(prepareGame) }, fn, ...parameters);

test('an engine learns a game, plays it beside its own answers, and its files load again', LIMIT, async () => {
  const got = await ofGame(
    async ([model, options]) => {
      const got = {};
      for (const worker of [true, false]) {
        await withEngine(model, { ...options, worker, maxSequences: 2 }, async (engine) => {
          const before = await said(engine, 'wug?');
          const training = {
            data: game,
            heldOut: [game[0]],
            name: 'game',
            epochs: 12,
            learningRate: 2e-2,
            schedule: 'cosine',
            warmupSteps: 2,
            seed: 7,
          };
          const plan = await engine.train.plan(training);
          const events = [];
          const running = engine.train.lora({ ...training, onProgress: (event) => events.push(event) });
          const beside = await said(engine, 'wug?');
          const trained = await running;
          const answers = { before, beside, wug: await said(engine, 'wug?'), toma: await said(engine, 'toma?') };
          answers.without = await said(engine, 'wug?', { adapters: {} });
          const list = await engine.adapters.list();
          await engine.adapters.setScale('game', 0);
          answers.off = await said(engine, 'wug?');
          await engine.adapters.unload('game');
          const files = {};
          for (const format of ['peft', 'gguf']) {
            const made = trained.files(format);
            files[format] = made.map(({ name, size }) => [name, size > 100]);
            const { rank } = await engine.adapters.load(format === 'gguf' ? made[0] : made, { name: format, scale: 1 });
            files[format].push([rank, await said(engine, 'wug?')]);
            await engine.adapters.unload(format);
          }
          const wrong = await failure(async () => trained.files('onnx'));
          const { adapter, error, losses, heldOut, name } = trained;
          got[worker] = {
            plan,
            events,
            answers,
            list,
            files,
            wrong: wrong.code,
            adapter,
            error,
            losses,
            heldOut,
            name,
            device: engine.info.device,
          };
        });
      }
      return got;
    },
    [MODEL, OPTIONS],
  );
  for (const { plan, events, answers, list, files, wrong, adapter, error, losses, heldOut, name, device } of Object.values(got)) {
    assert.equal(device, 'gpu');
    const [begin, ...rest] = events;
    assert.deepEqual(begin, { type: 'begin', ...plan });
    const { parameters, optimizer, gradients, activations } = plan.memory;
    assert.deepEqual([plan.examples, plan.heldOut, plan.steps], [2, 1, 24]);
    assert.equal(plan.memoryBytes, parameters + optimizer + gradients + activations);
    const steps = rest.filter(({ type }) => type === 'step');
    assert.deepEqual(
      steps.map(({ step }) => step),
      Array.from({ length: 24 }, (_, index) => index + 1),
    );
    assert.deepEqual(
      steps.map(({ loss }) => loss),
      losses,
    );
    assert.deepEqual(
      rest.filter(({ type }) => type === 'held_out').map(({ type: _, ...loss }) => loss),
      heldOut,
    );
    assert.deepEqual([steps[0].learningRate, steps[2].learningRate, heldOut.length], [0, 2e-2, 13]);
    assert.ok(losses[0] > 3 && losses.at(-1) < 0.2 && heldOut.at(-1).loss < 0.2, JSON.stringify([losses, heldOut]));
    assert.notEqual(answers.before, 'dax blick');
    assert.deepEqual([answers.wug, answers.toma], ['dax blick', 'zup']);
    assert.deepEqual([answers.beside, answers.without, answers.off], [answers.before, answers.before, answers.before]);
    assert.deepEqual([name, error, list], ['game', undefined, [adapter]]);
    assert.deepEqual([adapter.name, adapter.rank, adapter.scale, adapter.format], ['game', 8, 1, 'gguf']);
    assert.deepEqual(files.peft, [
      ['adapter_config.json', true],
      ['adapter_model.safetensors', true],
      [8, 'dax blick'],
    ]);
    assert.deepEqual(files.gguf, [
      ['game.gguf', true],
      [8, 'dax blick'],
    ]);
    assert.equal(wrong, 'invalid_request');
  }
  // One seed gives the same, wherever it runs.
  assert.deepEqual(got.true.losses, got.false.losses);
});

test('what is wrong is refused before anything runs', LIMIT, async () => {
  const got = await ofGame(
    async ([model, options]) => {
      const found = {};
      const codes = async (name, work) => (found[name] = (await failure(work)).code);
      await codes('a load on the CPU', () => rillm.Engine.load(model, { ...options, device: 'cpu' }));
      await codes('a shared engine', () => rillm.Engine.shared(model, { training: true }));
      await codes('training: 1', () => rillm.Engine.load(model, { training: 1 }));
      await codes('another module', () =>
        rillm.Engine.load(model, { ...options, trainingWasmModule: new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]) }),
      );
      await withEngine(model, { ...options, training: false, worker: false }, async (engine) => {
        await codes('without training', () => engine.train.lora({ data: game }));
        await codes('a plan without training', () => engine.train.plan({ data: game }));
      });
      let kept;
      await withEngine(model, options, async (engine) => {
        kept = engine.train;
        let events = 0;
        const onProgress = () => (events += 1);
        const user = { role: 'user', content: 'wug?' };
        const cases = {
          none: undefined,
          'no data': {},
          'empty data': { data: [] },
          'data that is no array': { data: 'wug' },
          'a number': { data: [5] },
          'an empty text': { data: [''] },
          'no messages': { data: [{ messages: [] }] },
          'a wrong role': {
            data: [
              {
                messages: [
                  { role: 'bot', content: 'a' },
                  { role: 'assistant', content: 'b' },
                ],
              },
            ],
          },
          'no answer': { data: [{ messages: [user] }] },
          'a function': { data: [() => {}] },
          'too long': { data: ['wug '.repeat(400)] },
          'rank 0': { data: game, rank: 0 },
          'rank 1.5': { data: game, rank: 1.5 },
          'a rank above the matrix': { data: game, rank: 4096 },
          'learningRate NaN': { data: game, learningRate: Number.NaN },
          'learningRate 0': { data: game, learningRate: 0 },
          'epochs 0': { data: game, epochs: 0 },
          'unknown targets': { data: game, targets: ['x_proj'] },
          'targets of numbers': { data: game, targets: [5] },
          'no targets': { data: game, targets: [] },
          'too many targets': { data: game, targets: new Array(2 ** 32 - 1) },
          'too many data': { data: new Array(2 ** 32 - 1) },
          'an unknown schedule': { data: game, schedule: 'step' },
          'an unknown option': { data: game, rate: 1 },
          'an empty name': { data: game, name: '' },
          'heldOut 1': { data: game, heldOut: 1 },
          'maxLength above the context': { data: game, maxLength: 129 },
          'everySteps 0': { data: game, checkpoint: { everySteps: 0 } },
          'a checkpoint without steps': { data: game, checkpoint: {} },
          'a name too long to keep': { data: game, name: 'a'.repeat(121), checkpoint: { everySteps: 1 } },
          'aborted before': { data: game, signal: AbortSignal.abort() },
        };
        for (const [name, training] of Object.entries(cases)) {
          await codes(name, () => engine.train.lora(training && { onProgress, ...training }));
          const planned = await failure(engine.train.plan(training));
          if (planned.code !== found[name] && !/keep$/.test(name)) found[`${name}: a plan`] = planned.code;
        }
        found.events = events;
        // Two at once: the second is refused, and the first goes on.
        const first = engine.train.lora({ ...short, onProgress });
        await codes('a second one', () => engine.train.lora({ ...short, name: 'second' }));
        found.first = (await first).losses.length;
        await codes('a name that is taken', () => engine.train.lora(short));
        const reading = engine.train.lora({ ...short, name: 'third', onProgress: ({ type }) => type === 'step' && engine.dispose() });
        await codes('disposed of meanwhile', () => reading);
      });
      await codes('disposed of', () => kept.lora(short));
      await codes('a plan of what is disposed of', () => kept.plan(short));
      return found;
    },
    [MODEL, OPTIONS],
  );
  const { events, first, ...found } = got;
  assert.deepEqual([events, first], [0, 8]);
  const own = {
    'another module': 'wasm_unavailable',
    'too long': 'context_length_exceeded',
    'a rank above the matrix': 'out_of_range',
    'learningRate 0': 'out_of_range',
    'heldOut 1': 'out_of_range',
    'maxLength above the context': 'out_of_range',
    'aborted before': 'aborted',
    'disposed of meanwhile': 'disposed',
    'disposed of': 'disposed',
    'a plan of what is disposed of': 'disposed',
  };
  for (const [name, code] of Object.entries(found)) assert.equal(code, own[name] ?? 'invalid_request', name);
});

test('an abort ends a training wherever it is, and a checkpoint goes on as if there had been none', LIMIT, async () => {
  const { page, close } = await opened();
  const got = await page.evaluate(
    async ([model, options]) => {
      const outcome = async ({ losses, heldOut, files }) => [
        losses,
        heldOut,
        [...new Uint8Array(await files('gguf')[0].arrayBuffer())].join(),
      ];
      const got = { aborts: [] };
      // A worker hears of it later.
      await withEngine(model, options, async (engine) => {
        const before = await said(engine, 'wug?');
        const controller = new AbortController();
        const onProgress = ({ step }) => step === 1 && controller.abort();
        const { code } = await failure(engine.train.lora({ ...short, epochs: 1000, signal: controller.signal, onProgress }));
        got.aborts.push([code, (await engine.adapters.list()).length, (await said(engine, 'wug?')) === before]);
      });
      await withEngine(model, { ...options, worker: false }, async (engine) => {
        const training = { ...short, heldOut: ['wug dax'], checkpoint: { everySteps: 3 } };
        const before = await said(engine, 'wug?');
        const events = [];
        const whole = await outcome(await engine.train.lora({ ...training, onProgress: ({ type, step }) => events.push([type, step]) }));
        got.kept = events.filter(([type]) => type === 'checkpoint');
        got.left = await engine.train.checkpoints.list();
        await engine.adapters.unload('game');
        const abortedAt = async (type, step, more) => {
          const controller = new AbortController();
          const onProgress = (event) => event.type === type && (step === undefined || event.step === step) && controller.abort();
          const { code } = await failure(engine.train.lora({ ...training, ...more, signal: controller.signal, onProgress }));
          return [code, (await engine.adapters.list()).length, (await said(engine, 'wug?')) === before];
        };
        got.aborts.push(await abortedAt('begin'), await abortedAt('held_out'), await abortedAt('step', 2));
        got.none = await engine.train.checkpoints.list();
        got.aborts.push(await abortedAt('step', 5));
        const [{ name, bytes, created }] = await engine.train.checkpoints.list();
        const { checkpoint_bytes } = await rillm.models.usage();
        got.list = [name, checkpoint_bytes === bytes && bytes > 1000, Math.abs(Date.now() / 1000 - created) < 60];
        got.other = (await failure(engine.train.lora({ ...training, resume: true, rank: 4 }))).code;
        const resumed = [];
        const again = await engine.train.lora({ ...training, resume: true, onProgress: (event) => resumed.push(event) });
        got.resumed = resumed.filter(({ type }) => ['resumed', 'step'].includes(type)).map(({ type, step }) => `${type} ${step}`);
        const outcomeAgain = await outcome(again);
        got.same = JSON.stringify(outcomeAgain) === JSON.stringify(whole);
        got.steps = whole[0].length;
        await engine.adapters.unload('game');
        // With nothing kept it begins.
        got.begun = (await engine.train.lora({ ...training, checkpoint: undefined, resume: true })).losses.length;
        await engine.adapters.unload('game');
        got.aborts.push(await abortedAt('step', 4));
        got.deleted = [await engine.train.checkpoints.delete('game'), await engine.train.checkpoints.delete('game')];
      });
      return got;
    },
    [MODEL, OPTIONS],
  );
  assert.deepEqual(got.kept, [
    ['checkpoint', 3],
    ['checkpoint', 6],
  ]);
  assert.deepEqual([got.left, got.none, got.list], [[], [], ['game', true, true]]);
  assert.deepEqual(
    got.aborts,
    got.aborts.map(() => ['aborted', 0, true]),
  );
  assert.equal(got.other, 'checkpoint_mismatch');
  assert.deepEqual(got.resumed, ['resumed 3', 'step 4', 'step 5', 'step 6', 'step 7', 'step 8']);
  assert.deepEqual([got.same, got.steps, got.begun, got.deleted], [true, 8, 8, [true, false]]);
  await close();
});

test(
  'a training that loses its GPU or its worker says so, and goes on from its checkpoint; the adapter outlives later losses',
  LIMIT,
  async () => {
    for (const worker of [true, false]) {
      const { page, close } = await opened();
      const got = await page.evaluate(
        async ([model, options, worker]) => {
          const workers = [];
          const own = lossy(worker, { ...options, maxRecoveries: 20 });
          const make = () => workers[workers.push(own.worker()) - 1];
          const engine = await rillm.Engine.load(model, { ...own, worker: worker && make });
          const before = await said(engine, 'wug?');
          const long = { ...short, epochs: 10 };
          const whole = await engine.train.lora(long);
          await engine.adapters.unload('game');
          const training = { ...long, checkpoint: { everySteps: 2 }, resume: true };
          const lostAt = async (step, act) => {
            let acting;
            const onProgress = (event) => {
              // What comes while a state is written takes the place of what waits, so not every step is kept.
              if (event.type === 'checkpoint' && event.step >= step) acting ??= act();
            };
            const { code } = await failure(engine.train.lora({ ...training, onProgress }));
            await acting;
            return [code, (await said(engine, 'wug?')) === before];
          };
          const found = [await lostAt(2, lose)];
          found.push(worker ? await lostAt(4, () => workers.at(-1).terminate()) : await lostAt(4, lose));
          const steps = [];
          const again = await engine.train.lora({ ...training, onProgress: ({ type, step }) => type === 'step' && steps.push(step) });
          const same = JSON.stringify(again.losses) === JSON.stringify(whole.losses);
          const learnt = await said(engine, 'wug?');
          await engine.adapters.setScale('game', 0.5);
          const half = await said(engine, 'wug?');
          await lose();
          const after = [await said(engine, 'wug?'), (await engine.adapters.list()).map(({ name, scale }) => [name, scale])];
          await engine.adapters.setScale('game', 1);
          after.push(await said(engine, 'wug?'));
          await engine.dispose();
          return { found, same, steps, half, learnt, after };
        },
        [MODEL, OPTIONS, worker],
      );
      assert.deepEqual(got.found, [
        ['device_lost', true],
        [worker ? 'worker_lost' : 'device_lost', true],
      ]);
      assert.ok(got.same);
      assert.equal(got.steps.at(-1), 20);
      assert.ok(got.steps[0] >= 5, `it went on with step ${got.steps[0]}`);
      assert.deepEqual(got.after, [got.half, [['game', 0.5]], got.learnt]);
      await close();
    }
  },
);

test('a GPU that is lost in any phase of a training ends it with nothing loaded, and the next one gives the same', LIMIT, async () => {
  const { page, close } = await opened();
  const got = await page.evaluate(
    async ([model, options]) => {
      const counts = { submit: 0, mapAsync: 0 };
      for (const [{ prototype }, name] of [
        [GPUQueue, 'submit'],
        [GPUBuffer, 'mapAsync'],
      ]) {
        const original = prototype[name];
        prototype[name] = function (...args) {
          counts[name] += 1;
          return original.apply(this, args);
        };
      }
      const engine = await rillm.Engine.load(model, lossy(false, { ...options, maxRecoveries: 100 }));
      const before = await said(engine, 'wug?');
      const events = [];
      const onProgress = ({ type }) => events.push([type, counts.submit]);
      const train = () => {
        counts.submit = counts.mapAsync = events.length = 0;
        return engine.train.lora({ ...short, data: [game[0]], heldOut: [game[1]], epochs: 2, onProgress });
      };
      const whole = await train();
      const [all, phases] = [{ ...counts }, [...events]];
      await engine.adapters.unload('game');
      // While the first held-out loss is computed, the last one, and while the files are made.
      const last = phases.at(-1)[1];
      const places = [
        ['submit', phases[1][1] - 1],
        ['submit', last],
        ['submit', Math.round((last + all.submit) / 2)],
        ['mapAsync', all.mapAsync],
      ];
      const found = [];
      for (const place of places) {
        await loseAt(...place);
        const { code } = await failure(train());
        found.push([code, events.length, (await engine.adapters.list()).length, (await said(engine, 'wug?')) === before]);
      }
      const again = await train();
      await engine.dispose();
      const losses = ({ losses, heldOut }) => JSON.stringify([losses, heldOut]);
      return { found, phases: phases.map(([type]) => type), same: losses(whole) === losses(again) };
    },
    [MODEL, OPTIONS],
  );
  assert.deepEqual(got.phases, ['begin', 'held_out', 'step', 'held_out', 'step', 'held_out']);
  assert.deepEqual(
    got.found,
    [1, 5, 6, 6].map((events) => ['device_lost', events, 0, true]),
  );
  assert.ok(got.same);
  await close();
});
