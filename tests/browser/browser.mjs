// The stage of the browser tests: Chromium on SwiftShader, and a site with the packed package, the golden models and some
// servers that misbehave. A test that leaves an error in the console or an unhandled rejection behind fails.

import assert from 'node:assert/strict';
import { createReadStream, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before } from 'node:test';

import { modulesFolder, unpackPackage } from '../../scripts/build.mjs';
import { launchChromium, sharedChromium } from '../../scripts/chromium.mjs';
import { withDevice } from './device.mjs';
import { root } from '../../scripts/command.mjs';
import { readNpy } from '../../scripts/rill/npy.mjs';
import { demoMounts, serve } from '../../scripts/serve.mjs';

export const golden = join(root, 'tests/golden/tiny_llama');
export { root };

export function goldenJson(name) {
  return JSON.parse(readFileSync(join(golden, name), 'utf8'));
}

export function goldenNpy(name) {
  return readNpy(readFileSync(join(golden, name)));
}

/** The packed package, unpacked. `npm test` has built it. */
export async function packedPackage() {
  const pkg = join(root, 'pkg');
  const tarball = existsSync(pkg) ? readdirSync(pkg).find((name) => name.endsWith('.tgz')) : undefined;
  assert.ok(tarball, 'there is no packed package: run `npm run build` first');
  return unpackPackage(join(pkg, tarball));
}

/** Code that replaces a module of the package with itself plus a fault, to see what becomes of it. */
const FAULTY_GLUE = `
import init, * as glue from '/rillm/dist/wasm/rillm.js';
// A trap inside an async function of Rust: an uncaught error of the thread, and a promise that never settles.
const { forward } = glue.WasmEngine.prototype;
// How often, if the address of a worker says so.
globalThis.traps = Number(new URLSearchParams(location.search).get('traps') ?? Infinity);
glue.WasmEngine.prototype.forward = function (...args) {
  if (traps-- <= 0) return forward.apply(this, args);
  setTimeout(() => { throw new WebAssembly.RuntimeError('unreachable in rillm'); });
  return new Promise(() => {});
};
const { complete } = glue.WasmEngine.prototype;
glue.WasmEngine.prototype.complete = function (request, ...rest) {
  if (request.prompt !== 'trap') return complete.call(this, request, ...rest);
  throw new WebAssembly.RuntimeError('unreachable in rillm');
};
export default init;
export * from '/rillm/dist/wasm/rillm.js';
`;
const FAULTY_TENSOR_GLUE = `
import init, * as glue from '/rillm/dist/wasm/rillm_tensor.js';
glue.WasmGpu.prototype.sync = () => {
  setTimeout(() => { throw new WebAssembly.RuntimeError('unreachable in the tensors'); });
  return new Promise(() => {});
};
export default init;
export * from '/rillm/dist/wasm/rillm_tensor.js';
`;

