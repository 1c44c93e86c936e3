// The packed package with the bundlers that people use, as its README says: each builds an application, which answers in Chromium. So do the
// examples that have a package.json. A job of its own (`npm run test:bundlers`), since it installs them all.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { cpSync, readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { after, before, test } from 'node:test';

import { sharedChromium } from '../../scripts/chromium.mjs';
import { captured, root } from '../../scripts/command.mjs';
import { serve } from '../../scripts/serve.mjs';
import { checkPage, golden, newProject, PAGE, publish, USE } from './consumer.mjs';

const LIMIT = { timeout: 600_000 };
let browser;
before(async () => {
  browser = await sharedChromium();
}, LIMIT);
after(() => browser?.close());

/** Runs a program of the project's; resolves to what it wrote. */
async function build(folder, program, args, env = {}) {
  const bin = join(folder, 'node_modules/.bin', program);
  const { code, text } = await captured(bin, args, { cwd: folder, env: { ...process.env, CI: '1', ...env } });
  assert.equal(code, 0, text);
  return text;
}

async function checkBuilt(folder, out = 'dist', path = '/index.html') {
  const server = await serve({ '/': join(folder, out), '/golden/': golden });
  try {
    await checkPage(browser, `${server.origin}${path}`);
  } finally {
    await server.close();
  }
}

/** Starts a development server of the project's and hands its address to `use`. */
async function withServer(folder, program, args, use) {
  const child = spawn(join(folder, 'node_modules/.bin', program), args, {
    cwd: folder,
    env: { ...process.env, NO_COLOR: '1', FORCE_COLOR: '0' },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  });
  let said = '';
  const address = new Promise((resolve, reject) => {
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text) => {
        said += text;
        const found = /http:\/\/(?:localhost|127\.0\.0\.1):(\d+)/.exec(said);
        if (found !== null) resolve(`http://localhost:${found[1]}/`);
      });
    }
    child.on('close', () => reject(new Error(`${program} ended: ${said}`)));
  });
  try {
    await use(await address);
  } finally {
    // With what it started, which goes on writing for a moment.
    const closed = new Promise((resolve) => child.on('close', resolve));
    process.kill(-child.pid, 'SIGKILL');
    await closed;
  }
}

function bundler(name, files, packages, work) {
  test(name, LIMIT, async () => {
    const { folder, remove } = newProject({ 'index.html': PAGE('/main.js'), 'main.js': USE, ...files }, packages);
    try {
      await work(folder);
    } finally {
      remove();
    }
  });
}

for (const version of ['6.4.6', '7.3.8', '8.3.8']) {
  const config = "export default { optimizeDeps: { exclude: ['rillm'] }, build: { target: 'esnext' } };";
  // A module that is named by its address, too.
  const main = `import wasmModule from 'rillm/rillm_bg.wasm?url';${USE.replace('{ worker }', '{ worker, wasmModule }')}`;
  bundler(`Vite ${version}`, { 'vite.config.js': config, 'main.js': main }, [`vite@${version}`], async (folder) => {
    publish(folder);
    const said = await build(folder, 'vite', ['build']);
    assert.ok(!/warn/i.test(said), said);
    await checkBuilt(folder);
    await withServer(folder, 'vite', ['--port', '0', '--host', '127.0.0.1'], (address) => checkPage(browser, address));
  });
}

bundler('esbuild', { 'index.html': PAGE('/dist/main.js') }, ['esbuild@0.28.2'], async (folder) => {
  await build(folder, 'esbuild', ['main.js', 'worker=rillm/worker', '--bundle', '--format=esm', '--outdir=dist', '--log-level=warning']);
  cpSync(join(folder, 'node_modules/rillm/dist/wasm'), join(folder, 'dist/wasm'), { recursive: true });
  await checkBuilt(folder, '.');
});

bundler(
  'webpack',
  {
    'index.html': PAGE('/dist/main.js'),
    'webpack.config.js':
      "export default { mode: 'production', entry: './main.js', output: { publicPath: '/dist/' }, performance: { hints: false } };",
  },
  ['webpack@5.112.2', 'webpack-cli@7.3.1'],
  async (folder) => {
    const said = await build(folder, 'webpack', []);
    assert.ok(!/warning/i.test(said), said);
    await checkBuilt(folder, '.');
  },
);

bundler(
  'Rollup',
  {
    'index.html': PAGE('/dist/main.js'),
    'rollup.config.js': `
import resolve from '@rollup/plugin-node-resolve';
export default { input: { main: 'main.js', worker: 'rillm/worker' }, output: { dir: 'dist' }, plugins: [resolve({ browser: true })] };`,
  },
  ['rollup@4.68.7', '@rollup/plugin-node-resolve@16.0.3'],
  async (folder) => {
    await build(folder, 'rollup', ['--config', '--failAfterWarnings', '--silent']);
    cpSync(join(folder, 'node_modules/rillm/dist/wasm'), join(folder, 'dist/wasm'), { recursive: true });
    await checkBuilt(folder, '.');
  },
);

