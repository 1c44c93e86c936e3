// The packed package in Chromium against the reference: logits, greedy tokens, tokenizer, and what loading costs.

import assert from 'node:assert/strict';
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { golden, goldenJson, goldenNpy, sharedStage, relativeError } from './browser.mjs';
import { F32, readGguf, uint32Entry, writeGguf } from './gguf.mjs';

const FORMATS = { tied: ['F32', 'F16', 'Q8_0', 'Q4_0'], untied: ['Q8_0', 'Q4_0'] };
/** Relative to the norm of the reference's logits, at every position. */
const TOLERANCE = { F32: 1e-4, F16: 1e-3, Q8_0: 1e-3, Q4_0: 1e-3 };

/** One engine for each file: to compile its kernels takes longer than what most tests do with it. */
const shared = sharedStage();

for (const [model, formats] of Object.entries(FORMATS)) {
  for (const format of formats) {
    const file = `${model}-${format.toLowerCase()}`;

    test(`${file}: logits agree with the reference at every position`, async () => {
      const expected = goldenNpy(`${file}.logits.npy`);
      const { shape, dtype, logits } = await shared.engines.use(
        `/golden/${file}.gguf`,
        {},
        async (engine, ids) => {
          const tensor = await engine.forward(ids);
          const { shape, dtype } = tensor;
          const logits = [...(await tensor.readback())];
          await tensor.dispose();
          return { shape: [...shape], dtype, logits };
        },
        goldenJson(`${model}.ids.json`),
      );
      assert.deepEqual(shape, expected.shape);
      assert.match(dtype, /^(f32|float32)$/);
      const [positions, vocabulary] = shape;
      for (let position = 0; position < positions; position++) {
        const row = (data) => data.slice(position * vocabulary, (position + 1) * vocabulary);
        const error = relativeError(row(logits), row(expected.data));
        assert.ok(error <= TOLERANCE[format], `position ${position}: relative error ${error}`);
      }
    });

    test(`${file}: greedy tokens agree with the reference`, async () => {
      const expected = goldenJson(`${model}.greedy.json`)[format];
      const actual = await shared.engines.use(
        `/golden/${file}.gguf`,
        {},
        async (engine, [ids, count]) => {
          const sequence = [...ids];
          while (sequence.length < ids.length + count) sequence.push(await argmaxOfLastRow(engine, sequence));
          return sequence.slice(ids.length);
        },
        [goldenJson(`${model}.ids.json`), expected.length],
      );
      assert.deepEqual(actual, expected);
    });
  }

  test(`${model}: tokenize and detokenize agree with the reference`, async () => {
    const cases = goldenJson(`${model}.tokenizer.json`);
    const actual = await shared.engines.use(
      `/golden/${model}-q8_0.gguf`,
      {},
      (engine, texts) =>
        Promise.all(
          texts.map(async (text) => {
            const ids = await engine.tokenize(text);
            return { text: await engine.detokenize(ids), ids: [...ids] };
          }),
        ),
      cases.map(({ text }) => text),
    );
    assert.deepEqual(
      actual,
      cases.map(({ text, ids }) => ({ text, ids })),
    );
  });
}

for (const worker of [true, false]) {
  test(`decoding from the KV cache equals whole forward passes (${worker ? 'in the worker' : 'on the page'})`, async () => {
    const { generated, forwarded } = await shared.engines.use('/golden/untied-q8_0.gguf', worker ? {} : { worker }, async (engine) => {
      const prompt = 'The small boat left the harbour';
      const answer = await engine.completions.create({ prompt, max_tokens: 20, temperature: 0, ignore_eos: true });
      const ids = [...(await engine.tokenize(prompt, { add_special: true }))];
      const sequence = [...ids];
      for (let i = 0; i < 20; i++) sequence.push(await argmaxOfLastRow(engine, sequence));
      return { generated: answer.choices[0].token_ids, forwarded: sequence.slice(ids.length) };
    });
    assert.equal(generated.length, 20);
    assert.deepEqual(generated, forwarded);
  });
}