/** Servers that misbehave, and copies of the package with a fault. */
function misbehave(folder) {
  return (request, response, pathname) => {
    const [, kind, ...rest] = pathname.split('/');
    const end = (status, type = 'text/plain', body = '') => {
      response.writeHead(status, { 'content-type': type });
      response.end(body);
      return true;
    };
    const passOn = (url) => {
      request.url = url;
      return false;
    };
    // A context that is used again has what it fetched.
    if (kind === 'rillm') response.setHeader('Cache-Control', 'max-age=3600, immutable');
    switch (kind) {
      case 'blank':
        return end(
          200,
          'text/html',
          '<!doctype html><title>test</title><link rel="icon" href="data:,"><script type="importmap">{"imports":{"rillm":"/rillm/dist/index.js","rillm/gpu":"/rillm/dist/gpu/index.js","rillm/tensor":"/rillm/dist/tensor/index.js"}}</script>',
        );
      case 'trusted-types':
        response.setHeader('content-security-policy', "require-trusted-types-for 'script'; trusted-types rillm");
        return end(200, 'text/html', '<!doctype html><title>test</title><link rel="icon" href="data:,">');
      case 'status':
        return end(Number(rest[0]));
      case 'without-ranges': {
        const file = join(golden, rest.join('/'));
        response.writeHead(200, { 'content-length': statSync(file).size });
        createReadStream(file).pipe(response);
        return true;
      }
      case 'without-length':
        response.writeHead(200);
        createReadStream(join(golden, rest.join('/'))).pipe(response);
        return true;
      case 'folders-list':
        return end(200, 'application/json', JSON.stringify(readdirSync(join(root, 'tests/golden/folders', rest.join('/')))));
      case 'breaks-off': {
        // After its first 2000 bytes nothing comes, however often it is asked.
        const [start, last] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range).slice(1).map(Number);
        const end = Math.min(last + 1, 100000);
        response.writeHead(206, { 'content-range': `bytes ${start}-${end - 1}/100000`, 'content-length': end - start });
        response.write(readFileSync(join(golden, 'tied-f32.gguf')).subarray(start, 2000));
        setTimeout(() => response.destroy(), 50);
        return true;
      }
      case 'never-answers':
        return true;
      case 'no-worker':
        return pathname.endsWith('/worker.js') ? end(404) : passOn(`/rillm/${rest.join('/')}`);
      case 'no-wasm':
        return pathname.endsWith('.wasm') ? end(404) : passOn(`/rillm/${rest.join('/')}`);
      case 'trap':
        if (pathname.endsWith('/wasm/rillm.js')) return end(200, 'text/javascript', FAULTY_GLUE);
        if (pathname.endsWith('/wasm/rillm_tensor.js')) return end(200, 'text/javascript', FAULTY_TENSOR_GLUE);
        return passOn(`/rillm/${rest.join('/')}`);
      case 'made':
        if (!existsSync(join(folder, rest.join('/')))) return end(404);
        return false;
      default:
        return false;
    }
  };
}

/** Flags with which Chromium draws WebGPU to a canvas on SwiftShader; without them its GPU process crashes at the first frame. */
export const CANVAS_ARGS = ['--enable-features=Vulkan', '--use-vulkan=swiftshader', '--use-angle=vulkan'];

/** The site alone. `made` is a folder served at /made/. */
export async function openSite() {
  const made = mkdtempSync(join(tmpdir(), 'rillm-'));
  const packed = await packedPackage();
  const site = await serve(
    {
      ...(await demoMounts(root, packed)),
      '/modules/': modulesFolder,
      '/golden/': golden,
      '/folders/': join(root, 'tests/golden/folders'),
      '/quantized/': join(root, 'tests/golden/quantized'),
      '/architectures/': join(root, 'tests/golden/architectures'),
      '/encoders/': join(root, 'tests/golden/encoders'),
      '/encoder_decoders/': join(root, 'tests/golden/encoder_decoders'),
      '/classifiers/': join(root, 'tests/golden/classifiers'),
      '/mtp/': join(root, 'tests/golden/mtp'),
      '/adapters/': join(root, 'tests/golden/adapters'),
      '/made/': made,
    },
    { handle: misbehave(made) },
  );
  return {
    made,
    origin: site.origin,
    async close() {
      await site.close();
      rmSync(made, { recursive: true, force: true });
    },
  };
}

/** Notes what a page leaves in its console, but for what is allowed. The page is one of Playwright's or Puppeteer's. */
export function watchConsole(page, initially = []) {
  let allowed = initially;
  const faults = [];
  const note = (text) => allowed.some((pattern) => pattern.test(text)) || faults.push(text);
  page.on('console', (message) => (message.type() === 'error' ? note(message.text()) : undefined));
  page.on('pageerror', (error) => note(`uncaught: ${error.message}`));
  return {
    /** Fails if there was an error since the last call. */
    async check() {
      // Unhandled rejections are reported a moment later.
      await new Promise((resolve) => setTimeout(resolve, 50));
      assert.deepEqual(faults.splice(0), [], 'the console of the page holds errors');
    },
    forget: () => faults.splice(0),
    /** What is allowed from now on. */
    allow: (patterns) => (allowed = patterns),
  };
}

/**
 * Starts site and browser. `run(fn, ...args)` runs a function in a fresh page that has the package as globalThis.rillm and some
 * shorthands; it fails on anything that the page left in its console.
 */
