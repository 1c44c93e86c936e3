// Engines that are lost, without an engine: hosts of the test's own in place of GPUs and workers. What an answer keeps, which request is not asked
// again, and where a model is loaded next.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { pathToFileURL } from 'node:url';

import { modulesFolder } from '../../scripts/build.mjs';

let errors;
let RecoveringHost;
let LoadPlace;
let losses;
before(async () => {
  const load = (name) => import(pathToFileURL(join(modulesFolder, name)));
  errors = await load('errors.js');
  ({ RecoveringHost } = await load('recovery/recovering_host.js'));
  ({ LoadPlace } = await load('load_place.js'));
  // Which counts those of its page.
  losses = await import(`${pathToFileURL(join(modulesFolder, 'recovery/losses.js'))}?of-this-test`);
});

const tick = () => new Promise((resolve) => setTimeout(resolve, 1));
const lost = (message = 'a test lost it', code = 'device_lost') => new errors.EngineError(code, message);

/** Hosts whose answers are `adapters: text` and then numbers, and which are lost by a request with the prompt `poison`. */
class TestHost {
  loaded = [];
  asked = [];
  ended = new Promise((resolve) => (this.end = resolve));
  gone = undefined;

  lose(error = lost()) {
    this.gone ??= error;
    this.end(error);
  }

  #check() {
    if (this.gone !== undefined) throw this.gone;
  }

  async generate(_kind, request) {
    this.#check();
    const names = this.loaded.map(({ name }) => name);
    for (const name of Object.keys(request.adapters ?? {})) {
      if (!names.includes(name)) throw new errors.EngineError('unknown_adapter', `no ${JSON.stringify(name)}, there is ${names}`);
    }
    const scales = request.adapters ?? Object.fromEntries(this.loaded.map(({ name, scale }) => [name, scale]));
    // The adapter itself stays as long as the answer.
    const key = JSON.stringify(Object.entries(scales).map(([name, scale]) => [this.loaded.find((own) => own.name === name).source, scale]));
    this.asked.push(request.prompt);
    let at = 0;
    return {
      next: async () => {
        await tick();
        this.#check();
        if (request.prompt === 'poison' && at === (request.after ?? 0)) {
          this.lose();
          throw this.gone;
        }
        if (at === request.max_tokens) return undefined;
        at += 1;
        const text = `${key}${at} `;
        const end = at === request.max_tokens ? { finish_reason: 'length' } : {};
        return { index: 0, text, token_ids: [at], ...end };
      },
      cancel() {},
      release: async () => {},
    };
  }

  async forward() {
    this.asked.push('forward');
    this.lose();
    throw this.gone;
  }

  async embed() {
    this.#check();
    return 'embedded';
  }

  async loadAdapter(source, { name, scale }) {
    await tick();
    this.#check();
    if (this.loaded.some((other) => other.name === name)) throw new errors.EngineError('invalid_request', `${name} is loaded already`);
    const adapter = { name, scale: scale ?? 1, source: source.name };
    this.loaded.push(adapter);
    return { ...adapter };
  }

  async setAdapterScale(name, scale) {
    this.#check();
    this.loaded.find((other) => other.name === name).scale = scale;
  }

  async unloadAdapter(name) {
    this.#check();
    if (!this.loaded.some((other) => other.name === name)) throw new errors.EngineError('unknown_adapter', name);
    this.loaded = this.loaded.filter((other) => other.name !== name);
  }

  async adapters() {
    return this.loaded.map((adapter) => ({ ...adapter }));
  }

  async dispose() {
    this.lose(lost('disposed', 'disposed'));
  }
}

async function recovering(most = 3, { train } = {}) {
  const hosts = [];
  const events = [];
  const recovery = {
    load: async () => {
      await tick();
      const host = new TestHost();
      if (train !== undefined) host.trainLora = () => train(host);
      hosts.push(host);
      return { host, info: { device: 'gpu', warnings: [] } };
    },
    canTrain: true,
    most,
    onEvent: ({ type }) => events.push(type),
    onLoadedAgain: () => {},
  };
  const { host } = await RecoveringHost.load(recovery, undefined);
  return { engine: host, hosts, events, now: () => hosts.at(-1) };
}

/** The text of an answer, or the code it ended in. `act` is called after the second chunk. */
async function answer(engine, request, act) {
  let text = '';
  let chunks = 0;
  try {
    const generation = await engine.generate('completion', { max_tokens: 6, ...request });
    for (let chunk = await generation.next(); chunk !== undefined; chunk = await generation.next()) {
      text += chunk.text;
      if (++chunks === 2) await act?.();
    }
    await generation.release();
    return text;
  } catch ({ code, message }) {
    return `${code}: ${message}`;
  }
}

