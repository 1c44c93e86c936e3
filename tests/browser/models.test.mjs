// Models that stay: what is kept in the browser, how a download goes on after whatever broke it off, and what is noticed of damage.

import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { golden, openStage } from './browser.mjs';
import { serveFile } from './file_server.mjs';
import { serveHub } from './hub.mjs';

const LIMIT = { timeout: 120_000 };
const FAILED = [/Failed to load resource/, /has been blocked by CORS/, /ERR_/];
const MIB = 2 ** 20;
const small = readFileSync(join(golden, 'tied-q8_0.gguf'));
/** The same model with bytes after its tensors: several segments, of which the last is short. */
const large = Buffer.concat([small, randomBytes(40 * MIB + 12_345)]);
/** Of two segments, where their number does not matter. */
const medium = large.subarray(0, 18 * MIB + 345);
const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');

let stage;
let server;
before(async () => {
  stage = await openStage();
  server = await serveFile(large);
});
after(async () => {
  await server?.close();
  await stage?.close();
});

/** Runs `work` for a visitor of the site, in whose first page the package is. */
async function visiting(work, bytes = large) {
  server.set({ bytes, etag: '"1"', ranges: true, delayMs: 0, breakAfter: Infinity, silentAfter: Infinity, status: undefined });
  server.requests.length = 0;
  await stage.visiting(async ({ context, open }) => {
    const prepared = async () => {
      const page = await open();
      await prepare(page);
      return page;
    };
    await work({ context, first: await prepared(), open: prepared });
    await context.setOffline(false);
  }, FAILED);
}

/** What the tests use in a page. */
async function prepare(page) {
  await page.evaluate(async () => {
    globalThis.rillm = await import('/rillm/dist/index.js');
    globalThis.events = [];
    globalThis.progress = [];
    globalThis.watching = { onEvent: (event) => events.push(event), onProgress: (progress) => globalThis.progress.push(progress) };
    globalThis.failure = async (work) => {
      try {
        await work;
      } catch (error) {
        return { code: error.code, message: error.message, isEngineError: error instanceof rillm.EngineError };
      }
      return { code: 'did not fail' };
    };
    /** The folder of the only kept file that is larger than a list. */
    globalThis.keptFolder = async () => {
      const files = await (await (await navigator.storage.getDirectory()).getDirectoryHandle('rillm')).getDirectoryHandle('files');
      for await (const [name, folder] of files) if (!name.startsWith('text-')) return folder;
    };
  });
}

const download = (page, url = server.url, options = {}) =>
  page.evaluate(([url, options]) => rillm.models.download(url, { ...watching, ...options }), [url, options]);
const load = (page, url = server.url, options = {}) =>
  page.evaluate(
    async ([url, options]) => {
      const engine = await rillm.Engine.load(url, { ...watching, ...options });
      const answer = await engine.completions.create({ prompt: 'The small boat', max_tokens: 4, temperature: 0, ignore_eos: true });
      await engine.dispose();
      return answer.choices[0].text;
    },
    [url, options],
  );
const events = (page, type) =>
  page.evaluate((type) => globalThis.events.splice(0).filter((event) => type === undefined || event.type === type), type);

