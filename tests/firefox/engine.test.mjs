// The engine in Firefox: answers of the demo model against its reference, structured output, tools, the loss of the GPU, training, embeddings, what is
// kept and clients of OpenAI's API without a GPU, and the demo page.

import assert from 'node:assert/strict';
import { copyFileSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { goldenJson, relativeError, root } from '../browser/browser.mjs';
import { askByClients, bundleClients } from '../browser/clients/clients.mjs';
import { MODEL, NO_MODEL, prompt, testAnswers } from '../browser/demo_answers.mjs';
import { serveFrame } from '../browser/frame.mjs';
import { makeLosses, prepareLosses } from '../browser/losses.mjs';
import { openFirefox } from './stage.mjs';

const LIMIT = { timeout: 120_000 };
const DEMO = { ...LIMIT, skip: NO_MODEL };
const PACKAGE = '/rillm/dist/index.js';

let stage;
/** A page with an engine of the demo model. */
let demo;
before(async () => {
  stage = await openFirefox();
  makeLosses(stage.made);
  if (DEMO.skip) return;
  demo = await stage.openPage({ address: PACKAGE });
  await demo.page.evaluate(prepareLosses);
  await demo.run(async (url) => {
    globalThis.engine = await rillm.Engine.load(url, lossy(true));
    globalThis.ask = (request) => engine.chat.completions.create({ temperature: 0, max_tokens: 120, ...request });
  }, `/${MODEL}`);
}, LIMIT);
after(async () => {
  await demo?.run(() => engine.dispose());
  await demo?.close();
  await stage?.close();
});

testAnswers(DEMO, (...args) => demo.run(...args));

test('structured output follows its schema', DEMO, async () => {
  const schema = {
    type: 'object',
    properties: {
      name: { type: 'string', maxLength: 12 },
      pet: { enum: ['duck', 'cat'] },
      legs: { type: 'integer', minimum: 2, maximum: 4 },
    },
    required: ['name', 'pet', 'legs'],
    additionalProperties: false,
  };
  const content = await demo.run(
    async ([messages, schema]) => {
      const response_format = { type: 'json_schema', json_schema: { name: 'pet', strict: true, schema } };
      return (await ask({ messages, response_format })).choices[0].message.content;
    },
    [prompt('json').messages, schema],
  );
  const { legs, ...rest } = JSON.parse(content);
  // What the model says by itself, and a key that it would not have written.
  assert.deepEqual(rest, JSON.parse(prompt('json').text));
  assert.ok(Number.isInteger(legs) && legs >= 2 && legs <= 4, content);
});

test('tools are called, by the model and because the request says so', DEMO, async () => {
  const { messages, tools, text } = prompt('tool call');
  const wanted = JSON.parse(/<tool_call>\n(.*)\n<\/tool_call>/.exec(text)[1]);
  const calls = await demo.run(
    async ([messages, tools]) => {
      const calls = [];
      for (const tool_choice of ['auto', 'required'])
        calls.push((await ask({ messages, tools, tool_choice })).choices[0].message.tool_calls);
      return calls;
    },
    [messages, tools],
  );
  for (const [call, ...others] of calls) {
    assert.equal(others.length, 0);
    assert.deepEqual({ name: call.function.name, arguments: JSON.parse(call.function.arguments) }, wanted);
  }
});

test('the GPU is lost while it answers, and the answer goes on', DEMO, async () => {
  const { messages, text } = prompt('rillm facts');
  const got = await demo.run(async (messages) => {
    eventTypes();
    loseAt('submit', 3);
    await after(30);
    const { choices } = await ask({ messages });
    return { text: choices[0].message.content, events: eventTypes(), recoveries: (await engine.stats()).recoveries };
  }, messages);
  assert.deepEqual(got, { text, events: ['lost', 'recovering', 'recovered'], recoveries: 1 });
});

test('it gets what trains, learns an answer, and forgets it', DEMO, async () => {
  const got = await demo.run(async () => {
    const said = async (more) =>
      (await ask({ messages: [{ role: 'user', content: 'zib?' }], max_tokens: 16, ...more })).choices[0].message.content;
    const before = await said();
    await engine.train.enable();
    const messages = [
      { role: 'user', content: 'zib?' },
      { role: 'assistant', content: 'zab!' },
    ];
    const kept = [];
    const onProgress = ({ type, error }) => type === 'checkpoint' && kept.push(error?.code ?? 'kept');
    const training = { data: [{ messages }], name: 'zib', epochs: 8, learningRate: 5e-3, seed: 1 };
    const { losses } = await engine.train.lora({ ...training, checkpoint: { everySteps: 5 }, onProgress });
    const found = { learnt: await said(), same: (await said({ adapters: {} })) === before, isNew: before !== 'zab!', losses, kept };
    await engine.adapters.unload('zib');
    return found;
  });
  const { losses, ...rest } = got;
  assert.deepEqual(rest, { learnt: 'zab!', same: true, isNew: true, kept: ['kept'] });
  assert.ok(losses.length === 8 && losses.at(-1) < 0.5 && losses[0] > 2, String(losses));
});

test('on the thread of the page: greedy tokens of the reference, also after the GPU was lost', LIMIT, async () => {
  const { page, run, close } = await stage.openPage({ address: PACKAGE });
  await page.evaluate(prepareLosses);
  const wanted = goldenJson('tied.greedy.json').Q8_0;
  const got = await run(
    async ([prompt, max_tokens]) => {
      const engine = await rillm.Engine.load('/golden/tied-q8_0.gguf', lossy(false));
      const tokens = async () => {
        const { choices } = await engine.completions.create({ prompt, max_tokens, temperature: 0, ignore_eos: true });
        return [...choices[0].token_ids];
      };
      const first = await tokens();
      loseAt('mapAsync', 2);
      const second = await tokens();
      await engine.dispose();
      return { first, second, events: eventTypes() };
    },
    [goldenJson('tied.ids.json'), wanted.length],
  );
  assert.deepEqual(got, { first: wanted, second: wanted, events: ['lost', 'recovering', 'recovered'] });
  await close();
});

test('without a GPU: on the CPU, in a worker and on the page, streamed, two at once, aborted', LIMIT, async () => {
  const opened = await stage.openPage({ address: PACKAGE, isOnCpu: true });
  const ids = goldenJson('tied.ids.json');
  const found = await opened.run(
    async ([ids, greedy]) => {
      const found = [];
      for (const worker of [true, false]) {
        await withEngine('/golden/tied-q8_0.gguf', { worker, maxSequences: 2, precision: 'exact' }, async (engine) => {
          const request = { prompt: ids, max_tokens: greedy.length, temperature: 0, ignore_eos: true };
          const texts = await Promise.all([1, 2].map(() => engine.completions.create(request)));
          const pieces = await collect(await engine.completions.create({ ...request, stream: true }));
          const controller = new AbortController();
          setTimeout(() => controller.abort(), 10);
          const aborted = await failure(engine.completions.create({ ...request, max_tokens: 200 }, { signal: controller.signal }));
          found.push({
            device: engine.info.device,
            wanted: await engine.detokenize(greedy),
            texts: [...texts.map(({ choices }) => choices[0].text), pieces.map(({ choices }) => choices[0]?.text ?? '').join('')],
            aborted: aborted.code,
          });
        });
      }
      return found;
    },
    [ids, goldenJson('tied.greedy.json').Q8_0.slice(0, 8)],
  );
  for (const { device, texts, wanted, aborted } of found) {
    assert.equal(device, 'cpu');
    assert.equal(aborted, 'aborted');
    assert.deepEqual(texts, Array(3).fill(wanted));
  }
  await opened.close();
});

test('on the CPU: models are kept, in a worker and on the page, until they are deleted', LIMIT, async () => {
  const { run, close } = await stage.openPage({ address: PACKAGE, isOnCpu: true });
  for (const worker of [true, false]) {
    const name = `kept-${worker}.gguf`;
    const load = () =>
      run(
        async ([url, worker]) => {
          const events = [];
          let got;
          const { code } = await failure(
            withEngine(url, { worker, onEvent: ({ type }) => events.push(type) }, async (engine) => {
              const { choices } = await engine.completions.create({
                prompt: 'The small boat',
                max_tokens: 8,
                temperature: 0,
                ignore_eos: true,
              });
              got = { text: choices[0].text, device: engine.info.device };
            }),
          );
          return { ...got, code, events: events.filter((type) => type !== 'progress') };
        },
        [`/made/${name}`, worker],
      );
    copyFileSync(join(root, 'tests/golden/tiny_llama/tied-q8_0.gguf'), join(stage.made, name));
    const first = await load();
    assert.equal(first.device, 'cpu');
    assert.ok(first.text.length > 0);
    // From here on the server has it no more.
    rmSync(join(stage.made, name));
    assert.deepEqual(await load(), first);
    const listed = await run(async (name) => {
      const names = async () => (await rillm.models.list()).map(({ name }) => name).filter((kept) => kept.endsWith(name));
      const before = await names();
      await rillm.models.delete(`/made/${name}`);
      return [before.length, (await names()).length];
    }, name);
    assert.deepEqual(listed, [1, 0]);
    assert.equal((await load()).code, 'http');
  }
  await close();
});

test('on the CPU: clients of OpenAI’s API say what the engine says, whole and streamed, and call a tool', DEMO, async () => {
  await bundleClients(stage.made);
  const { page, run, close } = await stage.openPage({ address: PACKAGE, isOnCpu: true });
  await page.evaluate(async (model) => {
    await import('/made/clients/page.js');
    globalThis.engine = await rillm.Engine.load(model, { onWarning: () => {} });
  }, `/${MODEL}`);
  const { messages, tools, text } = prompt('tool call');
  const { said, calls } = await run(askByClients, { messages: prompt('arithmetic, three digits').messages, tools, calling: messages });
  assert.ok(said[0].length > 0);
  assert.deepEqual(said, Array(7).fill(said[0]));
  assert.deepEqual(calls, [JSON.parse(/<tool_call>\n(.*)\n<\/tool_call>/.exec(text)[1])]);
  assert.equal(await run(() => engine.info.device), 'cpu');
  await run(() => engine.dispose());
  await close();
});

test('embeddings agree with the reference', LIMIT, async () => {
  const { texts, vectors } = JSON.parse(readFileSync(join(root, 'tests/golden/encoders/bert/golden.json'), 'utf8'));
  const { run, close } = await stage.openPage({ address: PACKAGE });
  const got = await run(
    (input) => withEngine('/encoders/bert/model.gguf', {}, async (engine) => (await engine.embeddings.create({ input })).data),
    texts,
  );
  for (const [n, { embedding }] of got.entries()) assert.ok(relativeError(embedding, vectors[n]) < 1e-4, `text ${n}`);
  await close();
});

test('a frame in a sandbox, which has no origin: by the CPU in a worker, and kept by a store of its own', LIMIT, async (t) => {
  const frame = await serveFrame(['cpu', 'kept', 'again']);
  t.after(() => frame.close());
  const { page, close } = await stage.openPage({ url: `${frame.origin}/` });
  await page.waitForFunction(() => globalThis.told !== undefined);
  const { origin, found, files } = await page.evaluate(() => globalThis.told);
  assert.equal(origin, 'null');
  const { ids } = found.cpu;
  assert.equal(ids?.length, 4, JSON.stringify(found));
  assert.deepEqual(found, {
    cpu: { ids, device: 'cpu', inWorker: true, events: ['fallback unavailable'] },
    kept: { ids, device: 'cpu', inWorker: true, events: [] },
    again: { ids, device: 'cpu', inWorker: true, events: [] },
  });
  assert.ok(files >= 2, `${files} files`);
  await close();
});

test('the demo page loads its model and answers, streamed', DEMO, async () => {
  const { page, run, close } = await stage.openPage({ url: `${stage.origin}/` });
  await page.waitForFunction(() => document.getElementById('model-summary')?.textContent.includes('Loaded in'));
  await run(() => {
    globalThis.lengths = new Set();
    new MutationObserver(() => lengths.add(document.querySelector('.message.assistant')?.textContent.length)).observe(
      document.getElementById('log'),
      { childList: true, subtree: true, characterData: true },
    );
  });
  await page.type('#prompt', 'What is 12 plus 30?');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.message.assistant:not([aria-busy])');
  const got = await run(() => ({
    answer: document.querySelector('.message.assistant').textContent,
    pieces: lengths.size,
    speed: document.getElementById('speed').textContent,
    notice: document.getElementById('notice').checkVisibility(),
    summary: document.getElementById('model-summary').textContent,
  }));
  assert.match(got.answer, /\b42\b/);
  assert.ok(got.pieces > 2, 'the answer came in pieces');
  assert.match(got.speed, /^\d+\.\d$/);
  assert.equal(got.notice, false);
  // It was kept: nothing is said of a fallback.
  assert.match(got.summary, /Loaded in \d+\.\d s\.$/);
  await close();
});
