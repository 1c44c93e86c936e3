// Engines on the CPU: who is sent there and why, that they answer what those on a GPU do, and what goes wrong there.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { goldenJson, goldenNpy, openStage, relativeError } from './browser.mjs';
import { makeLosses, prepareLosses } from './losses.mjs';

const LIMIT = { timeout: 90_000 };
const MODEL = '/golden/tied-q8_0.gguf';

let stage;
before(async () => {
  stage = await openStage();
  makeLosses(stage.made);
  writeFileSync(join(stage.made, 'no_gpu.js'), "Object.defineProperty(navigator, 'gpu', { value: undefined });\n");
  writeFileSync(join(stage.made, 'no_gpu_worker.js'), "import '/made/no_gpu.js';\nimport '/rillm/dist/worker.js';\n");
});
after(() => stage.close());

/** The names of the modules that a page and its workers fetched. */
async function withRequests(work) {
  const { page, prepare, close } = await stage.openPage();
  const fetched = new Set();
  page
    .context()
    .on('request', (request) => /wasm\/(\w+)\.wasm/.test(request.url()) && fetched.add(/wasm\/(\w+)\.wasm/.exec(request.url())[1]));
  await prepare('/rillm/dist/index.js');
  const result = await page.evaluate(work, MODEL);
  await close();
  return { result, fetched: [...fetched].sort() };
}

for (const worker of [true, false]) {
  test(`logits and greedy tokens of the reference (worker: ${worker})`, LIMIT, async () => {
    const found = await stage.run(
      ([worker, ids, files]) =>
        Promise.all(
          files.map(([file, precision]) =>
            withEngine(`/golden/${file}.gguf`, { device: 'cpu', worker, precision }, async (engine) => {
              const tensor = await engine.forward(ids);
              const logits = [...(await tensor.readback())];
              await tensor.dispose();
              const sequence = [...ids];
              while (sequence.length < ids.length + 8) sequence.push(await argmaxOfLastRow(engine, sequence));
              const { device, device_reason, adapter } = engine.info;
              return { logits, greedy: sequence.slice(ids.length), info: { device, device_reason, description: adapter.description } };
            }),
          ),
        ),
      [
        worker,
        goldenJson('tied.ids.json'),
        [
          ['tied-f32', 'exact'],
          ['tied-q4_0', 'exact'],
        ],
      ],
    );
    for (const [index, [file, format, tolerance]] of [
      ['tied-f32', 'F32', 1e-4],
      ['tied-q4_0', 'Q4_0', 1e-3],
    ].entries()) {
      const { logits, greedy, info } = found[index];
      assert.ok(relativeError(logits, [...goldenNpy(`${file}.logits.npy`).data]) <= tolerance, file);
      assert.deepEqual(greedy, goldenJson('tied.greedy.json')[format].slice(0, 8), file);
      assert.deepEqual(info, { device: 'cpu', device_reason: 'requested', description: 'CPU' });
    }
  });
}

test('each device fetches its own module and not the other', LIMIT, async () => {
  const answer = (device) => `async (model) => withEngine(model, { device: '${device}' }, (engine) => engine.info.device)`;
  for (const [device, fetched] of [
    ['cpu', ['rillm_cpu_bg', 'rillm_team_relaxed']],
    ['gpu', ['rillm_bg']],
  ]) {
    const got = await withRequests((0, eval)(answer(device)));
    assert.deepEqual(got, { result: device, fetched });
  }
});

test('where WebAssembly has no vectors the error says so, and the module is not fetched', LIMIT, async () => {
  const { code, message, fetched } = await stage.run(async (model) => {
    WebAssembly.validate = () => false;
    const { code, message } = await failure(rillm.Engine.load(model, { device: 'cpu', threads: 1, worker: false }));
    const fetched = performance.getEntriesByType('resource').filter(({ name }) => name.endsWith('.wasm')).length;
    return { code, message, fetched };
  }, MODEL);
  assert.deepEqual([code, fetched], ['wasm_unavailable', 0]);
  assert.match(message, /needs SIMD in WebAssembly/);
});

test('auto: the GPU where there is one, else the CPU, and it says why', LIMIT, async () => {
  const found = await stage.run(async (model) => {
    const device = (options) => withEngine(model, options, ({ info }) => [info.device, info.device_reason]);
    const found = { gpu: await device({}) };
    found.worker = await device({ worker: () => new Worker('/made/no_gpu_worker.js', { type: 'module' }) });
    const { requestAdapter } = GPU.prototype;
    GPU.prototype.requestAdapter = async () => null;
    found.none = await device({});
    GPU.prototype.requestAdapter = () => Promise.reject(new Error('broken'));
    found.broken = await device({ device: undefined, worker: false });
    found.refused = (await failure(rillm.Engine.load(model, { device: 'gpu', worker: false }))).code;
    GPU.prototype.requestAdapter = requestAdapter;
    Object.defineProperty(GPUAdapter.prototype, 'info', { get: () => ({ isFallbackAdapter: true }) });
    found.software = await device({});
    found.asked = await device({ forceFallbackAdapter: true });
    Object.defineProperty(navigator, 'gpu', { value: undefined });
    found.missing = await device({});
    found.named = await device({ device: 'cpu', worker: false });
    found.wrong = await failure(rillm.Engine.load(model, { device: 'tpu' }));
    return found;
  }, MODEL);
  const { wrong, ...devices } = found;
  assert.deepEqual(devices, {
    gpu: ['gpu', 'gpu_available'],
    worker: ['cpu', 'no_webgpu'],
    none: ['cpu', 'no_adapter'],
    broken: ['cpu', 'no_adapter'],
    refused: 'adapter_unavailable',
    software: ['cpu', 'software_adapter'],
    asked: ['gpu', 'requested'],
    missing: ['cpu', 'no_webgpu'],
    named: ['cpu', 'requested'],
  });
  assert.equal(wrong.code, 'invalid_request');
  assert.match(wrong.message, /device/);
});

