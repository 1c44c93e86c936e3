// A worker that is gone, whoever ended it: where its engine may not come back, everything of it rejects with `worker_lost` within two seconds,
// and nothing else does, such as a page that was left and comes back. `recovery.test.mjs` has engines that come back.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { launchChromium } from '../../scripts/chromium.mjs';
import { withDevice } from './device.mjs';
import { openStage, preparePage } from './browser.mjs';
import { rememberWorkers } from './workers.mjs';

const LIMIT = { timeout: 60_000 };
const MODEL = '/golden/tied-q8_0.gguf';
/** What a loss may take. */
const MOST_MS = 2000;

let stage;
before(async () => (stage = await openStage()));
after(() => stage.close());

/** Runs in the page: how losses are waited for. */
function prepareLost() {
  globalThis.FINAL = { maxRecoveries: 0 };
  globalThis.after = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  /** The failure of what is open, and how long after `begin` it came. */
  globalThis.lost = async (open, begin = performance.now()) => {
    const late = after(10_000).then(() => ({ code: 'hangs' }));
    const { code, message, isEngineError } = await Promise.race([failure(open), late]);
    return { code, message, isEngineError, ms: performance.now() - begin };
  };
  globalThis.LONG = { prompt: 'The small boat', max_tokens: 100_000, temperature: 0, ignore_eos: true, context_shift: true };
}

async function first(page) {
  await page.evaluate(rememberWorkers);
  await page.evaluate(prepareLost);
}

const onPage = (fn, argument) => stage.runWith({ first }, fn, argument);

function checkLost(failures) {
  for (const { code, message, isEngineError, ms } of failures) {
    assert.equal(code, 'worker_lost', message);
    assert.equal(isEngineError, true);
    assert.match(message, /load the engine again/);
    assert.ok(ms < MOST_MS, `${ms} ms`);
  }
}

for (const how of ['terminate', 'the browser']) {
  describe(`ended by ${how}`, () => {
    test('in a load', LIMIT, async () => {
      const failures = await onPage(
        async ([how, model]) => {
          const failures = [];
          // At once the browser can't be told from a slow server; later on it can, at each step of a load.
          const moments = how === 'terminate' ? [undefined, 'header', 'weights'] : ['header', 'weights'];
          for (const moment of moments) {
            let reached;
            const reaching = new Promise((resolve) => (reached = resolve));
            const loading = rillm.Engine.load(model, { ...FINAL, onProgress: ({ phase }) => phase === moment && reached() });
            loading.catch(() => {});
            if (moment === undefined) while (workers.length === 0) await after(1);
            else await reaching;
            const begin = performance.now();
            kill(how);
            failures.push(await lost(loading, begin));
          }
          return failures;
        },
        [how, MODEL],
      );
      checkLost(failures);
    });

    test('in a prefill, in mid-stream, and while requests wait; what comes later, and dispose', LIMIT, async () => {
      const { failures, disposed, again } = await onPage(
        async ([how, model]) => {
          const engine = await rillm.Engine.load(model, FINAL);
          const stream = await engine.completions.create({ ...LONG, stream: true });
          await stream.next();
          const waiting = [
            engine.completions.create(LONG),
            engine.chat.completions.create({ messages: [{ role: 'user', content: 'a boat' }] }),
            engine.forward([1, 2, 3]),
            engine.responses.create({ input: 'a boat', stream: true }).then(collect),
          ];
          for (const promise of waiting) promise.catch(() => {});
          // Another engine is in its prefill.
          const second = await rillm.Engine.load(model, FINAL);
          const prefill = second.completions.create({ ...LONG, prompt: 'boat '.repeat(200) });
          const asked = second.tokenize('a');
          for (const promise of [prefill, asked]) promise.catch(() => {});
          const begin = performance.now();
          kill(how);
          const open = [collect(stream), prefill, ...waiting];
          const failures = await Promise.all(open.map((promise) => lost(promise, begin)));
          for (const call of ['tokenize', 'detokenize', 'forward', 'sync', 'stats', 'kernelTimes']) {
            failures.push(await lost(engine[call](call === 'tokenize' ? 'a' : [1])));
          }
          failures.push(await lost(engine.completions.create(LONG)), await lost(engine.sessions.save([{ role: 'user', content: 'a' }])));
          const answered = await engine.fetch('/v1/completions', { method: 'POST', body: JSON.stringify(LONG) });
          const { error } = await answered.json();
          await engine.dispose();
          await engine.dispose();
          await second.dispose();
          const disposed = [answered.status, error.code, (await failure(engine.tokenize('a'))).code];
          const again = await withEngine(model, FINAL, async (engine) => [...(await engine.tokenize('a'))].length);
          return { failures, disposed, again };
        },
        [how, MODEL],
      );
      checkLost(failures);
      assert.deepEqual(disposed, [503, 'worker_lost', 'disposed']);
      assert.ok(again > 0);
    });

    test('while nothing is asked, and in a dispose', LIMIT, async () => {
      const { failures, codes } = await onPage(
        async ([how, model]) => {
          const engine = await rillm.Engine.load(model, FINAL);
          kill(how);
          await after(500);
          const failures = [await lost(engine.tokenize('a'))];
          await engine.dispose();
          const other = await rillm.Engine.load(model, FINAL);
          const running = failure(other.completions.create(LONG));
          const begin = performance.now();
          const disposing = other.dispose();
          kill(how);
          await disposing;
          const ms = performance.now() - begin;
          return { failures, codes: [(await running).code, (await failure(other.stats())).code, ms] };
        },
        [how, MODEL],
      );
      checkLost(failures);
      const [running, later, ms] = codes;
      assert.match(running, /^(worker_lost|disposed)$/);
      assert.equal(later, 'disposed');
      assert.ok(ms < MOST_MS, `${ms} ms`);
    });
  });
}

