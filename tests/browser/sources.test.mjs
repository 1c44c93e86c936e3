// Where models come from: a hub, folders, files, handles, the origin private file system, an application's own sources, servers without
// ranges. The same model from everywhere gives the same logits.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { golden, goldenJson, openStage, root } from './browser.mjs';
import { filesOf, serveHub, TOKEN } from './hub.mjs';

const LIMIT = { timeout: 90_000 };
const REQUEST_FAILED = [/Failed to load resource/, /has been blocked by CORS/];
const FOLDERS = join(root, 'tests/golden/folders');
const SHARDED = join(FOLDERS, 'llama_sharded_f16');
const model = (name) => join(golden, name);

let stage;
let hub;
/** The page in which loads fail. */
let failed;
before(async () => {
  stage = await openStage();
  const pointer = join(stage.made, 'pointer.gguf');
  writeFileSync(pointer, 'version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 99\n');
  const large = join(stage.made, 'large.gguf');
  writeFileSync(large, Buffer.concat([readFileSync(model('tied-q8_0.gguf')), Buffer.alloc(40 << 20)]));
  hub = await serveHub({
    'some/quants': {
      files: {
        'README.md': model('tied.ids.json'),
        'Tied-Q8_0.gguf': model('tied-q8_0.gguf'),
        'Tied-Q4_0.gguf': model('tied-q4_0.gguf'),
        'mmproj-f16.gguf': model('tied-f16.gguf'),
      },
      revisions: ['v2', 'refs/pr/1'],
    },
    // Of several segments, so that it is asked for more than once.
    'some/large': { files: { 'model.gguf': large } },
    'some/unclear': { files: { 'a-Q4_0.gguf': model('tied-q4_0.gguf'), 'b-Q4_0.gguf': model('untied-q4_0.gguf') } },
    'some/folder': { files: filesOf(SHARDED) },
    'some/gated': { files: { 'model-Q8_0.gguf': model('tied-q8_0.gguf') }, gated: true },
    'some/private': { files: { 'model-Q8_0.gguf': model('tied-q8_0.gguf') }, private: true },
    'some/pointer': { files: { 'model.gguf': pointer }, withoutStore: true },
    'some/other': { files: { 'pytorch_model.bin': model('tied.ids.json') } },
  });
});
after(async () => {
  await failed?.close();
  await hub?.close();
  await stage?.close();
});

/** Loads a model from a source that `make` gives in the page, with each of the options, and takes the tokens that follow the golden prompt. */
async function nextTokens(make, options, parameters = undefined) {
  const prompt = goldenJson('tied.ids.json');
  return stage.runWith(
    {},
    async ([code, options, values, ids]) => {
      const tokens = [];
      for (const more of options) {
        const source = await new Function('values', `return (${code})(values)`)(values);
        tokens.push(await withEngine(source, more, (engine) => argmaxOfLastRow(engine, ids)));
      }
      return tokens;
    },
    make.toString(),
    options,
    parameters,
    prompt,
  );
}

const nextToken = async (make, options = {}, parameters = undefined) => (await nextTokens(make, [options], parameters))[0];

const wanted = new Map();
async function wantedToken(name = '/golden/tied-q8_0.gguf') {
  if (!wanted.has(name))
    wanted.set(
      name,
      nextToken((url) => url, {}, name),
    );
  return wanted.get(name);
}

async function failing(source, options) {
  if (failed === undefined) {
    failed = await stage.openPage({ allowed: REQUEST_FAILED });
    await failed.prepare('/rillm/dist/index.js');
  }
  return failed.page.evaluate(
    async ([place, more]) => {
      const inWorker = await failure(() => rillm.Engine.load(place, more));
      const onPage = await failure(() => rillm.Engine.load(place, { ...more, worker: false }));
      return { ...inWorker, same: inWorker.message === onPage.message };
    },
    [source, options],
  );
}

