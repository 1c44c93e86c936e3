// The packed package in Node: models from paths, addresses and the hub's likes, on the CPU, without a browser.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir, totalmem } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';

import { unpackPackage } from '../../scripts/build.mjs';
import { root } from '../../scripts/command.mjs';
import { serve } from '../../scripts/serve.mjs';
import { ggufParts, readGguf, uint32Entry } from '../browser/gguf.mjs';

const golden = join(root, 'tests/golden/tiny_llama');
const MODEL = join(golden, 'tied-q8_0.gguf');
const ASK = { prompt: 'The small boat', max_tokens: 12, temperature: 0, ignore_eos: true };

let rillm;
let cache;
let entry;
before(async () => {
  cache = mkdtempSync(join(tmpdir(), 'rillm-node-'));
  process.env.RILLM_CACHE = cache;
  const tarball = readdirSync(join(root, 'pkg')).find((name) => name.endsWith('.tgz'));
  entry = pathToFileURL(join(await unpackPackage(join(root, 'pkg', tarball)), 'dist/index.js')).href;
  rillm = await import(entry);
});
after(() => rmSync(cache, { recursive: true, force: true }));

async function answer(source, options) {
  const engine = await rillm.Engine.load(source, options);
  try {
    const { choices } = await engine.completions.create(ASK);
    return { text: choices[0].text, device: engine.info.device, reason: engine.info.device_reason };
  } finally {
    await engine.dispose();
  }
}

let wanted;
test("a path, a file: address, a Blob: the reference's tokens, on the CPU, because there is no WebGPU", async () => {
  const ids = JSON.parse(readFileSync(join(golden, 'tied.ids.json')));
  const greedy = JSON.parse(readFileSync(join(golden, 'tied.greedy.json'))).Q8_0;
  const engine = await rillm.Engine.load(MODEL, { precision: 'exact' });
  const { choices } = await engine.completions.create({ prompt: ids, max_tokens: 8, temperature: 0, ignore_eos: true, logprobs: 0 });
  assert.equal(choices[0].text, await engine.detokenize(greedy.slice(0, 8)));
  wanted = (await engine.completions.create(ASK)).choices[0].text;
  await engine.dispose();
  for (const source of [pathToFileURL(MODEL), new Blob([readFileSync(MODEL)])]) {
    assert.deepEqual(await answer(source, { precision: 'exact' }), { text: wanted, device: 'cpu', reason: 'no_webgpu' });
  }
});

test('threads of the server: the same tokens, in both precisions, and a program that ends by itself', async () => {
  const code = `
    const { Engine } = await import(${JSON.stringify(entry)});
    const found = [];
    for (const [threads, precision] of [[1, 'exact'], [3, 'exact'], [1, 'fast'], [2, 'fast']]) {
      const engine = await Engine.load(${JSON.stringify(MODEL)}, { threads, precision, onWarning() {} });
      const { choices } = await engine.completions.create(${JSON.stringify(ASK)});
      found.push([choices[0].text, engine.info.threads]);
      // The last one is left to itself.
      if (precision === 'exact') await engine.dispose();
    }
    console.log(JSON.stringify(found));`;
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', code], { timeout: 60_000 });
  const [one, three, fast, two] = JSON.parse(stdout);
  assert.deepEqual(
    [one, three],
    [
      [wanted, 1],
      [wanted, 3],
    ],
  );
  assert.deepEqual([fast[1], two], [1, [fast[0], 2]]);
});

test('weights in several memories: the same tokens, and a program that ends by itself', async () => {
  // Memories that threads share say that they have 7 MiB, where the model has 14.
  const code = `
    const { Engine } = await import(${JSON.stringify(entry)});
    const found = [];
    let taken = 0;
    const Own = WebAssembly.Memory;
    for (const [pages, threads] of [[65_536, 1], [110, 1], [110, 3]]) {
      taken = 0;
      WebAssembly.Memory = class extends Own {
        constructor(options) {
          super(options);
          if (!options.shared) return;
          options.maximum = pages;
          taken += 1;
        }
      };
      const engine = await Engine.load(${JSON.stringify(join(root, 'models/demo/rillm-demo-q8_0.gguf'))}, { threads, onWarning() {} });
      const ask = { messages: [{ role: 'user', content: 'Tell me a story.' }], max_tokens: 24, temperature: 0 };
      const answers = await Promise.all([1, 2].map(() => engine.chat.completions.create(ask)));
      found.push([answers.map(({ choices }) => choices[0].message.content), engine.info.threads, taken]);
    }
    console.log(JSON.stringify(found));`;
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', code], { timeout: 60_000 });
  const [[wanted], ...small] = JSON.parse(stdout);
  assert.ok(new Set(wanted[0].split(' ')).size > 10, wanted[0]);
  for (const [at, [texts, threads, taken]] of small.entries()) {
    assert.deepEqual([texts, threads], [wanted, [1, 3][at]]);
    assert.ok(taken === 0 ? threads === 1 : taken > 1, `${taken} memories, ${threads} threads`);
  }
});

