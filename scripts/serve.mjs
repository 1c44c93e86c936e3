// A static file server on loopback: byte ranges, cross-origin isolation, right types. Knows nothing of what it serves.

import { createServer } from 'node:http';
import { mkdir, stat, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';

import send from 'send';

import { Problem } from './command.mjs';
import { libraryMounts, shellFiles, shellOf } from './page.mjs';

/**
 * Serves folders and single files.
 * mounts: {"/models/": "/path/of/a/folder", "/model.gguf": "/path/of/a/file"}; the longest prefix that fits is taken.
 * handle(request, response, pathname): asked first; returns true when it answered; may change request.url.
 * Resolves to {origin, port, close}.
 */
export async function serve(mounts, { port = 0, nextFree = false, handle = () => false } = {}) {
  const prefixes = Object.keys(mounts).sort((a, b) => b.length - a.length);
  const server = createServer((request, response) => {
    // Isolated pages get precise timers and may share memory; everything here is of one origin, so nothing is lost by it.
    response.setHeader('Cross-Origin-Opener-Policy', 'same-origin');
    response.setHeader('Cross-Origin-Embedder-Policy', 'require-corp');
    response.setHeader('Cross-Origin-Resource-Policy', 'cross-origin');
    response.setHeader('Cache-Control', 'no-cache');
    const pathOf = () => new URL(request.url, 'http://localhost').pathname;
    if (handle(request, response, pathOf())) return;
    const pathname = pathOf();
    const prefix = prefixes.find((candidate) => (candidate.endsWith('/') ? pathname.startsWith(candidate) : pathname === candidate));
    if (prefix === undefined || (request.method !== 'GET' && request.method !== 'HEAD')) {
      response.statusCode = prefix === undefined ? 404 : 405;
      response.end();
      return;
    }
    const target = mounts[prefix];
    const [folder, path] = prefix.endsWith('/')
      ? [target, pathname.slice(prefix.length)]
      : [dirname(target), encodeURIComponent(basename(target))];
    send(request, `/${path}`, { root: folder, dotfiles: 'allow', cacheControl: false })
      .on('error', (error) => {
        response.statusCode = error.status ?? 500;
        for (const [name, value] of Object.entries(error.headers ?? {})) response.setHeader(name, value);
        response.end();
      })
      .pipe(response);
  });
  await listen(server, port, nextFree);
  const address = server.address();
  return {
    port: address.port,
    origin: `http://localhost:${address.port}`,
    close: () =>
      new Promise((resolve) => {
        server.close(resolve);
        server.closeAllConnections();
      }),
  };
}

async function listen(server, port, nextFree) {
  for (let candidate = port; ; candidate++) {
    try {
      return await new Promise((resolve, reject) => {
        server.once('error', reject);
        server.listen(candidate, 'localhost', () => {
          server.off('error', reject);
          resolve();
        });
      });
    } catch (error) {
      if (error.code !== 'EADDRINUSE') throw error;
      if (!nextFree || candidate - port >= 100) throw new Problem(`port ${candidate} is taken: set PORT to another one`);
    }
  }
}

/**
 * What the demo page needs: www/ with the libraries that it uses, the packed package at /rillm/ and the models at /models/, SmolLM2 too if
 * scripts/real_model.py has installed it. And the examples, with the package where a project has it.
 */
export async function demoMounts(root, packed) {
  const isFolder = (path) =>
    stat(path).then(
      (entry) => entry.isDirectory(),
      () => false,
    );
  const folders = { '/models/': join(root, 'models'), '/models/smollm2/': join(root, 'target/smollm2') };
  const there = await Promise.all(
    Object.entries(folders).map(async ([prefix, path]) => ((await isFolder(path)) ? { [prefix]: path } : {})),
  );
  const shell = join(root, '.cache/page/shell.json');
  await mkdir(dirname(shell), { recursive: true });
  await writeFile(shell, JSON.stringify(await shellOf(await shellFiles(packed))));
  return {
    '/': join(root, 'www'),
    '/shell.json': shell,
    ...libraryMounts(root),
    '/rillm/': packed,
    '/examples/': join(root, 'examples'),
    '/node_modules/rillm/': packed,
    '/node_modules/pdfjs-dist/': join(root, 'node_modules/pdfjs-dist'),
    ...Object.assign({}, ...there),
  };
}
