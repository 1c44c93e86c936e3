// What goes wrong ends in an EngineError with the right code and a message to act on; nothing hangs, and the page can load
// another model afterwards.

import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { golden, openStage } from './browser.mjs';
import { readGguf, stringEntry, writeGguf } from './gguf.mjs';

/** Chromium itself writes failed requests into the console. */
const REQUEST_FAILED = [/Failed to load resource/];
const LIMIT = { timeout: 60_000 };

function broken(change) {
  const model = readGguf(readFileSync(join(golden, 'tied-f32.gguf')));
  change(model);
  return writeGguf(model);
}

function withTensorType(type) {
  return broken(({ tensors }) => (tensors.find(({ name }) => name === 'blk.0.attn_q.weight').type = type));
}

/** File → the code that loading it gives, and what the message has to name. */
function brokenFiles() {
  const sound = readFileSync(join(golden, 'tied-f32.gguf'));
  const version = Buffer.from(sound);
  version.writeUInt32LE(99, 4);
  return {
    'text.gguf': [Buffer.from('Hello, this is a text and not a model. '.repeat(20)), 'not_gguf', /GGUF/],
    'cut_in_header.gguf': [sound.subarray(0, 500), 'truncated', /\d/],
    'cut_in_weights.gguf': [sound.subarray(0, sound.length - 1000), 'truncated', /\d/],
    'version.gguf': [version, 'unsupported_gguf_version', /99/],
    'architecture.gguf': [
      broken(({ entries }) => entries.set('general.architecture', stringEntry('no_such_llm'))),
      'unsupported_architecture',
      /no_such_llm/,
    ],
    // I16 is a type of the format that is not run; 200 is none at all.
    'tensor_type.gguf': [withTensorType(25), 'unsupported_tensor_type', /blk\.0\.attn_q\.weight.*I16.*Q4_K/s],
    'unknown_tensor_type.gguf': [
      withTensorType(200),
      'unsupported_tensor_type',
      /blk\.0\.attn_q\.weight.*200|200.*blk\.0\.attn_q\.weight/s,
    ],
    'missing_tensor.gguf': [
      broken((model) => (model.tensors = model.tensors.filter(({ name }) => name !== 'blk.1.ffn_up.weight'))),
      'missing_tensor',
      /blk\.1\.ffn_up\.weight/,
    ],
    'missing_key.gguf': [broken(({ entries }) => entries.delete('llama.block_count')), 'invalid_metadata', /llama\.block_count/],
  };
}

