// What a page may be fed: half characters, templates that would not end, and grammars that are too large. Each is answered or refused with its
// code, and the engine goes on.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { sharedStage } from './browser.mjs';

const LIMIT = { timeout: 60_000 };
const MODEL = '/golden/tied-q8_0.gguf';

const shared = sharedStage();

for (const worker of [true, false]) {
  const where = worker ? 'in the worker' : 'on the page';
  const withModel = (fn, argument = {}) => shared.engines.use(MODEL, { worker }, fn, argument);

  test(`half a character is U+FFFD, wherever it stands (${where})`, LIMIT, async () => {
    const ids = await withModel(async (engine) => {
      const asked = async (content, more = {}) => {
        const messages = [{ role: 'user', content }];
        const answer = await engine.chat.completions.create({ messages, temperature: 0, max_tokens: 3, ...more });
        return [answer.usage.prompt_tokens, ...answer.choices[0].token_ids];
      };
      const completion = await engine.completions.create({ prompt: 'cut \ud83d', max_tokens: 2, temperature: 0 });
      return {
        half: [await asked('cut \ud83d'), await asked('\ude00 cut'), await asked('\\ud83d \ud83d\ude00')],
        whole: [await asked('cut \ufffd'), await asked('\ufffd cut'), await asked('\\ud83d 😀')],
        stop: await asked('cut', { stop: ['\ud83d'], user: '\udc00' }),
        tokens: [[...(await engine.tokenize('\ud83d'))], [...(await engine.tokenize('\ufffd'))]],
        completion: completion.usage.completion_tokens,
      };
    });
    assert.deepEqual(ids.half, ids.whole);
    assert.deepEqual(ids.tokens[0], ids.tokens[1]);
    assert.ok(ids.stop.length > 1 && ids.completion > 0);
  });

  test(`grammars at their limits compile, and what is larger is refused before anything is generated (${where})`, LIMIT, async () => {
    const { fine, refused, alive } = await withModel(async (engine) => {
      const ask = (more) =>
        engine.chat.completions.create({ messages: [{ role: 'user', content: 'a' }], max_tokens: 24, temperature: 0, ...more });
      const json = (schema) => ({ response_format: { type: 'json_schema', json_schema: { name: 'a', schema } } });
      const names = (n) => Array.from({ length: n }, (_, i) => `p${i}`);
      const object = (n, required) => ({
        type: 'object',
        properties: Object.fromEntries(names(n).map((name) => [name, { type: 'integer' }])),
        required: names(required),
        additionalProperties: false,
      });
      const definition = (i, n) => (i === n - 1 ? { type: 'integer' } : { $ref: `#/$defs/p${i + 1}` });
      const refs = (n) => ({ $ref: '#/$defs/p0', $defs: Object.fromEntries(names(n).map((name, i) => [name, definition(i, n)])) });
      const chain = (n) =>
        `start: r1\n${names(n - 2)
          .map((_, i) => `r${i + 1}: "a" r${i + 2}\n`)
          .join('')}r${n - 1}: "b"\n`;
      const lark = (n) => ({ structured_outputs: { grammar: chain(n) } });
      let nested = { type: 'integer' };
      for (let i = 0; i < 3000; i++) nested = { type: 'array', items: nested };
      const fine = [];
      for (const request of [json(object(1000, 1000)), json(object(400, 0)), json(refs(300)), lark(500)]) {
        fine.push((await ask(request)).usage.completion_tokens);
      }
      const refused = [];
      const stop = 'a'.repeat(16_385);
      for (const request of [json(object(1001, 1001)), json(object(401, 0)), json(refs(301)), json(nested), lark(501), { stop }]) {
        refused.push(await failure(ask(request)));
      }
      return { fine, refused, alive: (await ask({})).usage.completion_tokens };
    });
    for (const tokens of fine) assert.ok(tokens > 0);
    assert.deepEqual(
      refused.map(({ code }) => code),
      Array(6).fill('invalid_request'),
    );
    for (const [index, word] of ['1001 keys', '401 properties', '301 definitions', 'nested', '501 rules', '16385 bytes'].entries()) {
      assert.match(refused[index].message, new RegExp(word));
    }
    assert.ok(alive > 0);
  });
}

test('templates that would not end are stopped, on the page too, and the next one renders', LIMIT, async () => {
  const { refused, rendered, slowest } = await shared.stage.run(async () => {
    const loops = (n, body) => '{% for i in range(9999) %}'.repeat(n) + body + '{% endfor %}'.repeat(n);
    const templates = [
      loops(3, 'x'),
      `{% for i in range(99999) %}${'x'.repeat(100_000)}{% endfor %}`,
      '{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}',
    ];
    const refused = [];
    let slowest = 0;
    for (const template of templates) {
      const begin = performance.now();
      refused.push(await failure(rillm.renderTemplate(template, {})));
      slowest = Math.max(slowest, performance.now() - begin);
    }
    return { refused, slowest, rendered: await rillm.renderTemplate('{{ a }}', { a: 'half \ud83d' }) };
  });
  assert.deepEqual(
    refused.map(({ code }) => code),
    Array(3).fill('chat_template'),
  );
  assert.equal(rendered, 'half \ufffd');
  console.log(`the slowest template was stopped after ${Math.round(slowest)} ms`);
});
