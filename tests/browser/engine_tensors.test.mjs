// Tensors that an engine and rillm/tensor share: logits, hidden states and embeddings on one GPUDevice, without a copy.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { openStage, relativeError, root } from './browser.mjs';

const LIMIT = { timeout: 60_000 };
const FOLDER = 'tests/golden/folders/llama_sharded_f16';
// A plain web server does not list a folder, so files that a model may have are asked for.
const PROBES = { allowed: [/status of 404/] };

let stage;
before(async () => (stage = await openStage()));
after(() => stage?.close());

/** A matrix of f16 from the folder's files, as numbers. */
function weight(name) {
  for (const file of readdirSync(join(root, FOLDER)).filter((file) => file.endsWith('.safetensors'))) {
    const bytes = readFileSync(join(root, FOLDER, file));
    const length = Number(bytes.readBigUInt64LE(0));
    const found = JSON.parse(bytes.subarray(8, 8 + length).toString())[name];
    if (found === undefined) continue;
    const [from, to] = found.data_offsets.map((offset) => 8 + length + offset);
    const half = (bits) => {
      const [sign, exponent, fraction] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
      return sign * (exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15));
    };
    return { shape: found.shape, data: Array.from({ length: (to - from) / 2 }, (_, i) => half(bytes.readUInt16LE(from + 2 * i))) };
  }
  throw new Error(`the folder has no ${name}`);
}

test('logits and hidden states of an engine are tensors without a copy', LIMIT, async () => {
  const ids = JSON.parse(readFileSync(join(root, FOLDER, 'ids.json'), 'utf8'));
  const [embeddings, norm, head] = ['model.embed_tokens.weight', 'model.norm.weight', 'lm_head.weight'].map(weight);
  const got = await stage.runWith(
    PROBES,
    async ([ids, norm, head]) => {
      const { Device, EngineError } = await import('/rillm/dist/tensor/index.js');
      return withEngine('/folders/llama_sharded_f16/', { worker: false }, async (engine) => {
        const device = await Device.request({ device: engine.gpuDevice });
        const alone = await engine.forward(ids);
        const passed = await engine.forward(ids, { hiddenStates: [2, 0, 2] });
        const [logits, last, first, again] = await Promise.all([passed.logits, ...passed.hiddenStates].map((x) => device.fromEngine(x)));
        // The head of the model, by tensors.
        const normed = last.rmsNorm({ weight: device.tensor(norm.data), eps: 1e-5 });
        const own = normed.matmul(device.tensor(head.data, head.shape).transpose());
        const difference = await own.sub(logits).abs().max().div(logits.abs().max()).item();
        const result = {
          difference,
          shapes: [logits, last, first].map(({ shape }) => [...shape]),
          first: [...(await first.readback())],
          same: await last.equal(again).all().item(),
          alone: [...(await alone.readback())],
          logits: [...(await logits.readback())],
          copied: device.gpuDevice === engine.gpuDevice,
        };
        const errors = {
          layers: await failure(() => engine.forward(ids, { hiddenStates: [3] })),
          list: await failure(() => engine.forward(ids, { hiddenStates: 1 })),
          half: await failure(() => engine.forward(ids, { hiddenStates: [0.5] })),
          encoder: await failure(() => engine.embedTensor({ input: 'a' })),
        };
        const other = await Device.request();
        for (const [name, work] of Object.entries({
          foreign: () => other.fromEngine(alone),
          none: () => device.fromEngine({}),
          offset: () => device.importBuffer(alone.buffer().buffer, [1], 'f32', { offset: 4 }),
          far: () => device.importBuffer(alone.buffer().buffer, [1], 'f32', { offset: 2 ** 30 }),
        })) {
          errors[name] = await work().then(
            () => ({ code: 'did not fail' }),
            (error) => ({ code: error instanceof EngineError ? error.code : String(error) }),
          );
        }
        other.destroy();
        await alone.dispose();
        errors.disposed = await failure(() => alone.buffer());
        device.destroy();
        // The device of the engine is not the tensors' to destroy.
        result.after = (await (await engine.forward(ids)).readback()).length;
        return { ...result, codes: Object.fromEntries(Object.entries(errors).map(([name, { code }]) => [name, code])) };
      });
    },
    ids,
    norm,
    head,
  );
  assert.deepEqual(got.shapes, [
    [ids.length, 272],
    [ids.length, 64],
    [ids.length, 64],
  ]);
  assert.ok(got.difference < 1e-5, `the head: ${got.difference}`);
  const rows = ids.flatMap((id) => embeddings.data.slice(id * 64, (id + 1) * 64));
  assert.ok(relativeError(got.first, rows) < 1e-6, 'the embeddings of the tokens');
  assert.ok(relativeError(got.logits, got.alone) < 1e-4, 'the same pass with and without hidden states');
  assert.deepEqual([got.same, got.copied, got.after], [1, true, got.logits.length]);
  assert.deepEqual(got.codes, {
    ...{ layers: 'out_of_range', list: 'invalid_request', half: 'invalid_request', encoder: 'invalid_request' },
    ...{ foreign: 'wrong_device', none: 'invalid_request', offset: 'out_of_range', far: 'shape_mismatch', disposed: 'disposed' },
  });
});

test('embeddings of an encoder as a tensor are those of the request', LIMIT, async () => {
  const got = await stage.runWith(PROBES, async () => {
    const { Device } = await import('/rillm/dist/tensor/index.js');
    return withEngine('/encoders/bert/', { worker: false }, async (engine) => {
      const device = await Device.request({ device: engine.gpuDevice });
      const input = ['one text', 'another text with more words', 'a third'];
      const { data } = await engine.embeddings.create({ input });
      const vectors = await device.fromEngine(await engine.embedTensor({ input }));
      const short = await engine.embedTensor({ input, dimensions: 5 });
      const similar = vectors.matmul(vectors.transpose());
      return {
        wanted: data.map(({ embedding }) => embedding),
        vectors: [...(await vectors.readback())],
        diagonal: [...(await similar.mul(device.eye(3)).sum(1).readback())],
        short: [short.shape, [...(await short.readback())]],
        cut: (await engine.embeddings.create({ input, dimensions: 5 })).data.flatMap(({ embedding }) => embedding),
        codes: [(await failure(() => engine.embedTensor({ input: [] }))).code, (await failure(() => engine.embedTensor(5))).code],
      };
    });
  });
  assert.ok(relativeError(got.vectors, got.wanted.flat()) < 1e-6);
  assert.ok(got.diagonal.every((length) => Math.abs(length - 1) < 1e-5));
  assert.deepEqual(got.short[0], [3, 5]);
  assert.ok(relativeError(got.short[1], got.cut) < 1e-6);
  assert.deepEqual(got.codes, ['invalid_request', 'invalid_request']);
});

test('tensors of an engine in a worker stay there, and say so', LIMIT, async () => {
  const got = await stage.run(() =>
    withEngine('/golden/untied-q8_0.gguf', {}, async (engine) => {
      const { logits, hiddenStates } = await engine.forward([1, 2, 3], { hiddenStates: [1] });
      return {
        device: engine.gpuDevice === undefined,
        shape: hiddenStates[0].shape,
        finite: (await hiddenStates[0].readback()).every(Number.isFinite),
        failed: await failure(() => logits.buffer()),
      };
    }),
  );
  assert.deepEqual([got.device, got.shape[0], got.finite, got.failed.code], [true, 3, true, 'invalid_request']);
  assert.match(got.failed.message, /worker: false/);
});