const SERVICES = {
  onProgress() {},
  onEvent() {},
  onMemoryPressure() {},
  startDigester() {},
  startHelpers: () => 0,
  shareWithHelpers() {},
  stopHelpers() {},
};
const adapter = (engine, source, name, scale) => engine.loadAdapter({ name: source }, { name, scale, files: {} }, SERVICES);

test('an answer keeps its adapters, whatever happens to them before it is begun again', async () => {
  const { engine, now } = await recovering(1000);
  await adapter(engine, 'A', 'a', 1);
  const ask = (act, request) => answer(engine, request, act && (async () => (await act(), now().lose())));
  const wanted = await ask();
  assert.match(wanted, /^\[\["A",1\]\]1 /);
  assert.equal(await ask(() => engine.setAdapterScale('a', 0)), wanted);
  const without = await ask();
  assert.match(without, /^\[\]1 /);
  await engine.setAdapterScale('a', 1);

  // Unloaded, it comes back for this answer alone and under another name.
  assert.equal(await ask(() => engine.unloadAdapter('a')), wanted);
  await tick();
  assert.deepEqual([now().loaded, await engine.adapters()], [[], []]);
  assert.equal(await ask(), without);
  assert.equal(await ask(() => adapter(engine, 'A', 'a', 1)), without);

  // Another takes its name. Two answers share what comes back, and meanwhile nobody is told of it.
  const replaced = async () => {
    await engine.unloadAdapter('a');
    await adapter(engine, 'B', 'a', 2);
  };
  const first = engine.generate('completion', { max_tokens: 40 });
  const other = answer(engine, { max_tokens: 6, adapters: { a: 1 } });
  assert.equal(await ask(replaced), wanted);
  assert.equal(await other, wanted);
  await (await first).next();
  assert.deepEqual(
    (await engine.adapters()).map(({ name, source }) => [name, source]),
    [['a', 'B']],
  );
  assert.equal(now().loaded.length, 2);
  await (await first).release();
  await tick();
  assert.equal(now().loaded.length, 1);
  assert.match(await ask(), /^\[\["B",2\]\]1 /);

  // What is asked of the engine in one breath happens in that order.
  const asked = answer(engine, {});
  const unloading = engine.unloadAdapter('a');
  assert.match(await asked, /^\[\["B",2\]\]1 /);
  await unloading;
  assert.match(await answer(engine, { adapters: { a: 1 } }), /^unknown_adapter/);
  await adapter(engine, 'C', 'c', 1);
  const scaling = engine.setAdapterScale('c', 3);
  assert.match(await answer(engine, {}), /^\[\["C",3\]\]1 /);
  await scaling;
  await engine.dispose();
});

test('a change of an adapter that fails changes nothing', async () => {
  const { engine, now } = await recovering(1000);
  await adapter(engine, 'A', 'a', 1);
  const fails = (method) => {
    now()[method] = async () => {
      throw new errors.EngineError('invalid_request', 'refused by a test');
    };
  };
  fails('setAdapterScale');
  fails('unloadAdapter');
  await assert.rejects(engine.setAdapterScale('a', 0), { code: 'invalid_request' });
  await assert.rejects(engine.unloadAdapter('a'), { code: 'invalid_request' });
  assert.match(await answer(engine, {}, () => now().lose()), /^\[\["A",1\]\]1 .*\]6 $/);
});

for (const after of [0, 2]) {
  test(`a request that loses the engine each time after ${after} tokens ends by itself, and the others go on`, async () => {
    const { engine, hosts, events } = await recovering(3);
    const texts = await Promise.all([
      answer(engine, { prompt: 'first', max_tokens: 30 }),
      answer(engine, { prompt: 'second', max_tokens: 30 }),
      answer(engine, { prompt: 'poison', after }),
    ]);
    assert.match(texts[0], / \[\]30 $/);
    assert.equal(texts[1], texts[0]);
    assert.match(texts[2], /^device_lost: .*2 times in a row/);
    assert.equal(hosts.length, 3);
    assert.deepEqual(events, Array(2).fill(['lost', 'recovering', 'recovered']).flat());
    assert.equal(await answer(engine, { max_tokens: 2 }), '[]1 []2 ');
    await assert.rejects(engine.forward(), { code: 'device_lost' });
    await engine.dispose();
  });
}