test('of two engines one dies, and the other goes on', LIMIT, async () => {
  const { failed, chunks, answer } = await onPage(async (model) => {
    const dying = await rillm.Engine.load(model, FINAL);
    const [own] = workers;
    const living = await rillm.Engine.load(model, FINAL);
    const [open, stream] = await Promise.all([
      // On a fast machine any answer of some tokens would be given before its worker dies.
      dying.completions.create({ ...LONG, stream: true }),
      living.completions.create({ ...LONG, max_tokens: 64, context_shift: false, stream: true }),
    ]);
    await Promise.all([open.next(), stream.next()]);
    const begin = performance.now();
    kill('the browser', [own]);
    const failed = await lost(collect(open), begin);
    const chunks = await collect(stream);
    const answer = await living.completions.create({ ...LONG, max_tokens: 4, context_shift: false });
    await Promise.all([dying.dispose(), living.dispose()]);
    return { failed, chunks: chunks.length, answer: answer.usage.completion_tokens };
  }, MODEL);
  checkLost([failed]);
  assert.ok(chunks > 0);
  assert.equal(answer, 4);
});

test('a worker that is busy for longer than a loss takes is not lost', LIMIT, async () => {
  const tokens = await onPage(async (model) => {
    // Its thread stands still for three seconds when it is asked the first time.
    const code = `
      import ${JSON.stringify(new URL('/rillm/dist/worker.js', location.href).href)};
      let isFirst = true;
      addEventListener('message', ({ data }) => {
        if (data.method !== 'tokenize' || !isFirst) return;
        isFirst = false;
        for (const end = performance.now() + 3000; performance.now() < end; );
      });`;
    const url = URL.createObjectURL(new Blob([code], { type: 'text/javascript' }));
    const engine = await rillm.Engine.load(model, { ...FINAL, worker: () => new Worker(url, { type: 'module' }) });
    const [busy, after] = await Promise.all([engine.tokenize('a'), engine.tokenize('a')]);
    await engine.dispose();
    return [busy.length, after.length];
  }, MODEL);
  assert.deepEqual(tokens, [tokens[0], tokens[0]]);
  assert.ok(tokens[0] > 0);
});

