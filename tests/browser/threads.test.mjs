// Threads of the CPU: the same answers whatever their number, pages that can't have them, and threads that don't start, break or vanish.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { openStage } from './browser.mjs';

const LIMIT = { timeout: 120_000 };
/** A worker that is no good for a thread that multiplies, and good for all else. */
const NO_HELPER = "addEventListener('message', (event) => event.data.type === 'help' && event.stopImmediatePropagation());\n";
/** A thread that breaks when it wants to sleep, from some milliseconds after its start on. */
const breaksAfter = (ms) => `
  const [sleep, begin] = [Atomics.wait, performance.now()];
  Atomics.wait = (...args) => {
    if (performance.now() - begin >= ${ms}) throw new Error('broken by a test');
    return sleep(...args);
  };
`;

/**
 * Memories that are shared say that they have as many pages of 64 KiB at most, and have `real` ones. There are `count` of them.
 */
const withSmallMemories = (pages, real, count = 99) => `
  {
    const Own = WebAssembly.Memory;
    let left = ${count};
    WebAssembly.Memory = class extends Own {
      constructor(options) {
        if (options.shared && left-- <= 0) throw new RangeError('no more of them');
        super(options.shared ? { ...options, maximum: ${real} } : options);
        if (options.shared) options.maximum = ${pages};
      }
    };
  }
`;
/** Pages of which a model of 15 MB needs several. Of larger models what is worked with is a smaller part. */
const [SMALL, ROOMY] = [110, 400];

/** A thread that is busy for good. */
const HANGS = "addEventListener('message', () => { for (;;); });\n";

let stage;
before(async () => {
  stage = await openStage();
  const worker = "import '/rillm/dist/worker.js';\n";
  writeFileSync(join(stage.made, 'hangs.js'), HANGS);
  writeFileSync(join(stage.made, 'no_helper_first.js'), NO_HELPER);
  writeFileSync(join(stage.made, 'no_helper.js'), `import '/made/no_helper_first.js';\n${worker}`);
  for (const [name, text] of [
    ['small', withSmallMemories(SMALL, ROOMY)],
    ['one_small', withSmallMemories(SMALL, SMALL, 1)],
  ]) {
    writeFileSync(join(stage.made, `${name}_first.js`), text);
    writeFileSync(join(stage.made, `${name}.js`), `import '/made/${name}_first.js';\n${worker}`);
  }
  for (const ms of [0, 1500]) {
    writeFileSync(join(stage.made, `breaks_${ms}_first.js`), breaksAfter(ms));
    writeFileSync(join(stage.made, `breaks_${ms}.js`), `import '/made/breaks_${ms}_first.js';\n${worker}`);
  }
});
after(() => stage.close());

/** Runs in the page before `work`: what the tests of threads use. */
function prepareThreads() {
  globalThis.LONG = { prompt: Array(16).fill('The small boat').join(' '), max_tokens: 40, temperature: 0, ignore_eos: true };
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
  assert.ok(exact[0].length > 20, exact[0]);
  assert.deepEqual(together, Array(4).fill(exact[0]));
  assert.ok(workers >= 10, `${workers} workers`);
});

test('numbers that make no sense are refused, and left out it is a number', LIMIT, async () => {
  const found = await run(async () => {
    const found = [];
    for (const threads of [0, 33, -1, 1.5, NaN, '2', {}, null]) found.push(await failure(onCpu({ threads }, () => {})));
    return { found, given: await onCpu({ threads: undefined }, (engine) => engine.info.threads) };
  });
  for (const { code, message } of found.found) {
    assert.equal(code, 'invalid_request');
    assert.match(message, /threads/);
  }
  assert.ok(found.given >= 1);
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
  const [threads, given] = await page.evaluate(async () => {
    const Own = Worker;
    globalThis.Worker = class extends Own {
      constructor() {
        super('/made/hangs.js');
      }
    };
    const [threads] = await onCpu({ threads: 2, worker: false }, ({ info }) => [info.threads]);
    // It is waited for, for two seconds, and an abort ends that.
    const controller = new AbortController();
    let isSettled = false;
    const loading = failure(onCpu({ threads: 2, worker: false, signal: controller.signal }, () => {}).finally(() => (isSettled = true)));
    await new Promise((resolve) => setTimeout(resolve, 700));
    const wasWaiting = !isSettled;
    controller.abort();
    await new Promise((resolve) => setTimeout(resolve));
    return [threads, { wasWaiting, isSettled, code: (await loading).code }];
  });
  assert.equal(threads, 1);
  assert.deepEqual(given, { wasWaiting: true, isSettled: true, code: 'aborted' });
  await none('after one with a thread that hangs');
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
    let same;
    const again = () => (same ??= new Worker('/rillm/dist/worker.js', { type: 'module' }));
    await onCpu({ threads: 3, worker: again }, told('the same worker again'));
    found.reused = (await failure(onCpu({ worker: again }, () => {}))).code;
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
    'the same worker again': [1, fewer, text],
    reused: 'invalid_request',
    'no shared memory': [1, fewer, text],
    'no shared memory, and nobody asked': [1, [], text],
  });
});