export async function openStage({ adapter = 'swiftshader', args = [] } = {}) {
  const site = await openSite();
  const own = adapter !== 'swiftshader' || args.length > 0;
  const browser = withDevice(own ? await launchChromium({ adapter, args }) : await sharedChromium());

  const blank = `${site.origin}/blank/`;

  async function openPage({ url = blank, allowed = [], ...options } = {}) {
    const context = await browser.newContext(options);
    const page = await context.newPage();
    const watch = watchConsole(page, allowed);
    const unsent = [];
    page.on('requestfailed', (request) => unsent.push(`${request.url()}: ${request.failure()?.errorText}`));
    await page.goto(url);
    return {
      page,
      checkConsole: watch.check,
      allow: watch.allow,
      /** Imports the package. Chromium fails a request to this very machine once in thousands: then the page is loaded once more. */
      async prepare(address) {
        try {
          await page.evaluate(preparePage, address);
        } catch (error) {
          if (!/Failed to fetch dynamically imported module/.test(error.message)) throw error;
          console.warn(`${error.message}\n  ${unsent.join('\n  ')}\n  The page is loaded once more.`);
          watch.forget();
          await page.goto(url);
          await page.evaluate(preparePage, address);
        }
      },
      async close() {
        try {
          await watch.check();
        } finally {
          await context.close();
        }
      },
    };
  }

  /** Pages without options that nobody uses now: to open one takes 0.2 to 0.4 s of processor time. */
  const idle = [];

  /** A page in which nothing ran and which finds nothing stored. */
  async function freshPage(allowed) {
    const opened = idle.pop();
    if (opened === undefined) return openPage({ allowed });
    opened.allow(allowed);
    await opened.page.goto(blank);
    return opened;
  }

  /** Keeps a page for the next that wants one. */
  async function putBack(opened) {
    try {
      await opened.checkConsole();
      // Ends its workers.
      await opened.page.goto('about:blank');
      await clearStorage(opened.page);
      idle.push(opened);
    } catch (error) {
      await opened.close();
      throw error;
    }
  }

  /** Of browser profiles that nobody uses now: a page that stays, which keeps what is served with `immutable`. */
  const profiles = [];

  /**
   * A visitor: a browser profile in which nothing is stored, and its pages, whose consoles are to stay clean but for what is allowed. `work` gets
   * {context, open}.
   */
  async function visiting(work, allowed = []) {
    const keeper = profiles.pop() ?? (await (await browser.newContext()).newPage());
    const context = keeper.context();
    const watches = [];
    const open = async () => {
      const page = await context.newPage();
      watches.push(watchConsole(page, allowed));
      await page.goto(blank);
      return page;
    };
    try {
      await work({ context, open });
      await Promise.all(watches.map((watch) => watch.check()));
    } catch (error) {
      await context.close();
      throw error;
    }
    // Its workers end with a page.
    await Promise.all(context.pages().map((page) => (page === keeper ? undefined : page.close())));
    await clearStorage(keeper);
    profiles.push(keeper);
  }

  async function clearStorage(page) {
    const session = await page.context().newCDPSession(page);
    await session.send('Storage.clearDataForOrigin', { origin: site.origin, storageTypes: 'all' });
    await session.detach();
  }

  return {
    made: site.made,
    browser,
    origin: site.origin,
    openPage,
    visiting,
    async run(fn, ...parameters) {
      return this.runWith({}, fn, ...parameters);
    },
    /** The same with options of `openPage`, another package, and `first`, which gets the page before the function runs. */
    async runWith({ package: address = '/rillm/dist/index.js', first, allowed = [], ...options }, fn, ...parameters) {
      const isPlain = Object.keys(options).length === 0;
      const opened = await (isPlain ? freshPage(allowed) : openPage({ allowed, ...options }));
      try {
        await opened.prepare(address);
        await first?.(opened.page);
        return await opened.page.evaluate(fn, parameters.length > 1 ? parameters : parameters[0]);
      } finally {
        await (isPlain ? putBack(opened) : opened.close());
      }
    },
    /**
     * Engines that tests share, by model and load options: to compile the kernels of one anew takes seconds. `use` runs
     * `fn(engine, argument)` in the page of the engine; functions travel as source text.
     */
    sharedEngines() {
      const pages = new Map();
      const opened = async (model, options) => {
        const { page, prepare, close } = await openPage();
        await prepare('/rillm/dist/index.js');
        await page.evaluate(
          async ([model, options]) => (globalThis.engine = await rillm.Engine.load(model, options)) && null,
          [model, options],
        );
        return { page, close };
      };
      return {
        async use(model, options, fn, argument) {
          const key = JSON.stringify([model, options]);
          if (!pages.has(key)) pages.set(key, opened(model, options));
          const { page } = await pages.get(key);
          return page.evaluate(([source, argument]) => (0, eval)(`(${source})`)(engine, argument), [String(fn), argument]);
        },
        async close() {
          for (const opening of pages.values()) {
            const { page, close } = await opening;
            await page.evaluate(() => engine.dispose());
            await close();
          }
        },
      };
    },
    async close() {
      await browser.close();
      await site.close();
    },
  };
}