test('a relative URL, a URL object, a File and a Blob load the same model', async () => {
  const ids = await shared.stage.run(async () => {
    const bytes = await (await fetch('/golden/tied-q8_0.gguf')).arrayBuffer();
    const sources = [
      '../golden/tied-q8_0.gguf',
      new URL('/golden/tied-q8_0.gguf', location.href),
      new File([bytes], 'tied.gguf'),
      new Blob([bytes]),
    ];
    const found = [];
    for (const source of sources) found.push(await withEngine(source, {}, (engine) => argmaxOfLastRow(engine, [1, 2, 3])));
    return found;
  });
  assert.equal(ids.length, 4);
  assert.deepEqual(new Set(ids).size, 1);
});

test('loading reports bytes and a total, and info says what was loaded', async () => {
  const { progress, info } = await shared.stage.run(() => {
    const seen = [];
    return withEngine('/golden/tied-f32.gguf', { onProgress: (event) => seen.push(event) }, async (engine) => ({
      progress: seen,
      info: engine.info,
    }));
  });
  const size = statSync(join(golden, 'tied-f32.gguf')).size;
  for (const [i, { loaded, total }] of progress.entries()) {
    assert.ok(loaded >= (progress[i - 1]?.loaded ?? 0), 'loaded never falls');
    assert.ok(total === 0 || loaded <= total);
    assert.ok(total <= size);
  }
  const last = progress.at(-1);
  assert.equal(last.phase, 'ready');
  assert.equal(last.loaded, last.total);
  assert.equal(info.architecture, 'llama');
  assert.equal(info.layers, 2);
  assert.equal(info.vocab_size, 288);
  assert.equal(info.embedding_length, 64);
  assert.equal(info.context_length, 256);
  assert.ok(info.parameters > 0 && info.weight_bytes > 0 && info.kv_cache_bytes > 0);
  assert.equal(typeof info.adapter.vendor, 'string');
  assert.ok(Array.isArray(info.adapter.features));
});

test('contextLength bounds the context', async () => {
  const length = await shared.stage.run(() =>
    withEngine('/golden/tied-q8_0.gguf', { contextLength: 64 }, (engine) => engine.info.context_length),
  );
  assert.equal(length, 64);
});

test('weights do not pass whole through the wasm heap: 100 MB load into a heap below 64 MB', async () => {
  const { size, file } = largeModel();
  writeFileSync(join(shared.stage.made, 'large.gguf'), file);
  const stats = await shared.stage.run(() => withEngine('/made/large.gguf', {}, (engine) => engine.stats()));
  assert.ok(size > 95e6, `the model has ${size} bytes`);
  assert.ok(stats.live_bytes > 95e6, `${stats.live_bytes} bytes are on the GPU`);
  assert.ok(stats.wasm_memory_bytes < 64 * 1024 * 1024, `the heap has ${stats.wasm_memory_bytes} bytes`);
});

/** A sound model of about 100 MB: the vocabulary of the small one, larger layers. */
function largeModel() {
  const { entries, tensors } = readGguf(readFileSync(join(golden, 'tied-f32.gguf')));
  const [hidden, heads, kvHeads, headDim, ffn] = [1024, 8, 2, 128, 3328];
  const sizes = {
    embedding_length: hidden,
    feed_forward_length: ffn,
    'attention.head_count': heads,
    'attention.head_count_kv': kvHeads,
    'attention.key_length': headDim,
    'attention.value_length': headDim,
    'rope.dimension_count': headDim,
  };
  for (const [key, value] of Object.entries(sizes)) if (entries.has(`llama.${key}`)) entries.set(`llama.${key}`, uint32Entry(value));
  const shapes = [
    [/attn_q\.weight$/, [hidden, heads * headDim]],
    [/attn_[kv]\.weight$/, [hidden, kvHeads * headDim]],
    [/attn_output\.weight$/, [heads * headDim, hidden]],
    [/ffn_(gate|up)\.weight$/, [hidden, ffn]],
    [/ffn_down\.weight$/, [ffn, hidden]],
    [/norm\.weight$/, [hidden]],
    [/^token_embd\.weight$/, [hidden, 288]],
  ];
  const larger = tensors.map(({ name }) => {
    const dims = shapes.find(([pattern]) => pattern.test(name))?.[1];
    assert.ok(dims, `the test knows no size for ${name}`);
    const data = new Float32Array(dims.reduce((product, n) => product * n, 1));
    for (let i = 0; i < data.length; i++) data[i] = ((i * 7919) % 1009) / 1009 / 50 - 0.01;
    return { name, dims, type: F32, data: Buffer.from(data.buffer) };
  });
  const file = writeGguf({ entries, tensors: larger });
  return { size: file.length, file };
}
