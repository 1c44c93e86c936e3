// A GPU whose memory runs out, in the package in Chromium: createBuffer does not throw then, but hands out a buffer that does not work and tells
// an error scope. The pages here do that beyond a budget.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { openStage } from './browser.mjs';
import { makeLosses, prepareLosses } from './losses.mjs';

const MODEL = '/golden/untied-q8_0.gguf';

let stage;
before(async () => {
  stage = await openStage();
  makeLosses(stage.made);
});
after(() => stage.close());

/** Runs in the page or in a worker: buffers beyond `budget.limit` bytes fail as a browser's do. */
function limitMemory() {
  const budget = { live: 0, limit: Number.POSITIVE_INFINITY, refused: 0 };
  globalThis.budget = budget;
  const { createBuffer, pushErrorScope, popErrorScope, destroy: destroyDevice } = GPUDevice.prototype;
  const { destroy } = GPUBuffer.prototype;
  const scopes = new WeakMap();
  /** Of each device the sizes of its buffers. */
  const held = new WeakMap();
  const owners = new WeakMap();
  const of = (device) => {
    if (!scopes.has(device)) scopes.set(device, []);
    return scopes.get(device);
  };
  GPUDevice.prototype.pushErrorScope = function (filter) {
    of(this).push({ filter });
    return pushErrorScope.call(this, filter);
  };
  GPUDevice.prototype.popErrorScope = async function () {
    const scope = of(this).pop();
    const error = await popErrorScope.call(this);
    return scope?.error ?? error;
  };
  GPUDevice.prototype.createBuffer = function (descriptor) {
    if (budget.live + descriptor.size <= budget.limit) {
      const buffer = createBuffer.call(this, descriptor);
      budget.live += descriptor.size;
      if (!held.has(this)) held.set(this, new Map());
      held.get(this).set(buffer, descriptor.size);
      owners.set(buffer, this);
      return buffer;
    }
    budget.refused += 1;
    pushErrorScope.call(this, 'validation');
    const broken = createBuffer.call(this, { ...descriptor, usage: 0 });
    void popErrorScope.call(this);
    const error = new GPUOutOfMemoryError('the test has no more');
    const scope = of(this).findLast(({ filter }) => filter === 'out-of-memory');
    if (scope === undefined) this.dispatchEvent(new GPUUncapturedErrorEvent('uncapturederror', { error }));
    else scope.error ??= error;
    return broken;
  };
  GPUBuffer.prototype.destroy = function () {
    const sizes = held.get(owners.get(this));
    budget.live -= sizes?.get(this) ?? 0;
    sizes?.delete(this);
    return destroy.call(this);
  };
  // With a device go its buffers.
  GPUDevice.prototype.destroy = function () {
    for (const size of held.get(this)?.values() ?? []) budget.live -= size;
    held.delete(this);
    return destroyDevice.call(this);
  };
}

