// The blocks of README and guide that say so are run as they stand, one after the other in a page with one engine. Models of the hub are small
// ones of this repository: the hub's addresses are answered here. What a block prints must be something.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { build, transform } from 'esbuild';

import { allBlocks } from '../../scripts/docs/blocks.mjs';
import { openStage, root } from './browser.mjs';

const LIMIT = { timeout: 240_000 };
const DEMO = 'models/demo/rillm-demo-q4_0.gguf';
/** What repositories of the hub hold here. */
const REPOSITORIES = {
  'sentence-transformers/all-MiniLM-L6-v2': folder('tests/golden/encoders/bert'),
  'cross-encoder/ms-marco-MiniLM-L6-v2': folder('tests/golden/classifiers/bert_reranker'),
  'distilbert/distilbert-base-uncased-finetuned-sst-2-english': folder('tests/golden/classifiers/distilbert_labels'),
};
const COMMIT = '0123456789abcdef0123456789abcdef01234567';
/** Blocks that need something else than an engine say so after `run`. */
const NEEDS = ['', 'openai', 'gpu', 'encoder', 'reranker', 'classifier', 'embed-tensor', 'disposes'];
/** What blocks use that the text around them speaks of (`tests/docs/ambient.d.ts`). */
const AROUND = {
  messages: [{ role: 'user', content: 'What is 12 plus 30?' }],
  tools: [{ type: 'function', function: { name: 'clock', description: 'the time', parameters: { type: 'object', properties: {} } } }],
  schema: { type: 'object', properties: { age: { type: 'integer' } }, required: ['age'], additionalProperties: false },
  documents: ['A boat.', 'A stone.'],
  template: '{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}',
  url: `/${DEMO}`,
};

function folder(path) {
  const names = readdirSync(join(root, path), { recursive: true }).map((name) => name.replaceAll('\\', '/'));
  const files = names.filter((name) => !/golden|\.gguf$/.test(name) && statSync(join(root, path, name)).isFile());
  return Object.fromEntries(files.map((name) => [name, join(root, path, name)]));
}

/** Answers as the hub does: a repository's list of files, and parts of files. Any repository of GGUF files is the demo model. */
async function hub(route) {
  const [, owner, name, kind, , ...path] = new URL(route.request().url()).pathname.replace('/api/models', '').split('/');
  const files = REPOSITORIES[`${owner}/${name}`] ?? { 'model-q4_k_m.gguf': join(root, DEMO) };
  const headers = {
    'access-control-allow-origin': '*',
    'access-control-expose-headers': '*',
    'cross-origin-resource-policy': 'cross-origin',
  };
  if (kind === 'revision') {
    const siblings = Object.entries(files).map(([rfilename, file]) => ({ rfilename, size: statSync(file).size }));
    return route.fulfill({ status: 200, headers, json: { sha: COMMIT, siblings } });
  }
  const file = files[path.map(decodeURIComponent).join('/')];
  if (file === undefined) return route.fulfill({ status: 404, headers, body: '' });
  const body = readFileSync(file);
  const about = { ...headers, etag: '"1"', 'content-type': 'application/octet-stream' };
  const [, first, last] = /^bytes=(\d+)-(\d*)$/.exec(route.request().headers().range ?? '') ?? [];
  if (first === undefined) return route.fulfill({ status: 200, headers: about, body });
  const end = last === '' ? body.length - 1 : Math.min(Number(last), body.length - 1);
  const range = { 'content-range': `bytes ${first}-${end}/${body.length}` };
  return route.fulfill({ status: 206, headers: { ...about, ...range }, body: body.subarray(Number(first), end + 1) });
}

let stage;
before(async () => (stage = await openStage()));
after(() => stage.close());

test('blocks of README and guide run', LIMIT, async (t) => {
  const blocks = allBlocks().filter(({ run }) => run !== undefined);
  assert.ok(blocks.length > 70);
  for (const { page, line, run } of blocks) assert.ok(NEEDS.includes(run), `${page}:${line} needs "${run}"`);
  const bundle = await build({
    stdin: { contents: "export * from 'openai'; export { default } from 'openai';", resolveDir: root },
    bundle: true,
    format: 'esm',
    write: false,
  });
  const opened = await stage.openPage({ allowed: [/404/] });
  const { page } = opened;
  await page.context().route('https://huggingface.co/**', hub);
  await opened.prepare('/rillm/dist/index.js');
  await page.evaluate(
    async ([demo, openai, around]) => {
      Object.assign(globalThis, around, { url: new URL(around.url, location.href).href });
      // What a block says is not about kernels: engines on the CPU compile none.
      globalThis.takesCpu = true;
      globalThis.loadEngine = () => rillm.Engine.load(demo, { maxSequences: 2, contextLength: 512 });
      globalThis.engine = await loadEngine();
      globalThis.answer = document.createElement('p');
      globalThis.openaiAddress = URL.createObjectURL(new Blob([openai], { type: 'text/javascript' }));
    },
    [`/${DEMO}`, bundle.outputFiles[0].text, AROUND],
  );
  for (const { page: name, line, code, extension, run } of blocks) {
    await t.test(`${name}:${line}`, async () => {
      await page.evaluate((takes) => (globalThis.takesCpu = takes), run !== 'embed-tensor');
      const script = (await transform(code, { loader: extension, format: 'esm' })).code;
      const { printed, error } = await page.evaluate(runBlock, script);
      if (run === 'disposes') await page.evaluate(async () => (globalThis.engine = await loadEngine()));
      assert.equal(error, undefined);
      // A field that there is not.
      for (const text of printed) assert.doesNotMatch(text, /\b(undefined|NaN)\b|^$/);
    });
  }
  await page.evaluate(() => engine.dispose());
  await opened.close();
});

/** Runs in the page. Engines that the block loads are disposed of after it. */
async function runBlock(script) {
  const printed = [];
  const loaded = [];
  const { load } = rillm.Engine;
  rillm.Engine.load = async (...args) => {
    loaded.push(await load.apply(rillm.Engine, args));
    return loaded.at(-1);
  };
  const { log } = console;
  const shown = (value) =>
    typeof value === 'object' ? JSON.stringify(value, (_, part) => (part === undefined ? 'undefined' : part)) : String(value);
  console.log = (...values) => printed.push(values.map(shown).join(' '));
  const text = script.replace(/(["'])openai\1/, `'${openaiAddress}'`);
  const address = URL.createObjectURL(new Blob([text], { type: 'text/javascript' }));
  answer.textContent = '';
  try {
    await import(address);
    return { printed };
  } catch (error) {
    return { printed, error: String(error?.stack ?? error) };
  } finally {
    console.log = log;
    rillm.Engine.load = load;
    await Promise.all(loaded.map((engine) => engine.dispose()));
    URL.revokeObjectURL(address);
  }
}
