// Threads of the CPU: the same answers whatever their number, pages that can't have them, and threads that don't start, break or vanish.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { openStage } from './browser.mjs';

const LIMIT = { timeout: 120_000 };
/** A worker that is no good for a thread that multiplies, and good for all else. */
const NO_HELPER = "addEventListener('message', (event) => event.data.type === 'help' && event.stopImmediatePropagation());\n";
/** A thread that breaks as soon as it wants to sleep. */
const BREAKS = "Atomics.wait = () => { throw new Error('broken by a test'); };\n";

let stage;
before(async () => {
  stage = await openStage();
  const worker = "import '/rillm/dist/worker.js';\n";
  writeFileSync(join(stage.made, 'no_helper_first.js'), NO_HELPER);
  writeFileSync(join(stage.made, 'no_helper.js'), `import '/made/no_helper_first.js';\n${worker}`);
  writeFileSync(join(stage.made, 'breaks_first.js'), BREAKS);
  writeFileSync(join(stage.made, 'breaks.js'), `import '/made/breaks_first.js';\n${worker}`);
});
after(() => stage.close());

/** Runs in the page before `work`: what the tests of threads use. */
function prepareThreads() {
  globalThis.LONG = { prompt: Array(60).fill('The small boat').join(' '), max_tokens: 40, temperature: 0, ignore_eos: true };
  globalThis.ask = async (engine, request = LONG, options) => (await engine.completions.create(request, options)).choices[0].text;
  /** All workers that the page starts. */
  globalThis.started = [];
  const Own = Worker;
  globalThis.Worker = class extends Own {
    constructor(...args) {
      super(...args);
      started.push(this);
    }
  };
  globalThis.onCpu = (options, use) =>
    withEngine('/golden/tied-q8_0.gguf', { device: 'cpu', precision: 'exact', onWarning: () => {}, ...options }, use);
  globalThis.codes = ({ info }) => info.warnings.map(({ code }) => code).filter((code) => code !== 'no_chat_template');
}

const run = (fn, ...parameters) => stage.runWith({ first: (page) => page.evaluate(prepareThreads) }, fn, ...parameters);

test('one thread or several: the same answers, in a worker and on the page, one engine or two', LIMIT, async () => {
  const { texts, threads, together, workers } = await run(async () => {
    const [texts, threads] = [[], []];
    for (const options of [
      {},
      { threads: 1 },
      { threads: 2 },
      { threads: 4 },
      { threads: 3, worker: false },
      { threads: 2, precision: 'fast' },
    ]) {
      await onCpu(options, async (engine) => {
        threads.push([engine.info.threads, ...codes(engine)]);
        texts.push(await ask(engine));
      });
    }
    const [fast] = [await onCpu({ precision: 'fast', threads: 1 }, (engine) => ask(engine))];
    texts.push(fast);
    const together = await Promise.all(
      [2, 3].map((threads) => onCpu({ threads, maxSequences: 2 }, (engine) => Promise.all([ask(engine), ask(engine)]))),
    );
    return { texts, threads, together: together.flat(), workers: started.length };
  });
  assert.deepEqual(threads.slice(1), [[1], [2], [4], [3], [2]]);
  const [exact, fast] = [texts.slice(0, 5), texts.slice(5)];
  assert.deepEqual(exact, Array(5).fill(exact[0]));
  assert.deepEqual(fast, Array(2).fill(fast[0]));
  assert.ok(exact[0].length > 40);
  assert.deepEqual(together, Array(4).fill(exact[0]));
  assert.ok(workers >= 10, `${workers} workers`);
});

test('numbers that make no sense are refused, and a GPU has no threads', LIMIT, async () => {
  const found = await run(async () => {
    const found = [];
    for (const threads of [0, 33, -1, 1.5, NaN, '2', {}]) found.push(await failure(onCpu({ threads }, () => {})));
    return {
      found,
      none: [await onCpu({ threads: null }, (engine) => engine.info.threads >= 1), await onCpu({ threads: undefined }, () => true)],
    };
  });
  for (const { code, message } of found.found) {
    assert.equal(code, 'invalid_request');
    assert.match(message, /threads/);
  }
  assert.deepEqual(found.none, [true, true]);
});

