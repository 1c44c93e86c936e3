// The modules of WebAssembly: what `wasmModule` and `grammarWasmModule` take and refuse, that it reaches every thread, and servers that fail for a
// while or for good.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { openStage, packedPackage } from './browser.mjs';
import { serveFaulty } from './faulty_server.mjs';

const LIMIT = { timeout: 240_000 };
/** A copy of the package without its wasm files: what works there came by an option. */
const WITHOUT = { package: '/no-wasm/dist/index.js', allowed: [/Failed to load resource/] };
const FAILED = { allowed: [/Failed to load resource/, /ERR_/] };
const STREAMED = { type: 'application/wasm' };
let stage;
/** Serves the modules, with faults. */
let server;
before(async () => {
  stage = await openStage();
  const folder = join(await packedPackage(), 'dist/wasm');
  const files = ['rillm_bg.wasm', 'rillm_tensor_bg.wasm', 'rillm_grammar_bg.wasm'];
  server = await serveFaulty(Object.fromEntries(files.map((name) => [name, readFileSync(join(folder, name))])));
}, LIMIT);
after(async () => {
  await server?.close();
  await stage?.close();
});

test('every kind of module, in the worker and on the page; the caller keeps what it handed in', LIMIT, async () => {
  const kinds = ['string', 'URL', 'Response', 'ArrayBuffer', 'view', 'Module'];
  const inspected = async ([worker, kinds]) => {
    const address = '/rillm/dist/wasm/rillm_bg.wasm';
    const make = {
      string: async () => address,
      URL: async () => new URL(address, location.href),
      Response: () => fetch(address),
      ArrayBuffer: async () => (await fetch(address)).arrayBuffer(),
      view: async () => {
        // In the midst of a larger buffer.
        const bytes = new Uint8Array(await (await fetch(address)).arrayBuffer());
        const larger = new Uint8Array(bytes.length + 20);
        larger.set(bytes, 10);
        return larger.subarray(10, 10 + bytes.length);
      },
      Module: () => WebAssembly.compileStreaming(fetch(address)),
    };
    const layers = [];
    for (const kind of kinds) {
      const wasmModule = await make[kind]();
      // Twice with the same object.
      for (let i = 0; i < 2; i++) layers.push((await rillm.Engine.inspect('/golden/tied-q8_0.gguf', { worker, wasmModule })).layers);
      if (wasmModule.byteLength === 0) throw new Error(`${kind} was detached`);
    }
    return layers;
  };
  const inWorker = await stage.runWith(WITHOUT, inspected, true, kinds);
  assert.deepEqual(inWorker, Array(12).fill(2));
  // A page loads the wasm once, so each kind has a page of its own.
  for (const kind of ['Response', 'view', 'Module']) assert.deepEqual(await stage.runWith(WITHOUT, inspected, false, [kind]), [2, 2], kind);
});

test('a load with both modules, a digest and a grammar; the device of rillm/gpu; a template', LIMIT, async () => {
  const got = await stage.runWith(WITHOUT, async () => {
    const fetched = (name) => fetch(`/rillm/dist/wasm/${name}_bg.wasm`);
    const [wasmModule, grammarWasmModule] = [await WebAssembly.compileStreaming(fetched('rillm')), await fetched('rillm_grammar')];
    const bytes = await (await fetch('/golden/tied-q8_0.gguf')).arrayBuffer();
    const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
    const integrity = Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
    const events = [];
    const options = { wasmModule, grammarWasmModule, integrity, cache: 'memory', onEvent: ({ type }) => events.push(type) };
    const text = await withEngine('/golden/tied-q8_0.gguf', options, async (engine) => {
      const request = { prompt: 'The small boat', temperature: 0, structured_outputs: { choice: ['yes', 'no'] } };
      return (await engine.completions.create(request)).choices[0].text;
    });
    const { Device } = await import('/no-wasm/dist/gpu/index.js');
    const refused = await failure(Device.request({ wasmModule: 3 }));
    const another = await failure(Device.request({ wasmModule }));
    const device = await Device.request({ wasmModule: await (await fetched('rillm_tensor')).arrayBuffer() });
    const numbers = [...(await device.ones([3]).readback())];
    device.destroy();
    const rendered = await rillm.renderTemplate('{{ a }}', { a: 1 }, { wasmModule });
    return { events, text, refused, another, numbers, rendered };
  });
  assert.ok(got.events.includes('verified'), String(got.events));
  assert.ok(['yes', 'no'].includes(got.text), got.text);
  assert.deepEqual([got.refused.code, got.numbers, got.rendered], ['invalid_request', [1, 1, 1], '1']);
  assert.match(got.refused.message, /wasmModule/);
  assert.equal(got.another.code, 'wasm_unavailable');
  assert.match(got.another.message, /of the option wasmModule did not load .*another module/);
});