describe('models that cannot be loaded', () => {
  let stage;
  before(async () => {
    stage = await openStage();
    for (const [name, [bytes]] of Object.entries(brokenFiles())) writeFileSync(join(stage.made, name), bytes);
  });
  /** A page for all that fails there: what one leaves behind would break the next. */
  let opened;
  after(async () => {
    try {
      await opened?.close();
    } finally {
      await stage.close();
    }
  });
  let failures = 0;

  /** Fails to load, in the worker and on the page, and loads a sound model on the same page afterwards, in turn here and there. */
  async function fails(source, options = {}) {
    if (opened === undefined) {
      opened = await stage.openPage({ allowed: REQUEST_FAILED });
      await opened.prepare('/rillm/dist/index.js');
    }
    return opened.page.evaluate(
      async ([url, more, worker]) => {
        const inWorker = await failure(() => rillm.Engine.load(url, more));
        const onPage = await failure(() => rillm.Engine.load(url, { ...more, worker: false }));
        const afterwards = await withEngine('/golden/tied-q8_0.gguf', { worker }, (engine) => engine.info.layers);
        return { inWorker, onPage, afterwards };
      },
      [source, options, failures++ % 4 === 0],
    );
  }

  function check({ inWorker, onPage, afterwards }, code, message = /./) {
    for (const failure of [inWorker, onPage]) {
      assert.ok(failure.isEngineError, JSON.stringify(failure));
      if (code instanceof RegExp) assert.match(failure.code, code);
      else assert.equal(failure.code, code, failure.message);
      assert.match(failure.message, message);
    }
    assert.equal(inWorker.message, onPage.message);
    assert.equal(afterwards, 2);
  }

  for (const [name, [, code, message]] of Object.entries(brokenFiles())) {
    test(`${name}: ${code}`, LIMIT, async () => check(await fails(`/made/${name}`), code, message));
  }

  test('a File that is not a GGUF: not_gguf', LIMIT, async () => {
    const failed = await stage.run(async () => failure(rillm.Engine.load(new File(['hello '.repeat(100)], 'letter.txt'))));
    assert.equal(failed.code, 'not_gguf', failed.message);
  });

  test('an empty File: not_gguf or truncated', LIMIT, async () => {
    const failed = await stage.run(async () => failure(rillm.Engine.load(new File([], 'empty.gguf'))));
    assert.match(failed.code, /^(not_gguf|truncated)$/, failed.message);
  });

  test('HTTP 404: http', LIMIT, async () => check(await fails('/status/404/model.gguf'), 'http', /404/));
  test('HTTP 500: http', LIMIT, async () => check(await fails('/status/500/model.gguf', { retries: 0 }), 'http', /500/));
  test('HTTP 416: range_not_supported or http', LIMIT, async () =>
    check(await fails('/status/416/model.gguf'), /^(http|range_not_supported|truncated)$/, /416/),
  );
  test('a server without ranges and without a length: range_not_supported', LIMIT, async () =>
    check(await fails('/without-length/tied-f32.gguf'), 'range_not_supported', /range/i),
  );
  test('HTTP 403: access_denied', LIMIT, async () => check(await fails('/status/403/model.gguf'), 'access_denied', /403/));
  test('a connection that breaks off: network', LIMIT, async () => check(await fails('/breaks-off/model.gguf', { retries: 1 }), 'network'));
  test('a server that is not there: network', LIMIT, async () =>
    check(await fails('http://localhost:9/model.gguf', { retries: 0 }), 'network'),
  );

  test('what is no URL: invalid_request', LIMIT, async () => {
    const codes = await stage.run(async () => [
      (await failure(rillm.Engine.load('http://['))).code,
      (await failure(rillm.Engine.load(undefined))).code,
      (await failure(rillm.Engine.load({}))).code,
    ]);
    assert.deepEqual(codes, ['invalid_request', 'invalid_request', 'invalid_request']);
  });

  test('an adapter without the limits: adapter_limits', LIMIT, async () => {
    const { failed, afterwards } = await stage.run(async () => {
      // The adapter says that it binds half of the storage buffers that kernels need.
      const real = Object.getOwnPropertyDescriptor(GPUAdapter.prototype, 'limits');
      Object.defineProperty(GPUAdapter.prototype, 'limits', { configurable: true, get: () => ({ maxStorageBuffersPerShaderStage: 4 }) });
      const failed = await failure(rillm.Engine.load('/golden/tied-f32.gguf', { device: 'gpu', worker: false }));
      Object.defineProperty(GPUAdapter.prototype, 'limits', real);
      return { failed, afterwards: await withEngine('/golden/tied-f32.gguf', { worker: false }, (engine) => engine.info.layers) };
    });
    assert.equal(failed.code, 'adapter_limits', failed.message);
    assert.match(failed.message, /8 storage buffers.* 4/);
    assert.equal(afterwards, 2);
  });

  for (const worker of [true, false]) {
    test(`aborting a load: aborted (${worker ? 'in the worker' : 'on the page'})`, LIMIT, async () => {
      const { already, later, afterwards } = await stage.run(async (inWorker) => {
        const already = await failure(rillm.Engine.load('/golden/tied-f32.gguf', { signal: AbortSignal.abort(), worker: inWorker }));
        const later = await failure(rillm.Engine.load('/never-answers/', { signal: AbortSignal.timeout(300), worker: inWorker }));
        return {
          already,
          later,
          afterwards: await withEngine('/golden/tied-f32.gguf', { worker: inWorker }, (engine) => engine.info.layers),
        };
      }, worker);
      assert.equal(already.code, 'aborted');
      assert.equal(later.code, 'aborted');
      assert.equal(afterwards, 2);
    });

    test(
      `dispose: what runs and what comes is rejected, twice is harmless (${worker ? 'in the worker' : 'on the page'})`,
      LIMIT,
      async () => {
        const codes = await stage.run(async (inWorker) => {
          const engine = await rillm.Engine.load('/golden/tied-f32.gguf', { worker: inWorker, maxRecoveries: 0 });
          const ask = { prompt: 'The', max_tokens: 200, ignore_eos: true };
          const running = failure(engine.completions.create(ask));
          const waiting = failure(engine.completions.create(ask));
          await engine.tokenize('x');
          await engine.dispose();
          await engine.dispose();
          const later = ['tokenize', 'detokenize', 'forward', 'sync', 'stats'].map((method) => failure(() => engine[method]([1])));
          const failures = await Promise.all([running, waiting, ...later, failure(engine.completions.create(ask))]);
          return failures.map(({ code }) => code);
        }, worker);
        assert.deepEqual(new Set(codes), new Set(['disposed']), codes.join());
      },
    );
  }

  test('a worker that the application makes', LIMIT, async () => {
    const { tokens, failed } = await stage.run(async () => {
      const load = (worker) => rillm.Engine.load('/golden/tied-f32.gguf', { worker });
      const engine = await load(() => new Worker('/rillm/dist/worker.js', { type: 'module' }));
      const tokens = [...(await engine.tokenize('a boat'))].length;
      await engine.dispose();
      // The application and its worker may have something to say to each other.
      const said = "[null, 5, 'ready', [], { type: 'mine' }]";
      const source = `import '${location.origin}/rillm/dist/worker.js'; for (const message of ${said}) postMessage(message);`;
      let chatty;
      const talking = await load(() => {
        const address = URL.createObjectURL(new Blob([source], { type: 'text/javascript' }));
        return (chatty = new Worker(address, { type: 'module' }));
      });
      for (const message of [null, 5, 'ready', [], { type: 'mine' }]) chatty.postMessage(message);
      const same = (await talking.tokenize('a boat')).length === tokens;
      await talking.dispose();
      const wrong = [
        () => ({}),
        () => null,
        () => {
          throw new Error('why');
        },
        'yes',
        1,
      ];
      return { tokens: same ? tokens : 0, failed: await Promise.all(wrong.map((worker) => failure(load(worker)))) };
    });
    assert.ok(tokens > 0);
    assert.deepEqual(
      failed.map(({ code }) => code),
      ['invalid_request', 'invalid_request', 'worker_unavailable', 'invalid_request', 'invalid_request'],
    );
    assert.match(failed[2].message, /why/);
  });

  test('a page that requires Trusted Types', LIMIT, async () => {
    const page = await stage.openPage({ url: `${stage.origin}/trusted-types/` });
    const layers = await page.page.evaluate(async () => {
      const { Engine } = await import('/rillm/dist/index.js');
      const engine = await Engine.load('/golden/tied-f32.gguf');
      await engine.dispose();
      return engine.info.layers;
    });
    await page.close();
    assert.equal(layers, 2);
  });

  test('a worker script that is not there: worker_unavailable', LIMIT, async () => {
    const failed = await stage.runWith({ package: '/no-worker/dist/index.js', allowed: REQUEST_FAILED }, () =>
      failure(rillm.Engine.load('/golden/tied-f32.gguf')),
    );
    assert.equal(failed.code, 'worker_unavailable', failed.message);
  });

  // In these copies of the package the wasm for GPUs is missing or traps.
  for (const worker of [true, false]) {
    test(`a wasm file that is not there: wasm_unavailable (${worker ? 'in the worker' : 'on the page'})`, LIMIT, async () => {
      const { failed, layers } = await stage.runWith(
        { package: '/no-wasm/dist/index.js', allowed: REQUEST_FAILED },
        async (inWorker) => {
          const failed = await failure(rillm.Engine.load('/golden/tied-f32.gguf', { device: 'gpu', worker: inWorker }));
          const options = { device: 'gpu', worker: inWorker, wasmUrl: '/rillm/dist/wasm/rillm_bg.wasm' };
          return { failed, layers: await withEngine('/golden/tied-f32.gguf', options, (engine) => engine.info.layers) };
        },
        worker,
      );
      assert.equal(failed.code, 'wasm_unavailable', failed.message);
      assert.equal(layers, 2);
    });

    test(`a trap of the wasm rejects everything that is open (${worker ? 'in the worker' : 'on the page'})`, LIMIT, async () => {
      const { codes, ends, answers, again } = await stage.runWith(
        { package: '/trap/dist/index.js', allowed: [/unreachable in rillm/] },
        async (inWorker) => {
          const engine = await rillm.Engine.load('/golden/tied-f32.gguf', { device: 'gpu', worker: inWorker, maxRecoveries: 0 });
          const ask = (stream) => {
            const body = JSON.stringify({ prompt: 'The small boat', max_tokens: 24, ignore_eos: true, stream });
            return engine.fetch('/v1/completions', { method: 'POST', body });
          };
          // Two clients read a stream, and one waits for its answer.
          const readers = (await Promise.all([ask(true), ask(true)])).map(({ body }) => body.getReader());
          await Promise.all(readers.map((reader) => reader.read()));
          const whole = ask(false);
          const open = [engine.forward([1, 2]), engine.forward([3])].map((promise) => failure(promise));
          const codes = (await Promise.all(open)).map(({ code }) => code);
          codes.push((await failure(engine.tokenize('later'))).code);
          const ends = await Promise.all(
            readers.map(async (reader) => {
              for (let text = ''; ; ) {
                const { done, value } = await reader.read().catch((error) => ({ done: true, value: error }));
                if (done) return value === undefined ? { text } : { text, thrown: value.message };
                text = new TextDecoder().decode(value);
              }
            }),
          );
          const answers = await Promise.all(
            [whole, ask(false), ask(true)].map(async (asked) => [(await asked).status, (await (await asked).json()).error.code]),
          );
          await engine.dispose();
          // The worker's wasm goes with the worker; the page has a new instance.
          const again = await failure(() => withEngine('/golden/tied-f32.gguf', { device: 'gpu', worker: inWorker }, () => {}));
          return { codes, ends, answers, again: again.code };
        },
        worker,
      );
      // What was under way came first; what waited ends in an error with its code.
      assert.deepEqual(ends, Array(2).fill({ text: 'data: [DONE]\n\n' }));
      assert.deepEqual(answers, Array(3).fill([500, 'internal']));
      assert.deepEqual(codes, ['internal', 'internal', 'internal']);
      assert.equal(again, 'did not fail');
    });
  }

  test('a trap ends the devices of rillm/gpu or the engine of the page, not both', LIMIT, async () => {
    const trapped = async (ofGpu) => {
      const { Device } = await import('/trap/dist/gpu/index.js');
      const engine = await rillm.Engine.load('/golden/tied-f32.gguf', { device: 'gpu', worker: false, maxRecoveries: 0 });
      const device = await Device.request();
      const { message } = await failure(ofGpu ? device.sync() : engine.forward([1]));
      const ends = [await failure(() => device.ones([2]).readback()), await failure(engine.tokenize('later'))];
      device.destroy();
      await engine.dispose();
      // What is asked for now has a new instance.
      const other = await Device.request();
      const [one] = await other.ones([1]).readback();
      other.destroy();
      const layers = await withEngine(
        '/golden/tied-f32.gguf',
        { device: 'gpu', worker: false },
        async (engine) => (await engine.tokenize('a')).length,
      );
      return { message, codes: ends.map(({ code }) => code), again: [one, layers > 0] };
    };
    const options = { package: '/trap/dist/index.js', allowed: [/unreachable in/] };
    const gpu = await stage.runWith(options, trapped, true);
    assert.match(gpu.message, /unreachable in the tensors/);
    assert.deepEqual(gpu.codes, ['internal', 'did not fail']);
    const engine = await stage.runWith(options, trapped, false);
    assert.match(engine.message, /unreachable in rillm/);
    assert.deepEqual(engine.codes, ['did not fail', 'internal']);
    assert.deepEqual([gpu.again, engine.again], Array(2).fill([1, true]));
  });
});