/** Runs `work` in a page whose GPU has a budget. */
const withBudget = (work, ...args) =>
  stage.runWith(
    { allowed: [/out of memory|no room|\[Invalid|is invalid|validation/i], first: (page) => page.evaluate(limitMemory) },
    work,
    ...args,
  );

test('a load without room is out_of_memory, says what is held, and leaves nothing', async () => {
  const result = await withBudget(async (url) => {
    const failed = [];
    // None for the weights, and none for what comes after them.
    for (const limit of [1000, 200_000]) {
      budget.limit = limit;
      try {
        await withEngine(url, { worker: false, contextLength: 128 }, () => {});
      } catch ({ code, message }) {
        failed.push({ code, message });
      }
    }
    const left = budget.live;
    budget.limit = Number.POSITIVE_INFINITY;
    const answers = await withEngine(url, { worker: false, contextLength: 128 }, async (engine) => {
      const { choices } = await engine.completions.create({ prompt: [5, 60, 7], max_tokens: 4, temperature: 0 });
      return choices.length;
    });
    return { failed, left, refused: budget.refused, answers };
  }, MODEL);
  assert.equal(result.failed.length, 2, JSON.stringify(result));
  for (const { code, message } of result.failed) {
    assert.equal(code, 'out_of_memory', message);
    assert.match(message, /this engine holds [\d.]+ MB/);
  }
  assert.match(result.failed[0].message, /the weights, which needs [\d.]+ MB/);
  assert.ok(result.refused > 0 && result.answers === 1, JSON.stringify(result));
  assert.equal(result.left, 0, 'bytes that were not freed');
});

const FILLING = { max_tokens: 6, temperature: 0, ignore_eos: true };

test('a prompt and a restored session without room fail by themselves, and the engine goes on', async () => {
  const result = await withBudget(
    async ([url, ask]) => {
      const heard = [];
      const options = { worker: false, contextLength: 128, maxSequences: 2, onMemoryPressure: (event) => heard.push(event) };
      return withEngine(url, options, async (engine) => {
        const prompt = (seed, length) => Array.from({ length }, (_, at) => ((at * at * 7 + at * seed + seed) % 250) + 4);
        const answer = async (prompt) => (await engine.completions.create({ ...ask, prompt })).choices[0].text;
        const before = await answer(prompt(3, 60));
        const session = await engine.sessions.save([{ role: 'user', content: 'a boat' }]);
        await engine.sync();
        budget.limit = budget.live;
        const codes = [];
        const attempt = async (work) => {
          try {
            await work();
            codes.push('done');
          } catch ({ code, message }) {
            codes.push(code);
            if (!/this engine holds/.test(message)) codes.push(message);
          }
        };
        await attempt(() => engine.forward(prompt(5, 100)));
        // At once: neither may wait for the other for ever.
        await Promise.all([attempt(() => answer(prompt(6, 110))), attempt(() => answer(prompt(7, 110)))]);
        await attempt(() => engine.sessions.restore(session));
        budget.limit = Number.POSITIVE_INFINITY;
        const { memory } = await engine.stats();
        return { before, again: await answer(prompt(3, 60)), codes, heard, memory };
      });
    },
    MODEL,
    FILLING,
  );
  assert.ok(
    result.codes.every((code) => ['out_of_memory', 'done'].includes(code)),
    JSON.stringify(result.codes),
  );
  assert.ok(result.codes.includes('out_of_memory'), JSON.stringify(result.codes));
  assert.equal(result.again, result.before);
  const actions = result.heard.map(({ action }) => action);
  assert.ok(actions.includes('evicted') && actions.includes('shorter_passes'), JSON.stringify(result.heard));
  for (const event of result.heard) {
    assert.deepEqual(Object.keys(event).sort(), ['action', 'freed_bytes', 'held_bytes', 'message', 'needed_bytes']);
    assert.ok(event.held_bytes > 0 && event.message.length > 0, JSON.stringify(event));
  }
  const { total, peak, unfinished_writes, peak_unfinished_writes, ...owners } = result.memory;
  assert.equal(
    Object.values(owners).reduce((sum, bytes) => sum + bytes),
    total,
    JSON.stringify(result.memory),
  );
  assert.ok(peak >= total && peak_unfinished_writes >= unfinished_writes, JSON.stringify(result.memory));
});

test('a recovery where there is less room takes a shorter context, and info and onWarning say so', async () => {
  const result = await withBudget(async (url) => {
    const file = new Uint8Array(await (await fetch(url)).arrayBuffer());
    const key = new TextEncoder().encode('llama.context_length');
    const at = file.findIndex((_, at) => key.every((byte, i) => file[at + i] === byte));
    new DataView(file.buffer).setUint32(at + key.length + 4, 4096, true);
    const warned = [];
    let recovered = () => {};
    const options = {
      // With `auto` the second loss would move it to the CPU.
      device: 'gpu',
      worker: false,
      onWarning: ({ code }) => warned.push(code),
      onEvent: ({ type }) => type === 'recovered' && recovered(),
    };
    return withEngine(new File([file], 'model.gguf'), options, async (engine) => {
      const answer = async () =>
        (await engine.completions.create({ prompt: [5, 60, 7], max_tokens: 4, temperature: 0, ignore_eos: true })).choices[0].text;
      const loseWithin = async (limit) => {
        budget.limit = limit;
        const again = new Promise((resolve) => (recovered = resolve));
        engine.gpuDevice.destroy();
        await again;
        return { length: engine.info.context_length, text: await answer(), warned: warned.splice(0) };
      };
      const { context_length: length, kv_cache_bytes } = engine.info;
      const found = [{ length, text: await answer(), warned: warned.splice(0) }];
      const within = budget.live - kv_cache_bytes / 2;
      for (const limit of [within, Number.POSITIVE_INFINITY]) found.push(await loseWithin(limit));
      return found;
    });
  }, MODEL);
  const [first, less, again] = result;
  assert.equal(first.length, 4096);
  assert.ok(less.length < 4096 && less.length >= 512, JSON.stringify(result));
  assert.deepEqual(less.warned, ['shorter_context']);
  assert.deepEqual(again, { ...first, warned: [] });
  assert.equal(less.text, first.text);
});

test('onMemoryPressure: what happens in a worker is heard on the page, and what it throws breaks nothing', async () => {
  const result = await stage.runWith(
    { allowed: [/of the listener/, /no room|\[Invalid|is invalid|validation/i] },
    async ([url, limit, ask]) => {
      // What arrives while a module waits for another one is lost, so the worker's is imported first.
      const code = `import '${location.origin}/rillm/dist/worker.js';
        (${limit})();
        new BroadcastChannel('budget').onmessage = ({ data }) => (budget.limit = data === 'full' ? budget.live : Infinity);`;
      const script = URL.createObjectURL(new Blob([code], { type: 'text/javascript' }));
      const workers = [];
      const makeWorker = () => {
        const worker = new Worker(script, { type: 'module' });
        workers.push(worker);
        return worker;
      };
      let onPressure = () => {};
      const heard = [];
      const thrown = [];
      addEventListener('error', (event) => {
        thrown.push(event.message);
        event.preventDefault();
      });
      const options = {
        contextLength: 128,
        worker: makeWorker,
        onMemoryPressure: ({ action }) => {
          heard.push(action);
          onPressure();
          throw new Error('of the listener');
        },
      };
      return withEngine(url, options, async (engine) => {
        const prompt = Array.from({ length: 100 }, (_, at) => at + 20);
        const channel = new BroadcastChannel('budget');
        channel.postMessage('full');
        // The worker hears of it before what is asked next ends.
        await engine.tokenize('a');
        await new Promise((resolve) => setTimeout(resolve, 100));
        const failed = await engine.completions.create({ ...ask, prompt }).then(
          () => undefined,
          ({ code }) => code,
        );
        channel.postMessage('free');
        await new Promise((resolve) => setTimeout(resolve, 100));
        const { usage } = await engine.completions.create({ ...ask, prompt });
        // A worker that is gone while it looks for room: the next one answers, and has room.
        channel.postMessage('full');
        await engine.tokenize('a');
        await new Promise((resolve) => setTimeout(resolve, 100));
        onPressure = () => workers.at(-1).terminate();
        const other = prompt.map((id) => id + 1);
        const again = await engine.completions.create({ ...ask, prompt: other });
        onPressure = () => {};
        const wanted = await engine.completions.create({ ...ask, prompt: other });
        const { recoveries } = await engine.stats();
        const texts = [again, wanted].map(({ choices }) => choices[0].text);
        return { failed, heard, thrown: thrown.length, tokens: usage.completion_tokens, texts, recoveries };
      });
    },
    MODEL,
    `${limitMemory}`,
    FILLING,
  );
  assert.equal(result.failed, 'out_of_memory', JSON.stringify(result));
  assert.ok(result.heard.includes('evicted'), JSON.stringify(result));
  assert.equal(result.thrown, result.heard.length);
  assert.equal(result.tokens, 6);
  assert.equal(result.recoveries, 1);
  assert.equal(result.texts[0], result.texts[1]);
});

/**
 * Runs in the page: what fails there, in an engine of its own for each failure; then a dispose, and another one. What each failure was, and what was
 * left of the engine.
 */
async function failAndDispose([url, worker]) {
  const found = {};
  const made = [];
  const codeOf = (work) => failure(work).then(({ code }) => code);
  const ask = (engine, more) => engine.completions.create({ prompt: [5, 60, 7], max_tokens: 4, temperature: 0, ignore_eos: true, ...more });
  const options = () => {
    const { worker: make, ...others } = lossy(worker, { maxRecoveries: 0, contextLength: 128 });
    const remembered = () => {
      made.push(make());
      return made.at(-1);
    };
    return { ...others, worker: worker ? remembered : false };
  };
  const failures = {
    'refused requests': async (engine) => [
      await codeOf(() => ask(engine, { temperature: 'hot' })),
      await codeOf(() => ask(engine, { prompt: Array(300).fill(5) })),
      await codeOf(() => ask(engine, { prompt: [1e6] })),
      await codeOf(() => engine.adapters.load(url)),
    ],
    'an aborted answer': async (engine) => {
      const controller = new AbortController();
      const asked = codeOf(() =>
        engine.completions.create({ prompt: 'a', max_tokens: 100, ignore_eos: true }, { signal: controller.signal }),
      );
      controller.abort();
      return [await asked];
    },
    'a stream that nobody reads': async (engine) => {
      const stream = await ask(engine, { stream: true, max_tokens: 100 });
      await stream.next();
      return [];
    },
    'a lost device': async (engine) => {
      const asked = codeOf(() => ask(engine, { max_tokens: 100 }));
      await lose();
      return [await asked, await codeOf(() => ask(engine))];
    },
    ...(worker && {
      'a worker that was ended': async (engine) => {
        const asked = codeOf(() => ask(engine, { max_tokens: 100 }));
        made.at(-1).terminate();
        return [await asked, await codeOf(() => ask(engine))];
      },
    }),
    ...(!worker && {
      'no room': async (engine) => {
        budget.limit = budget.live;
        const codes = [await codeOf(() => engine.forward(Array(120).fill(5)))];
        budget.limit = Number.POSITIVE_INFINITY;
        return codes;
      },
    }),
  };
  for (const [name, fail] of Object.entries(failures)) {
    const engine = await rillm.Engine.load(url, options());
    const codes = await fail(engine);
    await Promise.all([engine.dispose(), engine.dispose()]);
    await engine.dispose();
    found[name] = { codes, left: budget.live, after: await codeOf(() => ask(engine)) };
  }
  const loads = { '/status/500': {}, '/golden/tied.ids.json': {}, [url]: { contextLength: -1 }, 'opfs:nothing.gguf': {} };
  const codes = [];
  for (const [source, more] of Object.entries(loads))
    codes.push(await codeOf(() => rillm.Engine.load(source, { ...options(), retries: 0, ...more })));
  found['failed loads'] = { codes, left: budget.live, after: 'disposed' };
  // What the wasm was when it trapped is gone; its device must go too.
  const trapped = await import('/trap/dist/index.js');
  globalThis.traps = 1;
  const own = { ...options(), ...(worker && { worker: () => new Worker('/trap/dist/worker.js?traps=1', { type: 'module' }) }) };
  const engine = await trapped.Engine.load(url, own);
  const trap = [await codeOf(() => ask(engine, { prompt: 'trap' })), await codeOf(() => ask(engine))];
  await Promise.all([engine.dispose(), engine.dispose()]);
  found['a wasm that trapped'] = { codes: trap, left: budget.live, after: await codeOf(() => ask(engine)) };
  found.next = await withEngine(url, options(), async (engine) => (await ask(engine)).choices.length);
  return found;
}

test('dispose works after every failure: nothing is left, and the next load works', async () => {
  for (const worker of [true, false]) {
    const { page, prepare, close } = await stage.openPage({
      allowed: [/out of memory|no room|is invalid|status of 500|unreachable in rillm/i],
    });
    await prepare('/rillm/dist/index.js');
    await page.evaluate(prepareLosses);
    await page.evaluate(limitMemory);
    const { next, ...found } = await page.evaluate(failAndDispose, [MODEL, worker]);
    for (let tries = 0; tries < 100 && page.workers().length > 0; tries++) await page.waitForTimeout(20);
    assert.equal(page.workers().length, 0, 'workers that are left');
    await close();
    const codes = {
      'refused requests': ['invalid_request', 'context_length_exceeded', 'invalid_request', 'invalid_file'],
      'an aborted answer': ['aborted'],
      'a stream that nobody reads': [],
      'a lost device': ['device_lost', 'device_lost'],
      ...(worker ? { 'a worker that was ended': ['worker_lost', 'worker_lost'] } : { 'no room': ['out_of_memory'] }),
      'failed loads': ['http', 'not_gguf', 'invalid_request', 'not_found'],
      'a wasm that trapped': ['internal', 'internal'],
    };
    const expected = Object.entries(codes).map(([name, codes]) => [name, { codes, left: 0, after: 'disposed' }]);
    assert.deepEqual(found, Object.fromEntries(expected));
    assert.equal(next, 1);
  }
});