test('what is no module is refused by the name of the option, and the next load works', LIMIT, async () => {
  const failed = await stage.runWith(WITHOUT, async () => {
    const address = '/rillm/dist/wasm/rillm_bg.wasm';
    const used = await fetch(address);
    await used.arrayBuffer();
    const detached = new ArrayBuffer(8);
    const detachedView = new Uint8Array(detached, 4);
    structuredClone(detached, { transfer: [detached] });
    const wrong = {
      number: 3,
      null: null,
      object: {},
      function: () => {},
      promise: fetch(address),
      invalidUrl: 'http://[',
      usedResponse: used,
      failedResponse: new Response('', { status: 404 }),
      detached,
      detachedView,
      empty: new Uint8Array(0),
      text: new TextEncoder().encode('<!doctype html>'),
      otherModule: await WebAssembly.compile(Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0)),
      grammarModule: '/rillm/dist/wasm/rillm_grammar_bg.wasm',
      html: '/blank/',
      notThere: '/status/404/',
    };
    const told = {};
    for (const [name, wasmModule] of Object.entries(wrong)) {
      for (const worker of [true, false]) {
        told[`${name} ${worker}`] = await failure(rillm.Engine.inspect('/golden/tied-q8_0.gguf', { wasmModule, worker }));
      }
    }
    // A module of another frame.
    const frame = document.body.appendChild(document.createElement('iframe'));
    const foreign = await frame.contentWindow.WebAssembly.compile(await (await fetch(address)).arrayBuffer());
    for (const worker of [true, false]) await rillm.Engine.inspect('/golden/tied-q8_0.gguf', { wasmModule: foreign, worker });
    told.both = await failure(rillm.Engine.load('/golden/tied-q8_0.gguf', { wasmModule: address, wasmUrl: address }));
    told.grammar = await failure(rillm.Engine.load('/golden/tied-q8_0.gguf', { grammarWasmModule: 7, wasmUrl: address }));
    // A response whose body never ends does not hold up an abort.
    const endless = new Response(new ReadableStream({ pull: () => new Promise(() => {}) }));
    const abort = new AbortController();
    const aborted = failure(rillm.Engine.load('/golden/tied-q8_0.gguf', { wasmModule: endless, signal: abort.signal }));
    setTimeout(() => abort.abort(), 20);
    told.aborted = await aborted;
    const { layers } = await rillm.Engine.inspect('/golden/tied-q8_0.gguf', { wasmUrl: address, worker: false });
    return { told, layers };
  });
  const { told, layers } = failed;
  assert.equal(layers, 2);
  const codes = Object.fromEntries(Object.entries(told).map(([name, { code }]) => [name, code]));
  const refused = ['number', 'null', 'object', 'function', 'promise', 'invalidUrl', 'usedResponse', 'detached', 'detachedView', 'empty'];
  const unavailable = ['failedResponse', 'text', 'otherModule', 'grammarModule', 'html', 'notThere'];
  const wanted = (names, code) => names.flatMap((name) => [true, false].map((worker) => [`${name} ${worker}`, code]));
  assert.deepEqual(codes, {
    ...Object.fromEntries([...wanted(refused, 'invalid_request'), ...wanted(unavailable, 'wasm_unavailable')]),
    both: 'invalid_request',
    grammar: 'invalid_request',
    aborted: 'aborted',
  });
  for (const [name, { message }] of Object.entries(told)) if (name !== 'aborted') assert.match(message, /asmModule/, `${name}: ${message}`);
  assert.match(told.both.message, /wasmUrl and wasmModule/);
  assert.match(told['html true'].message, /HTML/);
  assert.match(told['otherModule true'].message, /another module/);
  assert.match(told['promise true'].message, /a promise: await it/);
  assert.match(told.grammar.message, /grammarWasmModule/);
});

test('a module whose server fails for a while is fetched again, and onEvent hears of it', LIMIT, async () => {
  server.set(STREAMED);
  server.fault('rillm_bg.wasm', { status: 503 }, { after: 1000, ending: 'drop' }, { after: 200_000, ending: 'silent' });
  const got = await stage.runWith(
    FAILED,
    async (wasmUrl) => {
      const events = [];
      const options = { wasmUrl, cache: 'memory', stallTimeoutMs: 1000, onEvent: (event) => events.push(event) };
      const { complete } = await rillm.models.download('/golden/tied-q8_0.gguf', options);
      return { complete, events };
    },
    `${server.origin}/rillm_bg.wasm`,
  );
  assert.equal(got.complete, true);
  assert.deepEqual(
    got.events.map(({ type, reason, attempt, url }) => [type, reason, attempt, url]),
    ['status', 'network', 'stalled'].map((reason, i) => ['retrying', reason, i + 1, `${server.origin}/rillm_bg.wasm`]),
  );
  assert.equal(server.requests.length, 4);
});

