// What never answers, or answers wrongly: adapters of the browser, its caches, workers of a caller, a page's thread that may not sleep. Parts of the
// package that need no browser.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { afterEach, before, mock, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { Worker as Thread } from 'node:worker_threads';

import { modulesFolder } from '../../scripts/build.mjs';

let parts;
before(async () => {
  const names = [
    'device_choice',
    'tunings',
    'start_worker',
    'compile_wasm',
    'fallback',
    'json',
    'team/cpu_team',
    'team/start_helpers',
    'team/helper',
    'traps',
    'engine_generation',
  ];
  const modules = await Promise.all(names.map((name) => import(pathToFileURL(join(modulesFolder, `${name}.js`)))));
  parts = Object.assign({}, ...modules);
});

const restores = [];
afterEach(() => {
  for (const restore of restores.splice(0)) restore();
});

/** Puts something in the place of a global until the test ends. */
function stub(object, name, value) {
  const own = Object.getOwnPropertyDescriptor(object, name);
  Object.defineProperty(object, name, { value, configurable: true, writable: true });
  restores.push(() => (own === undefined ? delete object[name] : Object.defineProperty(object, name, own)));
}

/** Lets time pass that nobody waits for. */
function fakeTime() {
  mock.timers.enable({ apis: ['setTimeout'] });
  restores.push(() => mock.timers.reset());
}

const settled = () => new Promise((resolve) => setImmediate(resolve));

test('a browser that never answers for an adapter has none, and an abort is heard at once', async () => {
  stub(globalThis, 'navigator', { gpu: { requestAdapter: () => new Promise(() => {}) } });
  const controller = new AbortController();
  const aborted = parts.chooseDevice({ signal: controller.signal });
  controller.abort();
  await assert.rejects(aborted, { code: 'aborted' });

  fakeTime();
  const choosing = parts.chooseDevice({});
  await settled();
  mock.timers.tick(60_000);
  assert.deepEqual(await choosing, { kind: 'cpu', reason: 'no_adapter' });
});

test('a cache that never answers holds no load, and what fails is not kept', async () => {
  fakeTime();
  for (const caches of [
    { match: () => new Promise(() => {}), open: () => new Promise(() => {}) },
    { match: () => Promise.reject(new Error('broken')), open: () => Promise.reject(new Error('broken')) },
    undefined,
  ]) {
    stub(globalThis, 'caches', caches);
    const working = Promise.all([parts.keptTunings(), parts.keepTunings('text')]);
    await settled();
    mock.timers.tick(5000);
    assert.deepEqual(await working, [undefined, undefined]);
  }
  const controller = new AbortController();
  stub(globalThis, 'caches', { match: () => new Promise(() => {}) });
  const reading = parts.keptTunings(controller.signal);
  controller.abort();
  assert.equal(await reading, undefined);
  stub(globalThis, 'caches', { match: async () => new Response('kept') });
  assert.equal(await parts.keptTunings(), 'kept');
});

test('a worker that a caller returns twice is refused, and threads of it did not start', () => {
  class OwnWorker extends EventTarget {
    postMessage() {}
    terminate() {}
  }
  stub(globalThis, 'Worker', OwnWorker);
  // A page has files of no server.
  stub(globalThis, 'document', {});
  const same = new OwnWorker();
  assert.equal(
    parts.startWorker(() => same),
    same,
  );
  assert.throws(() => parts.startWorker(() => same), { code: 'invalid_request' });
  assert.ok(parts.startWorker(() => new OwnWorker()) instanceof OwnWorker);
  const other = new OwnWorker();
  assert.equal(
    new parts.Helpers().start([{}, {}, {}], () => other),
    1,
  );
  assert.equal(
    new parts.Helpers().start([{}, {}, {}], () => new OwnWorker()),
    3,
  );
});

