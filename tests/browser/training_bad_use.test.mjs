// What goes wrong around trainings in pages: two tabs under one name, a full disk, damaged checkpoints, aborts in each phase, callers that throw, and clocks
// that jump. Nothing is lost, and what comes after works.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { openStage, preparePage } from './browser.mjs';
import { MODEL, OPTIONS, openGame, prepareGame } from './game.mjs';

const LIMIT = { timeout: 60_000 };

let stage;
before(async () => {
  stage = await openStage();
});
after(() => stage?.close());

const opened = (allowed) => openGame(stage, { allowed });

test('a name has one training at a time, of all tabs, and a page that is loaded again goes on', LIMIT, async () => {
  await stage.visiting(async ({ open }) => {
    const opened = async (page) => {
      await page.evaluate(preparePage, '/rillm/dist/index.js');
      await page.evaluate(prepareGame);
      await page.evaluate(async ([model, options]) => void (globalThis.engine = await rillm.Engine.load(model, options)), [MODEL, OPTIONS]);
      return page;
    };
    const [first, second] = await Promise.all([open().then(opened), open().then(opened)]);
    const begin = (page) =>
      page.evaluate(
        () =>
          new Promise((resolve, reject) => {
            globalThis.resumed = 0;
            globalThis.controller = new AbortController();
            const onProgress = ({ type, step }) => {
              if (type === 'resumed') resumed = step;
              if (type === 'checkpoint') resolve(step);
            };
            const options = { ...short, epochs: 1000, checkpoint: { everySteps: 1 }, resume: true };
            globalThis.training = engine.train.lora({ ...options, signal: controller.signal, onProgress });
            training.catch(reject);
          }),
      );
    const kept = await begin(first);
    const got = await second.evaluate(async () => {
      const got = [];
      const training = { ...short, epochs: 1, checkpoint: { everySteps: 1 } };
      got.push(
        await failure(engine.train.lora(training)),
        await failure(engine.train.lora({ ...training, checkpoint: undefined, resume: true })),
      );
      const controller = new AbortController();
      const waiting = failure(engine.train.lora({ ...training, signal: controller.signal }));
      setTimeout(() => controller.abort(), 50);
      got.push(await waiting);
      const trained = [
        await engine.train.lora({ ...training, name: 'other' }),
        await engine.train.lora({ ...training, checkpoint: undefined }),
      ];
      const list = (await engine.train.checkpoints.list()).map(({ name }) => name);
      return { failures: got, trained: trained.map(({ losses }) => losses.length), list };
    });
    assert.deepEqual(
      got.failures.map(({ code }) => code),
      ['invalid_request', 'invalid_request', 'aborted'],
    );
    assert.match(got.failures[0].message, /another training.*"game"/);
    assert.deepEqual([got.trained, got.list], [[2, 2], ['game']]);
    await first.goto(`${stage.origin}/blank/`);
    await opened(first);
    await begin(first);
    const again = await first.evaluate(async () => {
      controller.abort();
      return { resumed, code: (await failure(training)).code };
    });
    assert.ok(again.resumed >= kept, `it went on after step ${again.resumed}, and ${kept} was kept`);
    assert.equal(again.code, 'aborted');
    await Promise.all([first, second].map((page) => page.evaluate(() => engine.dispose())));
  });
});

test(
  'where the browser has no room, the last state that was kept stays; a damaged one, and one of another model, is refused',
  LIMIT,
  async () => {
    const { page, close } = await opened();
    const got = await page.evaluate(
      async ([model, options]) => {
        let isFull = false;
        const { write } = FileSystemWritableFileStream.prototype;
        FileSystemWritableFileStream.prototype.write = function (...args) {
          return isFull ? Promise.reject(new DOMException('the disk is full', 'QuotaExceededError')) : write.apply(this, args);
        };
        const training = { ...short, epochs: 10, checkpoint: { everySteps: 1 }, resume: true };
        const found = { codes: {} };
        await withEngine(model, options, async (engine) => {
          const whole = await engine.train.lora({ ...training, checkpoint: undefined, resume: false });
          await engine.adapters.unload('game');
          const controller = new AbortController();
          const states = [];
          const onProgress = ({ type, step, error }) => {
            if (type !== 'checkpoint') return;
            states.push([step, error?.code, error?.message]);
            isFull = true;
            if (states.length === 3) controller.abort();
          };
          found.aborted = (await failure(engine.train.lora({ ...training, signal: controller.signal, onProgress }))).code;
          isFull = false;
          found.states = states;
          const folder = await (await (await navigator.storage.getDirectory()).getDirectoryHandle('rillm')).getDirectoryHandle(
            'checkpoints',
          );
          const files = [];
          for await (const name of folder.keys()) files.push(name);
          found.files = files.length;
          const handle = await folder.getFileHandle(files[0]);
          const sound = new Uint8Array(await (await handle.getFile()).arrayBuffer());
          const put = async (bytes) => {
            const writable = await handle.createWritable();
            await writable.write(bytes);
            await writable.close();
          };
          const changed = (at) => sound.with(at, sound[at] ^ 1);
          const damaged = {
            empty: sound.slice(0, 0),
            'cut in its header': sound.slice(0, 60),
            'cut in its numbers': sound.slice(0, -100),
            'another beginning': changed(0),
            'another version': changed(8),
            'another length': changed(15),
            'another setting': changed(40),
            'another number': changed(sound.length - 50),
          };
          const refused = async (engine, name) => {
            const { code } = await failure(engine.train.lora(training));
            found.codes[name] = [code, (await engine.train.checkpoints.list()).length];
          };
          for (const [name, bytes] of Object.entries(damaged)) {
            await put(bytes);
            await refused(engine, name);
          }
          await put(sound);
          await withEngine('/golden/tied-f32.gguf', options, (other) => refused(other, 'another model'));
          const events = [];
          const { losses } = await engine.train.lora({ ...training, onProgress: ({ type, step }) => events.push(`${type} ${step}`) });
          found.resumed = events[1];
          found.same = JSON.stringify(losses) === JSON.stringify(whole.losses);
          found.left = (await engine.train.checkpoints.list()).length;
        });
        return found;
      },
      [MODEL, OPTIONS],
    );
    const [[first, ...fine], ...failed] = got.states;
    assert.deepEqual([got.aborted, fine, got.files], ['aborted', [undefined, undefined], 1]);
    for (const [step, code, message] of failed) {
      assert.ok(step > first);
      assert.equal(code, 'cache_unavailable');
      assert.match(message, /has no room/);
    }
    const { 'another model': another, ...damaged } = got.codes;
    assert.deepEqual(another, ['checkpoint_mismatch', 1]);
    for (const [name, found] of Object.entries(damaged)) assert.deepEqual(found, ['invalid_file', 1], name);
    assert.deepEqual([got.resumed, got.same, got.left], [`resumed ${first}`, true, 0]);
    await close();
  },
);

