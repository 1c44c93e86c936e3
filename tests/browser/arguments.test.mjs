// Every entry of the package, called with what is no argument: it is refused by name, with an EngineError, and what comes after works.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';

import { openStage } from './browser.mjs';

const LIMIT = { timeout: 60_000 };
const MODEL = '/golden/tied-q8_0.gguf';
const source = (name) => readFileSync(new URL(`arguments/${name}.mjs`, import.meta.url), 'utf8').replaceAll('export ', '');

let stage;
before(async () => (stage = await openStage()));
after(() => stage.close());

/** Runs in a page, with the sources of both files: each entry of a table with each value. */
async function callAll([sources, table, model, worker]) {
  const run = (0, eval)(`(async (model, worker) => {
    ${sources}
    const table = ${table};
    const engine = model === undefined ? undefined : await rillm.Engine.load(model, { worker });
    const isError = (error) => error instanceof rillm.EngineError;
    const found = [];
    for (const [name, { call, only, not = [] }] of Object.entries(table)) {
      for (const [bad, make] of Object.entries(BAD)) {
        if (not.includes(bad) || (only !== undefined && !only.includes(bad))) continue;
        const outcome = await outcomeOf((value) => call(engine, value), make(), isError);
        const after = engine === undefined ? true : await outcomeOf(() => engine.tokenize('a'), undefined, isError);
        found.push({ name, bad, outcome, after });
      }
    }
    if (engine === undefined) return { found, disposed: [] };
    await engine.dispose();
    await engine.dispose();
    const disposed = [];
    for (const [name, { call, isSync }] of Object.entries(table)) {
      if (!isSync) disposed.push([name, (await outcomeOf((value) => call(engine, value), 5, isError)).code]);
    }
    return { found, disposed };
  })`);
  return run(model, worker);
}

const sources = `${source('page')}\n${source('entries')}`;
const { OF_ENGINES, OF_TENSORS, WITHOUT_ENGINE } = await import('./arguments/entries.mjs');

function matches(text, pattern) {
  return pattern instanceof RegExp ? pattern.test(text) : text === pattern;
}

/** What is wrong with the outcome of a call; nothing if it is as it should be. */
function fault({ outcome, after, bad }, { takes = [], passes = [], names, code = 'invalid_request', isSync = false }) {
  if (after !== true && after.value !== true) return 'breaks what comes after';
  if (outcome.value) return takes.includes(bad) ? undefined : 'is taken';
  if (takes.includes(bad)) return 'is not taken';
  if (outcome.code === undefined) return outcome.hangs ? 'hangs' : 'throws another error';
  if (outcome.isThrown && !isSync) return 'throws and does not reject';
  // What passes the checks comes to a file that is no model, or an address that is none.
  if (passes.includes(bad)) return ['internal', 'read'].includes(outcome.code) ? 'breaks' : undefined;
  if (!matches(outcome.code, code)) return 'has another code';
  const isNamed = names instanceof RegExp ? names.test(outcome.message) : outcome.message.includes(names);
  return isNamed ? undefined : 'is not named';
}

function check(found, table) {
  const faults = found.flatMap((call) => {
    const wrong = fault(call, table[call.name]);
    return wrong === undefined ? [] : [`${call.name} with ${call.bad} ${wrong}: ${JSON.stringify(call.outcome)}`];
  });
  assert.ok(found.length >= Object.keys(table).length);
  assert.deepEqual(faults, []);
}

for (const worker of [true, false]) {
  test(`entries of an engine ${worker ? 'in a worker' : 'on the page'}`, LIMIT, async () => {
    const { found, disposed } = await stage.run(callAll, sources, 'OF_ENGINES', MODEL, worker);
    check(found, OF_ENGINES);
    assert.deepEqual(
      disposed.filter(([, code]) => code !== 'disposed'),
      [],
    );
  });
}

test('entries without an engine', LIMIT, async () => {
  const { found } = await stage.run(callAll, sources, 'WITHOUT_ENGINE', undefined, false);
  check(found, WITHOUT_ENGINE);
});

const TENSOR = { package: '/rillm/dist/tensor/index.js' };

/** Runs code in a page with a device and tensors to call: `place`. */
const withTensors = (body) =>
  stage.runWith(
    TENSOR,
    (code) => (0, eval)(code)(),
    `(async () => {
      ${sources}
      const isError = (error) => error instanceof rillm.EngineError;
      const place = await tensorStage();
      ${body}
    })`,
  );

test('entries of rillm/tensor', LIMIT, async () => {
  const found = await withTensors(`
    const found = [];
    for (const [name, { call }] of Object.entries(OF_TENSORS)) {
      for (const [bad, make] of Object.entries(BAD)) {
        found.push({ name, bad, outcome: await outcomeOf((value) => call(place, value), make(), isError), after: true });
      }
    }
    await place.tensor.readback();
    return found;`);
  check(found, OF_TENSORS);
});

test('every method of rillm/tensor gives an answer or an error of its own', { timeout: 180_000 }, async () => {
  const { count, faults } = await withTensors(`
    const calls = Object.entries(everyMethod(place));
    const faults = [];
    for (const [name, call] of calls) {
      for (const [bad, make] of Object.entries(BAD)) {
        const outcome = await outcomeOf(call, make(), isError);
        if (outcome.value || (outcome.code !== undefined && outcome.code !== 'internal')) continue;
        faults.push(name + ' with ' + bad + ': ' + JSON.stringify(outcome));
      }
    }
    const [one] = await place.device.tensor([1]).readback();
    if (one !== 1) faults.push('the device is broken');
    place.device.destroy();
    return { count: calls.length, faults };`);
  assert.ok(count > 250, `${count} calls`);
  assert.deepEqual(faults, []);
});
