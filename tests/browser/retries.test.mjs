// Servers and connections that fail for a while, or for good: what passes is tried again at its byte, what does not ends in an error that
// says why, and no two files are ever mixed.

import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { golden, openStage, root } from './browser.mjs';
import { serveFaulty } from './faulty_server.mjs';
import { filesOf, serveHub, TOKEN } from './hub.mjs';

const LIMIT = { timeout: 60_000 };
const FAILED = [/Failed to load resource/, /has been blocked by CORS/, /ERR_/];
const STALL_MS = 500;
/** What a busy machine does not reach, for where nothing is silent. */
const NO_STALL_MS = 20_000;
const SHARDED = join(root, 'tests/golden/folders/llama_sharded_f16');
const model = Buffer.concat([readFileSync(join(golden, 'tied-q8_0.gguf')), randomBytes(500_000)]);
const sha256 = createHash('sha256').update(model).digest('hex');
const folder = Object.fromEntries(Object.entries(filesOf(SHARDED)).map(([name, file]) => [`folder/${name}`, readFileSync(file)]));

let stage;
let server;
let opened;
before(async () => {
  stage = await openStage();
  server = await serveFaulty({ 'model.gguf': model, 'large.gguf': Buffer.concat([model, Buffer.alloc(36 << 20)]), ...folder });
  opened = await stage.openPage({ allowed: FAILED });
  await opened.prepare('/rillm/dist/index.js');
  await opened.page.evaluate(() => {
    // Pauses are short here. What is waited for because a server asks for it is longer and stays, and so do workers' pauses.
    const { setTimeout: original } = globalThis;
    globalThis.setTimeout = (work, ms, ...rest) => original(work, ms >= 250 && ms < 16_000 && !globalThis.isExact ? ms / 25 : ms, ...rest);
    /** Downloads a model anew; what became of it, and how long it took. */
    globalThis.downloaded = async (url, options = {}, work = rillm.models.download) => {
      const { cache } = options;
      for (const { name } of await rillm.models.list({ cache })) await rillm.models.delete(name, { cache });
      const events = [];
      const begin = performance.now();
      const failed = await failure(work(url, { onEvent: (event) => events.push(event), ...options }));
      const ms = performance.now() - begin;
      return { ...failed, ms, retries: events.filter(({ type }) => type === 'retrying'), types: events.map(({ type }) => type) };
    };
  });
});
after(async () => {
  await opened?.close();
  await server?.close();
  await stage?.close();
});

/** Downloads the model from the server with these faults. Its digest says that it is whole and right. */
async function download(faults, { set = {}, options = {}, path = 'model.gguf' } = {}) {
  server.set(set);
  server.fault(path, ...faults);
  const stallTimeoutMs = faults.some(({ silent, ending }) => silent || ending === 'silent') ? STALL_MS : NO_STALL_MS;
  const found = await opened.page.evaluate(
    ([url, options]) => downloaded(url, options),
    [`${server.origin}/${path}`, { stallTimeoutMs, integrity: sha256, worker: false, ...options }],
  );
  return found;
}

const did = (found) => assert.equal(found.code, 'did not fail', found.message);
const offsets = () => server.requests.map(({ range }) => Number(/^bytes=(\d+)-/.exec(range)?.[1] ?? 0));