test('where WebAssembly has no vectors, it is said by name before anything is fetched', async () => {
  const validate = WebAssembly.validate.bind(WebAssembly);
  parts.checkVectors('x.wasm');
  let fetched = 0;
  stub(globalThis, 'fetch', () => {
    fetched += 1;
    return Promise.reject(new Error('fetched'));
  });
  // Asked of a browser without: a module with the instructions of 0xfd.
  stub(WebAssembly, 'validate', (bytes) => !new Uint8Array(bytes).includes(0xfd) && validate(bytes));
  const load = parts.wasmLoader({ file: 'x.wasm', option: 'xModule', advice: 'serve it' }, async (_, policy) => {
    parts.checkVectors('x.wasm');
    return parts.compileWasm('https://localhost/x.wasm', 'mark', policy);
  });
  await assert.rejects(load(), (error) => {
    assert.equal(error.code, 'wasm_unavailable');
    assert.match(error.message, /^x\.wasm needs SIMD in WebAssembly/);
    assert.doesNotMatch(error.message, /serve it/);
    return true;
  });
  assert.equal(fetched, 0);
});

test('a thread that may not sleep looks until something happens or time is up', async () => {
  const memory = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true });
  let threads;
  stub(
    WebAssembly,
    'Instance',
    class {
      constructor(_, imports) {
        ({ threads } = imports);
        this.exports = {};
      }
    },
  );
  new parts.CpuTeam(undefined, memory, 1 << 16);
  stub(Atomics, 'wait', () => {
    throw new TypeError('Atomics.wait cannot be called in this context');
  });
  const lasting = (milliseconds) => {
    const begin = performance.now();
    threads.wait(4, 0, milliseconds);
    return performance.now() - begin;
  };
  assert.ok(lasting(50) >= 49);
  const helper = new Thread(
    `const { workerData } = require('node:worker_threads');
     const words = new Int32Array(workerData.buffer);
     Atomics.wait(words, 2, 0, 10_000);
     Atomics.wait(words, 3, 0, 200);
     Atomics.store(words, 1, 1);`,
    { eval: true, workerData: memory },
  );
  const words = new Int32Array(memory.buffer);
  while (Atomics.notify(words, 2) === 0) await settled();
  const ms = lasting(5000);
  assert.ok(ms > 100 && ms < 4000, `${ms} ms`);
  await helper.terminate();
  assert.ok(lasting(5000) < 100, 'it has happened already');
  // The clock of a page may stand still.
  stub(performance, 'now', () => 7);
  threads.wait(8, 0, 1);
});

test('a WebAssembly that traps when an answer is cancelled or freed gives an error of the package', async () => {
  for (const method of ['cancel', 'free']) {
    const wasm = parts.guardedAgainstTraps('rillm', 'load the engine again');
    const told = [];
    wasm.onTrap(({ code }) => told.push(code));
    const traps = () => {
      throw new WebAssembly.RuntimeError('unreachable');
    };
    const own = { next: async () => undefined, cancel() {}, free() {}, [method]: traps };
    const generation = new parts.EngineGeneration(
      wasm,
      own,
      (work) => wasm.guard(work),
      () => {},
    );
    generation.cancel();
    const released = generation.release();
    if (method === 'free') await assert.rejects(released, { name: 'EngineError', code: 'internal' });
    else await released;
    await generation.released;
    assert.deepEqual(told, ['internal']);
  }
});

test('what opens a page asks no model', async () => {
  class Navigation extends Request {
    get mode() {
      return 'navigate';
    }
  }
  const asked = [];
  const served = {
    models: () => [],
    take: async () => {
      asked.push('take');
      throw new Error('it was asked');
    },
    kept: {},
  };
  const fetch = parts.fetchOf(served);
  const body = JSON.stringify({ model: 'x', messages: [] });
  const form = { method: 'POST', headers: { 'content-type': 'text/plain' }, body };
  const response = await fetch(new Navigation('https://localhost/v1/chat/completions', form));
  assert.deepEqual([response.status, (await response.json()).error.code, asked], [403, 'invalid_request', []]);
  await fetch(new Request('https://localhost/v1/chat/completions', form));
  assert.deepEqual(asked, ['take']);
});

test('a text that no request may have is refused by name before it is copied', () => {
  assert.throws(() => parts.checkLength('the text of tokenize', 'a'.repeat(70_000_000)), {
    code: 'invalid_request',
    message: /^the text of tokenize is too large/,
  });
  parts.checkLength('the text of tokenize', 'a'.repeat(60_000_000));
});