describe('without WebGPU', () => {
  let stage;
  // Browsers give WebGPU to secure pages only, and a host that is not localhost is not secure over http. Without a flag
  // for a software adapter, a machine without a GPU offers none.
  before(
    async () => (stage = await openStage({ adapter: 'none', args: ['--host-resolver-rules=MAP rillm.test localhost', '--disable-gpu'] })),
  );
  after(() => stage.close());

  for (const worker of [true, false]) {
    const where = worker ? 'in the worker' : 'on the page';
    test(`a page that is not secure: webgpu_unavailable (${where})`, LIMIT, async () => {
      const url = `${stage.origin.replace('localhost', 'rillm.test')}/blank/`;
      const failed = await stage.runWith(
        { url, allowed: [/Cross-Origin-(Opener|Embedder)-Policy/] },
        (inWorker) => failure(rillm.Engine.load('/golden/tied-f32.gguf', { device: 'gpu', worker: inWorker })),
        worker,
      );
      assert.equal(failed.code, 'webgpu_unavailable', failed.message);
      assert.match(failed.message, /WebGPU/);
    });
    test(`a page that is not secure answers on the CPU, and keeps nothing (${where})`, LIMIT, async () => {
      const url = `${stage.origin.replace('localhost', 'rillm.test')}/blank/`;
      const found = await stage.runWith(
        { url, allowed: [/Cross-Origin-(Opener|Embedder)-Policy/] },
        async (inWorker) => {
          const found = [];
          for (const cache of ['opfs', 'memory', 'none']) {
            const events = [];
            const onEvent = ({ type, reason, message }) =>
              type === 'fallback' && events.push([reason, /not kept.*(https|file system)/.test(message)]);
            const engine = await rillm.Engine.load('/golden/tied-f32.gguf', { worker: inWorker, cache, onEvent });
            const { usage } = await engine.completions.create({ prompt: [1, 2, 3], max_tokens: 4, ignore_eos: true });
            found.push([engine.info.device, usage.completion_tokens, ...events.flat()]);
            await engine.dispose();
          }
          return found;
        },
        worker,
      );
      const kept = ['unavailable', true];
      assert.deepEqual(found, [
        ['cpu', 4, ...kept],
        ['cpu', 4, ...kept],
        ['cpu', 4],
      ]);
    });
    test(`no adapter: adapter_unavailable (${where})`, LIMIT, async () => {
      const load = (inWorker) => failure(rillm.Engine.load('/golden/tied-f32.gguf', { device: 'gpu', worker: inWorker }));
      const failed = await stage.run(load, worker);
      assert.equal(failed.code, 'adapter_unavailable', failed.message);
      assert.match(failed.message, /adapter/i);
    });
  }

  test('the demo page says what to do, and answers', LIMIT, async () => {
    const { page, close } = await stage.openPage({
      url: `${stage.origin.replace('localhost', 'rillm.test')}/`,
      allowed: [/Cross-Origin-(Opener|Embedder)-Policy/, ...REQUEST_FAILED],
    });
    const notice = page.locator('.notice-text').filter({ hasText: /gives this page no GPU, so the CPU runs the models/ });
    await notice.waitFor();
    await notice.getByText('How to use the GPU').click();
    await notice.getByText(/https/).first().waitFor();
    await page.locator('#model-summary', { hasText: 'Loaded in' }).waitFor();
    assert.ok(await notice.isVisible());
    await page.locator('#prompt').fill('What is 12 plus 30?');
    await page.locator('#prompt').press('Enter');
    await page.locator('.message.assistant:not([aria-busy]) .prose', { hasText: '42' }).waitFor();
    await close();
  });
});