test('an abort in a worker ends a training in each of its phases', LIMIT, async () => {
  const { page, close } = await opened();
  const got = await page.evaluate(
    async ([model, options]) =>
      withEngine(model, options, async (engine) => {
        const before = await said(engine, 'wug?');
        const training = { ...short, heldOut: ['wug dax'], checkpoint: { everySteps: 2 } };
        const found = {};
        const abortedAt = async (name, is, more) => {
          const controller = new AbortController();
          const onProgress = (event) => is(event) && controller.abort();
          const { code } = await failure(engine.train.lora({ ...training, ...more, signal: controller.signal, onProgress }));
          found[name] = [code, (await engine.adapters.list()).length, (await said(engine, 'wug?')) === before];
        };
        await abortedAt('at its beginning', ({ type }) => type === 'begin');
        await abortedAt('while it measures', ({ type }) => type === 'held_out');
        await abortedAt('while its state is kept', ({ type }) => type === 'checkpoint');
        await abortedAt('when it goes on', ({ type }) => type === 'resumed', { resume: true });
        await abortedAt('after its last step', ({ type, step, steps }) => type === 'step' && step === steps);
        await abortedAt('when it has measured all', ({ type, epoch }) => type === 'held_out' && epoch === 4);
        const planned = new AbortController();
        const planning = failure(engine.train.plan({ ...training, signal: planned.signal }));
        planned.abort();
        found.plan = [(await planning).code, 0, true];
        const { losses } = await engine.train.lora({ ...training, resume: true });
        return { found, steps: losses.length, learnt: (await engine.adapters.list()).length };
      }),
    [MODEL, OPTIONS],
  );
  for (const [name, found] of Object.entries(got.found)) assert.deepEqual(found, ['aborted', 0, true], name);
  assert.deepEqual([got.steps, got.learnt], [8, 1]);
  await close();
});

test('halves of characters, a caller that throws, a clock that jumps, and a name that is taken meanwhile', LIMIT, async () => {
  const { page, close } = await opened([/this is the caller/]);
  const got = await page.evaluate(
    async ([model, options]) => {
      const found = {};
      for (const worker of [true, false]) {
        await withEngine(model, { ...options, worker, maxSequences: 2 }, async (engine) => {
          const learnt = async (training) => {
            const { losses } = await engine.train.lora({ epochs: 2, seed: 3, name: 'game', ...training });
            await engine.adapters.unload('game');
            return losses;
          };
          const half = '\u{1f986}'.slice(0, 1);
          const whole = await learnt({ data: ['wug dax \ufffd', 'toma'], heldOut: [{ text: '\ufffd zup' }] });
          const halves = await learnt({ data: [`wug dax ${half}`, 'toma'], heldOut: [{ text: `${half} zup` }] });
          const thrower = () => {
            throw new Error('this is the caller');
          };
          const thrown = await learnt({ data: ['wug dax \ufffd', 'toma'], checkpoint: { everySteps: 1 }, onProgress: thrower });
          const { now } = performance;
          const { now: date } = Date;
          let calls = 0;
          const jump = () => (calls++ % 2 === 0 ? 1e9 : 0);
          performance.now = () => now.call(performance) + jump();
          Date.now = () => date() - 1000 * jump();
          const [jumped, answer] = await Promise.all([
            learnt({ data: ['wug dax \ufffd', 'toma'], checkpoint: { everySteps: 1 } }),
            said(engine, 'wug?'),
          ]);
          delete performance.now;
          Date.now = date;
          const first = await engine.train.lora({ ...short, epochs: 1 });
          await engine.adapters.unload('game');
          let loading;
          const onProgress = ({ type }) => type === 'begin' && (loading = engine.adapters.load(first.files('gguf')[0], { name: 'game' }));
          const second = await engine.train.lora({ ...short, onProgress });
          await loading;
          const files = second.files('gguf').length;
          found[worker] = {
            same: [halves, thrown, jumped].map((losses) => JSON.stringify(losses) === JSON.stringify(whole)),
            steps: whole.length,
            answer: answer === (await said(engine, 'wug?', { adapters: {} })),
            taken: [second.adapter, second.error?.code, files, second.losses.length],
            list: (await engine.adapters.list()).length,
          };
        });
      }
      return found;
    },
    [MODEL, OPTIONS],
  );
  for (const found of Object.values(got)) {
    assert.deepEqual(found, { same: [true, true, true], steps: 4, answer: true, taken: [undefined, 'invalid_request', 1, 8], list: 1 });
  }
  await close();
});