describe('the first request', () => {
  for (const [name, fault, reason] of [
    ['is not answered', { silent: true }, 'stalled'],
    ['is dropped before the headers', { drop: true }, 'network'],
    ['gets headers and no byte', { after: 0, ending: 'silent' }, 'stalled'],
    ['gets 503', { status: 503 }, 'status'],
  ]) {
    test(`${name}: it is sent again`, LIMIT, async () => {
      const found = await download([fault]);
      did(found);
      assert.ok(found.types.includes('verified'));
      assert.deepEqual(
        found.retries.map(({ reason, attempt, offset, url }) => [reason, attempt, offset, url]),
        [[reason, 1, 0, `${server.origin}/model.gguf`]],
      );
      assert.ok(found.retries[0].waitMs >= 250 && found.retries[0].waitMs <= 500);
      assert.match(found.retries[0].message, /localhost/);
      // At most the limit, a look at it late, and the pause.
      assert.ok(found.ms < 4_000, String(found.ms));
    });
  }

  // In two downloads, since pauses double.
  for (const statuses of [
    [408, 425, 429, 500],
    [502, 503, 504],
  ]) {
    test(`${statuses.join(', ')} are tried again`, LIMIT, async () => {
      const found = await download(
        statuses.map((status) => ({ status })),
        { options: { retries: statuses.length } },
      );
      did(found);
      assert.deepEqual(
        found.retries.map(({ message }) => Number(/answered (\d+)/.exec(message)[1])),
        statuses,
      );
    });
  }

  test('a Retry-After in seconds and as a date is waited for', LIMIT, async () => {
    for (const [value, least] of [
      ['1', 1_000],
      [() => new Date(Date.now() + 2_000).toUTCString(), 900],
    ]) {
      const headers = { 'retry-after': typeof value === 'string' ? value : value() };
      const found = await download([{ status: 429, headers }], { options: { worker: true } });
      did(found);
      const [first, second] = server.requests;
      assert.ok(second.time - first.time >= least - 5 && second.time - first.time < 4_000, `${second.time - first.time} ms`);
      assert.equal(found.retries.length, 1);
      assert.ok(found.retries[0].waitMs >= least);
    }
  });

  test('a Retry-After that is too long ends it and is named', LIMIT, async () => {
    const found = await download([{ status: 503, headers: { 'retry-after': '3600' }, always: true }]);
    assert.equal(found.code, 'http');
    assert.match(found.message, /503.*asks to wait 3600 seconds/s);
    assert.equal(server.requests.length, 1);
  });

  for (const status of [400, 403, 404, 501]) {
    test(`${status} is final`, LIMIT, async () => {
      const found = await download([{ status, always: true }]);
      assert.match(found.code, /^(http|access_denied)$/);
      assert.equal(server.requests.length, 1);
      assert.deepEqual(found.retries, []);
    });
  }

  test('what never gets better ends after so many attempts', LIMIT, async () => {
    for (const [fault, code, message] of [
      [{ silent: true }, 'network', /sent nothing for 0\.5 seconds; 3 attempts in a row failed/],
      [{ drop: true }, 'network', /request failed.*3 attempts in a row failed/s],
      [{ status: 503 }, 'http', /answered 503 Service Unavailable; try again later; 3 attempts in a row failed/],
      [{ status: 429 }, 'http', /too many requests.*token.*3 attempts/s],
    ]) {
      const found = await download([{ ...fault, always: true }], { options: { retries: 2 } });
      assert.equal(found.code, code);
      assert.match(found.message, message);
      assert.deepEqual(
        found.retries.map(({ attempt }) => attempt),
        [1, 2],
      );
      assert.ok(found.isEngineError && !/undefined/.test(found.message), found.message);
    }
  });

  test('retries: 0 tries once', LIMIT, async () => {
    const found = await download([{ drop: true, always: true }], { options: { retries: 0 } });
    assert.equal(found.code, 'network');
    assert.doesNotMatch(found.message, /attempts/);
    assert.equal(server.requests.length, 1);
  });

  test('five retries are the default', LIMIT, async () => {
    const found = await download(Array(5).fill({ status: 503, headers: { 'retry-after': '0' } }));
    did(found);
    assert.equal(found.retries.length, 5);
    const pauses = found.retries.map(({ waitMs }) => waitMs);
    for (const [at, pause] of pauses.entries()) assert.ok(pause >= 250 * 2 ** at && pause <= 500 * 2 ** at, String(pauses));
  });
});

