// An encoder-decoder in Chromium: the answer of the reference, whole and as a stream, an abort, and what is refused.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { openStage, root } from './browser.mjs';

const FOLDER = join(root, 'tests/golden/encoder_decoders/flan_t5');
const { cases } = JSON.parse(readFileSync(join(FOLDER, 'golden.json'), 'utf8'));

let stage;
before(async () => (stage = await openStage()));
after(() => stage.close());

test('a prompt is read once and answered', { timeout: 120_000 }, async () => {
  const [{ text, source, answer }] = cases;
  const got = await stage.run(
    (prompt) =>
      withEngine('/encoder_decoders/flan_t5/model.gguf', {}, async (engine) => {
        const failure = async (work) => {
          try {
            return await work();
          } catch ({ code, message }) {
            return { code, message };
          }
        };
        const request = { prompt, temperature: 0, max_tokens: 32, ignore_eos: true };
        const whole = await engine.completions.create(request);
        let streamed = '';
        for await (const chunk of await engine.completions.create({ ...request, stream: true })) streamed += chunk.choices[0]?.text ?? '';
        const aborted = await failure(() => engine.completions.create(request, { signal: AbortSignal.abort() }));
        const chat = await failure(() => engine.chat.completions.create({ messages: [{ role: 'user', content: prompt }] }));
        const forced = await engine.completions.create({ ...request, forced_bos_token_id: '▁das', max_tokens: 3 });
        return { info: engine.info, whole, streamed, aborted, chat, forced };
      }),
    text,
  );
  assert.deepEqual([got.info.generates, got.info.is_encoder_decoder], [true, true]);
  assert.equal(got.whole.choices[0].text, answer);
  assert.equal(got.streamed, answer);
  assert.deepEqual([got.whole.usage.prompt_tokens, got.whole.usage.completion_tokens], [source.length, 32]);
  assert.equal(got.aborted.code, 'aborted');
  assert.equal(got.chat.code, 'invalid_request');
  assert.match(got.chat.message, /encoder.*completions/);
  assert.equal(got.forced.usage.completion_tokens, 3);
});
