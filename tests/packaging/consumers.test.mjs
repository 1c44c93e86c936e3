// The tarball installed into a new project: type-checked, bundled with vite and esbuild, by an import map from another origin, and run in
// Chromium. Other bundlers are tried by `npm run test:bundlers`.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { sharedChromium } from '../../scripts/chromium.mjs';
import { root } from '../../scripts/command.mjs';
import { serve } from '../../scripts/serve.mjs';
import { checkPage, golden, newProject, PAGE, USE } from '../bundlers/consumer.mjs';

const LIMIT = { timeout: 240_000 };
let project;
let remove;
let browser;

before(async () => {
  ({ folder: project, remove } = newProject({}, [], '--offline'));
  browser = await sharedChromium();
}, LIMIT);
after(async () => {
  await browser?.close();
  remove?.();
});

test('a TypeScript project type-checks against the package, and wrong uses do not', LIMIT, () => {
  mkdirSync(join(project, 'types'), { recursive: true });
  writeFileSync(join(project, 'types/use.ts'), TYPES);
  writeFileSync(join(project, 'types/gpu.ts'), GPU_TYPES);
  const options = [
    '--noEmit',
    '--strict',
    '--exactOptionalPropertyTypes',
    '--target',
    'ES2022',
    '--module',
    'ESNext',
    '--moduleResolution',
    'bundler',
    '--lib',
    'ES2022,DOM',
    '--types',
    '',
  ];
  const tsc = join(root, 'node_modules/typescript/bin/tsc');
  try {
    execFileSync(process.execPath, [tsc, ...options, 'types/use.ts', 'types/gpu.ts'], { cwd: project, encoding: 'utf8' });
  } catch (error) {
    assert.fail(error.stdout);
  }
});

test('a vite build runs in Chromium, in the worker and on the page', LIMIT, async () => {
  const site = join(project, 'site');
  mkdirSync(site, { recursive: true });
  writeFileSync(join(site, 'index.html'), PAGE('./main.js'));
  writeFileSync(join(site, 'main.js'), USE);
  const vite = join(root, 'node_modules/vite/bin/vite.js');
  execFileSync(process.execPath, [vite, 'build', '--target', 'esnext', '--outDir', join(project, 'built'), '--emptyOutDir', site], {
    cwd: project,
    stdio: 'pipe',
  });
  const server = await serve({ '/': join(project, 'built'), '/golden/': golden });
  try {
    await checkPage(browser, `${server.origin}/index.html`);
  } finally {
    await server.close();
  }
});

test('esbuild: with the worker as an entry and the wasm copied; without, the error says so', LIMIT, async () => {
  writeFileSync(join(project, 'main.js'), USE);
  writeFileSync(join(project, 'index.html'), PAGE('/bundle/main.js'));
  const esbuild = (...entries) =>
    execFileSync(
      join(root, 'node_modules/.bin/esbuild'),
      [...entries, '--bundle', '--format=esm', '--outdir=bundle', '--log-level=warning'],
      {
        cwd: project,
        stdio: 'pipe',
      },
    );
  esbuild('main.js');
  cpSync(join(project, 'node_modules/rillm/dist/wasm'), join(project, 'bundle/wasm'), { recursive: true });
  const server = await serve({ '/': project, '/golden/': golden });
  try {
    const told = checkPage(browser, `${server.origin}/index.html`);
    await assert.rejects(told, /worker_unavailable.*status 404 for .*\/bundle\/worker\.js; bundlers such as esbuild/s);
    esbuild('main.js', 'worker=rillm/worker');
    await checkPage(browser, `${server.origin}/index.html`);
  } finally {
    await server.close();
  }
});

test('an import map, and the package from another origin as from a CDN', LIMIT, async () => {
  const other = await serve(
    { '/rillm/': join(project, 'node_modules/rillm/dist') },
    { handle: (_, response) => (response.setHeader('Access-Control-Allow-Origin', '*'), false) },
  );
  const page = `<!doctype html><link rel="icon" href="data:,"><script type="importmap">{"imports":{"rillm":"${other.origin}/rillm/index.js","rillm/gpu":"${other.origin}/rillm/gpu/index.js"}}</script><script type="module">${USE}</script>`;
  const server = await serve(
    { '/golden/': golden },
    { handle: (_, response, path) => path === '/' && (response.setHeader('Content-Type', 'text/html'), response.end(page), true) },
  );
  try {
    await checkPage(browser, `${server.origin}/`);
  } finally {
    await server.close();
    await other.close();
  }
});