describe('the middle of a file', () => {
  for (const [name, ending, reason] of [
    ['stalls', 'silent', 'stalled'],
    ['is dropped', 'drop', 'network'],
    ['is cut', 'end', 'network'],
  ]) {
    for (const worker of [true, false]) {
      test(`${name} three times: it goes on at its byte (worker: ${worker})`, LIMIT, async () => {
        const found = await download(Array(3).fill({ after: 100_000, ending, ms: 300 }), { set: { etag: '"1"' }, options: { worker } });
        did(found);
        const goesOn = found.retries.map(({ offset }) => offset);
        assert.deepEqual(offsets(), [0, ...goesOn]);
        // What had come and was not read when a connection broke is lost.
        if (ending === 'silent') assert.deepEqual(goesOn, [100_000, 200_000, 300_000]);
        assert.ok(goesOn[0] > 0 && goesOn[2] > goesOn[1] && goesOn[1] > goesOn[0]);
        assert.deepEqual(
          found.retries.map(({ attempt }) => attempt),
          [1, 1, 1],
          'each brought something',
        );
        assert.ok(found.retries.every((retry) => retry.reason === reason));
      });
    }
  }

  test('stalls for ever: it ends, and the next download goes on', LIMIT, async () => {
    const found = await download(
      [
        { after: 100_000, ending: 'silent' },
        { silent: true, always: true },
      ],
      { options: { retries: 2, worker: true } },
    );
    assert.equal(found.code, 'network');
    assert.match(found.message, /sent nothing for 0\.5 seconds; 3 attempts in a row failed at byte 100000/);
    server.set();
    const again = await opened.page.evaluate(
      ([url, integrity]) => rillm.models.download(url, { integrity }),
      [`${server.origin}/model.gguf`, sha256],
    );
    assert.equal(again.complete, true);
    assert.deepEqual(offsets(), [0, 100_000], 'a byte that asks whether it is the same, and the rest');
  });

  test('fails many more times than there are retries, and always a little comes', LIMIT, async () => {
    const found = await download(Array(6).fill({ after: 90_000, ending: 'drop', ms: 300 }), { options: { retries: 1 } });
    did(found);
    assert.equal(found.retries.length, 6);
  });

  test('meets other failures on the way: 503, a drop before the headers, silence', LIMIT, async () => {
    const faults = [{ after: 200_000, ending: 'silent' }, { status: 503 }, { drop: true }, { silent: true }];
    const found = await download(faults);
    did(found);
    assert.deepEqual(
      found.retries.map(({ attempt, offset, reason }) => [attempt, offset, reason]),
      [
        [1, 200_000, 'stalled'],
        [2, 200_000, 'status'],
        [3, 200_000, 'network'],
        [4, 200_000, 'stalled'],
      ],
    );
  });

  for (const [name, fault, code, message] of [
    ['404', { status: 404 }, 'http', /had the file before/],
    ['403', { status: 403 }, /^(http|access_denied)$/, /403/],
    ['416', { status: 416 }, 'http', /416/],
    ['another range', { contentRange: `bytes 0-99/${model.length}` }, 'range_not_supported', /asked for bytes/],
    ['a page', { page: '<!doctype html><title>Login</title>', type: 'application/octet-stream' }, 'not_gguf', /page of HTML/],
  ]) {
    test(`${name} after a drop is final`, LIMIT, async () => {
      const found = await download([{ after: 100_000, ending: 'drop' }, fault]);
      assert.match(found.code, new RegExp(code), found.message);
      assert.match(found.message, message);
      assert.equal(server.requests.length, 2);
    });
  }

  test('200 in place of 206 after a drop: what is there is skipped', LIMIT, async () => {
    const found = await download([{ after: 100_000, ending: 'drop' }, { ranges: false }], { set: { etag: '"1"' } });
    did(found);
    assert.equal(server.requests.length, 2);
  });
});

test('a server that serves one request at a time, and refuses the others meanwhile', LIMIT, async () => {
  const found = await download([], {
    path: 'large.gguf',
    set: { most: 1, pace: 1 << 20 },
    options: { retries: 2, integrity: undefined },
  });
  did(found);
  assert.ok(found.retries.length > 3, String(found.retries.length));
  assert.ok(found.retries.some(({ attempt }) => attempt > 2));
});