test('a call that loses the engine each time rejects, and the engine is there', async () => {
  const { engine, hosts } = await recovering(3);
  await assert.rejects(engine.forward(), (error) => error.code === 'device_lost' && /2 times in a row/.test(error.message));
  assert.equal(await engine.embed(), 'embedded');
  assert.equal(hosts.length, 3);
});

test('losses that a request did not cause do not end it', async () => {
  const { engine, now } = await recovering(5);
  let text = '';
  const generation = await engine.generate('completion', { max_tokens: 200 });
  // Each time before the answer is where it stood.
  for (let loss = 0; loss < 5; loss++) {
    for (let chunk = 0; chunk < 3; chunk++) text += (await generation.next()).text;
    now().lose();
  }
  for (let chunk = await generation.next(); chunk !== undefined; chunk = await generation.next()) text += chunk.text;
  assert.equal(text.split(' ').length, 201);
});

test('an adapter that was learnt when the engine was lost is loaded into the next one', async () => {
  for (const answer of ['error', 'late']) {
    let trainings = 0;
    const { engine, now } = await recovering(3, {
      train: async (host) => {
        trainings += 1;
        host.lose();
        if (answer === 'late') await tick();
        const adapter = answer === 'late' ? { name: 'game', scale: 1 } : { code: 'device_lost', message: 'lost' };
        return { adapter, losses: [1], heldOut: [], gguf: new Blob(['x']), peft: [] };
      },
    });
    const { adapter } = await engine.trainLora({ name: 'game' }, undefined, () => {});
    assert.deepEqual([adapter.name, trainings], ['game', 1]);
    assert.deepEqual(
      now().loaded.map(({ name }) => name),
      ['game'],
    );
    now().lose();
    await engine.embed();
    assert.deepEqual(
      now().loaded.map(({ name }) => name),
      ['game'],
    );
  }
});

test('a second loss of the GPU within ten minutes moves a model to the CPU; the first one after that, no', async () => {
  let now = 0;
  const place = () => new LoadPlace({ device: 'auto' }, { device: 'gpu', deviceReason: 'gpu_available', threads: 4 }, () => now);
  const seldom = place();
  for (let loss = 0; loss < 10; loss++) {
    await seldom.after(lost());
    now += 10 * 60_000;
    assert.equal(seldom.host.device, 'gpu');
  }
  const often = place();
  await often.after(lost());
  assert.deepEqual(often.warnings, []);
  now += 9 * 60_000;
  await often.after(lost());
  assert.deepEqual([often.host.device, often.host.deviceReason], ['cpu', 'device_lost']);
  assert.deepEqual(
    often.warnings.map(({ code }) => code),
    ['moved_to_cpu'],
  );
  // The CPU can't: back to the GPU, where it stays.
  assert.equal(often.returnsToGpu(), true);
  assert.deepEqual([often.host.device, often.warnings], ['gpu', []]);
  for (let loss = 0; loss < 3; loss++) await often.after(lost());
  assert.deepEqual([often.host.device, often.returnsToGpu()], ['gpu', false]);
  // Refusals likewise.
  const refused = place();
  const refusal = lost('none', 'adapter_unavailable');
  for (const ms of [0, 11 * 60_000, 0]) {
    now += ms;
    await refused.after(refusal);
  }
  assert.equal(refused.host.device, 'gpu');
  await refused.after(refusal);
  assert.equal(refused.host.deviceReason, 'no_adapter');
});

test('threads of the CPU that are lost do not come back', async () => {
  const place = new LoadPlace({ device: 'cpu' }, { device: 'cpu', deviceReason: 'requested', threads: 4 });
  await place.after(lost('the worker is gone', 'worker_lost'));
  assert.deepEqual([place.host.threads, place.warnings], [4, []]);
  await place.after(lost('the threads of the CPU are lost'));
  assert.equal(place.host.threads, 1);
  assert.deepEqual(
    place.warnings.map(({ code }) => code),
    ['fewer_threads'],
  );
});

test('an error that tells of a block list tells of losses of GPUs alone', () => {
  const refusal = lost('no adapter', 'adapter_unavailable');
  losses.noteLoss(lost('the threads of the CPU are lost'), 'cpu');
  losses.noteLoss(errors.deviceLost({ reason: 'destroyed', message: 'Device was destroyed.' }), 'gpu');
  assert.equal(losses.explained(refusal), refusal);
  losses.noteLoss(errors.deviceLost({ reason: 'unknown', message: 'hung' }), 'gpu');
  assert.match(losses.explained(refusal).message, /block list/);
});