test('threads end with their engine, with a load that is given up and with one that fails', LIMIT, async () => {
  const { page, prepare, close } = await stage.openPage();
  await prepare('/rillm/dist/index.js');
  await page.evaluate(prepareThreads);
  const none = async (what) => {
    for (let tries = 0; tries < 400 && page.workers().length > 0; tries++) await new Promise((resolve) => setTimeout(resolve, 25));
    assert.equal(page.workers().length, 0, what);
  };
  await page.evaluate(() => onCpu({ threads: 3 }, (engine) => ask(engine)));
  await none('after an engine in a worker');
  await page.evaluate(() => onCpu({ threads: 3, worker: false }, (engine) => ask(engine)));
  await none('after one on the page');
  const failures = await page.evaluate(async () => {
    const found = [];
    for (const worker of [undefined, false]) {
      for (const ms of [0, 30, 80]) {
        const controller = new AbortController();
        setTimeout(() => controller.abort(), ms);
        found.push((await failure(onCpu({ threads: 3, worker, signal: controller.signal }, () => {}))).code);
      }
      found.push((await failure(onCpu({ threads: 3, worker, contextLength: 100_000_000 }, () => {}))).code);
    }
    return found;
  });
  assert.ok(
    failures.every((code) => ['aborted', 'did not fail', 'out_of_memory', 'invalid_request'].includes(code)),
    failures,
  );
  assert.ok(failures.includes('aborted'), failures);
  await none('after loads that came to nothing');
  await close();
});

test('where threads cannot be, one multiplies, and it is said if more were asked for', LIMIT, async () => {
  const found = await run(async () => {
    const found = {};
    const told = (name) => async (engine) => (found[name] = [engine.info.threads, codes(engine), await ask(engine)]);
    await onCpu({ threads: 1 }, told('one'));
    Object.defineProperty(globalThis, 'crossOriginIsolated', { value: false, configurable: true });
    await onCpu({ threads: 2, worker: false }, told('not isolated'));
    await onCpu({ worker: false }, told('not isolated, and nobody asked'));
    Object.defineProperty(globalThis, 'crossOriginIsolated', { value: true, configurable: true });
    await onCpu({ threads: 3, worker: () => new Worker('/made/no_helper.js', { type: 'module' }) }, told('none starts'));
    let made = 0;
    const first = () => {
      made += 1;
      if (made > 2) throw new Error('no more');
      return new Worker('/rillm/dist/worker.js', { type: 'module' });
    };
    await onCpu({ threads: 3, worker: first }, told('one starts'));
    const { Memory } = WebAssembly;
    WebAssembly.Memory = class extends Memory {
      constructor(options) {
        if (options.shared) throw new RangeError('no memory to share');
        super(options);
      }
    };
    await onCpu({ threads: 2, worker: false }, told('no shared memory'));
    await onCpu({ threads: 1, worker: false }, told('no shared memory, and nobody asked'));
    return found;
  });
  const text = found.one[2];
  const fewer = ['fewer_threads'];
  assert.deepEqual(found, {
    one: [1, [], text],
    'not isolated': [1, fewer, text],
    'not isolated, and nobody asked': [1, [], text],
    'none starts': [1, fewer, text],
    'one starts': [2, fewer, text],
    'no shared memory': [1, fewer, text],
    'no shared memory, and nobody asked': [1, [], text],
  });
});

test(
  'a thread that breaks is a loss that the engine comes back from; one that vanishes while it has nothing to do is missed by nobody',
  LIMIT,
  async () => {
    const found = await run(async () => {
      const wanted = await onCpu({ threads: 1 }, (engine) => ask(engine));
      let made = 0;
      const events = [];
      const breaking = () => new Worker(++made === 2 ? '/made/breaks.js' : '/rillm/dist/worker.js', { type: 'module' });
      const broken = await onCpu({ threads: 2, worker: breaking, onEvent: ({ type }) => events.push(type) }, async (engine) => {
        // It wants to sleep in between.
        const texts = [];
        for (let time = 0; time < 2; time++) {
          await new Promise((resolve) => setTimeout(resolve, 300));
          texts.push(await ask(engine));
        }
        return texts;
      });
      const vanished = await onCpu({ threads: 3 }, async (engine) => {
        const texts = [await ask(engine)];
        await new Promise((resolve) => setTimeout(resolve, 300));
        // The first is the engine's.
        started.at(-1).terminate();
        texts.push(await ask(engine));
        return texts;
      });
      const none = await failure(
        onCpu({ threads: 2, maxRecoveries: 0, worker: ((made = 0), breaking) }, async (engine) => {
          await new Promise((resolve) => setTimeout(resolve, 300));
          await ask(engine);
        }),
      );
      return { wanted, broken, vanished, events: events.filter((type) => ['lost', 'recovered'].includes(type)), none };
    });
    assert.deepEqual(found.broken, [found.wanted, found.wanted]);
    assert.deepEqual(found.vanished, [found.wanted, found.wanted]);
    assert.deepEqual(found.events, ['lost', 'recovered']);
    assert.equal(found.none.code, 'device_lost');
    assert.match(found.none.message, /thread/);
  },
);
