// Engines over a long time: many clients with aborts, one answer without an end, loads and disposals, sessions. Memory stays what it was, texts stay
// the same, and nobody is passed over. `npm run soak` runs it; the environment says how long: SOAK_MINUTES, SOAK_TOKENS, SOAK_LOADS, SOAK_SESSIONS.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { openStage } from './browser.mjs';
import { isOnCpu } from './device.mjs';

const skip = !process.env.RILLM_SOAK && '`npm run soak` runs it';
const LIMIT = { skip, timeout: 3_600_000 };
const MODEL = '/golden/tied-q8_0.gguf';
const number = (name, usual) => Number(process.env[name] ?? usual);
const MINUTES = number('SOAK_MINUTES', 10);
const TOKENS = number('SOAK_TOKENS', 100_000);
const LOADS = number('SOAK_LOADS', 200);
const SESSIONS = number('SOAK_SESSIONS', 1000);
const CLIENTS = 64;
/** What memory may grow by over a whole soak: what is kept once, such as compiled code, and never something for each request. */
const MOST_GROWTH = 1.25;
const ROOM_BYTES = 2 ** 20;

let stage;
before(async () => {
  if (skip) return;
  // Memory is measured at once and not at the next collection, in workers too.
  stage = await openStage({ args: ['--enable-blink-features=ForceEagerMeasureMemory'] });
}, LIMIT);
after(() => stage?.close());

/** Runs a soak in a page of its own, with what it measures by. */
async function soak(t, fn, argument) {
  const { page, prepare, close } = await stage.openPage();
  try {
    await prepare('/rillm/dist/index.js');
    await page.evaluate(
      ([model, device]) => {
        globalThis.MODEL = model;
        // What is measured ran where it ought to.
        const { load } = rillm.Engine;
        rillm.Engine.load = async (...given) => {
          const engine = await load.apply(rillm.Engine, given);
          if (engine.info.device !== device) throw new Error(`the model runs on the ${engine.info.device}`);
          return engine;
        };
        globalThis.after = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
        /** The JavaScript of page and workers, and what the engine counts. */
        globalThis.memory = async (engine) => {
          await after(1000);
          const { bytes } = await performance.measureUserAgentSpecificMemory();
          const { live_bytes, live_buffers, wasm_memory_bytes } = (await engine?.stats()) ?? {};
          return { bytes, ...(engine && { live_bytes, live_buffers, wasm_memory_bytes }) };
        };
      },
      [MODEL, isOnCpu ? 'cpu' : 'gpu'],
    );
    const got = await page.evaluate(fn, argument);
    t.diagnostic(JSON.stringify(got, (_, value) => (typeof value === 'number' ? Math.round(value) : value)));
    return got;
  } finally {
    await close();
  }
}

function assertFlat(first, last) {
  for (const [name, value] of Object.entries(first)) {
    assert.ok(last[name] <= value * MOST_GROWTH + ROOM_BYTES, `${name} grew from ${value} to ${last[name]}`);
  }
}

test(`${CLIENTS} clients with aborts at random, ${MINUTES} minutes`, LIMIT, async (t) => {
  const got = await soak(
    t,
    async ([minutes, clients]) => {
      const engine = await rillm.Engine.load(MODEL, { maxSequences: 8, autotune: 'off' });
      const greedy = { temperature: 0, ignore_eos: true };
      const kinds = {
        short: { ...greedy, prompt: 'The small boat', max_tokens: 8 },
        long: { ...greedy, prompt: 'A large ship goes far', max_tokens: 64 },
        sampled: { prompt: 'Rain', temperature: 1.2, seed: 7, max_tokens: 16, ignore_eos: true },
        grammar: { temperature: 0, prompt: 'Yes or no', structured_outputs: { choice: ['yes', 'no'] } },
      };
      const names = Object.keys(kinds);
      const wanted = {};
      for (const name of names) wanted[name] = (await engine.completions.create(kinds[name])).choices[0].text;
      const counts = { answered: 0, aborted: 0, wrong: 0, failed: [], overtaken: 0 };
      /** The numbers of the requests that began last, in the order in which they were asked. */
      const begun = [];
      let nextNumber = 0;
      const waits = Object.fromEntries(names.map((name) => [name, { count: 0, sum: 0, most: 0 }]));
      let first;
      const begin = performance.now();
      const end = begin + minutes * 60_000;
      const client = async () => {
        while (performance.now() < end) {
          const name = names[Math.floor(Math.random() * names.length)];
          const controller = new AbortController();
          const isAborted = Math.random() < 0.3;
          const timer = isAborted && setTimeout(() => controller.abort(), Math.random() * 2000);
          const asked = performance.now();
          const number = nextNumber++;
          let text = '';
          let waited;
          try {
            const stream = await engine.completions.create({ ...kinds[name], stream: true }, { signal: controller.signal });
            for await (const { choices } of stream) {
              if (waited === undefined) {
                waited = performance.now() - asked;
                counts.overtaken = Math.max(counts.overtaken, begun.filter((other) => other > number).length);
                begun.push(number);
                if (begun.length > 4 * clients) begun.shift();
              }
              text += choices[0]?.text ?? '';
            }
            if (controller.signal.aborted) throw Object.assign(new Error(), { code: 'aborted' });
            counts.answered += 1;
            if (text !== wanted[name]) counts.wrong += 1;
            // The first come at once and find nobody before them.
            if (asked > begin + 10_000) {
              const own = waits[name];
              own.count += 1;
              own.sum += waited;
              own.most = Math.max(own.most, waited);
            }
          } catch ({ code, message }) {
            if (code === 'aborted') counts.aborted += 1;
            else counts.failed.push(message);
          } finally {
            clearTimeout(timer);
          }
        }
      };
      // The first after a tenth of the time: by then everything that is kept has been made.
      const heaps = [];
      const early = (async () => {
        for (let tenth = 1; tenth < 10; tenth++) {
          await after(minutes * 6000);
          first ??= await memory(engine);
          heaps.push((await engine.stats()).wasm_memory_bytes);
        }
      })();
      await Promise.all([early, ...Array.from({ length: clients }, client)]);
      const last = await memory(engine);
      const idle = [];
      for (const name of names) idle.push((await engine.completions.create(kinds[name])).choices[0].text === wanted[name]);
      await engine.dispose();
      const told = Object.entries(waits).map(([name, { count, sum, most }]) => {
        const mean = sum / count;
        return [name, { count, mean, most, ratio: Math.round((100 * most) / mean) }];
      });
      return { counts, first, last, heaps, idle, waits: Object.fromEntries(told) };
    },
    [MINUTES, CLIENTS],
  );
  assert.deepEqual([got.counts.wrong, got.counts.failed, got.idle], [0, [], [true, true, true, true]]);
  assert.ok(got.counts.answered > 100 && got.counts.aborted > 10, JSON.stringify(got.counts));
  assertFlat(got.first, got.last);
  // A request waits for those before it: of those after it no more begin earlier than run at once. By the clock a machine that does other work
  // as well makes some wait longer, so times are only told.
  assert.ok(got.counts.overtaken <= 8, `${got.counts.overtaken} later requests began earlier`);
});

