// Per-layer embeddings that stay in the model's files: rows are read from the cache, from Files and from an application's own source, as long as the engine lives.

import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { openStage, root } from './browser.mjs';

const LIMIT = { timeout: 90_000 };
const MODEL = join(root, 'tests/golden/architectures/gemma4_e');
const GOLDEN = JSON.parse(readFileSync(join(MODEL, 'golden.json'), 'utf8'));
const FOLDER = '/made/padded/';
const SEGMENT_BYTES = 16 << 20;
const TABLE = 'model.language_model.embed_tokens_per_layer.weight';

let stage;
/** Where the table begins in the file, and its bytes. */
let table;
before(async () => {
  stage = await openStage();
  const folder = join(stage.made, 'padded');
  mkdirSync(folder);
  for (const file of ['config.json', 'tokenizer.json']) writeFileSync(join(folder, file), readFileSync(join(MODEL, file)));
  // The header is so long that a row of the table lies in two segments of the cache.
  const bytes = readFileSync(join(MODEL, 'model.safetensors'));
  const length = Number(bytes.readBigUInt64LE());
  const header = bytes.subarray(8, 8 + length);
  const [begin, end] = JSON.parse(header)[TABLE].data_offsets;
  const padded = SEGMENT_BYTES - begin - 40_100 - 8;
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(padded));
  writeFileSync(
    join(folder, 'model.safetensors'),
    Buffer.concat([size, header, Buffer.alloc(padded - length, ' '), bytes.subarray(8 + length)]),
  );
  table = { offset: SEGMENT_BYTES - 40_100, bytes: end - begin };
});
after(() => stage?.close());

/** Runs `work` for a visitor of the site, in whose page the package is. */
async function visiting(work) {
  await stage.visiting(
    async ({ open }) => {
      const page = await open();
      await page.evaluate(async () => {
        globalThis.rillm = await import('/rillm/dist/index.js');
        // On the CPU kernels need no compiling.
        globalThis.DISK = { perLayerEmbeddings: 'disk', precision: 'exact', device: 'cpu', threads: 1 };
        /** What each of several requests at once is answered. */
        globalThis.answers = (engine, prompts) =>
          Promise.all(
            prompts.map(async (prompt) => {
              const { choices } = await engine.completions.create({ prompt, max_tokens: 32, temperature: 0, ignore_eos: true });
              return choices[0].token_ids;
            }),
          );
        globalThis.failure = (work) =>
          work.then(
            () => 'did not fail',
            ({ code, message }) => ({ code, message }),
          );
      });
      await work(page);
    },
    [/Failed to load resource/],
  );
}

const PROMPTS = [GOLDEN.ids, [...GOLDEN.ids.slice(0, 30), 9, 8, 7], GOLDEN.ids.slice(5)];
/** What is answered with the table in memory. */
let wanted;

test('rows come from the cache, on the GPU and the CPU, in a worker and on the page’s thread', LIMIT, async () => {
  await visiting(async (page) => {
    wanted = await page.evaluate(
      async ([folder, prompts]) => {
        const engine = await rillm.Engine.load(folder, { precision: 'exact', device: 'gpu', maxSequences: 3, cache: 'none' });
        const given = await answers(engine, prompts);
        await engine.dispose();
        return given;
      },
      [FOLDER, PROMPTS],
    );
    assert.deepEqual(wanted[0], GOLDEN.greedy);
    for (const options of [{ device: 'gpu' }, {}, { worker: false }]) {
      const given = await page.evaluate(
        async ([folder, prompts, options]) => {
          const engine = await rillm.Engine.load(folder, { ...DISK, ...options, maxSequences: 3 });
          const given = [await answers(engine, prompts), engine.info.per_layer_embeddings, engine.info.device];
          await engine.dispose();
          return given;
        },
        [FOLDER, PROMPTS, options],
      );
      assert.deepEqual(given, [wanted, 'disk', options.device ?? 'cpu'], JSON.stringify(options));
    }
  });
});

test(
  'Files and an application’s own source are read as long as the engine lives, whatever becomes of the load’s signal',
  LIMIT,
  async () => {
    await visiting(async (page) => {
      const found = await page.evaluate(
        async ([folder, prompts]) => {
          const blob = async (name) => (await fetch(folder + name)).blob();
          const names = ['config.json', 'tokenizer.json', 'model.safetensors'];
          const blobs = await Promise.all(names.map(blob));
          let reads = 0;
          const own = (data) => ({
            size: data.size,
            read: async (offset, length) => {
              reads += 1;
              return await data.slice(offset, offset + length).arrayBuffer();
            },
          });
          const found = [];
          for (const of of [(data) => data, own]) {
            const loading = new AbortController();
            const files = names.map((name, at) => ({ name, data: of(blobs[at]) }));
            const engine = await rillm.Engine.load(files, { ...DISK, signal: loading.signal, maxSequences: 3 });
            loading.abort();
            const before = reads;
            found.push([await answers(engine, prompts), reads > before]);
            await engine.dispose();
          }
          return found;
        },
        [FOLDER, PROMPTS],
      );
      assert.deepEqual(found, [
        [wanted, false],
        [wanted, true],
      ]);
    });
  },
);