test('requests together, aborts, a schema, a session; what only a GPU has is refused by name', LIMIT, async () => {
  const found = await stage.run(
    (model) =>
      withEngine(model, { device: 'cpu', maxSequences: 2 }, async (engine) => {
        const ask = (prompt, more = {}) => engine.completions.create({ prompt, max_tokens: 12, temperature: 0, ignore_eos: true, ...more });
        const text = ({ choices }) => choices[0].text;
        const alone = [text(await ask('The small boat')), text(await ask('A dog'))];
        const together = (await Promise.all([ask('The small boat'), ask('A dog')])).map(text);
        const controller = new AbortController();
        const long = engine.completions.create(
          { prompt: Array(40).fill('dog').join(' '), max_tokens: 100, ignore_eos: true },
          { signal: controller.signal },
        );
        setTimeout(() => controller.abort(), 15);
        const aborted = await failure(long);
        const after = text(await ask('A dog'));
        const json = text(
          await engine.completions.create({
            prompt: 'x',
            max_tokens: 40,
            response_format: { type: 'json_schema', json_schema: { name: 'a', schema: { enum: ['yes', 'no'] } } },
          }),
        );
        const untimed = await failure(engine.setProfiling(true));
        const { memory } = await engine.stats();
        return { alone, together, aborted: aborted.code, after, json, untimed: untimed.code, weights: memory.weights };
      }),
    MODEL,
  );
  assert.deepEqual(found.together, found.alone);
  assert.equal(found.aborted, 'aborted');
  assert.equal(found.after, found.alone[1]);
  assert.ok(['"yes"', '"no"'].includes(found.json.trim()), found.json);
  assert.equal(found.untimed, 'adapter_limits');
  assert.ok(found.weights > 0);
  const shared = await stage.run(
    (model) => withEngine(model, { device: 'cpu', worker: false }, (engine) => failure(async () => engine.gpuDevice)),
    MODEL,
  );
  assert.equal(shared.code, 'invalid_request', shared.message);
});

test('memory that is not there is told before the weights are fetched, and the next load works', LIMIT, async () => {
  const found = await stage.run(async (model) => {
    const failed = await failure(rillm.Engine.load(model, { device: 'cpu', contextLength: 100_000_000 }));
    return { failed, next: await withEngine(model, { device: 'cpu' }, ({ info }) => info.device) };
  }, MODEL);
  assert.match(found.failed.code, /^(out_of_memory|invalid_request)$/, found.failed.message);
  assert.equal(found.next, 'cpu');
});

test('after two losses of its GPU a conversation goes on with the CPU, if that can be', LIMIT, async () => {
  const { page, prepare, close } = await stage.openPage({ allowed: [/status of 404/] });
  await prepare('/rillm/dist/index.js');
  await page.evaluate(prepareLosses);
  const found = await page.evaluate(async (model) => {
    const warned = [];
    const onWarning = ({ code }) => warned.push(code);
    const engine = await rillm.Engine.load(model, lossy(false, { device: 'auto', maxRecoveries: 10, onWarning }));
    const ask = () => engine.completions.create({ prompt: 'The small boat', max_tokens: 24, temperature: 0, ignore_eos: true });
    const wanted = (await ask()).choices[0].text;
    const texts = [];
    const devices = [];
    for (let time = 0; time < 3; time++) {
      if (engine.info.device === 'gpu') await loseAt('submit', 3);
      texts.push((await ask()).choices[0].text);
      devices.push([engine.info.device, engine.info.device_reason]);
    }
    await engine.dispose();
    // The CPU can't, in a worker that has not loaded its module yet: what is left is the GPU.
    const options = { device: 'auto', maxRecoveries: 10, onWarning, cpuWasmUrl: '/status/404/cpu.wasm', retries: 0 };
    const other = await rillm.Engine.load(model, lossy(true, options));
    for (let time = 0; time < 2; time++) {
      await lose();
      const { choices } = await other.completions.create({ prompt: 'The small boat', max_tokens: 24, temperature: 0, ignore_eos: true });
      texts.push(choices[0].text);
    }
    devices.push([other.info.device, other.info.device_reason]);
    await other.dispose();
    return { wanted, texts, devices, warned: warned.filter((code) => code !== 'no_chat_template') };
  }, MODEL);
  assert.deepEqual(found.texts, Array(5).fill(found.wanted));
  assert.deepEqual(found.warned, ['moved_to_cpu']);
  assert.deepEqual(found.devices, [
    ['gpu', 'gpu_available'],
    ['cpu', 'device_lost'],
    ['cpu', 'device_lost'],
    ['gpu', 'gpu_available'],
  ]);
  await close();
});
