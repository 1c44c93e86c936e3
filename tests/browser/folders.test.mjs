// Hugging Face folders in Chromium: safetensors give the reference's logits, as they are and quantised while they are loaded.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { readNpy } from '../../scripts/rill/npy.mjs';
import { goldenJson, openStage, relativeError, root } from './browser.mjs';

const FOLDERS = join(root, 'tests/golden/folders');
// A plain web server does not list a folder, so files that a model may have are asked for.
const PROBES = { allowed: [/status of 404/] };
// Beside other work, compiling kernels has taken thirty times as long as alone.
const LIMIT = { timeout: 180_000 };

let stage;
before(async () => (stage = await openStage()));
after(() => stage?.close());

/** What is said of a model, and the logits of every position. */
const answer = (source, options, ids) =>
  stage.runWith(
    PROBES,
    ([url, more, tokens]) =>
      withEngine(url, more, async (engine) => ({ info: engine.info, logits: [...(await (await engine.forward(tokens)).readback())] })),
    source,
    options,
    ids,
  );

for (const [folder, type, worker] of [
  ['llama_sharded_f16', 'F16', true],
  ['qwen2_bf16', 'BF16', false],
]) {
  const ids = JSON.parse(readFileSync(join(FOLDERS, folder, 'ids.json'), 'utf8'));

  for (const quantize of [undefined, 'q8_0', 'q4_0']) {
    test(`${folder}, ${quantize ?? 'as it is'}: logits agree with the reference at every position`, LIMIT, async () => {
      const wanted = readNpy(readFileSync(join(FOLDERS, folder, quantize ? `logits.${quantize}.npy` : 'logits.npy')));
      const { info, logits } = await answer(`/folders/${folder}/`, quantize ? { worker, quantize } : { worker }, ids);
      assert.equal(info.quantization, quantize?.toUpperCase() ?? type);
      const [positions, columns] = wanted.shape;
      assert.equal(positions, ids.length);
      for (let position = 0; position < positions; position++) {
        const row = (data) => data.slice(position * columns, (position + 1) * columns);
        const error = relativeError(row(logits), row(wanted.data));
        assert.ok(error < 1e-4, `position ${position}: relative error ${error}`);
      }
    });
  }
}

// One of each family of kernels. The native tests read all formats, to the bit.
for (const name of ['awq', 'fp8_experts', 'gptq4_ordered', 'mlx4', 'nf4']) {
  test(`${name}: logits agree with those of the matrices that another library's format stands for`, LIMIT, async () => {
    const file = (end) => readFileSync(join(root, 'tests/golden/quantized', name, end));
    const wanted = readNpy(file('logits.npy'));
    const { logits } = await answer(`/quantized/${name}/`, { precision: 'exact' }, JSON.parse(file('expected.json')).ids);
    const error = relativeError(logits, wanted.data);
    assert.ok(error < 1e-4, `relative error ${error}`);
  });
}

test('weights that are quantised here are those of a file that was quantised before', LIMIT, async () => {
  const ids = goldenJson('tied.ids.json');
  const here = await answer('/golden/tied-f32.gguf', { quantize: 'q8_0' }, ids);
  const file = await answer('/golden/tied-q8_0.gguf', {}, ids);
  assert.equal(here.info.weight_bytes, file.info.weight_bytes);
  const error = relativeError(here.logits, file.logits);
  assert.ok(error < 1e-6, `relative error ${error}`);
  const failed = await stage.run(() => failure(rillm.Engine.load('/golden/tied-f32.gguf', { quantize: 'q5_0' })));
  assert.equal(failed.code, 'invalid_request');
  for (const name of ['q8_0', 'q4_0', 'q4_k', 'q6_k', 'iq4_nl']) assert.match(failed.message, new RegExp(`"${name}"`));
});