test("a server's file is kept in a folder, and loads without the server; a path that leads nowhere is named", async () => {
  const site = await serve({ '/': golden });
  const url = `${site.origin}/tied-q8_0.gguf`;
  assert.equal((await answer(url, { precision: 'exact' })).text, wanted);
  await site.close();
  assert.equal((await answer(url, { precision: 'exact' })).text, wanted);
  assert.deepEqual(
    (await rillm.models.list()).map(({ name }) => name),
    [url],
  );
  assert.equal(await rillm.models.delete(url), true);
  assert.deepEqual(await rillm.models.list(), []);
  await assert.rejects(
    rillm.Engine.load('./no-such.gguf'),
    ({ code, message }) => code === 'not_found' && message.includes('no-such.gguf'),
  );
  await assert.rejects(rillm.Engine.load(MODEL, { device: 'gpu' }), { code: 'webgpu_unavailable' });
});

test('paths: odd characters, a folder with a link that leads nowhere and another model in a folder, and what is no path', async () => {
  const folder = join(cache, 'my models');
  mkdirSync(join(folder, 'other'), { recursive: true });
  for (const name of ['a b#c%20é.gguf', 'other/b.gguf']) copyFileSync(MODEL, join(folder, name));
  symlinkSync(join(folder, 'gone'), join(folder, 'link.gguf'));
  for (const source of [folder, pathToFileURL(join(folder, 'a b#c%20é.gguf')).href]) {
    assert.equal((await answer(source, { precision: 'exact' })).text, wanted);
  }
  for (const source of ['', 'file://elsewhere/model.gguf']) await assert.rejects(rillm.Engine.load(source), { code: 'invalid_request' });
  rmSync(folder, { recursive: true });
});

test('a file of more than 4 GiB, and one that is cut while it is open', async () => {
  const folder = join(cache, 'large');
  mkdirSync(folder);
  const large = join(folder, 'large.gguf');
  const gap = 5 * 2 ** 30;
  const { header, data } = ggufParts(readGguf(readFileSync(MODEL)), gap);
  // Sparse, so that it takes no room.
  const file = await open(large, 'w');
  await file.write(header, 0, header.length, 0);
  await file.write(data, 0, data.length, header.length + gap);
  await file.close();
  assert.ok(statSync(large).size > gap);
  assert.equal((await answer(large, { precision: 'exact' })).text, wanted);
  const cut = join(folder, 'cut.gguf');
  copyFileSync(join(root, 'models/demo/rillm-demo-q8_0.gguf'), cut);
  const load = rillm.Engine.load(cut, { onProgress: ({ loaded }) => loaded > 100_000 && truncateSync(cut, 3_000_000) });
  await assert.rejects(load, ({ code, message }) => {
    assert.match(code, /^(read|truncated)$/, message);
    assert.match(message, /cut\.gguf/);
    return true;
  });
  // Of the same length, and gone.
  for (const change of [() => utimesSync(cut, 1, 1), () => rmSync(cut)]) {
    copyFileSync(join(root, 'models/demo/rillm-demo-q8_0.gguf'), cut);
    let isDone = false;
    const onProgress = ({ loaded }) => {
      if (loaded <= 100_000 || isDone) return;
      isDone = true;
      change();
    };
    await assert.rejects(rillm.Engine.load(cut, { onProgress }), { code: 'read', message: /cut\.gguf/ });
  }
  rmSync(folder, { recursive: true });
});

