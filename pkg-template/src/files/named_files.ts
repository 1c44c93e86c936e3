// Files that are kept by name in a folder of the origin private file system. A file has its name only when all of it is there.

import { describe } from '../arguments.js';
import { EngineError, toEngineError } from '../errors.js';
import { FILE_SYSTEM, FILE_SYSTEM_SECONDS, isMissing, openFolder } from './opfs_store.js';
import { TimeLimit } from './time_limit.js';

/** What is kept. */
export interface FileKind {
  /** The folder that they lie in. Whoever writes or deletes one holds a lock of its name. */
  folder: string;
  /** How the names of files end. */
  suffix: string;
  /** What one of them is called. */
  noun: string;
}

/** What is being written. */
const PART = 'new.part';
/** File names have up to 255 bytes, and each byte of a name takes two. */
const MOST_NAME_BYTES = 120;
/** So much is written before the caller's signal is looked at again. */
const WRITE_BYTES = 64 << 20;

/** The DOM's types don't know how a file gets another name. */
type Movable = FileSystemFileHandle & { move?(folder: FileSystemDirectoryHandle, name: string): Promise<void> };

/** Refuses what can't be the name of a file. */
export function checkFileName({ noun }: FileKind, name: unknown): asserts name is string {
  const wanted = `the name of a ${noun} is a text of 1 to ${MOST_NAME_BYTES} bytes in UTF-8`;
  if (typeof name !== 'string') throw new EngineError('invalid_request', `${wanted}, got ${describe(name)}`);
  const bytes = new TextEncoder().encode(name);
  if (bytes.length === 0) throw new EngineError('invalid_request', `${wanted}, got an empty one`);
  if (bytes.length > MOST_NAME_BYTES) throw new EngineError('invalid_request', `${wanted}, got one of ${bytes.length}`);
  // Half of a pair would be replaced, and two names be one.
  if (new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes) !== name) {
    throw new EngineError('invalid_request', `${wanted}, got ${describe(name)}, which has half of a surrogate pair`);
  }
}

export class NamedFiles {
  #kind: FileKind;
  #folder: FileSystemDirectoryHandle;
  #limit: TimeLimit;

  /** Rejects with `cache_unavailable` where there is no such file system. */
  static async open(kind: FileKind): Promise<NamedFiles> {
    const limit = new TimeLimit(FILE_SYSTEM_SECONDS);
    try {
      const folder = await openFolder();
      return new NamedFiles(kind, await limit.run(FILE_SYSTEM, () => folder.getDirectoryHandle(kind.folder, { create: true })), limit);
    } catch (thrown) {
      throw unavailable(`there is no origin private file system here, and no ${kind.noun} can be kept by name`, thrown);
    }
  }

  private constructor(kind: FileKind, folder: FileSystemDirectoryHandle, limit: TimeLimit) {
    this.#kind = kind;
    this.#folder = folder;
    this.#limit = limit;
  }

  /** The file of that name; undefined if there is none. */
  async find(name: string): Promise<File | undefined> {
    return this.#failing(`${describe(name)} can't be opened`, () => this.#file(this.#fileName(name)));
  }

