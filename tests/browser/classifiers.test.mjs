// Rerankers and classifiers in Chromium against the reference, in a worker, on the page, through fetch and shared by tabs; aborts, losses, and what is
// refused.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { openStage, root } from './browser.mjs';

const golden = (model) => JSON.parse(readFileSync(join(root, 'tests/golden/classifiers', model, 'golden.json'), 'utf8'));
const RERANKER = '/classifiers/bert_reranker/';
const NLI = '/classifiers/bert_nli/';

// A plain web server does not list a folder, so files that a model may have are asked for.
const PROBES = { allowed: [/status of 404/] };

let stage;
before(async () => (stage = await openStage()));
after(() => stage.close());

const near = (got, wanted) => assert.ok(Math.abs(got - wanted) < 1e-3, `${got}, wanted ${wanted}`);

for (const worker of [true, false]) {
  test(`a cross-encoder ranks as the reference, worker: ${worker}`, async () => {
    const { query, documents, pair_logits } = golden('bert_reranker');
    const { info, all, few, viaFetch, codes } = await stage.runWith(
      PROBES,
      ([url, query, documents, worker]) =>
        withEngine(url, { worker }, async (engine) => {
          const asked = { model: 'any', query, documents };
          const post = (path, body) =>
            engine.fetch(`https://any.test${path}`, { method: 'POST', body: JSON.stringify(body) }).then((response) => response.json());
          const code = (promise) =>
            promise.then(
              () => 'none',
              (error) => error.code,
            );
          const controller = new AbortController();
          const many = code(engine.rerank.create({ query, documents: Array(300).fill(documents).flat() }, { signal: controller.signal }));
          controller.abort();
          return {
            info: engine.info,
            all: await engine.rerank.create(asked),
            few: await engine.rerank.create({ query, documents: documents.map((text) => ({ text })), top_n: 2, return_documents: false }),
            viaFetch: await post('/v1/rerank', { ...asked, top_n: 1 }),
            codes: [
              await many,
              await code(engine.rerank.create({ query, documents: [] })),
              await code(engine.rerank.create({ query, documents, instruction: 'a' })),
              await code(engine.rerank.create({ query: 'a '.repeat(100), documents })),
              await code(engine.chat.completions.create({ messages: [{ role: 'user', content: 'Hi' }] })),
              await code(engine.embeddings.create({ input: 'a' })),
              (await post('/v1/rerank', { query })).error.code,
            ],
          };
        }),
      RERANKER,
      query,
      documents,
      worker,
    );
    assert.deepEqual([info.reranks, info.generates, info.embeds, info.labels], [true, false, false, ['LABEL_0']]);
    const wanted = pair_logits.map(([logit], index) => ({ index, logit })).sort((a, b) => b.logit - a.logit);
    assert.deepEqual(
      all.results.map(({ index, document }) => [index, document.text]),
      wanted.map(({ index }) => [index, documents[index]]),
    );
    for (const [at, { relevance_score }] of all.results.entries()) near(relevance_score, wanted[at].logit);
    assert.deepEqual(
      few.results,
      all.results.slice(0, 2).map(({ index, relevance_score }) => ({ index, relevance_score })),
    );
    assert.equal(all.object, 'list');
    assert.deepEqual(viaFetch.results, all.results.slice(0, 1));
    assert.equal(viaFetch.usage.total_tokens, all.usage.total_tokens);
    const [aborted, ...refused] = codes;
    assert.equal(aborted, 'aborted');
    assert.deepEqual(refused, [
      'invalid_request',
      'invalid_request',
      'context_length_exceeded',
      'invalid_request',
      'invalid_request',
      'invalid_request',
    ]);
  });
}

test('labels of pairs are those of the reference, also after a loss of the device', async () => {
  const { query, documents, pair_logits } = golden('bert_nli');
  const { labels, first, again, viaFetch, events } = await stage.runWith(
    { allowed: [/status of 404/, /device|lost|GPU/i] },
    ([url, query, documents]) => {
      const events = [];
      const onEvent = ({ type }) => events.push(type);
      return withEngine(url, { worker: false, onEvent }, async (engine) => {
        const input = documents.map((text) => ({ text: query, text_pair: text }));
        const first = await engine.classify.create({ input });
        engine.gpuDevice.destroy();
        const again = await engine.classify.create({ input });
        const body = JSON.stringify({ input: input[0], use_activation: false });
        const viaFetch = await (await engine.fetch('https://any.test/v1/classify', { method: 'POST', body })).json();
        return { labels: engine.info.labels, first, again, viaFetch, events };
      });
    },
    NLI,
    query,
    documents,
  );
  assert.deepEqual(labels, ['contradiction', 'entailment', 'neutral']);
  assert.ok(events.includes('recovered'), events.join());
  assert.deepEqual(again.data, first.data);
  for (const [n, { index, label, probs, num_classes }] of first.data.entries()) {
    const total = pair_logits[n].reduce((sum, logit) => sum + Math.exp(logit), 0);
    assert.deepEqual([index, num_classes, label], [n, 3, labels[pair_logits[n].indexOf(Math.max(...pair_logits[n]))]]);
    for (const [at, prob] of probs.entries()) near(prob, Math.exp(pair_logits[n][at]) / total);
  }
  for (const [at, logit] of viaFetch.data[0].probs.entries()) near(logit, pair_logits[0][at]);
});

test('a shared engine ranks and labels', async () => {
  const { query, documents, pair_logits } = golden('bert_reranker');
  const found = await stage.runWith(
    PROBES,
    async ([url, query, documents]) => {
      const engine = await rillm.Engine.shared(url, { forceFallbackAdapter: true });
      try {
        const failed = await engine.classify.create({ input: 7 }).catch(({ code }) => code);
        return { ranked: await engine.rerank.create({ query, documents, use_activation: false }), failed };
      } finally {
        await engine.dispose();
      }
    },
    RERANKER,
    query,
    documents,
  );
  assert.equal(found.failed, 'invalid_request');
  for (const { index, relevance_score } of found.ranked.results) near(relevance_score, pair_logits[index][0]);
});
