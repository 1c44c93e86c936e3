// The command line `npm run rill`: one JSON object on the last line, codes, exit status, files.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { parseCommand } from '../../scripts/rill/arguments.mjs';
import { readNpy } from '../../scripts/rill/npy.mjs';
import { golden, goldenJson, goldenNpy, relativeError, root } from './browser.mjs';

const MODEL = join(golden, 'tied-q8_0.gguf');
const LIMIT = { timeout: 240_000 };

let folder;
before(() => (folder = mkdtempSync(join(tmpdir(), 'rillm-'))));
after(() => rmSync(folder, { recursive: true, force: true }));

function rill(...args) {
  return new Promise((resolve) => {
    const env = { ...process.env, RILLM_UNOPTIMISED: '1' };
    execFile(process.execPath, [join(root, 'scripts/rill.mjs'), ...args], { maxBuffer: 2 ** 26, env }, (error, stdout, stderr) => {
      const lines = stdout.trim().split('\n');
      assert.equal(lines.length, 1, `stdout is one line: ${stdout}\n${stderr}`);
      resolve({ status: error?.code ?? 0, result: JSON.parse(lines[0]) });
    });
  });
}

const onSwiftShader = (...args) => rill(...args, '--adapter', 'swiftshader');

test('generate --prompt', LIMIT, async () => {
  const { status, result } = await onSwiftShader(
    'generate',
    '--model',
    MODEL,
    '--prompt',
    'The small boat',
    '--max-tokens',
    '6',
    '--temperature',
    '0',
    '--ignore-eos',
  );
  assert.equal(status, 0, JSON.stringify(result));
  assert.deepEqual(Object.keys(result).sort(), ['finish_reason', 'stats', 'text', 'timings', 'token_ids', 'usage']);
  assert.equal(result.token_ids.length, 6);
  assert.equal(result.finish_reason, 'length');
  assert.equal(result.usage.completion_tokens, 6);
  assert.ok(result.stats.dispatches > 0);
});

test('generate --messages', LIMIT, async () => {
  const file = join(folder, 'messages.json');
  writeFileSync(file, JSON.stringify([{ role: 'user', content: 'Hi' }]));
  const args = [
    'generate',
    '--model',
    MODEL,
    '--messages',
    file,
    '--max-tokens',
    '6',
    '--temperature',
    '1',
    '--seed',
    '3',
    '--ignore-eos',
    '--set',
    'top_p=0.9',
    '--context-length',
    '64',
    '--kv-cache',
    'f16',
  ];
  const { status, result } = await onSwiftShader(...args);
  assert.equal(status, 0, JSON.stringify(result));
  assert.deepEqual([result.token_ids.length, result.finish_reason], [6, 'length']);
  const { parameters } = parseCommand(args);
  assert.deepEqual(parameters.settings, { max_tokens: 6, temperature: 1, top_p: 0.9, seed: 3, ignore_eos: true });
  assert.deepEqual(parameters.load, { contextLength: 64, kvCache: 'f16' });
});

test('logits writes a .npy that agrees with the reference', LIMIT, async () => {
  const out = join(folder, 'logits.npy');
  const { status, result } = await onSwiftShader('logits', '--model', MODEL, '--ids', join(golden, 'tied.ids.json'), '--out', out);
  assert.equal(status, 0, JSON.stringify(result));
  const expected = goldenNpy('tied-q8_0.logits.npy');
  const { shape, data } = readNpy(readFileSync(out));
  assert.deepEqual(shape, expected.shape);
  assert.deepEqual(result.shape, expected.shape);
  assert.ok(relativeError(data, expected.data) < 1e-3);
});

test('tokenize', LIMIT, async () => {
  const { text, ids } = goldenJson('tied.tokenizer.json').find((entry) => entry.text.includes('日'));
  const { status, result } = await onSwiftShader('tokenize', '--model', MODEL, '--text', text);
  assert.equal(status, 0, JSON.stringify(result));
  assert.deepEqual(result.ids, ids);
});

test('inspect', LIMIT, async () => {
  const file = await onSwiftShader('inspect', '--model', MODEL, '--context-length', '100');
  assert.equal(file.status, 0, JSON.stringify(file.result));
  assert.deepEqual([file.result.format, file.result.architecture, file.result.context_length], ['gguf', 'llama', 100]);
  assert.equal(file.result.problem, undefined);
  const sharded = join(root, 'tests/golden/folders/llama_sharded_f16');
  const plain = await onSwiftShader('inspect', '--model', sharded);
  assert.deepEqual([plain.result.format, plain.result.files, plain.result.quantization], ['safetensors', 5, 'F16']);
  const quantised = await onSwiftShader('inspect', '--model', join(sharded, 'model.safetensors.index.json'), '--quantize', 'q4_0');
  assert.ok(quantised.result.weight_bytes < plain.result.weight_bytes / 2, JSON.stringify(quantised.result));
});

