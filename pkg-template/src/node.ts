// What there is outside of browsers, in Node, Deno and Bun: files, and a folder in which models are kept. Asked for by name and not imported,
// so that no bundler looks for it.

import { EngineError, textOf } from './errors.js';
import type { ModelStore } from './files/store.js';
import type { ByteSource } from './model_source.js';

interface Modules {
  'node:fs': {
    promises: {
      open(path: string): Promise<FileHandle>;
      readFile(path: string | URL): Promise<Uint8Array<ArrayBuffer>>;
      writeFile(path: string, bytes: Uint8Array): Promise<void>;
      rename(from: string, to: string): Promise<void>;
      rm(path: string, options: { force: boolean }): Promise<void>;
      mkdir(path: string, options: { recursive: boolean }): Promise<unknown>;
      stat(path: string): Promise<FileStat>;
      readdir(path: string): Promise<string[]>;
    };
  };
  'node:os': { homedir(): string; availableParallelism?(): number; totalmem?(): number };
  'node:path': { join(...parts: string[]): string; basename(path: string): string };
  'node:url': { fileURLToPath(url: string): string };
  'node:worker_threads': { Worker: new (code: string, options: { eval: true; workerData: unknown }) => ServerThread };
}

interface FileStat {
  size: number;
  mtimeMs: number;
  isDirectory(): boolean;
  isFile(): boolean;
}

interface FileHandle {
  stat(): Promise<FileStat>;
  read(into: Uint8Array, from: number, length: number, position: number): Promise<{ bytesRead: number }>;
  close(): Promise<void>;
}

interface ServerThread {
  unref(): void;
  on(event: 'error', listener: () => void): void;
  postMessage(message: unknown): void;
  terminate(): Promise<unknown>;
}

interface Process {
  env: Record<string, string | undefined>;
  pid: number;
  getBuiltinModule?<Name extends keyof Modules>(name: Name): Modules[Name] | undefined;
}

const own = (globalThis as { process?: Process }).process;

/** Whether this is none of a browser's threads, and has files. */
export function isServer(): boolean {
  return globalThis.document === undefined && !('WorkerGlobalScope' in globalThis) && own?.getBuiltinModule?.('node:fs') !== undefined;
}

function modules<Name extends keyof Modules>(name: Name): Modules[Name] {
  const found = own?.getBuiltinModule?.(name);
  if (found === undefined) throw new EngineError('internal', `there is no ${name} here`);
  return found;
}

/** How many threads run at once on a server; 1 elsewhere. */
export function coresOfServer(): number {
  return own?.getBuiltinModule?.('node:os')?.availableParallelism?.() ?? 1;
}

/** Bytes of memory of a server's machine; undefined elsewhere. */
export function memoryOfServer(): number | undefined {
  return isServer() ? modules('node:os').totalmem?.() : undefined;
}

/** A thread that runs `code` with `data`, and does not keep the process alive. */
export function startServerThread(code: string, data: unknown): { post(message: unknown): void; stop(): void } {
  const thread = new (modules('node:worker_threads').Worker)(code, { eval: true, workerData: data });
  // Whoever waits for it hears in other ways.
  thread.on('error', () => {});
  thread.unref();
  return { post: (message) => thread.postMessage(message), stop: () => void thread.terminate() };
}

/** The bytes at a `file:` address. */
export async function fileBytes(url: string): Promise<Uint8Array<ArrayBuffer>> {
  return modules('node:fs').promises.readFile(new URL(url));
}