test('weights of more than all memories are refused before any is read', async () => {
  const { entries, tensors } = readGguf(readFileSync(MODEL));
  // 400 layers, whose feed-forwards have three matrices of 71 MB each.
  const [layers, inner] = [400, 2 ** 20];
  const sized = (tensor) => {
    const [, which] = /ffn_(gate|up|down)\./.exec(tensor.name) ?? [];
    if (which === undefined) return tensor;
    return { ...tensor, dims: which === 'down' ? [inner, 64] : [64, inner], data: { length: (64 * inner * 34) / 32 } };
  };
  const ofLayer = tensors.filter(({ name }) => name.startsWith('blk.0.'));
  const large = [
    ...tensors.filter(({ name }) => !name.startsWith('blk.')),
    ...Array.from({ length: layers }, (_, layer) => ofLayer.map((tensor) => ({ ...tensor, name: tensor.name.replace('0', layer) }))).flat(),
  ].map(sized);
  entries.set('llama.feed_forward_length', uint32Entry(inner));
  entries.set('llama.block_count', uint32Entry(layers));
  const { header, bytes } = ggufParts({ entries, tensors: large });
  const path = join(cache, 'huge.gguf');
  writeFileSync(path, header);
  truncateSync(path, header.length + bytes);
  // Alone the engine has its own memory; threads have others, as far as the machine goes.
  const limits = [];
  for (const threads of [1, 2]) {
    const { problem, weight_bytes } = await rillm.Engine.inspect(path, { device: 'cpu', threads });
    assert.equal(problem?.code, 'out_of_memory', problem?.message);
    assert.ok(weight_bytes > 60 * 2 ** 30, `${weight_bytes}`);
    const wanted = /the weights take \d+ bytes, and here the CPU has (\d+) at most/;
    limits.push(Number(wanted.exec(problem.message)?.[1]));
    await assert.rejects(
      rillm.Engine.load(path, { threads }),
      ({ code, message }) => code === 'out_of_memory' && message.startsWith(problem.message),
    );
  }
  const most = Math.max(2 ** 32, Math.min(60 * 2 ** 30, totalmem()));
  // A Node with relaxed SIMD has the threads' module for one thread as well.
  assert.ok([2 ** 32 - 1, most].includes(limits[0]), `${limits[0]}`);
  assert.equal(limits[1], most);
  rmSync(path);
});

test('a folder with folders in it: a sentence encoder pools as the file of its own folder says', async () => {
  const folder = join(root, 'tests/golden/encoders/bert');
  const { texts, vectors } = JSON.parse(readFileSync(join(folder, 'golden.json')));
  const engine = await rillm.Engine.load(folder, { precision: 'exact' });
  const { data } = await engine.embeddings.create({ input: texts.slice(0, 3) });
  await engine.dispose();
  for (const [at, { embedding }] of data.entries()) {
    const difference = Math.max(...embedding.map((value, index) => Math.abs(value - vectors[at][index])));
    assert.ok(difference < 1e-4, `text ${at}: ${difference}`);
  }
});

test("OpenAI's requests by engine.fetch, an abort, and two at once", async () => {
  const engine = await rillm.Engine.load(MODEL, { maxSequences: 2, precision: 'exact' });
  const body = JSON.stringify(ASK);
  const response = await engine.fetch('http://localhost/v1/completions', { method: 'POST', body });
  assert.equal((await response.json()).choices[0].text, wanted);
  const controller = new AbortController();
  const long = engine.completions.create({ ...ASK, max_tokens: 400 }, { signal: controller.signal });
  setTimeout(() => controller.abort(), 20);
  await assert.rejects(long, { code: 'aborted' });
  const both = await Promise.all([engine.completions.create(ASK), engine.completions.create(ASK)]);
  assert.deepEqual(
    both.map(({ choices }) => choices[0].text),
    [wanted, wanted],
  );
  await engine.dispose();
});

test('models are recommended for the CPU, and the program ends by itself', { timeout: 30_000 }, async () => {
  const demo = join(root, 'models/demo/rillm-demo-q8_0.gguf');
  const code = `
    import { Engine } from ${JSON.stringify(entry)};
    const sources = ${JSON.stringify([MODEL, './no-such.gguf', demo])};
    console.log(JSON.stringify(await Engine.recommend(sources, { contextLength: 64 })));`;
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '--eval', code], { env: process.env });
  const found = JSON.parse(stdout);
  assert.deepEqual(
    found.map(({ source, device, fits, problem }) => [source, device, fits, problem?.code]),
    [
      [demo, 'cpu', true, undefined],
      [MODEL, 'cpu', true, undefined],
      ['./no-such.gguf', 'cpu', false, 'not_found'],
    ],
  );
  assert.ok(found[0].tokens_per_s > 1 && found[1].tokens_per_s > found[0].tokens_per_s, stdout);
  assert.match(found[0].reason, /^it runs on the CPU, since there is no WebGPU here, and needs/);
  await assert.rejects(rillm.Engine.recommend([MODEL], { device: 'gpu' }), { code: 'webgpu_unavailable' });
  assert.deepEqual(await rillm.Engine.recommend([]), []);
});

test('a program ends by itself, also if it forgets to dispose', { timeout: 30_000 }, async () => {
  const code = `
    import { Engine } from ${JSON.stringify(entry)};
    const engine = await Engine.load(${JSON.stringify(MODEL)});
    for await (const { choices } of await engine.completions.create({ ...${JSON.stringify(ASK)}, stream: true })) {
      process.stdout.write(choices[0].text);
    }`;
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '--eval', code], { env: process.env });
  assert.ok(stdout.length > 10, stdout);
});
