// Embeddings in Chromium: a Hugging Face folder and a GGUF file of the same encoder against the reference, OpenAI's shapes, and what
// is refused.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { openStage, relativeError, root } from './browser.mjs';

const ENCODER = join(root, 'tests/golden/encoders/bert');
const reference = JSON.parse(readFileSync(join(ENCODER, 'golden.json'), 'utf8'));

// A plain web server does not list a folder, so files that a model may have are asked for.
const PROBES = { allowed: [/status of 404/] };

let stage;
before(async () => (stage = await openStage()));
after(() => stage.close());

for (const url of ['/encoders/bert/', '/encoders/bert/model.gguf']) {
  for (const worker of [true, false]) {
    test(`${url} agrees with the reference, worker: ${worker}`, async () => {
      const { info, answer, base64 } = await stage.runWith(
        PROBES,
        ([source, texts, inWorker]) =>
          withEngine(source, { worker: inWorker }, async (engine) => ({
            info: engine.info,
            answer: await engine.embeddings.create({ model: 'any', input: texts }),
            base64: await engine.embeddings.create({ input: texts[0], encoding_format: 'base64', dimensions: 7 }),
          })),
        url,
        reference.texts,
        worker,
      );
      assert.equal(info.generates, false);
      assert.equal(info.embeds, true);
      assert.equal(answer.object, 'list');
      assert.equal(answer.data.length, reference.texts.length);
      const tokens = reference.ids.flat().length;
      assert.deepEqual(answer.usage, { prompt_tokens: tokens, total_tokens: tokens });
      for (const [n, { object, index, embedding }] of answer.data.entries()) {
        assert.deepEqual([object, index, embedding.length], ['embedding', n, info.embedding_length]);
        assert.ok(relativeError(embedding, reference.vectors[n]) < 1e-4, `text ${n}`);
      }
      const bytes = Buffer.from(base64.data[0].embedding, 'base64');
      const decoded = Array.from({ length: 7 }, (_, n) => bytes.readFloatLE(4 * n));
      assert.equal(bytes.length, 28);
      const start = answer.data[0].embedding.slice(0, 7);
      const length = Math.hypot(...start);
      assert.ok(
        relativeError(
          decoded,
          start.map((x) => x / length),
        ) < 1e-5,
      );
    });
  }
}

// Rope and a gated feed-forward; positions that begin at 2 and a unigram tokenizer.
for (const [model, worker] of [
  ['nomic_bert', true],
  ['xlm_roberta', false],
]) {
  const { texts, ids, vectors } = JSON.parse(readFileSync(join(root, 'tests/golden/encoders', model, 'golden.json'), 'utf8'));
  for (const url of [`/encoders/${model}/`, `/encoders/${model}/model.gguf`]) {
    test(`${url} agrees with the reference, worker: ${worker}`, async () => {
      const answer = await stage.runWith(
        PROBES,
        ([source, input, inWorker]) => withEngine(source, { worker: inWorker }, (engine) => engine.embeddings.create({ input })),
        url,
        texts,
        worker,
      );
      assert.equal(answer.usage.prompt_tokens, ids.flat().length);
      for (const [n, { embedding }] of answer.data.entries()) {
        assert.ok(relativeError(embedding, vectors[n]) < 1e-4, `text ${n}`);
      }
    });
  }
}

test('what an encoder does not do, and requests that are wrong, reject with codes', async () => {
  const errors = await stage.runWith(
    PROBES,
    ([url, decoder]) =>
      withEngine(url, {}, async (engine) => {
        const code = (work) =>
          work().then(
            () => 'none',
            ({ code }) => code,
          );
        const wrong = [
          () => engine.chat.completions.create({ messages: [{ role: 'user', content: 'Hi' }] }),
          () => engine.completions.create({ prompt: 'Hi' }),
          () => engine.embeddings.create({}),
          () => engine.embeddings.create(null),
          () => engine.embeddings.create({ input: [] }),
          () => engine.embeddings.create({ input: 'a', encoding_format: 'hex' }),
          () => engine.embeddings.create({ input: 'a', dimensions: 1.5 }),
          () => engine.embeddings.create({ input: 'a', model: 7 }),
          () => engine.embeddings.create({ input: 'a '.repeat(100) }),
          () => withEngine(decoder, {}, (other) => other.embeddings.create({ input: 'a' })),
        ];
        const codes = [];
        for (const work of wrong) codes.push(await code(work));
        const cut = await engine.embeddings.create({ input: 'a '.repeat(100), truncate: true });
        // Lone surrogates become U+FFFD, as wherever JavaScript makes UTF-8 of a text.
        const lone = [...(await engine.tokenize('a \ud83d b'))];
        const replaced = [...(await engine.tokenize('a \ufffd b'))];
        return { codes, tokens: cut.usage.prompt_tokens, lone, replaced };
      }),
    '/encoders/bert/',
    '/golden/tied-q8_0.gguf',
  );
  assert.deepEqual(errors.codes, [...Array(8).fill('invalid_request'), 'context_length_exceeded', 'invalid_request']);
  assert.equal(errors.tokens, 64);
  assert.deepEqual(errors.lone, errors.replaced);
});