/** The file of a path or a `file:` address, or those of a folder and of the folders in it, by their paths from there. */
export async function filesAt(address: string): Promise<{ name: string; data: ByteSource }[]> {
  const { promises } = modules('node:fs');
  const { basename, join } = modules('node:path');
  const path = pathOf(address);
  try {
    const of = await promises.stat(path);
    if (!of.isDirectory()) return [{ name: basename(path), data: fileSource(path, of) }];
    const files = [];
    // The modules of a sentence encoder lie one folder deeper (`1_Pooling/config.json`); GGUF files there are other models.
    const folders = [''];
    for (const folder of folders) {
      for (const entry of (await promises.readdir(join(path, folder))).sort()) {
        const name = folder === '' ? entry : `${folder}/${entry}`;
        const file = join(path, name);
        // A link that leads nowhere is no file of the model.
        const found = await promises.stat(file).catch(() => undefined);
        if (folder === '' && found?.isDirectory() && !entry.startsWith('.')) folders.push(entry);
        if (found?.isFile() && (folder === '' || !entry.endsWith('.gguf'))) files.push({ name, data: fileSource(file, found) });
      }
    }
    return files;
  } catch (thrown) {
    const code = (thrown as { code?: unknown }).code === 'ENOENT' ? 'not_found' : 'read';
    throw new EngineError(code, `the file ${path} can't be read: ${textOf(thrown)}`, { cause: thrown });
  }
}

/**
 * A file that is read in parts. It is open only while one is read, so that nobody has to close it. Node's `openAsBlob` is no good for this: of more than 2 GiB
 * its parts are wrong (https://github.com/nodejs/node/issues/52585).
 */
function fileSource(path: string, { size, mtimeMs }: FileStat): ByteSource {
  const changed = () => new EngineError('read', `the file ${path} was changed while it was read`);
  const readFrom = async (file: FileHandle, offset: number, length: number) => {
    // As a Blob does.
    const now = await file.stat();
    if (now.size !== size || now.mtimeMs !== mtimeMs) throw changed();
    const bytes = new Uint8Array(length);
    let done = 0;
    while (done < length) {
      const { bytesRead } = await file.read(bytes, done, length - done, offset + done);
      if (bytesRead === 0) throw changed();
      done += bytesRead;
    }
    return bytes;
  };
  return {
    size,
    async read(offset, length) {
      try {
        const file = await modules('node:fs').promises.open(path);
        try {
          return await readFrom(file, offset, length);
        } finally {
          await file.close();
        }
      } catch (thrown) {
        if (thrown instanceof EngineError) throw thrown;
        throw new EngineError('read', `the file ${path} can't be read: ${textOf(thrown)}`, { cause: thrown });
      }
    },
  };
}

function pathOf(address: string): string {
  if (address === '') throw new EngineError('invalid_request', 'the path of a model is empty');
  if (!address.startsWith('file:')) return address;
  try {
    return modules('node:url').fileURLToPath(address);
  } catch (thrown) {
    throw new EngineError('invalid_request', `${address} is no address of a file here: ${textOf(thrown)}`, { cause: thrown });
  }
}

/** Keeps models in a folder: `RILLM_CACHE`, or `rillm` in the cache folder of the user. */
export function folderStore(): ModelStore {
  const { promises } = modules('node:fs');
  const { join } = modules('node:path');
  const cache = own?.env.XDG_CACHE_HOME || join(modules('node:os').homedir(), '.cache');
  const folder = own?.env.RILLM_CACHE || join(cache, 'rillm');
  const placeOf = (key: string) => join(folder, encodeURIComponent(key).replaceAll('*', '%2A'));
  let writes = 0;
  return {
    async get(key) {
      try {
        return await promises.readFile(placeOf(key));
      } catch (thrown) {
        if ((thrown as { code?: unknown }).code === 'ENOENT') return undefined;
        throw thrown;
      }
    },
    async put(key, bytes) {
      await promises.mkdir(folder, { recursive: true });
      // Whole or not at all, whatever becomes of the process.
      const unfinished = `${placeOf(key)}.${own?.pid}.${writes++}`;
      await promises.writeFile(unfinished, bytes);
      await promises.rename(unfinished, placeOf(key));
    },
    async delete(key) {
      await promises.rm(placeOf(key), { force: true });
    },
  };
}
