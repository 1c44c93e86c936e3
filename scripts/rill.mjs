// `npm run -s rill -- COMMAND`: the packed package in headless Chromium, for people and scripts. What may be written stands in
// rill/arguments.mjs, what runs in the page in rill/commands.js.

import { createWriteStream, existsSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { pipeline } from 'node:stream/promises';

import { tablesOf, textOf } from '../www/bench/report.js';
import { build, buildBench, unpackPackage } from './build.mjs';
import { launchChromium, likelyAdapter, sharedChromium } from './chromium.mjs';
import { Problem, root } from './command.mjs';
import { CommandError, parseCommand } from './rill/arguments.mjs';
import { npyHeader } from './rill/npy.mjs';
import { measureOps } from './rill/ops.mjs';
import { setup } from './setup.mjs';

/** Chromium rounds GPU times to 0.1 ms otherwise, which is longer than most kernels take. */
const PRECISE_GPU_TIMES = ['--enable-webgpu-developer-features'];

/** The package as the source stands now; a build with nothing to do takes a moment. */
async function packedPackage() {
  await setup({ test: false, quietStdout: true });
  return unpackPackage(await build({ quietStdout: true }));
}

/** Files that need others of their folder: parts of a split model, and safetensors, which need config.json. */
const NEEDS_ITS_FOLDER = /-\d{5}-of-\d{5}\.gguf$|\.safetensors(\.index\.json)?$/;

/** A model as the page may fetch it: addresses as they are, a file or folder served beside the page. */
function modelMount(model) {
  if (model === undefined || /^(https?:\/\/|hf:)/.test(model)) return { url: model, mounts: {} };
  const file = resolve(model);
  const entry = existsSync(file) ? statSync(file) : undefined;
  if (entry?.isDirectory()) return { url: '/model/', mounts: { '/model/': file } };
  if (!entry?.isFile()) throw new CommandError('read', `there is no file or folder ${file}: correct --model`);
  if (NEEDS_ITS_FOLDER.test(file)) return { url: `/model/${encodeURIComponent(basename(file))}`, mounts: { '/model/': dirname(file) } };
  return { url: '/model.gguf', mounts: { '/model.gguf': file } };
}

/** Opens the page on the adapter that was asked for, or on the best that this machine has. */
async function openPage(adapter, origin, args = []) {
  const wished = adapter ?? likelyAdapter();
  const browser = wished === 'swiftshader' && args.length === 0 ? await sharedChromium() : await launchChromium({ adapter: wished, args });
  const page = await browser.newPage();
  page.on('console', (message) => console.error(`page: ${message.text()}`));
  page.on('pageerror', (error) => console.error(`page: ${error.message}`));
  await page.goto(`${origin}/page.html`);
  const found = await page.evaluate(async () => Boolean(await navigator.gpu?.requestAdapter()));
  if (found || wished === 'swiftshader') return { browser, page };
  await browser.close();
  if (adapter !== undefined) {
    throw new CommandError(
      'adapter_unavailable',
      'Chromium offers no WebGPU adapter on the GPU of this machine: check its Vulkan driver, or take --adapter swiftshader',
    );
  }
  console.error('rill: Chromium offers no WebGPU adapter on the GPU of this machine; taking SwiftShader (on the CPU)');
  return openPage('swiftshader', origin, args);
}

async function execute({ name, adapter, model, out, parameters }) {
  const { url, mounts } = modelMount(name === 'bench dispatch' ? undefined : model);
  const packed = await packedPackage();
  // After the package: both come out of cargo under one name.
  const ofBench = name === 'bench dispatch' ? { '/bench-wasm/': await buildBench({ quietStdout: true }) } : {};
  const { serve } = await import('./serve.mjs');

  let logits;
  const site = await serve(
    {
      '/': join(root, 'scripts/rill'),
      '/bench/': join(root, 'www/bench'),
      '/rillm/': packed,
      ...ofBench,
      ...mounts,
    },
    {
      handle(request, response, pathname) {
        if (pathname !== '/logits' || request.method !== 'POST') return false;
        logits = readBody(request).then((body) => {
          response.end();
          return body;
        });
        return true;
      },
    },
  );
  let browser;
  try {
    const opened = await openPage(adapter, site.origin, name === 'bench' ? PRECISE_GPU_TIMES : []);
    browser = opened.browser;
    // What a thread spends is measured from outside of the page.
    if (name === 'bench ops') return await measureOps(opened.page, parameters.settings);
    const result = await opened.page.evaluate(
      async ([command, values]) => (await import('/commands.js')).runCommand(command, values),
      [name, { ...parameters, model: url }],
    );
    if (result.error !== undefined) throw new CommandError(result.error.code, result.error.message);
    if (logits !== undefined) return await writeNpy(out, result.shape, await logits);
    return result;
  } finally {
    await browser?.close();
    await site.close();
  }
}

async function readBody(request) {
  const parts = [];
  for await (const part of request) parts.push(part);
  return parts;
}

async function writeNpy(out, shape, parts) {
  try {
    await pipeline([npyHeader(shape), ...parts], createWriteStream(out));
  } catch (error) {
    throw new CommandError('read', `${out} cannot be written: ${error.message}`);
  }
  return { out: resolve(out), shape, dtype: 'float32' };
}

try {
  const command = parseCommand(process.argv.slice(2));
  const result = await execute(command);
  console.log(command.json ? JSON.stringify(result) : textOf(tablesOf(result)));
} catch (error) {
  const code = error instanceof CommandError ? error.code : 'internal';
  if (!(error instanceof CommandError || error instanceof Problem)) console.error(error);
  console.log(JSON.stringify({ error: { code, message: error.message } }));
  process.exitCode = 1;
}