test('an application’s own store is asked for rows too, from a worker', LIMIT, async () => {
  await visiting(async (page) => {
    const [given, asked] = await page.evaluate(
      async ([folder, prompts]) => {
        const kept = new Map();
        let asked = 0;
        const cache = {
          get: async (key) => (asked++, kept.get(key)),
          put: async (key, bytes) => void kept.set(key, new Blob([bytes])),
          delete: async (key) => void kept.delete(key),
        };
        const engine = await rillm.Engine.load(folder, { ...DISK, cache, maxSequences: 3 });
        const before = asked;
        const given = await answers(engine, prompts);
        await engine.dispose();
        return [given, asked > before];
      },
      [FOLDER, PROMPTS],
    );
    assert.deepEqual([given, asked], [wanted, true]);
  });
});

test('a lost GPU: the rows are read again, and the answer goes on', LIMIT, async () => {
  await visiting(async (page) => {
    const [given, recoveries] = await page.evaluate(
      async ([folder, prompt]) => {
        const engine = await rillm.Engine.load(folder, { ...DISK, device: 'gpu', worker: false });
        const stream = await engine.completions.create({ prompt, max_tokens: 32, temperature: 0, ignore_eos: true, stream: true });
        const tokens = [];
        let isLost = false;
        for await (const chunk of stream) {
          tokens.push(...(chunk.choices[0]?.token_ids ?? []));
          if (tokens.length < 5 || isLost) continue;
          isLost = true;
          engine.gpuDevice.destroy();
        }
        const { recoveries } = await engine.stats();
        await engine.dispose();
        return [tokens, recoveries];
      },
      [FOLDER, GOLDEN.ids],
    );
    assert.deepEqual([given, recoveries], [GOLDEN.greedy, 1]);
  });
});

test('what is damaged in the cache is noticed at the load, and what is deleted ends answers by name', LIMIT, async () => {
  await visiting(async (page) => {
    const found = await page.evaluate(
      async ([folder, prompt, at]) => {
        const events = [];
        const load = () => rillm.Engine.load(folder, { ...DISK, worker: false, onEvent: (event) => events.push(event) });
        await (await load()).dispose();
        const root = await (await navigator.storage.getDirectory()).getDirectoryHandle('rillm');
        for await (const [name, kept] of await root.getDirectoryHandle('files')) {
          const first = name.startsWith('text-') ? undefined : await kept.getFileHandle('0').catch(() => undefined);
          if (first === undefined || (await first.getFile()).size < at) continue;
          const writable = await first.createWritable({ keepExistingData: true });
          await writable.write({ type: 'write', position: at, data: new Uint8Array([0x7f, 0x7f, 0x7f]) });
          await writable.close();
        }
        events.length = 0;
        const engine = await load();
        const repaired = events.filter(({ type }) => type === 'repaired').length;
        const [given] = await answers(engine, [prompt]);
        await rillm.models.delete(folder);
        const gone = await failure(answers(engine, [[3, 4, 5, 6, 200, 201, 202, 203]]));
        // Of what is in memory answers go on.
        const [after] = await answers(engine, [prompt]);
        await engine.dispose();
        return { repaired, given, gone, after };
      },
      [FOLDER, GOLDEN.ids, table.offset + 999],
    );
    assert.equal(found.repaired, 1);
    assert.deepEqual(found.given, GOLDEN.greedy);
    assert.equal(found.gone.code, 'read', JSON.stringify(found.gone));
    assert.match(found.gone.message, /model\.safetensors.*deleted while the model is in use: load it again/);
    assert.deepEqual(found.after, GOLDEN.greedy);
  });
});

test(
  'what is not kept can’t be read later: refused by name, as are a model without such embeddings, a draft and a wrong value',
  LIMIT,
  async () => {
    await visiting(async (page) => {
      const found = await page.evaluate(async (folder) => {
        const refused = (source, options) => failure(rillm.Engine.load(source, { ...DISK, ...options }));
        const broken = { get: async () => undefined, put: async () => Promise.reject(new Error('full')), delete: async () => {} };
        return [
          await refused(folder, { cache: 'none' }),
          await refused(folder, { cache: broken }),
          await refused('/golden/tied-q8_0.gguf'),
          await refused(folder, { draft: folder }),
          await failure(rillm.Engine.load(folder, { perLayerEmbeddings: 'cpu' })),
        ];
      }, FOLDER);
      const words = [
        /is not kept on this device/,
        /is not kept on this device/,
        /has none; leave the option out/,
        /draft/,
        /perLayerEmbeddings/,
      ];
      for (const [at, { code, message }] of found.entries()) {
        assert.equal(code, 'invalid_request', message);
        assert.match(message, /perLayerEmbeddings/);
        assert.match(message, words[at]);
      }
      const said = await page.evaluate((folder) => rillm.Engine.inspect(folder, { cache: 'none' }), FOLDER);
      assert.ok(said.per_layer_embedding_bytes >= table.bytes && said.problem === undefined);
    });
  },
);