test(`one answer of ${TOKENS} tokens, whose context shifts`, LIMIT, async (t) => {
  const got = await soak(
    t,
    async (tokens) => {
      const engine = await rillm.Engine.load(MODEL, { autotune: 'off' });
      const request = { prompt: 'The small boat', max_tokens: tokens, temperature: 0.9, seed: 3, ignore_eos: true, context_shift: true };
      let [came, first] = [0];
      let final;
      for await (const chunk of await engine.completions.create({ ...request, stream: true, stream_options: { include_usage: true } })) {
        came += chunk.choices[0]?.token_ids?.length ?? 0;
        final = chunk;
        if (first === undefined && came >= tokens / 10) first = await memory(engine);
      }
      const last = await memory(engine);
      await engine.dispose();
      return { came, counted: final.usage?.completion_tokens, shifts: final.timings?.context_shifts, first, last };
    },
    TOKENS,
  );
  assert.deepEqual([got.came, got.counted], [TOKENS, TOKENS]);
  assert.ok(got.shifts > 0);
  assertFlat(got.first, got.last);
});

for (const worker of [true, false]) {
  test(`${LOADS / 2} loads and disposals (worker: ${worker})`, LIMIT, async (t) => {
    const got = await soak(
      t,
      async ([loads, worker]) => {
        const texts = new Set();
        let first;
        let wasm;
        const heaps = [];
        for (let load = 0; load < loads; load++) {
          const engine = await rillm.Engine.load(MODEL, { worker, autotune: 'off', cache: 'none' });
          texts.add((await engine.completions.create({ prompt: 'The small boat', max_tokens: 5, temperature: 0 })).choices[0].text);
          wasm = (await engine.stats()).wasm_memory_bytes;
          if (load % 10 === 4) heaps.push(wasm);
          await engine.dispose();
          if (load === Math.floor(loads / 10)) first = { ...(await memory()), wasm };
        }
        return { texts: texts.size, first, last: { ...(await memory()), wasm }, heaps };
      },
      [LOADS / 2, worker],
    );
    assert.equal(got.texts, 1);
    assertFlat(got.first, got.last);
  });
}

test(`a session saved and restored ${SESSIONS} times`, LIMIT, async (t) => {
  const got = await soak(
    t,
    async (times) => {
      const engine = await rillm.Engine.load(MODEL, { autotune: 'off' });
      const messages = [{ role: 'user', content: 'The small boat goes over the water and ' }];
      const answer = async () => {
        const { choices } = await engine.chat.completions.create({ messages, max_tokens: 4, temperature: 0, ignore_eos: true });
        return choices[0].message.content;
      };
      const wanted = await answer();
      const sizes = new Set();
      let first;
      for (let n = 0; n < times; n++) {
        // Every tenth goes by the disk.
        const name = n % 10 === 0 ? 'soak' : undefined;
        const session = await engine.sessions.save(messages, name === undefined ? {} : { name });
        sizes.add(session.size);
        await engine.sessions.restore(name ?? session);
        if (n % 50 === 0 && (await answer()) !== wanted) throw new Error(`another text, ${n}`);
        if (n === Math.floor(times / 10)) first = await memory(engine);
      }
      const last = await memory(engine);
      await engine.sessions.delete('soak');
      const same = (await answer()) === wanted;
      await engine.dispose();
      return { sizes: [...sizes], same, first, last };
    },
    SESSIONS,
  );
  assert.equal(got.same, true);
  assert.equal(got.sizes.length, 1);
  assertFlat(got.first, got.last);
});