/** The stage of a file's tests, and the engines that they share; there while the tests run. */
export function sharedStage() {
  const shared = {};
  before(async () => {
    shared.stage = await openStage();
    shared.engines = shared.stage.sharedEngines();
  });
  after(async () => {
    try {
      await shared.engines?.close();
    } finally {
      await shared.stage?.close();
    }
  });
  return shared;
}

/** Runs in the page: what the tests use there. */
export async function preparePage(address) {
  globalThis.rillm = await import(address);
  if (globalThis.prefersExact) {
    const { load } = rillm.Engine;
    // What is no plain object goes on as it is, and so do getters.
    const isPlain = (options) =>
      Object.getPrototypeOf(options) === Object.prototype &&
      Object.values(Object.getOwnPropertyDescriptors(options)).every((property) => 'value' in property);
    rillm.Engine.load = function (source, options = {}, ...more) {
      const given = options instanceof Object && isPlain(options) ? { precision: 'exact', ...options } : options;
      return load.call(this, source, given, ...more);
    };
  }
  /** The code and message of the error that `work` rejects with. */
  globalThis.failure = async (work) => {
    try {
      await (typeof work === 'function' ? work() : work);
    } catch (error) {
      return { isEngineError: error instanceof rillm.EngineError, name: error.name, code: error.code, message: error.message };
    }
    return { code: 'did not fail' };
  };
  /** Loads a model, uses it and disposes of it. */
  globalThis.withEngine = async (source, options, use) => {
    const engine = await rillm.Engine.load(source, options);
    try {
      return await use(engine);
    } finally {
      await engine.dispose();
    }
  };
  /** Requests a device of rillm/gpu, uses it and destroys it. */
  globalThis.withDevice = async (options, use) => {
    const device = await rillm.Device.request(options);
    try {
      return await use(device);
    } finally {
      device.destroy();
    }
  };
  globalThis.collect = async (stream) => {
    const chunks = [];
    for await (const chunk of stream) chunks.push(chunk);
    return chunks;
  };
  /** Index of the largest number of the last row. */
  globalThis.argmaxOfLastRow = async (engine, ids) => {
    const tensor = await engine.forward(ids);
    const logits = (await tensor.readback()).slice(-tensor.shape.at(-1));
    await tensor.dispose();
    return logits.indexOf(Math.max(...logits));
  };
}

/** What an answer has counted, without what the KV cache happened to hold of its prompt. */
export function countsOf({ prompt_tokens_details, ...usage }) {
  assert.equal(typeof prompt_tokens_details.cached_tokens, 'number');
  return usage;
}

/** ‖a − b‖ / ‖b‖. */
export function relativeError(a, b) {
  assert.equal(a.length, b.length);
  let difference = 0;
  let norm = 0;
  for (let i = 0; i < b.length; i++) {
    difference += (a[i] - b[i]) ** 2;
    norm += b[i] ** 2;
  }
  return Math.sqrt(difference / norm);
}