describe('a file that is replaced between two attempts is not mixed', () => {
  const other = Buffer.from(model);
  other[400_000] ^= 1;
  const dates = ['Sun, 06 Nov 1994 08:49:37 GMT', 'Mon, 07 Nov 1994 08:49:37 GMT'];
  for (const ranges of [true, false]) {
    for (const [name, first, second] of [
      ['entity tag', { etag: '"1"' }, { etag: '"2"' }],
      ['weak entity tag', { etag: 'W/"1"' }, { etag: 'W/"2"' }],
      ['date', { modified: dates[0] }, { modified: dates[1] }],
      ['weak entity tag, though the date is the same', { etag: 'W/"1"', modified: dates[0] }, { etag: 'W/"2"', modified: dates[0] }],
      ['length', {}, { bytes: other.subarray(0, -1) }],
    ]) {
      test(`${name} (ranges: ${ranges})`, LIMIT, async () => {
        const faults = [
          { ...first, after: 100_000, ending: 'drop' },
          { bytes: other, ...second },
        ];
        const found = await download(faults, { set: { ranges }, options: { integrity: undefined } });
        assert.equal(found.code, 'invalid_file', found.message);
        assert.match(found.message, /replaced on the server/);
        assert.equal(server.requests.length, 2);
      });
    }
    for (const [name, first, second] of [
      ['a weak and a strong tag', { etag: 'W/"1"' }, { etag: '"1"' }],
      ['the same tag and another date', { etag: '"1"', modified: dates[0] }, { etag: '"1"', modified: dates[1] }],
      ['a tag, and only a date', { etag: '"1"' }, { modified: dates[1] }],
      ['a date, and nothing', { modified: dates[0] }, {}],
    ]) {
      test(`${name} are the same (ranges: ${ranges})`, LIMIT, async () => {
        did(await download([{ ...first, after: 100_000, ending: 'drop' }, second], { set: { ranges } }));
      });
    }
  }

  test('flipped bytes are caught by the digest', LIMIT, async () => {
    const found = await download([{ after: 100_000, ending: 'drop' }, { bytes: other }]);
    assert.equal(found.code, 'integrity_mismatch', found.message);
  });
});

describe('a server without ranges', () => {
  test('begins anew, and what is there is skipped', LIMIT, async () => {
    const faults = [
      { after: 100_000, ending: 'silent' },
      { after: 50_000, ending: 'drop' },
      { after: 300_000, ending: 'silent' },
      { status: 503 },
    ];
    for (const [worker, cache] of [
      [true, 'opfs'],
      [false, 'opfs'],
      [false, 'memory'],
    ]) {
      const found = await download(faults, { set: { ranges: false }, options: { worker, cache } });
      did(found);
      assert.deepEqual(
        found.retries.map(({ attempt, offset }) => [attempt, offset]),
        [
          [1, 100_000],
          [2, 100_000],
          [1, 300_000],
          [2, 300_000],
        ],
        'what was there before is no progress',
      );
    }
  });

  test('that always breaks at the same byte ends it', LIMIT, async () => {
    const found = await download([{ after: 100_000, ending: 'silent', always: true }], { set: { ranges: false }, options: { retries: 2 } });
    assert.equal(found.code, 'network');
    assert.match(found.message, /3 attempts in a row failed at byte 100000/);
    assert.equal(server.requests.length, 3);
  });
});

describe('a page of HTML in place of a model', () => {
  const url = (path) => `${server.origin}/${path}`;
  for (const [name, page] of [
    ['a login', '<!DOCTYPE html><html><title>Login</title></html>'],
    ['a BOM and white space', `\ufeff\r\n${' '.repeat(3000)}<html><body>Not found</body></html>`],
    ['a short one', '<p>'],
  ]) {
    for (const type of ['text/html', 'application/octet-stream', 'text/plain']) {
      test(`${name}, as ${type}`, LIMIT, async () => {
        const found = await download([{ page, type }], { options: { integrity: undefined } });
        assert.equal(found.code, 'not_gguf', found.message);
        assert.match(found.message, /page of HTML/);
        assert.ok(found.message.includes(url('model.gguf')));
        assert.equal(server.requests.length, 1, 'it is final');
        // Nothing of it stays.
        assert.equal(
          await opened.page.evaluate(
            async (url) => failure(rillm.models.download(url, { worker: false })).then(({ code }) => code),
            url('model.gguf'),
          ),
          'did not fail',
        );
      });
    }
  }

  test('in pieces', LIMIT, async () => {
    const bytes = Buffer.from(' \n<!doctype html><title>x</title>'.padEnd(2_000));
    const found = await download([{ bytes, after: 5, ending: 'wait', ms: 50 }], { options: { integrity: undefined } });
    assert.equal(found.code, 'not_gguf', found.message);
  });

  test('where it was sent on to is named, and its query is not', LIMIT, async () => {
    server.set();
    server.fault('model.gguf', { redirect: '/login?session=secret' });
    server.fault('login', { page: '<!doctype html>' });
    const found = await opened.page.evaluate((url) => downloaded(url, { worker: false }), url('model.gguf'));
    assert.equal(found.code, 'not_gguf');
    assert.match(found.message, /\/login, to which it was sent on/);
    assert.doesNotMatch(found.message, /secret/);
  });

  for (const name of ['config.json', 'tokenizer.json', 'model.safetensors.index.json', 'model-00001-of-00005.safetensors']) {
    test(`in place of ${name}`, LIMIT, async () => {
      server.set();
      server.fault(`folder/${name}`, { page: '<!doctype html><title>App</title>', type: 'application/json' });
      const found = await opened.page.evaluate((url) => downloaded(url, { worker: false }), url('folder/'));
      assert.equal(found.code, 'invalid_file', found.message);
      assert.match(found.message, /page of HTML/);
      assert.ok(found.message.includes(url(`folder/${name}`)));
    });
  }
});