bundler(
  'Parcel',
  {
    'index.html': PAGE('./main.js'),
    'package.json': JSON.stringify({
      name: 'consumer',
      private: true,
      '@parcel/resolver-default': { packageExports: true },
      browserslist: 'last 2 Chrome versions',
    }),
  },
  ['parcel@2.16.4'],
  async (folder) => {
    await build(folder, 'parcel', ['build', 'index.html', '--no-cache']);
    await checkBuilt(folder);
  },
);

bundler(
  'Next',
  {
    'next.config.mjs': "export default { output: 'export' };",
    'app/layout.js': 'export default function Layout({ children }) { return <html lang="en"><body>{children}</body></html>; }',
    'app/icon.svg': '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"/>',
    'app/page.js': `'use client';
import { useEffect } from 'react';
${USE.replace(/^use\(\)\.then/m, 'const start = () => use().then')}
let started = false;
export default function Page() {
  useEffect(() => {
    if (!started) start();
    started = true;
  }, []);
  return <p>consumer</p>;
}`,
  },
  ['next@16.4.6', 'react@19.3.1', 'react-dom@19.3.1'],
  async (folder) => {
    publish(folder);
    const env = { NEXT_TELEMETRY_DISABLED: '1' };
    await build(folder, 'next', ['build'], env);
    await checkBuilt(folder, 'out');
    await withServer(folder, 'next', ['dev', '--port', '0'], (address) => checkPage(browser, address, [/WebSocket|HMR|hydrat/i]));
  },
);

/** A project of examples/, installed as its package.json says; `use` sees its built page, whose model is the tiny one. */
function example(name, built, use) {
  test(`examples/${name}`, LIMIT, async () => {
    const source = join(root, 'examples', name);
    const files = Object.fromEntries(
      readdirSync(source, { recursive: true, withFileTypes: true })
        .filter((entry) => entry.isFile())
        .map((entry) => join(entry.parentPath, entry.name))
        .map((file) => [relative(source, file), readFileSync(file, 'utf8')]),
    );
    const manifest = JSON.parse(files['package.json']);
    delete manifest.dependencies.rillm;
    const { folder, remove } = newProject({ ...files, 'package.json': JSON.stringify(manifest) });
    try {
      publish(folder);
      const model = '/golden/tied-q8_0.gguf';
      await built(folder, { VITE_MODEL: model, NEXT_PUBLIC_MODEL: model, NEXT_TELEMETRY_DISABLED: '1' }, async (url) => {
        const page = await browser.newPage();
        const faults = [];
        page.on('pageerror', (error) => faults.push(error.message));
        page.on('console', (message) => message.type() === 'error' && faults.push(message.text()));
        try {
          await page.goto(url);
          await use(page);
          assert.deepEqual(faults, []);
        } finally {
          await page.close();
        }
      });
    } finally {
      remove();
    }
  });
}

async function chats(page) {
  await page.getByLabel('Your message').first().fill('Hello');
  await page.getByRole('button', { name: 'Send' }).first().click();
  await page.locator('li.assistant').filter({ hasText: /\S/ }).waitFor();
}

async function byVite(folder, env, use) {
  await build(folder, 'tsc', ['-p', '.']);
  await build(folder, 'vite', ['build'], env);
  const server = await serve({ '/': join(folder, 'dist') });
  try {
    await use(`${server.origin}/index.html`);
  } finally {
    await server.close();
  }
}

example('vite', byVite, async (page) => {
  await page.getByRole('button', { name: 'Tell' }).click();
  await page.locator('#story').filter({ hasText: /\S/ }).waitFor();
});
example('react', byVite, chats);
example(
  'next',
  async (folder, env, use) => {
    await build(folder, 'next', ['build'], env);
    await withServer(folder, 'next', ['start', '--port', '0'], use);
  },
  chats,
);

test('no bundler: an import map', LIMIT, async () => {
  const { folder, remove } = newProject({ 'main.js': USE });
  const map = { imports: { rillm: '/node_modules/rillm/dist/index.js', 'rillm/gpu': '/node_modules/rillm/dist/gpu/index.js' } };
  const page = PAGE('/main.js').replace('<script', `<script type="importmap">${JSON.stringify(map)}</script><script`);
  const server = await serve(
    { '/': folder, '/golden/': golden },
    { handle: (_, response, path) => path === '/' && (response.setHeader('Content-Type', 'text/html'), response.end(page), true) },
  );
  try {
    await checkPage(browser, `${server.origin}/`);
  } finally {
    await server.close();
    remove();
  }
});