  async list(): Promise<{ name: string; file: File }[]> {
    return this.#failing(`the ${this.#kind.noun}s can't be listed`, async () => {
      const found = [];
      for (const stored of await this.#stored()) {
        const name = this.#nameOf(stored);
        const file = name === undefined ? undefined : await this.#file(stored);
        if (name !== undefined && file !== undefined) found.push({ name, file });
      }
      return found;
    });
  }

  /** Keeps bytes in place of what has their name. If that fails, what was there stays, and `more` ends the message. */
  async put(name: string, bytes: Blob, signal: AbortSignal | undefined, more = ''): Promise<void> {
    try {
      await this.#exclusively(signal, async () => {
        await this.#clean();
        const part: Movable = await this.#ask(() => this.#folder.getFileHandle(PART, { create: true }));
        try {
          await this.#write(part, bytes, signal);
          await this.#ask(() => part.move!(this.#folder, this.#fileName(name)));
        } catch (thrown) {
          const removed = this.#folder.removeEntry(PART).catch(() => {});
          await this.#ask(() => removed).catch(() => {});
          throw thrown;
        }
      });
    } catch (thrown) {
      const isFull = (thrown as DOMException | undefined)?.name === 'QuotaExceededError';
      const why = isFull ? 'the browser has no room for them: delete others' : "they can't be written";
      throw unavailable(`the ${this.#kind.noun} ${describe(name)} has ${bytes.size} bytes, and ${why}${more}`, thrown);
    }
  }

  /** Whether there was one. */
  async delete(name: string): Promise<boolean> {
    return this.#failing(`the ${this.#kind.noun} ${describe(name)} can't be deleted`, () =>
      this.#exclusively(undefined, async () => {
        await this.#clean();
        try {
          await this.#ask(() => this.#folder.removeEntry(this.#fileName(name)));
          return true;
        } catch (thrown) {
          if (isMissing(thrown)) return false;
          throw thrown;
        }
      }),
    );
  }

  /** Of all files, those that a dead tab has left too. */
  async bytes(): Promise<number> {
    let bytes = 0;
    for (const stored of await this.#stored()) bytes += (await this.#file(stored))?.size ?? 0;
    return bytes;
  }

  /** Calls the file system; rejects if it does not answer in time. */
  #ask<T>(work: () => PromiseLike<T>, late?: (value: T) => void): Promise<T> {
    return this.#limit.run(FILE_SYSTEM, work, late);
  }

  /** The names of all files in the folder. */
  #stored(): Promise<string[]> {
    return this.#ask(async () => {
      const names = [];
      for await (const { kind, name } of this.#folder.values()) if (kind === 'file') names.push(name);
      return names;
    });
  }

  async #file(name: string): Promise<File | undefined> {
    try {
      return await this.#ask(async () => (await this.#folder.getFileHandle(name)).getFile());
    } catch (thrown) {
      if (isMissing(thrown)) return undefined;
      throw thrown;
    }
  }

  /** Removes what a dead tab has left; browsers may add a suffix of their own to what is being written. */
  async #clean(): Promise<void> {
    for (const stored of await this.#stored()) if (stored.startsWith(PART)) await this.#ask(() => this.#folder.removeEntry(stored));
  }

  async #write(file: Movable, bytes: Blob, signal: AbortSignal | undefined): Promise<void> {
    if (typeof file.createWritable !== 'function' || typeof file.move !== 'function') {
      throw new Error('files have no createWritable() or move() here');
    }
    const abort = (writable: FileSystemWritableFileStream) => writable.abort().catch(() => {});
    const writable = await this.#ask(() => file.createWritable(), abort);
    try {
      for (let offset = 0; offset < bytes.size; offset += WRITE_BYTES) {
        signal?.throwIfAborted();
        await this.#ask(() => writable.write(bytes.slice(offset, offset + WRITE_BYTES)));
      }
      signal?.throwIfAborted();
      await this.#ask(() => writable.close());
    } catch (thrown) {
      // Called in any case, since what is not closed stays locked; waited for only while the file system answers.
      const aborted = abort(writable);
      await this.#ask(() => aborted).catch(() => {});
      throw thrown;
    }
  }

  /** One at a time, of all tabs. So a part that lies there is of a tab that died. */
  async #exclusively<T>(signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
    return navigator.locks.request(`rillm:${this.#kind.folder}`, signal === undefined ? {} : { signal }, work);
  }

  /** File systems may not tell capital letters from small ones, so names are written in hexadecimal digits. */
  #fileName(name: string): string {
    return Array.from(new TextEncoder().encode(name), (byte) => byte.toString(16).padStart(2, '0')).join('') + this.#kind.suffix;
  }

  /** Undefined if a file is none of ours. */
  #nameOf(file: string): string | undefined {
    const { suffix } = this.#kind;
    const digits = file.endsWith(suffix) ? file.slice(0, -suffix.length) : '';
    if (!/^(?:[0-9a-f]{2})+$/.test(digits)) return undefined;
    const bytes = Uint8Array.from(digits.match(/../g)!, (pair) => Number.parseInt(pair, 16));
    try {
      return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    } catch {
      return undefined;
    }
  }

  async #failing<T>(what: string, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (thrown) {
      throw unavailable(what, thrown);
    }
  }
}

/** Bytes of all files of a kind; 0 where there can be none. */
export async function keptBytes(kind: FileKind): Promise<number> {
  try {
    return await (await NamedFiles.open(kind)).bytes();
  } catch {
    return 0;
  }
}

function unavailable(what: string, thrown: unknown): EngineError {
  return new EngineError('cache_unavailable', `${what} (${toEngineError(thrown).message})`, { cause: thrown });
}