describe('a folder', () => {
  test('of which each file fails first, and then in the middle', LIMIT, async () => {
    for (const set of [{ etag: '"1"' }, {}, { isLong: true, ranges: true }, { ranges: false, etag: '"1"' }]) {
      server.set(set);
      const faults = [{ drop: true }, { after: 60, ending: 'drop', ms: 20 }];
      for (const path of Object.keys(folder)) server.fault(path, ...faults);
      const found = await opened.page.evaluate(
        ([url, stallTimeoutMs]) => downloaded(url, { stallTimeoutMs, worker: false }),
        [`${server.origin}/folder/`, STALL_MS],
      );
      // A server that never tells a size can't give tensors.
      did(found);
      const asked = new Set(server.requests.map(({ path }) => path));
      const failed = new Set(found.retries.map(({ url }) => new URL(url).pathname.slice(1)));
      for (const path of asked) if (path in folder) assert.ok(failed.has(path), `${path} ${JSON.stringify(set)}`);
    }
  });

  test('whose inspection meets silence', LIMIT, async () => {
    server.set();
    for (const path of Object.keys(folder)) server.fault(path, { silent: true });
    const found = await opened.page.evaluate(
      ([url, stallTimeoutMs]) => rillm.Engine.inspect(url, { stallTimeoutMs, worker: false }),
      [`${server.origin}/folder/`, STALL_MS],
    );
    assert.deepEqual([found.format, found.problem], ['safetensors', undefined]);
  });
});

describe('aborting ends it at once', () => {
  for (const worker of [true, false]) {
    for (const [state, faults] of [
      ['waiting for headers', [{ silent: true, always: true }]],
      ['in a body', [{ after: 100_000, ending: 'silent', always: true }]],
      ['in a body without ranges', [{ after: 100_000, ending: 'silent', ranges: false, always: true }]],
      ['in a pause', [{ status: 503, headers: { 'retry-after': '50' }, always: true }]],
      [
        'in a pause in the middle',
        [
          { after: 100_000, ending: 'drop' },
          { status: 503, headers: { 'retry-after': '50' }, always: true },
        ],
      ],
    ]) {
      test(`${state} (worker: ${worker})`, LIMIT, async () => {
        server.set();
        server.fault('model.gguf', ...faults);
        const running = opened.page.evaluate(
          async ([url, worker]) => {
            globalThis.controller = new AbortController();
            const { code } = await downloaded(url, { worker, signal: controller.signal });
            return { code, ms: performance.now() - abortedAt };
          },
          [`${server.origin}/model.gguf`, worker],
        );
        while (server.requests.length < faults.length) await new Promise((resolve) => setTimeout(resolve, 20));
        await new Promise((resolve) => setTimeout(resolve, 150));
        await opened.page.evaluate(() => {
          globalThis.abortedAt = performance.now();
          controller.abort(new Error('the user'));
        });
        const found = await running;
        assert.equal(found.code, 'aborted');
        assert.ok(found.ms < 300, `${found.ms} ms`);
        await new Promise((resolve) => setTimeout(resolve, 100));
        assert.equal(server.requests.length, faults.length, 'nothing is asked afterwards');
      });
    }
  }
});

