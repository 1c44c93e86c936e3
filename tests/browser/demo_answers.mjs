// Answers of the demo model that every browser gives alike: those of its reference.

import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { root } from './browser.mjs';

export const MODEL = 'models/demo/rillm-demo-q8_0.gguf';
/** Why tests that need it are skipped; false if it is there. */
export const NO_MODEL = existsSync(join(root, MODEL)) ? false : `${MODEL} is not there`;

/** The first prompt of a skill, with the reference's greedy answer: no other token came near to any of it. */
export function prompt(skill) {
  const all = JSON.parse(readFileSync(join(root, 'models/demo/eval-prompts.json'), 'utf8'));
  const found = all.find((prompt) => prompt.skill === skill && prompt.smallest_margin > 3);
  assert.ok(found, `no clear prompt of the skill ${skill}`);
  return found;
}

/** Tests of one and of several answers. `run` runs a function in a page that has the functions `collect` and `ask`, which asks the demo model. */
export function testAnswers(options, run) {
  test('a streamed answer is the reference to the letter', options, async () => {
    const { messages, text, prompt_tokens } = prompt('arithmetic, three digits');
    const got = await run(async (messages) => {
      const chunks = await collect(await ask({ messages, stream: true, stream_options: { include_usage: true } }));
      const pieces = chunks.flatMap(({ choices }) => choices[0]?.delta.content || []);
      return { text: pieces.join(''), pieces: pieces.length, usage: chunks.at(-1).usage };
    }, messages);
    assert.equal(got.text, text);
    assert.ok(got.pieces > 2, `the answer came in ${got.pieces} pieces`);
    assert.equal(got.usage.prompt_tokens, prompt_tokens);
  });

  test('four requests at once, each as by itself', options, async () => {
    const prompts = ['word work', 'rillm facts', 'json', 'system prompt'].map(prompt);
    const texts = await run(
      (all) => Promise.all(all.map(async (messages) => (await ask({ messages })).choices[0].message.content)),
      prompts.map(({ messages }) => messages),
    );
    assert.deepEqual(
      texts,
      prompts.map(({ text }) => text),
    );
  });
}