test('of another type too, for rillm/gpu and grammars; what is final is asked for once, and the next call may succeed', LIMIT, async () => {
  server.set();
  const dropped = [{ status: 500 }, { after: 1000, ending: 'drop' }];
  server.fault('rillm_tensor_bg.wasm', ...dropped);
  server.fault('rillm_grammar_bg.wasm', { silent: true }, { after: 1000, ending: 'drop' });
  const got = await stage.runWith(
    FAILED,
    async (origin) => {
      const { Device } = await import('/rillm/dist/gpu/index.js');
      const device = await Device.request({ wasmUrl: `${origin}/rillm_tensor_bg.wasm` });
      const ones = [...(await device.ones([2]).readback())];
      device.destroy();
      const options = { grammarWasmUrl: `${origin}/rillm_grammar_bg.wasm`, stallTimeoutMs: 1000, worker: false };
      const text = await withEngine('/golden/tied-q8_0.gguf', options, async (engine) => {
        const request = { prompt: 'The small boat', temperature: 0, structured_outputs: { choice: ['yes', 'no'] } };
        return (await engine.completions.create(request)).choices[0].text;
      });
      return { ones, text };
    },
    server.origin,
  );
  assert.deepEqual(got.ones, [1, 1]);
  assert.ok(['yes', 'no'].includes(got.text), got.text);
  assert.equal(server.requests.length, 6);

  server.set(STREAMED);
  const not = Buffer.from('no module at all, and a long one '.repeat(9000));
  server.fault('rillm_bg.wasm', { status: 404 }, { bytes: not }, { bytes: not, type: 'text/plain' }, { status: 503 });
  const final = await stage.runWith(
    FAILED,
    async (wasmUrl) => {
      const inspect = (options) => rillm.Engine.inspect('/golden/tied-q8_0.gguf', { wasmUrl, worker: false, ...options });
      const failed = [];
      for (const retries of [5, 5, 5, 0]) failed.push(await failure(inspect({ retries })));
      return { failed, layers: (await inspect()).layers };
    },
    `${server.origin}/rillm_bg.wasm`,
  );
  assert.deepEqual(
    final.failed.map(({ code }) => code),
    Array(4).fill('wasm_unavailable'),
  );
  for (const [n, pattern] of [/status 404/, /CompileError/, /CompileError/, /answered 503.*try again later/].entries()) {
    assert.match(final.failed[n].message, pattern);
  }
  assert.equal(final.layers, 2);
  assert.equal(server.requests.length, 5);
});

test('the rest of what is no module is not fetched', LIMIT, async () => {
  for (const type of ['application/wasm', 'text/plain']) {
    server.set({ type });
    // It would take ten seconds.
    server.fault('rillm_bg.wasm', { bytes: Buffer.alloc(64 << 20, 'no module at all '), pace: 64 << 10 });
    const { told, ms } = await stage.runWith(
      FAILED,
      async (wasmUrl) => {
        const begin = performance.now();
        const told = await failure(rillm.Engine.inspect('/golden/tied-q8_0.gguf', { wasmUrl, worker: false }));
        const ms = performance.now() - begin;
        // The page stays for a while: what it asked for would go on.
        await new Promise((resolve) => setTimeout(resolve, 1000));
        return { told, ms };
      },
      `${server.origin}/rillm_bg.wasm`,
    );
    assert.equal(told.code, 'wasm_unavailable', type);
    assert.match(told.message, /CompileError/, type);
    assert.ok(ms < 8000, `${type}: ${ms} ms`);
    assert.equal(server.requests[0].whole, false, type);
  }
});

test('an abort ends the wait for a module at once, and who waits for the same goes on', LIMIT, async () => {
  server.set(STREAMED);
  server.fault('rillm_bg.wasm', { silent: true });
  const got = await stage.runWith(
    FAILED,
    async (wasmUrl) => {
      const controller = new AbortController();
      const options = { wasmUrl, worker: false, stallTimeoutMs: 1500 };
      const aborted = failure(rillm.Engine.inspect('/golden/tied-q8_0.gguf', { ...options, signal: controller.signal }));
      const other = rillm.Engine.inspect('/golden/tied-q8_0.gguf', options);
      setTimeout(() => controller.abort(), 300);
      const begin = performance.now();
      const { code } = await aborted;
      return { code, ms: performance.now() - begin, layers: (await other).layers };
    },
    `${server.origin}/rillm_bg.wasm`,
  );
  assert.deepEqual([got.code, got.layers], ['aborted', 2]);
  assert.ok(got.ms < 1400, `${got.ms} ms`);
});