describe('the stall limit', () => {
  test('can be switched off', LIMIT, async () => {
    for (const stallTimeoutMs of [0, Infinity, 1e12]) {
      const found = await download([{ after: 100_000, ending: 'wait', ms: 500 }], { options: { stallTimeoutMs } });
      did(found);
      assert.deepEqual(found.retries, []);
    }
  });

  test('is fifteen seconds by default', LIMIT, async () => {
    server.set();
    server.fault('model.gguf', { after: 100_000, ending: 'silent' });
    const found = await opened.page.evaluate(async (url) => {
      // The clock goes fifty times as fast.
      const { setInterval: original } = globalThis;
      const now = performance.now.bind(performance);
      performance.now = () => now() * 50;
      globalThis.setInterval = (work, ms, ...rest) => original(work, ms / 50, ...rest);
      const times = [];
      const onProgress = ({ loaded }) => loaded > 0 && times.push(performance.now());
      const onEvent = ({ type, message }) => type === 'retrying' && times.push(performance.now(), message);
      const failed = await failure(rillm.models.download(`${url}?limit`, { worker: false, onProgress, onEvent }));
      globalThis.setInterval = original;
      delete performance.now;
      const at = times.findIndex((time) => typeof time === 'string');
      return { ...failed, message: times[at], silent: times[at - 1] - times[at - 2] };
    }, `${server.origin}/model.gguf`);
    assert.equal(found.code, 'did not fail');
    assert.match(found.message, /sent nothing for 15 seconds/);
    assert.ok(found.silent > 13_500 && found.silent < 30_000, String(found.silent));
  });

  test('does not count what a thread that stood still could not see', LIMIT, async () => {
    server.set();
    // The rest comes when the thread goes on again.
    server.fault('model.gguf', { after: 100_000, ending: 'wait', ms: 2_300 });
    const found = await opened.page.evaluate(async (url) => {
      let isBlocked = false;
      const work = rillm.models.download(url, {
        worker: false,
        stallTimeoutMs: 1_000,
        onEvent: ({ type }) => type === 'retrying' && (globalThis.retried = true),
        onProgress: ({ loaded }) => {
          if (loaded < 50_000 || isBlocked) return;
          isBlocked = true;
          // As a sleep of the machine: no timer and no byte comes through.
          setTimeout(() => {
            for (const begin = performance.now(); performance.now() - begin < 2_000; );
          }, 50);
        },
      });
      for (const { name } of await rillm.models.list()) await rillm.models.delete(name);
      const { code } = await failure(work);
      return { code, isBlocked, retried: globalThis.retried ?? false };
    }, `${server.origin}/model.gguf?blocked`);
    assert.deepEqual(found, { code: 'did not fail', isBlocked: true, retried: false });
  });

  test('wrong values are refused by name', LIMIT, async () => {
    const found = await opened.page.evaluate(async (url) => {
      const results = [];
      for (const options of [
        { stallTimeoutMs: -1 },
        { stallTimeoutMs: NaN },
        { stallTimeoutMs: '15' },
        { stallTimeoutMs: null },
        { retries: -1 },
        { retries: 1.5 },
        { retries: '3' },
        { retries: null },
      ]) {
        const name = Object.keys(options)[0];
        for (const work of [rillm.Engine.load, rillm.Engine.inspect, rillm.models.download, rillm.models.verify]) {
          const { code, message } = await failure(work(url, options));
          results.push([name, work.name, code, message.includes(`option ${name}`)]);
        }
      }
      return results;
    }, `${server.origin}/model.gguf`);
    for (const [name, work, code, isNamed] of found) assert.deepEqual([code, isNamed], ['invalid_request', true], `${name} ${work}`);
  });
});