describe('a second visit', () => {
  for (const worker of [true, false]) {
    test(`loads without a request, also offline (worker: ${worker})`, LIMIT, async () => {
      await visiting(async ({ first, open, context }) => {
        const text = await load(first, server.url, { worker });
        assert.equal(server.sent(), large.length, 'each byte once');
        const phases = await first.evaluate(() => progress);
        assert.ok(phases.every(({ from }) => from === 'network' || from === 'file'));
        assert.equal(phases.at(-1).phase, 'ready');
        assert.ok(phases.some(({ bytesPerSecond, secondsLeft }) => bytesPerSecond > 0 && secondsLeft >= 0));
        await first.close();

        server.requests.length = 0;
        server.set({ status: 500 });
        const second = await open();
        assert.equal(await load(second, server.url, { worker }), text);
        assert.equal(server.requests.length, 0);
        assert.ok((await second.evaluate(() => progress)).some(({ from }) => from === 'cache'));
        assert.deepEqual(await events(second), []);
        if (worker) return;
        // A worker's script would be the page's affair; here it is loaded.
        await context.setOffline(true);
        assert.equal(await load(second, server.url, { worker }), text);
      });
    });
  }

  test('of a repository of a hub: neither the list nor a file is asked for', LIMIT, async () => {
    const hub = await serveHub({
      'some/model': { files: { 'README.md': join(golden, 'tied.ids.json'), 'a-Q8_0.gguf': join(golden, 'tied-q8_0.gguf') } },
    });
    try {
      await visiting(async ({ first, open }) => {
        const options = { hub: { endpoint: hub.endpoint } };
        const text = await load(first, 'hf:some/model', options);
        const verified = (await events(first, 'verified'))[0];
        assert.equal(verified.sha256, sha256(small));
        await first.close();
        hub.requests.length = 0;
        const second = await open();
        assert.equal(await load(second, 'hf:some/model', options), text);
        assert.equal(hub.requests.length, 0);
        // Whoever wants to know asks; the commit is the same, so nothing else is fetched.
        await load(second, 'hf:some/model', { ...options, update: 'check' });
        assert.deepEqual(
          hub.requests.filter(({ method }) => method === 'GET').map(({ server, url }) => [server, url.startsWith('/api/')]),
          [['hub', true]],
        );
        // Another name of the same file needs the list, and no byte of the file.
        hub.requests.length = 0;
        await load(second, 'hf:some/model:Q8_0', options);
        assert.equal(hub.requests.filter(({ server }) => server === 'store').length, 0);
      });
    } finally {
      await hub.close();
    }
  });
});

