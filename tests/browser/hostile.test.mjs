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

  test(`data that is larger than it looks is refused before it is copied (${where})`, LIMIT, async () => {
    const { refused, fine, alive, recoveries } = await withModel(async (engine) => {
      const ask = (more) =>
        engine.chat.completions.create({ messages: [{ role: 'user', content: 'a' }], max_tokens: 2, temperature: 0, ...more });
      // Each refers to the one before several times: as a text they would be of 4,782,969 and of 2^60 parts.
      let schema = { type: 'integer' };
      for (let i = 0; i < 14; i++) {
        schema = { anyOf: [schema, { type: 'array', items: schema }, { type: 'object', properties: { a: schema } }] };
      }
      let doubled = ['x'];
      for (let i = 0; i < 60; i++) doubled = [doubled, doubled];
      const message = { role: 'user', content: 'x'.repeat(2 ** 20) };
      const refused = {};
      for (const [name, more] of Object.entries({
        schema: { response_format: { type: 'json_schema', json_schema: { name: 'a', schema } } },
        doubled: { chat_template_kwargs: { doubled } },
        endless: { stop: new Proxy([], { get: (list, key) => (key === 'length' ? 2 ** 53 - 1 : list[key]) }) },
        growing: { stop: new Proxy([], { get: (list, key) => (key === 'length' ? (list.push('a'), list.length + 2 ** 24) : list[key]) }) },
        long: { messages: Array(100).fill(message) },
      })) {
        const begin = performance.now();
        refused[name] = { ...(await failure(ask(more))), ms: performance.now() - begin };
      }
      const fine = [];
      const chat_template_kwargs = {
        many: Array(2 ** 20).fill(7),
        words: Array(2 ** 17).fill('a'),
        nested: Array(2 ** 17).fill({ a: true }),
      };
      fine.push((await ask({ chat_template_kwargs })).usage.completion_tokens);
      const alive = (await ask({})).usage.completion_tokens;
      return { refused, fine, alive, recoveries: (await engine.stats()).recoveries };
    });
    for (const [name, { code, message, ms }] of Object.entries(refused)) {
      assert.equal(code, 'invalid_request', `${name}: ${message}`);
      assert.match(message, /is too large: at most 1,048,576 objects/, name);
      assert.ok(ms < 15_000, `${name}: ${ms} ms`);
    }
    assert.ok(fine[0] > 0 && alive > 0);
    assert.equal(recoveries ?? 0, 0);
  });

  test(
    `templates made to use up memory, stack or time end in an error, and the engine goes on without a recovery (${where})`,
    LIMIT,
    async () => {
      const { refused, fine, alive, recoveries, grown } = await withModel(async (engine) => {
        const ask = (chat_template) =>
          engine.chat.completions.create({
            messages: [{ role: 'user', content: 'a' }],
            max_tokens: 2,
            temperature: 0,
            ...(chat_template && { chat_template }),
          });
        const repeated = (start, body) => `{% set n = namespace(${start}) %}{% for i in range(99999) %}${body}{% endfor %}{{ n.x }}`;
        const large = (body) => repeated("x='x' * 8388608, y='x' * 8388608", body);
        const templates = {
          doubled: repeated("x='xxxxxxxxxx'", '{% set n.x = n.x ~ n.x %}'),
          nested: repeated('x=[1]', '{% set n.x = [n.x] %}'),
          shared: repeated('x=[1]', '{% set n.x = [n.x, n.x] %}'),
          itself: repeated('x=1', '{% set n.x = n %}'),
          captured: repeated("x='xxxxxxxxxx'", '{% set x %}{{ n.x }}{{ n.x }}{% endset %}{% set n.x = x %}'),
          replaced: repeated("x='xxxxxxxxxx'", "{% set n.x = n.x|replace('x', n.x) %}"),
          kept: repeated("x=''", `${Array.from({ length: 80 }, (_, i) => `{% set n.a${i} = 'x' * 8388608 ~ i %}`).join('')}`),
          compared: large('{% if n.x == n.y %}{% endif %}'),
          titled: large('{% set a = n.x|title %}'),
          listed: large('{% set a = n.x|list|sort %}'),
          constant: "{{ 'x' * 1000 * 1000 * 1000 * 1000 }}",
          chain: `{{ a ${'~ a '.repeat(50_000)} }}`,
          brackets: `{{ ${'('.repeat(140)}1${')'.repeat(140)} ${'['.repeat(50_000)} }}`,
          macros: '{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}',
          blocks: '{% block a %}{% if 1 %}{% for b in [1] %}{{ self.a() }}{% endfor %}{% endif %}{% endblock %}',
          steps: '{% for i in range(9999) %}{% for j in range(9999) %}{% set a = [i + j, i * j] %}{% endfor %}{% endfor %}',
        };
        const deep = (n, open, close, inner) => open.repeat(n) + inner + close.repeat(n);
        // Deep enough to show that the limits end before the stack does.
        const atLimits = [
          `{{ ${deep(70, '(', ')', "'a'")} }}`,
          `{{ ('a'${" ~ 'a'".repeat(245)})|length }}`,
          deep(140, '{% if 1 %}', '{% endif %}', 'a'),
          `{% set n = namespace(x=1) %}{% for i in range(190) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x|string|length if n.x == n.x }}`,
          '{% macro f(n) %}{{ f(n - 1) if n }}a{% endmacro %}{{ f(40) }}',
        ];
        const before = await engine.stats();
        const fine = [];
        for (const template of atLimits) fine.push((await ask(template)).usage.prompt_tokens);
        const refused = {};
        for (const [name, template] of Object.entries(templates)) {
          const begin = performance.now();
          const { code, message } = await failure(ask(template));
          refused[name] = { code, message: message.slice(0, 300), ms: performance.now() - begin };
        }
        const alive = (await ask()).usage.completion_tokens;
        const after = await engine.stats();
        return { refused, fine, alive, recoveries: after.recoveries, grown: after.wasm_memory_bytes - before.wasm_memory_bytes };
      });
      for (const [name, { code, message }] of Object.entries(refused)) assert.equal(code, 'chat_template', `${name}: ${message}`);
      for (const tokens of fine) assert.ok(tokens > 0);
      assert.ok(alive > 0);
      assert.equal(recoveries ?? 0, 0);
      assert.ok(grown < 1.2e9, `${grown} bytes`);
      const [name, { ms }] = Object.entries(refused).sort(([, a], [, b]) => b.ms - a.ms)[0];
      console.log(`${where}: the slowest template, ${name}, was stopped after ${Math.round(ms)} ms; the memory grew by ${grown} bytes`);
    },
  );
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