for (const [when, ms] of [
  ['in a load', 0],
  ['later', 1500],
]) {
  test(`a thread that breaks ${when} is a loss that the engine comes back from`, LIMIT, async () => {
    const found = await run(async (ms) => {
      const wanted = await onCpu({ threads: 1 }, (engine) => ask(engine));
      let made = 0;
      // The second is the first thread that helps.
      const worker = () => new Worker(++made === 2 ? `/made/breaks_${ms}.js` : '/rillm/dist/worker.js', { type: 'module' });
      const events = [];
      const use = async (engine) => {
        const texts = [await ask(engine)];
        // A thread that sleeps wakes every second.
        await new Promise((resolve) => setTimeout(resolve, ms === 0 ? 0 : ms + 1200));
        texts.push(await ask(engine));
        return texts;
      };
      const broken = await onCpu({ threads: 2, worker, onEvent: ({ type }) => events.push(type) }, use);
      made = 0;
      const none = await failure(onCpu({ threads: 2, maxRecoveries: 0, worker }, use));
      return { wanted, broken, events: events.filter((type) => ['lost', 'recovered'].includes(type)), none };
    }, ms);
    assert.deepEqual(found.broken, [found.wanted, found.wanted]);
    assert.deepEqual(found.events, ['lost', 'recovered']);
    assert.equal(found.none.code, 'device_lost', found.none.message);
    assert.match(found.none.message, /thread/);
  });
}

test('a thread that vanishes while it has nothing to do is missed by nobody', LIMIT, async () => {
  const [wanted, ...texts] = await run(() =>
    onCpu({ threads: 3 }, async (engine) => {
      const texts = [await ask(engine)];
      for (const at of [-1, -2]) {
        await new Promise((resolve) => setTimeout(resolve, 300));
        started.at(at).terminate();
        texts.push(await ask(engine));
      }
      return texts;
    }),
  );
  assert.deepEqual(texts, [wanted, wanted]);
});

test('threads that are ended in the middle of a prompt: the answer is the same, and none hangs', LIMIT, async () => {
  const [wanted, ...found] = await run(async () => {
    // Long enough that the threads are at work.
    const request = { ...LONG, prompt: Array(50).fill('The old man saw the boat.').join(' '), max_tokens: 4 };
    const withDemo = (options, use) => withEngine('/models/demo/rillm-demo-q8_0.gguf', { device: 'cpu', autotune: 'off', ...options }, use);
    const found = [await withDemo({ threads: 1 }, (engine) => ask(engine, request))];
    for (const [worker, ms, count] of [
      [undefined, 40, 1],
      [false, 120, 2],
    ]) {
      started.length = 0;
      await withDemo({ threads: 3, worker }, async (engine) => {
        const helpers = started.slice(-2);
        const asked = ask(engine, request);
        await new Promise((resolve) => setTimeout(resolve, ms));
        for (const helper of helpers.slice(0, count)) helper.terminate();
        found.push(await asked, await ask(engine, request));
      });
    }
    return found;
  });
  assert.deepEqual(found, Array(4).fill(wanted));
});