const TYPES = `
import { type ChatCompletion, type ChatCompletionChunk, type CompletionStream, Engine, EngineError, type ErrorCode, renderTemplate, type Tensor } from 'rillm';
import address from 'rillm/rillm_bg.wasm';

const engine: Engine = await Engine.load(new File([], 'a.gguf'), { onProgress: ({ loaded, total }) => console.log(loaded / total), signal: new AbortController().signal, contextLength: 512 });
await Engine.load('model.gguf');
await Engine.load(new URL('model.gguf', location.href), { worker: false });
await Engine.load('model.gguf', { wasmModule: await fetch(address), grammarWasmModule: new Uint8Array(1) });
await Engine.inspect('model.gguf', { wasmModule: await WebAssembly.compileStreaming(fetch(address)) });

const answer: ChatCompletion = await engine.chat.completions.create({ messages: [{ role: 'user', content: 'Hi' }], max_tokens: 5, temperature: 0, seed: 1, stop: ['a'] });
const text: string | null = answer.choices[0]!.message.content;
const call: string | undefined = answer.choices[0]!.message.tool_calls?.[0]?.function.arguments;
void call;
const stream: CompletionStream<ChatCompletionChunk> = await engine.chat.completions.create({ messages: [], stream: true }, { signal: AbortSignal.timeout(5) });
for await (const chunk of stream) { const piece: string | undefined = chunk.choices[0]?.delta.content; void piece; }
stream.cancel();
for await (const { choices, usage } of await engine.completions.create({ prompt: text ?? '', stream: true })) void [choices[0]?.text, usage?.total_tokens];

const either: boolean = Math.random() > 0.5;
const unknownKind = await engine.chat.completions.create({ messages: [], stream: either });
if ('choices' in unknownKind) void unknownKind.usage; else unknownKind.cancel();

const ids: Uint32Array = await engine.tokenize('text', { add_special: true });
const back: string = await engine.detokenize(ids);
const tensor: Tensor = await engine.forward([1, 2]);
const numbers: Float32Array = await tensor.readback();
const submits: number = (await engine.stats()).submits;
const rendered: string = await renderTemplate('{{ a }}', { a: 1 });
void [back, numbers, submits, rendered, engine.info.adapter.vendor];
await engine.chat.completions.create({ messages: [], response_format: { type: 'json_schema', json_schema: { name: 'a', strict: true, schema: { type: 'object' } } } });
await engine.completions.create({ prompt: text ?? '', structured_outputs: { choice: ['a', 'b'] } });

try { await engine.dispose(); } catch (error) { if (error instanceof EngineError) { const code: ErrorCode = error.code; void code; } }

// @ts-expect-error a model is a URL, a File or a Blob
await Engine.load(7);
// @ts-expect-error messages are needed
await engine.chat.completions.create({});
// @ts-expect-error a format is text, json_object or json_schema
await engine.chat.completions.create({ messages: [], response_format: { type: 'xml' } });
// @ts-expect-error an answer that is not streamed cannot be iterated over
for await (const _ of await engine.chat.completions.create({ messages: [] })) { }
// @ts-expect-error a constructor is not for callers
new Engine();
// @ts-expect-error not a code
const wrong: ErrorCode = 'no_such_code';
`;

const GPU_TYPES = `
import { type BufferId, type CommandBatch, Device, EngineError, isAvailable, type Kernel, listAdapters, type Tensor, type TensorValues } from 'rillm/gpu';
import address from 'rillm/rillm_tensor_bg.wasm';

if (!(await isAvailable())) throw new EngineError('webgpu_unavailable', 'none');
const [listed] = await listAdapters();
const device: Device = await Device.request({ ...listed?.request, features: ['shader-f16'], limits: { maxBufferSize: 1 }, caches: { uniforms: 0 }, maxBatchSize: 8, debug: true });
const shared: Device = await Device.request({ device: device.gpuDevice, wasmModule: await fetch(address) });
device.lost.then(({ reason, message }) => void [reason === 'destroyed', message]);

const x: Tensor = device.tensor(new Float32Array(4), [2, 2]);
const y: Tensor = device.tensor([1, 2], Uint32Array.of(2), 'u32');
const part: Tensor = device.rand([4, 4], { seed: 1 }).slice(1, 2);
const imported: Tensor = await shared.importBuffer(device.gpuDevice.createBuffer({ size: 16, usage: 128 }), [4]);
const [first, second]: [TensorValues, TensorValues] = await device.readback(x, y);

const kernel: Kernel = await device.kernel({ label: 'k', wgsl: '', bindings: ['read', 'read_write', 'uniform'], workgroup: [8, 8] });
kernel.dispatch({ bindings: [x, y, new Uint32Array(4)], grid: [1, 2, 3] });
kernel.dispatch({ bindings: [x, y, new ArrayBuffer(4)], threads: [100] });

const batch: CommandBatch = device.batch();
const id: BufferId = batch.matmul(batch.upload([1]), batch.importBuffer(x), 1, 1, 1);
await batch.execute();
const values: TensorValues = await batch.read(batch.gelu(id));
const submits: number = device.stats().submits + device.memoryStats().live_bytes + batch.numOperations;
void [part, imported, first, second, values, submits];

// @ts-expect-error there is no dtype f64
device.zeros([1], 'f64');
// @ts-expect-error a binding is read, read_write or uniform
await device.kernel({ wgsl: '', bindings: ['write'] });
// @ts-expect-error a grid has at most three numbers
kernel.dispatch({ bindings: [], grid: [1, 2, 3, 4] });
`;
