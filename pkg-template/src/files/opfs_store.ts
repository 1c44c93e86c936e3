// The origin private file system (https://fs.spec.whatwg.org): a folder `rillm` in it, keys are paths. Dedicated workers write in
// place, so that what was written outlives the tab; elsewhere a value is there when it is whole.

import type { Appender, Store } from './store.js';
import { TimeLimit } from './time_limit.js';

const FOLDER = 'rillm';
/** The longest that the file system may take for one call. */
export const FILE_SYSTEM_SECONDS = 30;

/** The parts that dedicated workers have and the DOM's types don't know everywhere. */
interface SyncAccessHandle {
  write(bytes: Uint8Array, options: { at: number }): number;
  truncate(size: number): void;
  flush(): void;
  close(): void;
}

type FileHandle = FileSystemFileHandle & { createSyncAccessHandle?(): Promise<SyncAccessHandle> };

export const FILE_SYSTEM = "the browser's file system";

/** Whether writing is possible here at all. Rejects where the browser forbids the file system. */
export async function openOpfs(): Promise<Store> {
  const store = new OpfsStore(await openFolder());
  const limit = new TimeLimit(FILE_SYSTEM_SECONDS);
  const { append } = store;
  return {
    read: (key, range) => limit.run(FILE_SYSTEM, () => store.read(key, range)),
    put: (key, bytes) => limit.run(FILE_SYSTEM, () => store.put(key, bytes)),
    delete: (key) => limit.run(FILE_SYSTEM, () => store.delete(key)),
    deleteAll: (prefix) => limit.run(FILE_SYSTEM, () => store.deleteAll(prefix)),
    length: (key) => limit.run(FILE_SYSTEM, () => store.length(key)),
    ...(append && {
      append: (key, at) =>
        limit.run(
          FILE_SYSTEM,
          () => append(key, at),
          (late) => late.close(),
        ),
    }),
  };
}

/** The package's folder. */
export function openFolder(): Promise<FileSystemDirectoryHandle> {
  const open = async () => (await navigator.storage.getDirectory()).getDirectoryHandle(FOLDER, { create: true });
  return new TimeLimit(FILE_SYSTEM_SECONDS).run(FILE_SYSTEM, open);
}

class OpfsStore {
  #root: FileSystemDirectoryHandle;
  /** The file that was read last, which is often read again at once. */
  #opened: { key: string; file: Promise<File> } | undefined;
  append?: (key: string, at: number) => Promise<Appender>;

  constructor(root: FileSystemDirectoryHandle) {
    this.#root = root;
    if ('createSyncAccessHandle' in FileSystemFileHandle.prototype) this.append = (key, at) => this.#append(key, at);
  }

  async read(key: string, range?: { offset: number; length: number }): Promise<Uint8Array<ArrayBuffer> | undefined> {
    const bytes = await this.#read(key, range);
    return (bytes === null ? await this.#read(key, range) : bytes) ?? undefined;
  }

  /** Bytes of a value; undefined if there are none, null if it was written again, or deleted, after it was opened. */
  async #read(key: string, range?: { offset: number; length: number }): Promise<Uint8Array<ArrayBuffer> | undefined | null> {
    let file: File;
    try {
      file = await this.#file(key);
    } catch (thrown) {
      if (isMissing(thrown)) return undefined;
      throw thrown;
    }
    const { offset, length } = range ?? { offset: 0, length: file.size };
    if (offset + length > file.size) return undefined;
    try {
      return new Uint8Array(await file.slice(offset, offset + length).arrayBuffer());
    } catch (thrown) {
      this.#opened = undefined;
      if (thrown instanceof DOMException && ['NotReadableError', 'NotFoundError'].includes(thrown.name)) return null;
      throw thrown;
    }
  }

  #file(key: string): Promise<File> {
    if (this.#opened?.key !== key) {
      this.#opened = { key, file: this.#handle(key, false).then((handle) => handle.getFile()) };
    }
    return this.#opened.file;
  }

  async put(key: string, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    this.#forget(key);
    const handle = await this.#handle(key, true);
    if (typeof handle.createWritable === 'function') {
      const writable = await handle.createWritable();
      try {
        await writable.write(bytes);
        await writable.close();
      } catch (thrown) {
        await writable.abort().catch(() => {});
        throw thrown;
      }
      return;
    }
    const appender = await this.#append(key, 0);
    try {
      appender.append(bytes);
    } finally {
      appender.close();
    }
  }

  async delete(key: string): Promise<void> {
    this.#forget(key);
    try {
      const { folder, name } = await this.#place(key, false);
      await folder.removeEntry(name);
    } catch (thrown) {
      if (!isMissing(thrown)) throw thrown;
    }
  }

  async deleteAll(prefix: string): Promise<void> {
    this.#opened = undefined;
    try {
      const { folder, name } = await this.#place(prefix, false);
      await folder.removeEntry(name, { recursive: true });
    } catch (thrown) {
      if (!isMissing(thrown)) throw thrown;
    }
  }

  async length(key: string): Promise<number> {
    this.#forget(key);
    try {
      return (await (await this.#handle(key, false)).getFile()).size;
    } catch (thrown) {
      if (isMissing(thrown)) return 0;
      throw thrown;
    }
  }

  async #append(key: string, at: number): Promise<Appender> {
    this.#forget(key);
    const handle = await accessHandle(await this.#handle(key, true));
    let end = at;
    handle.truncate(at);
    return {
      append(bytes) {
        // A full disk may take a part.
        const written = handle.write(bytes, { at: end });
        end += written;
        if (written < bytes.length) throw new DOMException('the disk is full', 'QuotaExceededError');
      },
      close: () => handle.close(),
    };
  }

  #forget(key: string): void {
    if (this.#opened?.key === key) this.#opened = undefined;
  }

  async #handle(key: string, create: boolean): Promise<FileHandle> {
    const { folder, name } = await this.#place(key, create);
    return folder.getFileHandle(name, { create });
  }

  async #place(key: string, create: boolean): Promise<{ folder: FileSystemDirectoryHandle; name: string }> {
    const parts = key.split('/');
    const name = parts.pop()!;
    let folder = this.#root;
    for (const part of parts) folder = await folder.getDirectoryHandle(part, { create });
    return { folder, name };
  }
}

/** File handles whose access handle is being made. Chromium (156) forgets the promise if a file handle is collected meanwhile. */
const opening = new Set<{ file: FileHandle }>();

async function accessHandle(file: FileHandle): Promise<SyncAccessHandle> {
  const held = { file };
  opening.add(held);
  try {
    return await file.createSyncAccessHandle!();
  } finally {
    opening.delete(held);
  }
}

/** Whether what was thrown says that there is no such file or folder. */
export function isMissing(thrown: unknown): boolean {
  return thrown instanceof DOMException && (thrown.name === 'NotFoundError' || thrown.name === 'TypeMismatchError');
}
