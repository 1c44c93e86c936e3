// Structured output in Chromium: the second wasm comes when it is first asked for and not before, in the worker and on the page; and
// what goes wrong is told before anything is generated.

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { openStage, root } from './browser.mjs';

const MODEL = join(root, 'models/demo/rillm-demo-q4_0.gguf');
const SKIP = existsSync(MODEL) ? false : 'models/demo/rillm-demo-q4_0.gguf is not there';
const LIMIT = { timeout: 240_000, skip: SKIP };

let stage;
before(async () => (stage = await openStage()));
after(() => stage.close());

const SCHEMA = {
  type: 'object',
  properties: {
    name: { type: 'string', maxLength: 20 },
    age: { type: 'integer', minimum: 0, maximum: 120 },
    tags: { type: 'array', items: { enum: ['a', 'b'] }, maxItems: 2 },
  },
  required: ['name', 'age', 'tags'],
  additionalProperties: false,
};

for (const worker of [true, false]) {
  test(`the grammar engine is fetched when it is first asked for, ${worker ? 'in the worker' : 'on the page'}`, LIMIT, async () => {
    const { page, close } = await stage.openPage();
    const fetched = [];
    page.context().on('request', (request) => fetched.push(request.url()));
    const grammars = () => fetched.filter((url) => url.endsWith('rillm_grammar_bg.wasm')).length;
    await page.evaluate(async (worker) => {
      globalThis.rillm = await import('/rillm/dist/index.js');
      globalThis.engine = await rillm.Engine.load('/models/demo/rillm-demo-q4_0.gguf', { worker });
      globalThis.ask = (more, content = 'Tell me a story.') =>
        engine.chat.completions.create({ messages: [{ role: 'user', content }], temperature: 0, max_tokens: 100, ...more });
      await ask({ max_tokens: 4 });
    }, worker);
    assert.equal(grammars(), 0);
    const answers = await page.evaluate(async (schema) => {
      const response_format = { type: 'json_schema', json_schema: { name: 'person', strict: true, schema } };
      const first = await ask({ response_format });
      let streamed = '';
      for await (const chunk of await ask({ response_format, stream: true })) streamed += chunk.choices[0]?.delta.content ?? '';
      const others = [];
      for (const structured_outputs of [
        { regex: '[a-z]{3,8} [0-9]{2}' },
        { choice: ['red fox', 'grey wolf'] },
        { grammar: 'start: ("ab" | "ba"){2,3} "."' },
        { json_object: true },
      ]) {
        others.push(await ask({ structured_outputs }, 'Anna is 12 years old. Answer in JSON with the keys name and age.'));
      }
      const refusals = [];
      for (const structured_outputs of [
        { regex: 'a(b' },
        { grammar: 'start: "a"\nfoo ::: 1' },
        { json: { type: 'integer', minimum: 2, maximum: 1 } },
      ]) {
        for (const stream of [false, true])
          refusals.push(
            await ask({ structured_outputs, stream }).then(
              () => ({}),
              ({ code, message }) => ({ code, message }),
            ),
          );
      }
      const text = ({ choices: [{ message, finish_reason }] }) => [message.content, finish_reason];
      const usable = text(await ask({ max_tokens: 3 }));
      await engine.dispose();
      return { first: text(first), streamed, others: others.map(text), refusals, usable };
    }, SCHEMA);
    assert.equal(grammars(), 1);
    const [json, reason] = answers.first;
    const value = JSON.parse(json);
    assert.deepEqual(
      [Object.keys(value), typeof value.name, typeof value.age, Array.isArray(value.tags), reason],
      [['name', 'age', 'tags'], 'string', 'number', true, 'stop'],
    );
    assert.equal(answers.streamed, json);
    const [regex, choice, grammar, object] = answers.others;
    assert.match(regex[0], /^[a-z]{3,8} [0-9]{2}$/);
    assert.ok(['red fox', 'grey wolf'].includes(choice[0]), choice[0]);
    assert.match(grammar[0], /^(ab|ba){2,3}\.$/);
    assert.deepEqual(JSON.parse(object[0]), { name: 'Anna', age: 12 });
    for (const [, ended] of answers.others) assert.equal(ended, 'stop');
    for (const { code } of answers.refusals) assert.equal(code, 'invalid_request');
    assert.match(answers.refusals[0].message, /structured_outputs\.regex.*unclosed group/s);
    assert.match(answers.refusals[2].message, /2\(/);
    assert.match(answers.refusals[4].message, /nsatisfiable/);
    assert.equal(answers.usable[1], 'length');
    await close();
  });
}

test('a grammar wasm that is not served is told by name, and what needs none goes on', LIMIT, async () => {
  const { failed, answer } = await stage.runWith({ allowed: [/Failed to load resource/] }, async () => {
    const engine = await rillm.Engine.load('/models/demo/rillm-demo-q4_0.gguf', { grammarWasmUrl: '/status/404/nowhere.wasm' });
    const request = { messages: [{ role: 'user', content: 'Hello!' }], temperature: 0, max_tokens: 3 };
    const failed = await failure(() => engine.chat.completions.create({ ...request, response_format: { type: 'json_object' } }));
    const answer = await engine.chat.completions.create(request);
    await engine.dispose();
    return { failed, answer: answer.choices[0].finish_reason };
  });
  assert.equal(failed.code, 'wasm_unavailable');
  assert.match(failed.message, /grammarWasmUrl/);
  assert.equal(answer, 'length');
});