test('of a team that broke nothing is called any more, not even its allocator, whose lock may be held', () => {
  const memory = new WebAssembly.Memory({ initial: 64, maximum: 64, shared: true });
  const calls = [];
  let status = 0;
  const called = (name, result) => () => {
    calls.push(name);
    if (result() === undefined) throw new WebAssembly.RuntimeError('unreachable');
    return result();
  };
  const names = ['pack_rows', 'restore_row', 'multiply', 'feed_forward', 'attend'];
  stub(
    WebAssembly,
    'Instance',
    class {
      constructor() {
        this.exports = { allocate: called('allocate', () => 1 << 20), release: called('release', () => 0) };
        for (const name of names) this.exports[name] = called(name, () => status);
      }
    },
  );
  const [few, many] = [new Float32Array(8), new Float32Array(1 << 16)];
  const works = (team, floats) => [
    () => team.multiply(16, 8, true, 8, 8, 0, 8, floats, floats),
    () => team.feedForward(16, new Uint32Array(12), floats, few, floats),
    () => team.attend(new Uint32Array(4), floats, new Uint8Array(0), new Uint8Array(0), few, 0, 0, floats, few),
    () => team.pack(16, 8, 8, 8, 0, 8, new Uint8Array(floats.buffer)),
    () => team.row(16, 8, true, 8, 8, 0, floats),
  ];
  // A thread that gave no answer, and a trap.
  for (const how of [2, undefined]) {
    const team = new parts.CpuTeam(undefined, memory, 1 << 22);
    const told = [];
    team.onBroken((message) => told.push(message));
    status = 0;
    for (const work of works(team, few)) assert.equal(work(), null);
    status = how;
    const problem = works(team, few)[0]();
    assert.match(problem, /broke/);
    calls.length = 0;
    status = 0;
    for (const work of works(team, many)) assert.equal(work(), problem);
    assert.equal(team.allocate(16), 0);
    team.release(16, 16);
    assert.deepEqual(calls, []);
    assert.deepEqual(told, [problem]);
  }
});

test('what is too large for one piece of memory takes no other memory', () => {
  let instances = 0;
  stub(
    WebAssembly,
    'Instance',
    class {
      number = ++instances;
      // As the module's: a piece is 2 GiB at most.
      exports = { allocate: (bytes) => (bytes > 2 ** 31 - 16 ? 0 : 1 << 20) };
    },
  );
  const memory = new WebAssembly.Memory({ initial: 64, maximum: 64, shared: true });
  const team = new parts.CpuTeam(undefined, memory, 1 << 22);
  const bytes = team.memoryBytes();
  assert.deepEqual([team.allocate(2 ** 31), team.allocate(2 ** 31 - 15), team.memoryBytes()], [0, 0, bytes]);
  assert.equal(instances, 1);
  assert.ok(team.allocate(2 ** 31 - 16) > 2 ** 32);
  assert.ok(team.memoryBytes() > bytes);
});

test('a thread goes where help is wanted, and waits for a memory that is still to come', () => {
  const memory = () => new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true });
  // What `help` returns, in this order: the number of a memory and one, or 0 for the end.
  const orders = [3, 3, 1, 2, 0];
  const [calls, made] = [[], []];
  stub(
    WebAssembly,
    'Instance',
    class {
      constructor(_, { env }) {
        const number = made.push(env.memory) - 1;
        this.exports = {
          __stack_pointer: { value: 0 },
          join: () => calls.push('join'),
          help: () => {
            calls.push([number, this.exports.__stack_pointer.value]);
            return orders.shift();
          },
        };
      }
    },
  );
  const memories = [memory(), memory(), memory()];
  const helper = new parts.Helper({ module: undefined, memory: memories[0], stack: 100 });
  assert.equal(helper.help(), false, 'the third is not there');
  helper.add(memories[1], 200);
  assert.equal(helper.help(), false);
  helper.add(memories[2], 300);
  assert.equal(helper.help(), true, 'the end');
  assert.deepEqual(made, memories);
  assert.deepEqual(calls, ['join', [0, 100], [2, 300], [2, 300], [0, 100], [1, 200]]);
});
