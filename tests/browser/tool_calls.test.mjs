// Tool calls, reasoning and what ends an answer, as a page sees them, with the demo model in Chromium.

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { openStage, root } from './browser.mjs';

const MODEL = 'models/demo/rillm-demo-q4_0.gguf';
const skip = !existsSync(join(root, MODEL)) && `not there: ${MODEL}`;

const tool = (name, argument) => ({
  type: 'function',
  function: {
    name,
    description: name,
    parameters: { type: 'object', properties: { [argument]: { type: 'string' } }, required: [argument] },
  },
});
const tools = [tool('get_weather', 'city'), tool('calculator', 'expression')];
const messages = [{ role: 'user', content: 'What is the weather in Oslo?' }];
/** A template that opens reasoning, which the demo model never closes by itself. */
const thinking = '{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n<think>\n';

let stage;
before(async () => (stage = await openStage()));
after(() => stage.close());

test('calls, reasoning and ends in the shapes of the API', { timeout: 300_000, skip }, async () => {
  const seen = await stage.run(
    ([url, tools, messages, thinking]) =>
      withEngine(url, {}, async (engine) => {
        const ask = (request) => engine.chat.completions.create({ messages, temperature: 0, max_tokens: 100, ...request });
        const whole = await ask({ tools });
        const parts = [];
        for await (const part of await ask({ tools, stream: true })) parts.push(part);
        const forced = await ask({ tools, tool_choice: { type: 'function', function: { name: 'calculator' } } });
        const none = await ask({ tools, tool_choice: 'none' });
        const thought = await ask({ chat_template: thinking, thinking_token_budget: 4, min_tokens: 16, max_tokens: 20 });
        const stopped = await ask({ messages: [{ role: 'user', content: 'Tell me a story.' }], stop: ' a' });
        const refused = [];
        for (const request of [{ tools, tool_choice: 'always' }, { tools: [...tools, tools[0]] }, { tool_choice: 'required' }]) {
          refused.push(
            await ask(request).then(
              () => 'taken',
              (error) => [error.code, error.message],
            ),
          );
        }
        return { whole, parts, forced, none, thought, stopped, refused };
      }),
    `/${MODEL}`,
    tools,
    messages,
    thinking,
  );

  const [choice] = seen.whole.choices;
  assert.equal(choice.finish_reason, 'tool_calls');
  assert.equal(choice.message.content, null);
  const [call] = choice.message.tool_calls;
  assert.deepEqual([call.type, call.function.name, JSON.parse(call.function.arguments)], ['function', 'get_weather', { city: 'Oslo' }]);
  assert.match(call.id, /^call_[A-Za-z0-9]{24}$/);

  const deltas = seen.parts.flatMap(({ choices }) => choices.flatMap(({ delta }) => delta.tool_calls ?? []));
  assert.equal(deltas[0].function.name, 'get_weather');
  assert.equal(deltas.filter(({ id }) => id !== undefined).length, 1);
  assert.equal(deltas.map((delta) => delta.function.arguments).join(''), call.function.arguments);
  assert.equal(seen.parts.at(-1).choices[0].finish_reason, 'tool_calls');
  assert.ok(seen.parts.every(({ choices }) => choices.every(({ delta }) => !delta.content)));

  const [forced] = seen.forced.choices;
  assert.deepEqual([forced.message.tool_calls.length, forced.message.tool_calls[0].function.name], [1, 'calculator']);
  const [none] = seen.none.choices;
  assert.equal(none.message.tool_calls, undefined);
  assert.equal(none.finish_reason, 'stop');

  const [thought] = seen.thought.choices;
  assert.ok(thought.message.reasoning_content?.length > 0 && thought.message.content?.length > 0, JSON.stringify(thought));
  assert.ok(seen.thought.usage.completion_tokens_details.reasoning_tokens >= 4);
  assert.equal(seen.stopped.choices[0].stop_reason, ' a');
  assert.equal(seen.stopped.choices[0].finish_reason, 'stop');
  assert.deepEqual(
    seen.refused.map(([code]) => code),
    Array(3).fill('invalid_request'),
  );
  assert.match(seen.refused[0][1], /tool_choice is "always"/);
});
