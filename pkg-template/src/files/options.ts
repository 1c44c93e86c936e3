// The options of a load that say what is kept, and their checks.

import { describe, isRecord } from '../arguments.js';
import { EngineError } from '../errors.js';
import { DEFAULT_RETRIES, DEFAULT_STALL_TIMEOUT_MS } from './attempts.js';
import type { FileEvent } from './events.js';
import type { ModelStore } from './store.js';

/** How long a server is waited for, of a model's files and of the WebAssembly modules. */
export interface ConnectionOptions {
  /**
   * Milliseconds without a byte, also before the headers, after which a request is ended and sent again. 0 or Infinity: any time. Default:
   * 15 000. A time in which a page is frozen or a machine sleeps counts for a third of it at most.
   */
  stallTimeoutMs?: number | undefined;
  /**
   * How often in a row a request that brought nothing is sent again, after pauses that double from half a second on: if it stalls, fails,
   * breaks off, or is answered with 408, 425, 429, 500, 502, 503 or 504. A server's `Retry-After` of up to a minute is waited for. 0: never.
   * Default: 5.
   */
  retries?: number | undefined;
}

/** Where files are kept, and how they are fetched. */
export interface CacheOptions extends ConnectionOptions {
  /**
   * Where files of servers stay. `opfs`: in the origin private file system, for later visits, also without a network. `memory`: as long as
   * the page lives. `none`: nowhere. An object: a store of the application's own. Default: `opfs`; if that is denied or full, the load goes
   * on without it and `onEvent` hears of it. In Node `opfs` is a folder: the environment variable `RILLM_CACHE`, or `~/.cache/rillm`.
   */
  cache?: 'opfs' | 'memory' | 'none' | ModelStore | undefined;
  /**
   * Whether the server is asked for a newer version of a model that is kept. `never`: a kept model is loaded without any request. `check`:
   * it is asked, and what has changed is downloaded; the old files stay until the new ones are whole. Default: `never`.
   */
  update?: 'check' | 'never' | undefined;
  /**
   * What the SHA-256 of the model's file is, or of several by their names: `sha256-` and base64 as in HTML's `integrity`, or 64 hexadecimal
   * digits. Files of another content reject with code `integrity_mismatch`. Default: what the hub says; other servers say nothing.
   */
  integrity?: string | Record<string, string> | undefined;
  /** Requests for one file at the same time, 1 to 16, if the server has byte ranges. Default: 4. */
  connections?: number | undefined;
  /** Ask the browser not to delete what is kept when it needs room (`navigator.storage.persist`). Some ask the user. Default: false. */
  persist?: boolean | undefined;
  /** Called for what happens to the model's files: `resumed`, `retrying`, `verified`, `repaired`, `joined`, `fallback`. */
  onEvent?: ((event: FileEvent) => void) | undefined;
}

/** The options as data for the host, which may be a worker: a store of the application's own stays on the thread of the caller. */
export interface FilesData {
  name: string;
  cache: 'opfs' | 'own' | 'none';
  update: 'check' | 'never';
  integrity?: string | Record<string, string>;
  connections: number;
  stallTimeoutMs: number;
  retries: number;
}

const DEFAULT_CONNECTIONS = 4;
const MAX_CONNECTIONS = 16;

/** Checks the options; `name` is what the index knows the model by. */
export function filesData(name: string, options: CacheOptions): FilesData {
  const { cache = 'opfs', update = 'never', connections = DEFAULT_CONNECTIONS, integrity } = options;
  if (update !== 'check' && update !== 'never') throw wrong('update', "'check' or 'never'", update);
  if (!Number.isInteger(connections) || connections < 1 || connections > MAX_CONNECTIONS) {
    throw wrong('connections', `a whole number from 1 to ${MAX_CONNECTIONS}`, connections);
  }
  const data: FilesData = { name, cache: placeOf(cache), update, connections, ...connectionData(options) };
  if (typeof integrity === 'string') data.integrity = hexDigest(integrity);
  else if (isRecord(integrity)) {
    data.integrity = Object.fromEntries(Object.entries(integrity).map(([file, digest]) => [file, hexDigest(digest)]));
  } else if (integrity !== undefined && integrity !== null) throw wrong('integrity', 'a digest, or digests by file name', integrity);
  return data;
}

/** For what reads and keeps nothing. */
export function unkept(name: string, options: ConnectionOptions): FilesData {
  return { name, cache: 'opfs', update: 'never', connections: DEFAULT_CONNECTIONS, ...connectionData(options) };
}

/** Checks how long a server is waited for. */
export function connectionData(options: ConnectionOptions): Pick<FilesData, 'stallTimeoutMs' | 'retries'> {
  const { stallTimeoutMs = DEFAULT_STALL_TIMEOUT_MS, retries = DEFAULT_RETRIES } = options;
  if (typeof stallTimeoutMs !== 'number' || !(stallTimeoutMs >= 0)) throw wrong('stallTimeoutMs', 'milliseconds from 0', stallTimeoutMs);
  if (retries !== Infinity && (!Number.isInteger(retries) || retries < 0)) throw wrong('retries', 'a whole number from 0', retries);
  return { stallTimeoutMs: stallTimeoutMs === 0 ? Infinity : stallTimeoutMs, retries };
}

function placeOf(cache: unknown): FilesData['cache'] {
  if (cache === 'opfs' || cache === 'none') return cache;
  if (cache === 'memory' || isStore(cache)) return 'own';
  throw wrong('cache', "'opfs', 'memory', 'none' or an object with get, put and delete", cache);
}

export function isStore(value: unknown): value is ModelStore {
  if (typeof value !== 'object' || value === null) return false;
  const { get, put, delete: remove } = value as Partial<ModelStore>;
  return [get, put, remove].every((method) => typeof method === 'function');
}

/** A digest in either notation as hexadecimal digits. */
function hexDigest(digest: unknown): string {
  if (typeof digest === 'string') {
    if (/^[0-9a-f]{64}$/i.test(digest)) return digest.toLowerCase();
    const [, base64] = /^sha256-([A-Za-z0-9+/]{43}=)$/.exec(digest) ?? [];
    if (base64 !== undefined) return Array.from(atob(base64), (byte) => byte.charCodeAt(0).toString(16).padStart(2, '0')).join('');
  }
  throw wrong('integrity', "'sha256-' and 44 characters of base64, or 64 hexadecimal digits", digest);
}

function wrong(option: string, wanted: string, found: unknown): EngineError {
  return new EngineError(
    'invalid_request',
    `the option ${option} is ${typeof found === 'string' ? JSON.stringify(found) : describe(found)}, wanted ${wanted}`,
  );
}