test('without Web Locks an engine hears of terminate(), and of a silence of minutes', LIMIT, async () => {
  const { page, prepare, close } = await stage.openPage();
  try {
    await page.clock.install();
    await prepare('/rillm/dist/index.js');
    await first(page);
    const { tokens, failed } = await page.evaluate(async (model) => {
      const withoutLocks = "Object.defineProperty(navigator, 'locks', { value: undefined });";
      (0, eval)(withoutLocks);
      const addressOf = (code) => URL.createObjectURL(new Blob([code], { type: 'text/javascript' }));
      const own = new URL('/rillm/dist/worker.js', location.href).href;
      const url = addressOf(`import ${JSON.stringify(addressOf(withoutLocks))}; import ${JSON.stringify(own)};`);
      const load = () => rillm.Engine.load(model, { ...FINAL, worker: () => new Worker(url, { type: 'module' }) });
      const engine = await load();
      const { length } = await engine.tokenize('a');
      kill('terminate');
      const failed = await failure(engine.tokenize('a'));
      await engine.dispose();
      globalThis.silent = await load();
      kill('the browser');
      globalThis.state = 'open';
      void failure(silent.tokenize('a')).then(({ code }) => (state = code));
      return { tokens: length, failed };
    }, MODEL);
    assert.ok(tokens > 0);
    assert.equal(failed.code, 'worker_lost');
    await page.clock.runFor(120_000);
    assert.equal(await page.evaluate(() => state), 'open');
    await page.clock.runFor(240_000);
    assert.equal(await page.evaluate(() => state), 'worker_lost');
    await page.evaluate(() => silent.dispose());
  } finally {
    await close();
  }
});

test('tabs that share an engine hear of it, and the next call loads it again', LIMIT, async () => {
  const { failures, events, answers } = await onPage(async (model) => {
    const events = [];
    const onEvent = ({ type }) => events.push(type);
    const [one, two] = [await rillm.Engine.shared(model, { ...FINAL, onEvent }), await rillm.Engine.shared(model, FINAL)];
    const open = [one, two].map((engine) => engine.completions.create(LONG));
    for (const promise of open) promise.catch(() => {});
    await one.tokenize('a');
    let begin = performance.now();
    kill('the browser');
    const failures = await Promise.all(open.map((promise) => lost(promise, begin)));
    const answers = [[...(await one.tokenize('a'))].length, [...(await two.tokenize('a'))].length];
    // While nothing is asked, nobody has to hear of it.
    begin = performance.now();
    kill('the browser');
    await after(500);
    answers.push([...(await two.tokenize('a'))].length);
    await Promise.all([one.dispose(), two.dispose()]);
    return { failures, events, answers };
  }, MODEL);
  checkLost(failures);
  assert.ok(
    answers.every((length) => length > 0 && length === answers[0]),
    answers.join(),
  );
  assert.equal(events[0], 'leader');
});

test('a page that is left in the midst of an answer comes back from the back/forward cache with its engine', LIMIT, async () => {
  const browser = withDevice(await launchChromium({ adapter: 'swiftshader', keepsPages: true }));
  try {
    const page = await browser.newPage();
    await page.goto(`${stage.origin}/blank/`);
    await page.evaluate(preparePage, '/rillm/dist/index.js');
    const begun = await page.evaluate(async (model) => {
      addEventListener('pageshow', ({ persisted }) => (globalThis.cameBack = persisted));
      globalThis.engine = await rillm.Engine.load(model, { maxRecoveries: 0 });
      const LONG = { prompt: 'The small boat', max_tokens: 400, temperature: 0, ignore_eos: true };
      globalThis.wanted = (await engine.completions.create(LONG)).choices[0].text;
      globalThis.text = '';
      let begin;
      const began = new Promise((resolve) => (begin = resolve));
      const read = async () => {
        for await (const { choices } of await engine.completions.create({ ...LONG, stream: true })) begin((text += choices[0]?.text ?? ''));
      };
      globalThis.reading = read();
      return (await began).length;
    }, MODEL);
    assert.ok(begun > 0);
    await page.goto(`${stage.origin}/status/200/`);
    // Playwright waits for a load, and there is none.
    await page.goBack({ timeout: 1000 }).catch(() => {});
    const got = await page.evaluate(async () => {
      await reading;
      const again = await engine.completions.create({ prompt: 'Again', max_tokens: 3 });
      const { recoveries } = await engine.stats();
      await engine.dispose();
      return { cameBack, same: text === wanted, again: again.choices.length, recoveries };
    });
    assert.deepEqual(got, { cameBack: true, same: true, again: 1, recoveries: 0 });
  } finally {
    await browser.close();
  }
});