test('embed takes a folder, and gives a vector of length 1 that agrees with the reference', LIMIT, async () => {
  const encoder = join(root, 'tests/golden/encoders/bert');
  const { texts, ids, vectors } = JSON.parse(readFileSync(join(encoder, 'golden.json'), 'utf8'));
  const { status, result } = await onSwiftShader('embed', '--model', encoder, '--text', texts[0]);
  assert.equal(status, 0, JSON.stringify(result));
  assert.ok(relativeError(result.embedding, vectors[0]) < 1e-4);
  assert.deepEqual(result.usage, { prompt_tokens: ids[0].length, total_tokens: ids[0].length });
  assert.equal(parseCommand(['embed', '--model', encoder, '--text', 'a', '--dimensions', '5']).parameters.settings.dimensions, 5);
  const decoder = await onSwiftShader('embed', '--model', MODEL, '--text', 'a');
  assert.equal(decoder.status, 1);
  assert.equal(decoder.result.error.code, 'invalid_request');
});

test('rerank puts documents in their order, and classify gives labels', LIMIT, async () => {
  const reranker = join(root, 'tests/golden/classifiers/bert_reranker');
  const { query, documents, pair_logits } = JSON.parse(readFileSync(join(reranker, 'golden.json'), 'utf8'));
  const order = pair_logits.map(([logit], index) => ({ index, logit })).sort((a, b) => b.logit - a.logit);
  const given = documents.flatMap((document) => ['--document', document]);
  const { status, result } = await onSwiftShader('rerank', '--model', reranker, '--query', query, ...given, '--top-n', '2');
  assert.equal(status, 0, JSON.stringify(result));
  assert.deepEqual(
    result.results.map(({ index }) => index),
    order.slice(0, 2).map(({ index }) => index),
  );
  const labels = await onSwiftShader('classify', '--model', join(root, 'tests/golden/classifiers/bert_nli'), '--text', 'a boat');
  assert.ok(labels.result.data[0].label, JSON.stringify(labels.result));
  const without = await onSwiftShader('rerank', '--model', reranker, '--query', query);
  assert.deepEqual([without.status, without.result.error.code], [1, 'invalid_usage']);
});

test('template', LIMIT, async () => {
  const [template, context] = [join(folder, 'template.jinja'), join(folder, 'context.json')];
  writeFileSync(template, '{{ bos }}{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}');
  writeFileSync(context, JSON.stringify({ bos: '<s>', messages: [{ role: 'user', content: 'hé' }] }));
  const { status, result } = await onSwiftShader('template', '--template', template, '--context', context);
  assert.equal(status, 0, JSON.stringify(result));
  assert.match(result.text, /^<s>\[user\] hé\n?$/);
});

test('bench decode counts what one warm token costs', LIMIT, async () => {
  const { status, result } = await onSwiftShader('bench', 'decode', '--model', MODEL, '--new-tokens', '16', '--repetitions', '1');
  assert.equal(status, 0, JSON.stringify(result));
  assert.equal(result.layers, 2);
  assert.equal(result.prompt_tokens, 16);
  assert.ok(result.tokens_per_s > 0);
  assert.equal(typeof result.adapter.vendor, 'string');
  const { per_warm_token } = result;
  assert.deepEqual(Object.keys(per_warm_token).sort(), [
    'bind_groups_created',
    'buffers_created',
    'dispatches',
    'maps',
    'passes',
    'pipelines_created',
    'submits',
    'uniform_writes',
  ]);
  // Five dispatches a layer and four around them, in a submit, a pass and a map: several steps share them, unless a step takes long.
  const { dispatches, submits, passes, maps, ...others } = per_warm_token;
  assert.equal(dispatches, 2 * 5 + 4);
  assert.ok(submits > 0 && submits <= 1, `${submits} submits per token`);
  assert.deepEqual([passes, maps], [submits, submits]);
  assert.deepEqual(others, { buffers_created: 0, bind_groups_created: 0, pipelines_created: 0, uniform_writes: 0 });
});