describe('the hub', () => {
  const options = (more = {}) => ({ hub: { endpoint: hub.endpoint, ...more.hub }, ...more.options });
  const asked = (server) => hub.requests.filter((request) => request.server === server && request.method === 'GET');

  for (const [reference, file] of [
    ['hf:some/quants', 'tied-q8_0.gguf'],
    ['hf:some/quants:q4_0', 'tied-q4_0.gguf'],
    ['hf:some/quants@v2/Tied-Q4_0.gguf', 'tied-q4_0.gguf'],
    ['hf:some/quants@refs/pr/1:Q8_0', 'tied-q8_0.gguf'],
  ]) {
    test(`${reference} is ${file}`, LIMIT, async () => {
      hub.requests.length = 0;
      const [token, wanted] = [await nextToken((value) => value, options(), reference), await wantedToken(`/golden/${file}`)];
      assert.equal(token, wanted);
      // One question about the repository, and of the file's addresses only the first is the hub's.
      assert.equal(
        asked('hub').length,
        2,
        asked('hub')
          .map(({ url }) => url)
          .join(),
      );
      assert.match(asked('hub')[1].url, /\/resolve\/[0-9a-f]{40}\//);
      assert.ok(asked('store').every(({ headers }) => headers.range !== undefined));
    });
  }

  test('a token goes to the hub and not to where it sends on', LIMIT, async () => {
    for (const worker of [true, false]) {
      hub.requests.length = 0;
      await nextToken((value) => value, options({ hub: { token: TOKEN }, options: { worker } }), 'hf:some/gated');
      assert.ok(asked('hub').length >= 2 && asked('store').length >= 1);
      for (const { headers } of asked('hub')) assert.equal(headers.authorization, `Bearer ${TOKEN}`);
      for (const { headers } of asked('store')) assert.equal(headers.authorization, undefined);
    }
  });

  test('a private repository opens with a token', LIMIT, async () => {
    await nextToken((value) => value, options({ hub: { token: TOKEN } }), 'hf:some/private');
  });

  test('an address in the store that has expired is asked for again', LIMIT, async () => {
    hub.requests.length = 0;
    // Every question to the hub about the file makes the addresses before it expire, also those of the first block.
    const count = await stage.runWith(
      { allowed: REQUEST_FAILED },
      async ([reference, more, origin]) => {
        const real = globalThis.fetch;
        let expired = 0;
        globalThis.fetch = async (url, init) => {
          if (String(url).includes('signature=') && expired++ === 0) await real(`${origin}/expire`, { method: 'POST' });
          return real(url, init);
        };
        await withEngine(reference, { ...more, worker: false }, () => {});
        globalThis.fetch = real;
        return expired;
      },
      'hf:some/large',
      options(),
      await expirer(),
    );
    assert.ok(count >= 1, 'the file has more than its first block');
    assert.ok(asked('hub').length >= 3);
  });

  for (const [reference, more, code, message] of [
    ['hf:some/gated', {}, 'access_denied', /gated.*some\/gated.*hub\.token/s],
    ['hf:some/gated', { token: 'of_a_stranger' }, 'access_denied', /gated.*this token/s],
    ['hf:some/gated', { token: 'wrong' }, 'access_denied', /token is not valid/],
    ['hf:some/private', {}, 'access_denied', /does not exist or is private/],
    ['hf:no/such', {}, 'access_denied', /does not exist or is private/],
    ['hf:no/such', { token: TOKEN }, 'not_found', /no such repository/],
    ['hf:some/quants@v9', {}, 'not_found', /"v9"/],
    ['hf:some/quants:Q2_K', {}, 'not_found', /Q2_K.*Tied-Q8_0\.gguf/s],
    ['hf:some/quants/other.gguf', {}, 'not_found', /other\.gguf.*Tied-Q8_0\.gguf/s],
    ['hf:some/unclear', {}, 'invalid_request', /a-Q4_0\.gguf, b-Q4_0\.gguf/],
    ['hf:some/other', {}, 'not_found', /no GGUF file/],
    ['hf:some/pointer', {}, 'not_gguf', /Git LFS/],
    ['hf:nonsense', {}, 'invalid_request', /hf:owner\/name/],
  ]) {
    test(`${reference} ${JSON.stringify(more)}: ${code}`, LIMIT, async () => {
      const failed = await failing(reference, options({ hub: more }));
      assert.equal(failed.code, code, failed.message);
      assert.match(failed.message, message);
      assert.ok(failed.same);
    });
  }

  test('a hub that is not there: network', LIMIT, async () => {
    assert.equal((await failing('hf:some/quants', { hub: { endpoint: 'http://localhost:9' }, retries: 0 })).code, 'network');
  });

  test('a repository with safetensors is inspected', LIMIT, async () => {
    const found = await stage.runWith({}, ([reference, more]) => rillm.Engine.inspect(reference, more), 'hf:some/folder', options());
    assert.deepEqual([found.format, found.architecture, found.quantization, found.files], ['safetensors', 'llama', 'F16', 5]);
    assert.ok(found.weight_bytes > 100_000 && found.kv_cache_bytes > 0 && found.adapter.max_binding_bytes > 0);
  });

  /** A server that lets the store's addresses expire. */
  let expiring;
  async function expirer() {
    const { createServer } = await import('node:http');
    expiring = createServer((_request, response) => {
      hub.expire();
      response.setHeader('Access-Control-Allow-Origin', '*');
      response.setHeader('Cross-Origin-Resource-Policy', 'cross-origin');
      response.end();
    });
    await new Promise((resolve) => expiring.listen(0, resolve));
    return `http://localhost:${expiring.address().port}`;
  }
  after(() => expiring?.close());
});

describe('other sources', () => {
  // In the page: each gives a source of the golden model at /golden/tied-q8_0.gguf.
  const makers = {
    'a Blob': async () => (await fetch('/golden/tied-q8_0.gguf')).blob(),
    'a File': async () => new File([await (await fetch('/golden/tied-q8_0.gguf')).blob()], 'model.gguf'),
    'an array of one file': async () => [new File([await (await fetch('/golden/tied-q8_0.gguf')).blob()], 'model.gguf')],
    'a source of its own': async () => {
      const bytes = new Uint8Array(await (await fetch('/golden/tied-q8_0.gguf')).arrayBuffer());
      return { size: bytes.length, name: 'mine', read: async (offset, length) => bytes.subarray(offset, offset + length) };
    },
    'a source of its own that answers at once with an ArrayBuffer': async () => {
      const bytes = await (await fetch('/golden/tied-q8_0.gguf')).arrayBuffer();
      return { size: bytes.byteLength, read: (offset, length) => bytes.slice(offset, offset + length) };
    },
    'a path of the origin private file system': async () => {
      const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle('models', { create: true });
      const file = await (await folder.getFileHandle('tied.gguf', { create: true })).createWritable();
      await file.write(await (await fetch('/golden/tied-q8_0.gguf')).blob());
      await file.close();
      return 'opfs:models/tied.gguf';
    },
    'a folder of the origin private file system': async () => {
      const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle('alone', { create: true });
      const file = await (await folder.getFileHandle('tied.gguf', { create: true })).createWritable();
      await file.write(await (await fetch('/golden/tied-q8_0.gguf')).blob());
      await file.close();
      return 'opfs:alone/';
    },
    'a file handle': async () => {
      const handle = await (await navigator.storage.getDirectory()).getFileHandle('handle.gguf', { create: true });
      const file = await handle.createWritable();
      await file.write(await (await fetch('/golden/tied-q8_0.gguf')).blob());
      await file.close();
      return handle;
    },
    'a directory handle': async () => {
      const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle('handles', { create: true });
      const file = await (await folder.getFileHandle('tied.gguf', { create: true })).createWritable();
      await file.write(await (await fetch('/golden/tied-q8_0.gguf')).blob());
      await file.close();
      return folder;
    },
    'an address with a query': () => '/golden/tied-q8_0.gguf?key=1',
    'a blob: address': async () => URL.createObjectURL(await (await fetch('/golden/tied-q8_0.gguf')).blob()),
    'a server without ranges': () => '/without-ranges/tied-q8_0.gguf',
  };
  // What is kept would be read from there the second time, in the same page.
  const KEPT = ['an address with a query', 'a server without ranges'];
  for (const [name, make] of Object.entries(makers)) {
    test(name, LIMIT, async () => {
      const wanted = await wantedToken();
      const ways = [{ worker: true }, { worker: false }];
      const tokens = KEPT.includes(name) ? [await nextToken(make, ways[0]), await nextToken(make, ways[1])] : await nextTokens(make, ways);
      assert.deepEqual(tokens, [wanted, wanted]);
    });
  }

  // Folders are inspected: it takes all of their headers, and what else is in them.
  const folders = {
    'a folder by its address': (origin) => `${origin}/folders/llama_sharded_f16/`,
    'an index by its address': (origin) => `${origin}/folders/llama_sharded_f16/model.safetensors.index.json`,
    'the files of a folder': async (origin) => {
      const names = await (await fetch(`${origin}/folders-list/llama_sharded_f16`)).json();
      return Promise.all(
        names.map(async (name) => ({
          name: `chosen/${name}`,
          data: await (await fetch(`${origin}/folders/llama_sharded_f16/${name}`)).blob(),
        })),
      );
    },
    'a directory handle with a folder': async (origin) => {
      const names = await (await fetch(`${origin}/folders-list/llama_sharded_f16`)).json();
      const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle('sharded', { create: true });
      for (const name of names) {
        const file = await (await folder.getFileHandle(name, { create: true })).createWritable();
        await file.write(await (await fetch(`${origin}/folders/llama_sharded_f16/${name}`)).blob());
        await file.close();
      }
      return folder;
    },
  };
  for (const [name, make] of Object.entries(folders)) {
    test(name, LIMIT, async () => {
      const inspected = await stage.runWith(
        { allowed: REQUEST_FAILED },
        async ([code, origin]) => {
          const source = await new Function('values', `return (${code})(values)`)(origin);
          return Promise.all([true, false].map((worker) => rillm.Engine.inspect(source, { worker })));
        },
        make.toString(),
        stage.origin,
      );
      for (const { format, files, problem } of inspected) assert.deepEqual([format, files, problem], ['safetensors', 5, undefined]);
    });
  }

  test('sources that fail: their codes', LIMIT, async () => {
    const codes = await stage.runWith({}, async () => {
      const load = async (source, options) => (await failure(rillm.Engine.load(source, options))).code;
      const results = {};
      for (const worker of [true, false]) {
        results[worker] = [
          await load(
            {
              size: 1000,
              read: () => {
                throw new Error('no');
              },
            },
            { worker },
          ),
          await load({ size: 1000, read: async () => Promise.reject(new Error('no')) }, { worker }),
          await load({ size: 1000, read: async () => 'text' }, { worker }),
          await load({ size: 1000, read: async () => new Uint8Array(3) }, { worker }),
          await load({ size: 1.5, read: async () => new Uint8Array(3) }, { worker }),
          await load({ size: 1000, read: async (_, length) => new Uint8Array(length) }, { worker }),
          await load('opfs:nothing/here.gguf', { worker }),
          await load('opfs:../secret', { worker }),
          await load([], { worker }),
          await load([1], { worker }),
          await load({ size: 5 }, { worker }),
        ];
      }
      return results;
    });
    const wanted = [
      'read',
      'read',
      'read',
      'truncated',
      'invalid_request',
      'not_gguf',
      'not_found',
      'invalid_file',
      'invalid_file',
      'invalid_request',
      'invalid_request',
    ];
    assert.deepEqual(codes, { true: wanted, false: wanted });
  });

  test('a file of more than 4 GiB: offsets stay whole', LIMIT, async () => {
    const header = readFileSync(model('tied-q8_0.gguf'));
    const found = await stage.runWith(
      {},
      async ([bytes]) => {
        const start = Uint8Array.from(bytes);
        const size = 5 * 2 ** 30 + 12345;
        const reads = [];
        const source = {
          size,
          name: 'large.gguf',
          read: async (offset, length) => {
            reads.push([offset, length]);
            const part = new Uint8Array(length);
            if (offset < start.length) part.set(start.subarray(offset, Math.min(offset + length, start.length)));
            return part;
          },
        };
        const { file_bytes, problem } = await rillm.Engine.inspect(source);
        return { file_bytes, problem, reads };
      },
      [...header],
      0,
    );
    assert.equal(found.file_bytes, 5 * 2 ** 30 + 12345);
    assert.equal(found.problem, undefined);
    assert.ok(found.reads.every(([offset, length]) => offset + length < 16 * 2 ** 20));
  });
});

test('a shard of the golden folder is there', () => assert.ok(readdirSync(SHARDED).some((name) => name.startsWith('model-00005'))));
