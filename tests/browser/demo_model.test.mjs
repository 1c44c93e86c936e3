// The demo model in Chromium against its reference: the greedy answers to held-out prompts. An answer may differ only where
// the reference itself hardly preferred its token, because sums of floats in another order can turn such a choice round.

import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { openStage, root } from './browser.mjs';

const MODEL = 'models/demo/rillm-demo-q8_0.gguf';
/** Made by tools/demo-model/eval.py: per prompt the messages, tools, and the reference's text, tokens and margins. */
const PROMPTS = 'models/demo/eval-prompts.json';
/**
 * Prompts of each skill, of the dozen that the file has: all of them take six minutes on a software GPU. `tests/engine/fidelity.rs` holds
 * the greedy choices after a hundred of them to the same reference.
 */
const PER_SKILL = 3;
/** New tokens that the reference wrote at most. */
const MAX_TOKENS = 240;
/** The least of the answers that are equal to the reference's, to the letter. */
const EQUAL = 0.95;
/** Answers that are written at the same time: a step of four takes little longer than a step of one. */
const TOGETHER = 4;
/** Logits by which the reference preferred its token to the next best, at most, where ours may differ. */
const NEAR_TIE = 0.05;

const missing = [MODEL, PROMPTS].filter((file) => !existsSync(join(root, file)));

let stage;
before(async () => (stage = await openStage()));
after(() => stage.close());

/** The number of tokens that two answers share at their beginning. */
function sharedTokens(a, b) {
  let shared = 0;
  while (shared < Math.min(a.length, b.length) && a[shared] === b[shared]) shared++;
  return shared;
}

test('greedy answers of the demo model agree with the reference', {
  timeout: 900_000,
  skip: missing.length > 0 && `not there: ${missing.join(', ')}`,
}, async (t) => {
  const prompts = JSON.parse(readFileSync(join(root, PROMPTS), 'utf8')).filter(
    ({ skill }, i, all) => all.slice(0, i).filter((earlier) => earlier.skill === skill).length < PER_SKILL,
  );
  assert.ok(prompts.length >= 30, `${prompts.length} prompts are too few to judge by`);
  const answers = await stage.run(
    ([url, requests, maxSequences]) =>
      withEngine(url, { maxSequences }, async (engine) => {
        const answer = async (request) => {
          const { choices, usage } = await engine.chat.completions.create(request);
          // As the model wrote it: calls are no part of the content.
          const text = (await engine.detokenize(choices[0].token_ids)).replace(/<\|im_end\|>$/, '');
          return { text, ids: [...choices[0].token_ids], promptTokens: usage.prompt_tokens };
        };
        return Promise.all(requests.map(answer));
      }),
    `/${MODEL}`,
    prompts.map(({ messages, tools }) => ({ messages, ...(tools ? { tools } : {}), max_tokens: MAX_TOKENS, temperature: 0 })),
    TOGETHER,
  );

  const wrong = [];
  let equal = 0;
  prompts.forEach(({ messages, text, token_ids: ids, margins, prompt_tokens: promptTokens }, i) => {
    const answer = answers[i];
    // Another prompt would make every comparison after it meaningless.
    assert.equal(answer.promptTokens, promptTokens, `prompt ${i} has another number of tokens: ${JSON.stringify(messages)}`);
    if (answer.text === text) {
      equal += 1;
      return;
    }
    const at = sharedTokens(answer.ids, ids);
    const told = [
      `prompt ${i}: ${JSON.stringify(messages)}`,
      `  ours:      ${JSON.stringify(answer.text)}`,
      `  reference: ${JSON.stringify(text)}`,
      `  first difference at token ${at}, where the reference's margin is ${margins[at]} logits`,
    ].join('\n');
    t.diagnostic(told);
    if (!(margins[at] < NEAR_TIE)) wrong.push(told);
  });
  t.diagnostic(`${equal} of ${prompts.length} answers are equal`);
  assert.deepEqual(wrong, [], `the answers differ where the reference's margin is ${NEAR_TIE} or more:\n${wrong.join('\n')}`);
  assert.ok(equal >= EQUAL * prompts.length, `${equal} of ${prompts.length} answers are equal`);
});