describe('a download that was broken off', () => {
  /** Waits until the server has sent so much. */
  const sent = async (bytes) => {
    for (let i = 0; server.sent() < bytes; i++) {
      assert.ok(i < 600, `the server sent ${server.sent()} bytes`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  };
  /** What may be on its way when a connection ends: buffers of sockets and of the browser. */
  const ON_ITS_WAY = 4 * 3 * MIB;

  test('goes on after the page was closed', LIMIT, async () => {
    await visiting(async ({ first, open }) => {
      server.set({ delayMs: 60 });
      const begun = download(first).catch(() => 'closed');
      await sent(12 * MIB);
      await first.close();
      await begun;
      server.set({ delayMs: 0 });
      const before = server.sent();
      // What the server still writes to the page that is gone does not count.
      server.requests.length = 0;
      const page = await open();
      const model = await download(page);
      assert.equal(model.complete, true);
      assert.equal(model.bytes, large.length);
      const [resumed] = await events(page, 'resumed');
      assert.ok(resumed.bytes > 8 * MIB && resumed.bytes <= before, `${resumed.bytes} of ${before}`);
      // Only what was under way is sent again, and one byte that asks whether the file is the same.
      assert.equal(server.sent(), large.length - resumed.bytes + 1);
      assert.ok(before + server.sent() < large.length + ON_ITS_WAY);
    });
  });

  test('goes on after its worker was killed, and after an abort', LIMIT, async () => {
    await visiting(async ({ first }) => {
      server.set({ delayMs: 60 });
      const aborted = await first.evaluate(async (url) => {
        const controller = new AbortController();
        const failed = failure(
          rillm.models.download(url, {
            signal: controller.signal,
            onProgress: ({ loaded }) => loaded > 6 * 2 ** 20 && controller.abort(),
          }),
        );
        return failed;
      }, server.url);
      assert.equal(aborted.code, 'aborted');
      const kept = await first.evaluate(() => rillm.models.list());
      assert.deepEqual([kept.length, kept[0].complete, kept[0].size], [1, false, large.length]);
      assert.ok(kept[0].bytes > 4 * MIB, String(kept[0].bytes));
      server.set({ delayMs: 0 });
      server.requests.length = 0;
      await download(first);
      // What was on its way to the disk is kept too.
      assert.ok(server.sent() <= large.length - kept[0].bytes + 1, String(server.sent()));
      assert.ok(server.sent() > large.length / 2);
    });
  });

  test('a connection that breaks is asked for the rest', LIMIT, async () => {
    await visiting(async ({ first }) => {
      server.set({ breakAfter: 5 * MIB });
      await download(first);
      // 3 requests of 16 MiB, of which each breaks 3 times.
      assert.ok(server.requests.filter(({ method }) => method === 'GET').length >= 9);
      assert.ok(server.sent() < large.length + ON_ITS_WAY, String(server.sent()));
    });
  });

  test('a server without ranges sends all of it again', LIMIT, async () => {
    await visiting(async ({ first, open }) => {
      server.set({ ranges: false, breakAfter: 20 * MIB });
      const failed = await first.evaluate((url) => failure(rillm.models.download(url, { retries: 1 })), server.url);
      assert.equal(failed.code, 'network', failed.message);
      server.set({ breakAfter: Infinity });
      assert.equal((await download(first)).complete, true);
      await first.close();
      server.requests.length = 0;
      const second = await open();
      await load(second);
      assert.equal(server.requests.length, 0);
    });
  });

  test('a server that is replaced in between: nothing is mixed', LIMIT, async () => {
    await visiting(async ({ first }) => {
      server.set({ delayMs: 60 });
      await first.evaluate(async (url) => {
        const controller = new AbortController();
        await failure(
          rillm.models.download(url, { signal: controller.signal, onProgress: ({ loaded }) => loaded > 6 * 2 ** 20 && controller.abort() }),
        );
      }, server.url);
      const other = Buffer.concat([small, randomBytes(40 * MIB + 12_345)]);
      server.set({ bytes: other, etag: '"2"', delayMs: 0 });
      const model = await download(first, server.url, { integrity: sha256(other) });
      assert.deepEqual([model.complete, model.bytes, model.files.length], [true, other.length, 1]);
    });
  });
});

describe('several tabs', () => {
  test('download a file once, and the second goes on when the first is closed', LIMIT, async () => {
    await visiting(async ({ first, open }) => {
      const second = await open();
      server.set({ delayMs: 60 });
      const one = download(first).catch(() => 'closed');
      await first.waitForFunction(() => progress.some(({ loaded }) => loaded > 4 * 2 ** 20));
      const two = download(second);
      await second.waitForFunction(() => globalThis.events.some(({ type }) => type === 'joined'));
      await second.waitForFunction(() => progress.some(({ phase, loaded, total }) => phase === 'download' && loaded > 0 && total > 0));
      // What others say on the channel of the file is not heard.
      await first.evaluate(async () => {
        const { held } = await navigator.locks.query();
        const names = held.map(({ name }) => name).filter((name) => name.startsWith('rillm:file:'));
        if (names.length === 0) throw new Error('there is no such channel');
        for (const name of names) {
          const channel = new BroadcastChannel(name);
          for (const message of [null, 5, 'loaded', {}, [1, 2], { loaded: '7', total: NaN }, { loaded: -1, total: 1e300 }]) {
            channel.postMessage(message);
          }
          channel.close();
        }
      });
      await first.close();
      await one;
      server.set({ delayMs: 0 });
      assert.equal((await two).complete, true);
      const told = await second.evaluate(() => progress.flatMap(({ loaded, total }) => [loaded, total ?? 0]));
      assert.ok(told.every((bytes) => Number.isSafeInteger(bytes) && bytes >= 0));
      assert.ok(server.sent() < large.length + 12 * MIB, String(server.sent()));
      assert.ok((await events(second, 'resumed')).length > 0);
    });
  });
});

describe('damage', () => {
  /** Changes a kept segment. */
  const damage = (page, change) =>
    page.evaluate(async (change) => {
      const folder = await keptFolder();
      if (change === 'delete') return folder.removeEntry('1');
      const handle = await folder.getFileHandle('1');
      const bytes = new Uint8Array(await (await handle.getFile()).arrayBuffer());
      const writable = await handle.createWritable();
      if (change === 'flip') {
        bytes[5 * 2 ** 20] ^= 1;
        bytes[9 * 2 ** 20] ^= 128;
        await writable.write(bytes);
      } else await writable.write(bytes.subarray(0, 10));
      await writable.close();
    }, change);

  for (const change of ['flip', 'cut', 'delete']) {
    test(`is repaired: ${change}`, LIMIT, async () => {
      await visiting(async ({ first }) => {
        await download(first);
        await damage(first, change);
        server.requests.length = 0;
        // The tensors are in the first segment, so that the whole file is read by hand.
        const exported = await first.evaluate(async (url) => {
          const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle('out', { create: true });
          return failure(rillm.models.export(url, folder));
        }, server.url);
        assert.equal(exported.code, 'invalid_file');
        const found = await first.evaluate((url) => rillm.models.verify(url, watching), server.url);
        const repaired = await events(first, 'repaired');
        assert.deepEqual(found, { repaired: repaired.length });
        assert.equal(repaired.length, change === 'flip' ? 2 : 4);
        assert.ok(server.sent() <= repaired.length * 4 * MIB);
        server.requests.length = 0;
        assert.deepEqual(await first.evaluate((url) => rillm.models.verify(url), server.url), { repaired: 0 });
        assert.equal(server.requests.length, 0);
      });
    });
  }

  test('of the weights is repaired while they are loaded', LIMIT, async () => {
    await visiting(async ({ first }) => {
      const text = await load(first);
      await first.evaluate(async () => {
        const handle = await (await keptFolder()).getFileHandle('0');
        const bytes = new Uint8Array(await (await handle.getFile()).arrayBuffer());
        for (let at = 100_000; at < 200_000; at++) bytes[at] = 255;
        const writable = await handle.createWritable();
        await writable.write(bytes);
        await writable.close();
      });
      await events(first);
      assert.equal(await load(first), text);
      assert.deepEqual(
        (await events(first)).map(({ type, offset }) => [type, offset]),
        [['repaired', 0]],
      );
    });
  });

  test('of a file so large that a worker reads it; also if that worker fails or is silent', LIMIT, async () => {
    await visiting(async ({ first }) => {
      server.set({ bytes: Buffer.concat([large, Buffer.alloc(32 * MIB, 7)]) });
      const text = await load(first);
      await first.evaluate(() => {
        globalThis.damage = async () => {
          const handle = await (await keptFolder()).getFileHandle('0');
          const writable = await handle.createWritable({ keepExistingData: true });
          await writable.write({ type: 'write', position: 100_000, data: new Uint8Array(1000).fill(255) });
          await writable.close();
        };
      });
      for (const kind of ['real', 'failing', 'silent']) {
        await events(first);
        server.requests.length = 0;
        await first.evaluate(async (kind) => {
          await damage();
          // What is waited for half a minute, in ten ticks, takes three seconds here: the file system has to answer in that.
          globalThis.original ??= { Worker, setInterval: setInterval.bind(globalThis) };
          const tick = kind === 'silent' ? 300 : 3_000;
          globalThis.setInterval = (work, ms, ...rest) => original.setInterval(work, ms === 3_000 ? tick : ms, ...rest);
          globalThis.started = 0;
          const stand = () => Object.assign(new EventTarget(), { postMessage() {}, terminate() {} });
          globalThis.Worker = new Proxy(original.Worker, {
            construct(real, given) {
              globalThis.started += 1;
              if (kind === 'real') return new real(...given);
              const worker = stand();
              if (kind === 'failing') setTimeout(() => worker.dispatchEvent(new ErrorEvent('error', { message: 'it fell' })), 20);
              return worker;
            },
          });
        }, kind);
        assert.equal(await load(first, server.url, { worker: false }), text, kind);
        assert.equal(await first.evaluate(() => globalThis.started), 1, kind);
        const told = await events(first);
        assert.deepEqual(
          told.map(({ type, offset }) => [type, offset]),
          [['repaired', 0]],
          `${kind}: ${JSON.stringify(told)}`,
        );
        assert.ok(server.sent() <= 4 * MIB, `${kind}: only the chunk is fetched again`);
      }
      await first.evaluate(() => Object.assign(globalThis, original));
      // And where an engine has a worker itself.
      await first.evaluate(() => damage());
      assert.equal(await load(first), text);
      assert.deepEqual(
        (await events(first)).map(({ type, offset }) => [type, offset]),
        [['repaired', 0]],
      );
    });
  });

  test('of the record: the file is fetched again', LIMIT, async () => {
    await visiting(async ({ first }) => {
      await download(first);
      await first.evaluate(async () => {
        const writable = await (await (await keptFolder()).getFileHandle('record.json')).createWritable();
        await writable.write('{"version":1,"digests":[[1]]');
        await writable.close();
      });
      assert.equal((await download(first)).complete, true);
    });
  });

  test('on the way is noticed: another SHA-256 than the hub names', LIMIT, async () => {
    const made = join(stage.made, 'flipped.gguf');
    const flipped = Buffer.from(small);
    flipped[flipped.length - 1000] ^= 4;
    writeFileSync(made, flipped);
    const hub = await serveHub({ 'some/model': { files: { 'a.gguf': made }, digests: { 'a.gguf': sha256(small) } } });
    try {
      await visiting(async ({ first }) => {
        for (const [cache, worker] of [
          ['opfs', true],
          ['none', true],
          ['memory', false],
        ]) {
          const failed = await first.evaluate(
            ([reference, options]) => failure(rillm.Engine.load(reference, options)),
            ['hf:some/model', { hub: { endpoint: hub.endpoint }, cache, worker }],
          );
          assert.equal(failed.code, 'integrity_mismatch', `${cache}: ${failed.message}`);
          assert.match(failed.message, new RegExp(sha256(small)));
        }
        // Nothing of it stays, so that it loads once the server is right.
        writeFileSync(made, small);
        await load(first, 'hf:some/model', { hub: { endpoint: hub.endpoint } });
      });
    } finally {
      await hub.close();
    }
  });

  test('the option integrity', LIMIT, async () => {
    await visiting(async ({ first }) => {
      const base64 = `sha256-${createHash('sha256').update(medium).digest('base64')}`;
      await download(first, server.url, { integrity: base64 });
      assert.equal((await events(first, 'verified'))[0].sha256, sha256(medium));
      const fail = (options) => first.evaluate(([url, options]) => failure(rillm.Engine.load(url, options)), [server.url, options]);
      assert.equal((await fail({ integrity: sha256(small) })).code, 'integrity_mismatch');
      assert.equal((await fail({ integrity: { 'model.gguf': sha256(small) } })).code, 'integrity_mismatch');
    }, medium);
  });
});

describe('a newer version', () => {
  test('is asked for with check, and the old one stays until it is whole', LIMIT, async () => {
    await visiting(async ({ first, context }) => {
      await download(first);
      const other = Buffer.concat([small, randomBytes(36 * MIB)]);
      server.set({ bytes: other, etag: '"2"' });
      server.requests.length = 0;
      await download(first);
      assert.equal(server.requests.length, 0, 'nobody asked');

      server.set({ delayMs: 60 });
      const failed = await first.evaluate(async (url) => {
        const controller = new AbortController();
        const onProgress = ({ loaded }) => loaded > 6 * 2 ** 20 && controller.abort();
        return failure(rillm.models.download(url, { update: 'check', signal: controller.signal, onProgress }));
      }, server.url);
      assert.equal(failed.code, 'aborted', failed.message);
      assert.equal((await first.evaluate(() => rillm.models.list()))[0].files.length, 2);
      server.requests.length = 0;
      const old = await download(first);
      assert.equal(server.requests.length, 0);
      assert.equal(old.complete, true);
      assert.deepEqual(old.files.map(({ size }) => size).sort(), [other.length, large.length].sort());

      server.set({ delayMs: 0 });
      const model = await download(first, server.url, { update: 'check' });
      assert.deepEqual([model.files.length, model.bytes], [1, other.length]);
      const { bytes } = await first.evaluate(() => rillm.models.usage());
      assert.equal(bytes, other.length, 'the old file is gone');

      // Not there: what is kept is loaded, and the page hears of it.
      await context.route(`${server.origin}/**`, (route) => route.abort());
      await events(first);
      assert.equal((await download(first, server.url, { update: 'check' })).complete, true);
      const asked = [
        ['retrying', 'network'],
        ['fallback', 'offline'],
      ];
      assert.deepEqual(
        (await events(first)).map(({ type, reason }) => [type, reason]),
        asked,
      );
      // Nor does it take a model away that the server has a bad time.
      await context.unroute(`${server.origin}/**`);
      server.set({ status: 503 });
      assert.equal((await download(first, server.url, { update: 'check' })).complete, true);
      assert.deepEqual(
        (await events(first)).map(({ type, reason }) => [type, reason]),
        [['retrying', 'status'], asked[1]],
      );
    });
  });
});

describe('where files stay', () => {
  test('in memory, in a store of the application, nowhere', LIMIT, async () => {
    await visiting(async ({ first }) => {
      const found = await first.evaluate(async (url) => {
        const values = new Map();
        const own = {
          get: (key) => values.get(key),
          put: async (key, bytes) => void values.set(key, new Blob([bytes])),
          delete: (key) => void values.delete(key),
        };
        const results = [];
        for (const cache of ['memory', own]) {
          await rillm.models.download(url, { cache });
          const { complete, bytes } = await rillm.models.info(url, { cache });
          const again = await rillm.models.download(url, { cache });
          await rillm.models.delete(url, { cache });
          results.push([complete, bytes, again.complete, (await rillm.models.list({ cache })).length]);
        }
        return { results, keys: [...values.keys()] };
      }, server.url);
      assert.deepEqual(found.results, [
        [true, medium.length, true, 0],
        [true, medium.length, true, 0],
      ]);
      assert.deepEqual(found.keys, ['models.json']);
      assert.equal(server.sent(), 2 * medium.length);
      await load(first, server.url, { cache: 'none' });
      assert.deepEqual(await first.evaluate(() => rillm.models.list()), []);
    }, medium);
  });

  test('a store that is full or broken: the load goes on, and the page hears of it', LIMIT, async () => {
    await visiting(async ({ first }) => {
      const results = await first.evaluate(async (url) => {
        const results = [];
        const stores = {
          full: { get: () => undefined, put: () => Promise.reject(new DOMException('full', 'QuotaExceededError')), delete: () => {} },
          broken: { get: () => Promise.reject(new Error('broken')), put: () => Promise.reject(new Error('broken')), delete: () => {} },
          odd: { get: () => 'text', put: () => {}, delete: () => {} },
        };
        for (const [name, cache] of Object.entries(stores)) {
          for (const worker of [true, false]) {
            const reasons = new Set();
            const engine = await rillm.Engine.load(url, { cache, worker, onEvent: ({ type, reason }) => reasons.add(`${type} ${reason}`) });
            await engine.dispose();
            results.push([name, worker, ...reasons]);
          }
        }
        const failed = await failure(rillm.models.download(url, { cache: stores.full }));
        return { results, failed };
      }, server.url);
      assert.deepEqual(results.results, [
        ['full', true, 'fallback failed', 'fallback quota'],
        ['full', false, 'fallback failed', 'fallback quota'],
        ['broken', true, 'fallback failed'],
        ['broken', false, 'fallback failed'],
        ['odd', true, 'fallback failed'],
        ['odd', false, 'fallback failed'],
      ]);
      assert.equal(results.failed.code, 'cache_unavailable');
    });
  });

  test('no room any more in the middle of a download', LIMIT, async () => {
    await visiting(async ({ first }) => {
      const found = await first.evaluate(async (url) => {
        const events = [];
        const original = FileSystemFileHandle.prototype.createWritable;
        let left = 4;
        FileSystemFileHandle.prototype.createWritable = function (...args) {
          if (left-- <= 0) throw new DOMException('no room', 'QuotaExceededError');
          return original.apply(this, args);
        };
        const engine = await rillm.Engine.load(url, { worker: false, onEvent: ({ type, reason }) => events.push(`${type} ${reason}`) });
        const { choices } = await engine.completions.create({ prompt: 'The small boat', max_tokens: 4, temperature: 0, ignore_eos: true });
        await engine.dispose();
        FileSystemFileHandle.prototype.createWritable = original;
        return { text: choices[0].text, events };
      }, server.url);
      assert.equal(found.text, await load(first, server.url));
      assert.ok(found.events.includes('fallback quota'), String(found.events));
    });
  });

  test('a file system or a store that never answers: the load goes on', LIMIT, async () => {
    await visiting(async ({ first }) => {
      const found = await first.evaluate(async (url) => {
        // What is waited for up to two minutes, in ten ticks, takes half a second here.
        const { setInterval: original } = globalThis;
        globalThis.setInterval = (work, ms, ...rest) => original(work, [3_000, 12_000].includes(ms) ? 50 : ms, ...rest);
        const never = () => new Promise(() => {});
        const { createWritable, getFile } = FileSystemFileHandle.prototype;
        const stores = {
          writes: {},
          reads: {},
          own: { cache: { get: never, put: never, delete: never } },
          'own writes': { cache: { get: () => undefined, put: never, delete: never } },
        };
        const results = [];
        for (const [name, options] of Object.entries(stores)) {
          if (name === 'writes') FileSystemFileHandle.prototype.createWritable = never;
          if (name === 'reads') FileSystemFileHandle.prototype.getFile = never;
          const messages = [];
          const engine = await rillm.Engine.load(url, { ...options, worker: false, onEvent: ({ message }) => messages.push(message) });
          const { choices } = await engine.completions.create({
            prompt: 'The small boat',
            max_tokens: 4,
            temperature: 0,
            ignore_eos: true,
          });
          await engine.dispose();
          Object.assign(FileSystemFileHandle.prototype, { createWritable, getFile });
          results.push([name, choices[0].text, messages.some((message) => /did not answer for/.test(message))]);
        }
        return results;
      }, server.url);
      const text = await load(first, server.url);
      assert.deepEqual(
        found,
        ['writes', 'reads', 'own', 'own writes'].map((name) => [name, text, true]),
      );
    });
  });

  test('a file handle that is collected while it is opened', LIMIT, async () => {
    const collecting = await openStage({ args: ['--js-flags=--expose-gc'] });
    try {
      const reasons = await collecting.run(async (url) => {
        const script = `
          import '${location.origin}/rillm/dist/worker.js';
          const { createSyncAccessHandle } = FileSystemFileHandle.prototype;
          FileSystemFileHandle.prototype.createSyncAccessHandle = function () {
            const opening = createSyncAccessHandle.call(this);
            gc({ type: 'major', execution: 'async' });
            setTimeout(gc);
            return opening;
          };`;
        const address = URL.createObjectURL(new Blob([script], { type: 'text/javascript' }));
        const reasons = [];
        const engine = await rillm.Engine.load(url, {
          worker: () => new Worker(address, { type: 'module' }),
          onEvent: ({ reason }) => reasons.push(reason),
        });
        await engine.dispose();
        return reasons;
      }, server.url);
      assert.deepEqual(reasons, []);
    } finally {
      await collecting.close();
    }
  });

  test('a browser that tells of no room, such as Safari 16, keeps models all the same', LIMIT, async () => {
    await visiting(async ({ first }) => {
      const got = await first.evaluate(async (url) => {
        delete StorageManager.prototype.estimate;
        const reasons = [];
        const onEvent = ({ type, reason }) => reasons.push([type, reason]);
        await (await rillm.Engine.load(url, { worker: false, onEvent })).dispose();
        const { models, bytes, quota_bytes } = await rillm.models.usage();
        const [{ complete }] = await rillm.models.list();
        return { reasons, models, bytes, quota_bytes, complete };
      }, server.url);
      assert.deepEqual(got, { reasons: [], models: 1, bytes: small.length, quota_bytes: undefined, complete: true });
    }, small);
  });

  test('no room, and no file system: the load goes on from memory', LIMIT, async () => {
    await visiting(async ({ first }) => {
      const reasons = await first.evaluate(async (url) => {
        const reasons = [];
        const onEvent = ({ reason }) => reasons.push(reason);
        const estimate = navigator.storage.estimate;
        navigator.storage.estimate = async () => ({ quota: 2 ** 20, usage: 0 });
        await (await rillm.Engine.load(url, { worker: false, onEvent })).dispose();
        navigator.storage.estimate = estimate;
        navigator.storage.getDirectory = () => Promise.reject(new DOMException('not here', 'SecurityError'));
        await (await rillm.Engine.load(url, { worker: false, onEvent })).dispose();
        const { code } = await failure(rillm.models.list());
        return [...reasons, code];
      }, server.url);
      assert.deepEqual(reasons, ['quota', 'unavailable', 'cache_unavailable']);
    });
  });
});

describe('models', () => {
  test('are listed, told of, counted, deleted and pruned', LIMIT, async () => {
    await visiting(async ({ first }) => {
      await download(first);
      await download(first, `${server.url}?other`);
      const found = await first.evaluate(async (url) => {
        const names = (await rillm.models.list()).map(({ name }) => name);
        const info = await rillm.models.info(url);
        const before = await rillm.models.usage();
        const pruned = await rillm.models.prune({ keepBytes: before.bytes - 1 });
        const left = (await rillm.models.list()).map(({ name }) => name);
        const removed = [await rillm.models.delete(`${url}?other`), await rillm.models.delete(`${url}?other`)];
        const after = await rillm.models.usage();
        const folders = [];
        const root = await (await navigator.storage.getDirectory()).getDirectoryHandle('rillm');
        for await (const [name] of await root.getDirectoryHandle('files')) folders.push(name);
        return { names, info, before, pruned, left, removed, after, folders, none: await rillm.models.info('/nothing') };
      }, server.url);
      assert.deepEqual(found.names, [`${server.url}?other`, server.url]);
      assert.deepEqual([found.info.name, found.info.complete, found.info.files.length], [server.url, true, 1]);
      assert.deepEqual([found.before.models, found.before.bytes], [2, 2 * medium.length]);
      assert.ok(found.before.quota_bytes > found.before.site_bytes && found.before.site_bytes > 0);
      assert.deepEqual(found.pruned, [server.url], 'the one used longest ago');
      assert.deepEqual(found.left, [`${server.url}?other`]);
      assert.deepEqual(found.removed, [true, false]);
      assert.deepEqual([found.after.models, found.after.bytes, found.folders, found.none], [0, 0, [], undefined]);
    }, medium);
  });

  test('that are being downloaded are not deleted', LIMIT, async () => {
    await visiting(async ({ first, open }) => {
      server.set({ delayMs: 60 });
      const second = await open();
      const running = download(first);
      await first.waitForFunction(() => progress.some(({ loaded }) => loaded > 2 ** 20));
      const failed = await second.evaluate((url) => failure(rillm.models.delete(url)), server.url);
      assert.equal(failed.code, 'cache_in_use', failed.message);
      assert.deepEqual(await second.evaluate(() => rillm.models.prune({ keepBytes: 0 })), []);
      server.set({ delayMs: 0 });
      assert.equal((await running).complete, true);
    });
  });

  test('go to a folder and come back', LIMIT, async () => {
    await visiting(async ({ first }) => {
      await download(first, server.url, { integrity: sha256(medium) });
      server.set({ status: 500 });
      const found = await first.evaluate(async (url) => {
        const root = await navigator.storage.getDirectory();
        const folder = await root.getDirectoryHandle('usb', { create: true });
        await rillm.models.export(url, folder);
        const names = [];
        for await (const [name] of folder) names.push(name);
        await rillm.models.delete(url);
        const imported = await rillm.models.import(folder);
        const again = await rillm.models.import(folder);
        // Damaged on the way.
        await rillm.models.delete(url);
        const writable = await (await folder.getFileHandle('model.gguf')).createWritable({ keepExistingData: true });
        await writable.write({ type: 'write', position: 10_000_000, data: new Uint8Array(3) });
        await writable.close();
        const damaged = await failure(rillm.models.import(folder));
        await folder.removeEntry('model.gguf');
        const missing = await failure(rillm.models.import(folder));
        const left = await rillm.models.list();
        const none = await failure(rillm.models.export(url, folder));
        const nothing = await failure(rillm.models.import([]));
        const wrong = await failure(rillm.models.import([1]));
        return { names, imported, again, damaged, missing, left, none, nothing, wrong };
      }, server.url);
      assert.deepEqual(found.names.sort(), ['model.gguf', 'rillm-model.json']);
      for (const model of [found.imported, found.again]) {
        assert.deepEqual(
          [model.name, model.complete, model.bytes, model.files[0].sha256],
          [server.url, true, medium.length, sha256(medium)],
        );
      }
      assert.equal(found.damaged.code, 'integrity_mismatch');
      assert.equal(found.missing.code, 'invalid_file');
      assert.deepEqual(found.left, []);
      assert.equal(found.none.code, 'not_found');
      assert.equal(found.nothing.code, 'invalid_file');
      assert.equal(found.wrong.code, 'invalid_request');
    }, medium);
  });

  test('a GGUF file by a name of its own', LIMIT, async () => {
    await visiting(async ({ first }) => {
      await first.evaluate(async () => {
        const file = new File([await (await fetch('/golden/tied-q8_0.gguf')).blob()], 'mine.gguf');
        await rillm.models.import([file], { name: '/offline/mine.gguf' });
      });
      assert.ok((await load(first, `${stage.origin}/offline/mine.gguf`)).length > 0);
    });
  });
});

test('wrong options are refused by name', LIMIT, async () => {
  await visiting(async ({ first }) => {
    const failed = await first.evaluate(async (url) => {
      const results = [];
      for (const options of [
        { cache: 'disk' },
        { cache: {} },
        { cache: null },
        { update: 'always' },
        { integrity: 'md5-x' },
        { integrity: 5 },
        { integrity: { 'model.gguf': 'x' } },
        { connections: 0 },
        { connections: 17 },
        { connections: 1.5 },
        { persist: 'yes' },
      ]) {
        const { code, message } = await failure(rillm.Engine.load(url, options));
        const name = Object.keys(options)[0];
        results.push([name, code, message.includes(`option ${name}`)]);
      }
      results.push(['file', (await failure(rillm.models.download(new Blob(['x'])))).code]);
      results.push(['none', (await failure(rillm.models.download(url, { cache: 'none' }))).code]);
      results.push(['keepBytes', (await failure(rillm.models.prune({ keepBytes: -1 }))).code]);
      results.push(['name', (await failure(rillm.models.delete(5))).code]);
      return results;
    }, server.url);
    for (const [name, code, isNamed = true] of failed) assert.deepEqual([name, code, isNamed], [name, 'invalid_request', true]);
  });
});