/** What a test of memories does in the page: the same with memories as they are, and with small ones in a worker and on the page. */
function prepareMemories() {
  /** Memories that threads were given later. */
  globalThis.given = 0;
  const Own = Worker;
  globalThis.Worker = class extends Own {
    postMessage(message, ...rest) {
      if (message?.type === 'help-more') given += 1;
      super.postMessage(message, ...rest);
    }
  };
  globalThis.withDemo = (options, use) =>
    withEngine('/models/demo/rillm-demo-q8_0.gguf', { device: 'cpu', autotune: 'off', onWarning: () => {}, ...options }, use);
  globalThis.story = async (engine) => {
    const messages = [{ role: 'user', content: 'Tell me a story.' }];
    return (await engine.chat.completions.create({ messages, max_tokens: 24, temperature: 0 })).choices[0].message.content;
  };
  // Long enough that threads keep keys and values.
  globalThis.PROMPT = { ...LONG, prompt: Array(50).fill('The old man saw the boat.').join(' '), max_tokens: 4 };
  globalThis.small = () => new Worker('/made/small.js', { type: 'module' });
}

const runWithMemories = (fn, ...parameters) =>
  stage.runWith(
    {
      first: async (page) => {
        await page.evaluate(prepareThreads);
        await page.evaluate(prepareMemories);
      },
    },
    fn,
    ...parameters,
  );

test('weights in several memories: the same answers, and all threads go where the weights are', LIMIT, async () => {
  const found = await runWithMemories(async () => {
    const both = async (engine) => [await story(engine), await ask(engine, PROMPT), (await engine.stats()).wasm_memory_bytes];
    const found = [];
    for (const precision of ['fast', 'exact']) {
      const [wanted, long] = await withDemo({ precision, threads: 1 }, both);
      for (const threads of [1, 3]) {
        given = 0;
        const [text, prompt, bytes] = await withDemo({ precision, threads, worker: small }, both);
        found.push({ what: `${precision}, ${threads} threads`, same: text === wanted && prompt === long, given, threads, bytes });
      }
    }
    const [wanted] = await withDemo({ threads: 1 }, both);
    // Last, since it stays.
    await import('/made/small_first.js');
    given = 0;
    await withDemo({ threads: 3, worker: false }, async (engine) => {
      const together = await Promise.all([story(engine), story(engine)]);
      found.push({ what: 'on the page', same: together.every((text) => text === wanted), given, threads: 3 });
    });
    return found;
  });
  for (const { what, same, given, threads, bytes } of found) {
    assert.ok(same, what);
    // A memory more for each thread but the engine's, or several.
    assert.equal(given % Math.max(1, threads - 1), 0, `${what}: ${given}`);
    assert.ok(threads === 1 ? given === 0 : given >= threads - 1, `${what}: ${given}`);
    if (bytes !== undefined) assert.ok(bytes > 15e6, `${what}: ${bytes} bytes`);
  }
});

test('in several memories a thread vanishes, another breaks, and where there is no memory more, that is said', LIMIT, async () => {
  const { wanted, vanished, broken, events, failed, after } = await runWithMemories(async () => {
    const wanted = await withDemo({ threads: 1 }, (engine) => ask(engine, PROMPT));
    started.length = 0;
    const vanished = await withDemo({ threads: 3, worker: small }, async (engine) => {
      const asked = ask(engine, PROMPT);
      await new Promise((resolve) => setTimeout(resolve, 60));
      started.at(-1).terminate();
      return [await asked, await ask(engine, PROMPT)];
    });
    // The second worker is the thread that helps: it breaks in the memory in which it sleeps.
    let made = 0;
    const breaking = () => new Worker(++made === 2 ? '/made/breaks_1500.js' : '/made/small.js', { type: 'module' });
    const events = [];
    const broken = await withDemo({ threads: 2, worker: breaking, onEvent: ({ type }) => events.push(type) }, async (engine) => {
      const before = await ask(engine, PROMPT);
      await new Promise((resolve) => setTimeout(resolve, 2700));
      return [before, await ask(engine, PROMPT)];
    });
    const one = () => new Worker('/made/one_small.js', { type: 'module' });
    const failed = await failure(withDemo({ threads: 2, worker: one }, () => {}));
    return {
      wanted,
      vanished,
      broken,
      events,
      failed,
      after: await withDemo({ threads: 2, worker: small }, (engine) => ask(engine, PROMPT)),
    };
  });
  assert.deepEqual(vanished, [wanted, wanted]);
  assert.deepEqual(broken, [wanted, wanted]);
  assert.ok(events.includes('lost') && events.includes('recovered'), events.join());
  assert.equal(failed.code, 'out_of_memory', failed.message);
  assert.equal(after, wanted);
});