test('bench prefill and load', LIMIT, async () => {
  const prefill = await onSwiftShader('bench', 'prefill', '--model', MODEL, '--prompt-tokens', '64', '--repetitions', '1');
  assert.equal(prefill.status, 0, JSON.stringify(prefill.result));
  assert.ok(Math.abs(prefill.result.prompt_tokens - 64) <= 8);
  assert.ok(prefill.result.tokens_per_s > 0);
  const load = await onSwiftShader('bench', 'load', '--model', MODEL, '--repetitions', '1');
  assert.equal(load.status, 0, JSON.stringify(load.result));
  assert.ok(load.result.bytes > 10_000);
  assert.deepEqual(
    load.result.kinds.map(({ name }) => name),
    ['not kept', 'downloaded and kept', 'from the cache'],
  );
  for (const { name, ms, bytes_per_s } of load.result.kinds) assert.ok(ms > 0 && bytes_per_s > 0, name);
});

test('bench aborts tells of each phase how long an abort took', LIMIT, async () => {
  const args = ['bench', 'aborts', '--model', MODEL, '--device', 'cpu', '--repetitions', '2'];
  const { status, result } = await onSwiftShader(...args);
  assert.equal(status, 0, JSON.stringify(result));
  assert.deepEqual([result.device, result.settings.repetitions], ['cpu', 2]);
  assert.deepEqual(
    result.rows.map(({ phase }) => phase),
    [
      'load, from the network',
      'load, from the cache',
      'prompt',
      'answer',
      'answer, streamed',
      'session, saved after its prompt',
      'session, restored',
    ],
  );
  for (const { phase, aborts, late, median_ms, worst_ms } of result.rows) {
    assert.equal(aborts + late, 2, phase);
    if (aborts > 0) assert.ok(median_ms >= 0 && worst_ms >= median_ms, phase);
  }
  assert.ok(result.rows.some(({ aborts }) => aborts > 0));
  assert.deepEqual(parseCommand([...args, '--training']).parameters.settings, { repetitions: 2, device: 'cpu', training: true });
});

// It builds a wasm of its own first, which takes minutes.
const soak = !process.env.RILLM_SOAK && '`npm run soak` runs it';
test('bench dispatch', { timeout: 600_000, skip: soak }, async () => {
  const dispatch = await onSwiftShader('bench', 'dispatch');
  assert.equal(dispatch.status, 0, JSON.stringify(dispatch.result));
  const variants = dispatch.result.results.map(({ variant }) => variant);
  assert.deepEqual(variants, ['submit_each', 'tvm', 'flush_each', 'eager', 'replay', 'misses', 'no_caches']);
  for (const { variant, encode_us, whole_us, alone_us } of dispatch.result.results) {
    assert.ok(encode_us > 0 && whole_us > 0 && alone_us > encode_us, variant);
    assert.ok(dispatch.result.times_less_than_tvm[variant].encode > 0);
  }
});

const WRONG = {
  'no command': [[], 'invalid_usage'],
  'an unknown command': [['sing'], 'invalid_usage'],
  'an unknown option': [['tokenize', '--modell', MODEL], 'invalid_usage'],
  'a missing option': [['tokenize', '--model', MODEL], 'invalid_usage'],
  'prompt and messages': [['generate', '--model', MODEL, '--prompt', 'a', '--messages', 'b.json'], 'invalid_usage'],
  'a number that is none': [['generate', '--model', MODEL, '--prompt', 'a', '--max-tokens', 'many'], 'invalid_usage'],
  'an unknown adapter': [['bench', 'dispatch', '--adapter', 'abacus'], 'invalid_usage'],
  'an unknown device': [['bench', 'aborts', '--model', MODEL, '--device', 'abacus'], 'invalid_usage'],
  'a model that is not there': [['tokenize', '--model', '/no/such.gguf', '--text', 'a'], 'read'],
  'a field without a value': [['generate', '--model', MODEL, '--prompt', 'a', '--set', 'top_p'], 'invalid_usage'],
  'a field whose value is no JSON': [['generate', '--model', MODEL, '--prompt', 'a', '--set', 'stop=END'], 'invalid_usage'],
  'a field that requests do not have': [['generate', '--model', MODEL, '--prompt', 'a', '--set', 'colour="red"'], 'invalid_request'],
  'messages that are not there': [['generate', '--model', MODEL, '--messages', '/no/such.json'], 'read'],
  'a model that is no model': [
    ['tokenize', '--model', join(root, 'LICENSE-APACHE'), '--text', 'a', '--adapter', 'swiftshader'],
    'not_gguf',
  ],
};

for (const [what, [args, code]] of Object.entries(WRONG)) {
  test(`${what}: ${code}, exit status 1`, LIMIT, async () => {
    const { status, result } = await rill(...args);
    assert.equal(status, 1);
    assert.equal(result.error.code, code, result.error.message);
    assert.ok(result.error.message.length > 10);
  });
}