test('without a network the error says so, and a network that comes back is noticed', LIMIT, async () => {
  const page = await stage.openPage({ allowed: FAILED });
  try {
    await page.prepare('/rillm/dist/index.js');
    server.set();
    const url = `${server.origin}/model.gguf`;
    // The package's own files are there; only then the network goes.
    await page.page.evaluate((url) => rillm.Engine.inspect(url, { worker: false }), url);
    await page.page.context().setOffline(true);
    const failed = await page.page.evaluate((url) => failure(rillm.Engine.inspect(url, { worker: false, retries: 1 })), url);
    assert.equal(failed.code, 'network');
    assert.match(failed.message, /2 attempts in a row failed; the browser says that it is offline/);

    const ms = page.page.evaluate(async (url) => {
      const pauses = [];
      const onEvent = ({ type, waitMs }) => {
        if (type !== 'retrying') return;
        pauses.push(waitMs);
        globalThis.attempts = pauses.length;
        globalThis.waitsSince = performance.now();
      };
      addEventListener('online', () => (globalThis.onlineAt = performance.now()));
      await rillm.models.download(url, { worker: false, onEvent });
      return { since: performance.now() - onlineAt, pauses };
    }, url);
    // The fourth pause takes two to four seconds.
    await page.page.waitForFunction(() => globalThis.attempts === 4);
    await page.page.context().setOffline(false);
    const { since, pauses } = await ms;
    assert.equal(pauses.length, 4);
    assert.ok(since < 1_500, `${since} ms`);
  } finally {
    await page.close();
  }
});

describe('a hub', () => {
  let hub;
  before(async () => {
    // Of several segments: all but the first go directly to the store.
    const large = join(stage.made, 'large.gguf');
    writeFileSync(large, Buffer.concat([model, Buffer.alloc(36 << 20)]));
    hub = await serveHub({
      'some/large': { files: { 'model.gguf': large } },
      'some/model': { files: { 'README.md': join(golden, 'tied.ids.json'), 'model-Q8_0.gguf': join(golden, 'tied-q8_0.gguf') } },
      'some/folder': { files: filesOf(SHARDED) },
    });
  });
  after(() => hub?.close());

  const load = async (reference, more = {}) => {
    hub.requests.length = 0;
    return opened.page.evaluate(
      ([reference, options]) => downloaded(reference, options),
      [reference, { hub: { endpoint: hub.endpoint, token: TOKEN }, worker: false, ...more }],
    );
  };
  const asked = (server) => hub.requests.filter((request) => request.server === server && request.method === 'GET');

  test('whose list, files and store fail first; the token stays with it', LIMIT, async () => {
    for (const [reference, faults] of [
      ['hf:some/model', { hub: [503, 'drop', 429, 'drop'], store: [503, 'drop', 'half', 'drop'] }],
      ['hf:some/large', { store: [200, 503, 'half', 'drop', 'half', 429] }],
      ['hf:some/folder', { hub: Array.from({ length: 30 }, (_, at) => (at % 2 ? 200 : 'half')), store: ['half', 503] }],
    ]) {
      hub.fail(faults);
      const found = await load(reference);
      did(found);
      assert.ok(found.retries.length >= 4, JSON.stringify(found.retries));
      for (const { headers } of asked('hub')) assert.equal(headers.authorization, `Bearer ${TOKEN}`);
      for (const { headers } of asked('store')) assert.equal(headers.authorization, undefined);
      assert.ok(!JSON.stringify(found).includes(TOKEN));
      assert.ok(!JSON.stringify(found).includes('signature='), 'nor is the address in the store told');
    }
  });

  test('that never gets better: the token is in no message', LIMIT, async () => {
    for (const fault of [503, 'drop', 401]) {
      for (const server of ['hub', 'store']) {
        hub.fail({ [server]: Array(20).fill(fault) });
        const found = await load('hf:some/model', { retries: 1 });
        assert.match(found.code, /^(http|network|access_denied)$/, found.message);
        assert.ok(!JSON.stringify(found).includes(TOKEN), found.message);
        assert.ok(!JSON.stringify(found).includes('signature='), found.message);
      }
    }
    hub.fail({});
    for (const token of ['hf_secret\nvalue', 'hf_secret\u2028']) {
      const found = await load('hf:some/model', { hub: { endpoint: hub.endpoint, token } });
      assert.notEqual(found.code, 'did not fail');
      assert.ok(!found.message.includes('hf_secret'), found.message);
      assert.deepEqual(found.retries, [], 'it never gets better');
    }
  });
});
