// Opens files of servers for one load: finds them in the cache, or downloads and keeps them. It decides what is kept under which name;
// how bytes travel is `download.ts`'s.

import { EngineError, textOf } from '../errors.js';
import type { ChunkReader } from './chunk_reader.js';
import type { MakeDigester } from './digester.js';
import { Download, type LastingFile } from './download.js';
import type { Arrived, FileEvent } from './events.js';
import { type FileLock, lockFile } from './file_lock.js';
import type { RetryPolicy } from './attempts.js';
import { refusedAsError, wasPassing } from './failures.js';
import { type FileState, FileStream } from './file_stream.js';
import { type Body, HttpFile, type RemoteRequest } from './http.js';
import { type FileFacts, KeptFile } from './kept_file.js';
import { type Entries, filesOf, isWhole, ModelIndex, type ModelRecord } from './model_index.js';
import { Ranges } from './ranges.js';
import { canDigest, SEGMENT_BYTES, sha256 } from './segments.js';
import type { Store } from './store.js';
import { readText, tooLong } from './texts.js';

/** The length of the first request of a file whose header alone is wanted. */
const HEADER_BYTES = 256 << 10;
/** How often the server is asked again for something newer where what is kept can be loaded. */
const RETRIES_WITH_KEPT = 1;
/** Of smaller files the digests are computed before a worker for that has started. */
const READER_BYTES = 64 << 20;

/** A file that can be read. */
export interface OpenedFile {
  readonly size: number;
  read(offset: number, length: number): Promise<Uint8Array>;
  /** The same file for reads after the load, of which `length` bytes from `offset` on are wanted; null if it is not kept. */
  lasting(offset: number, length: number): Promise<LastingFile | null>;
}

export interface RemoteFilesOptions {
  /** What is loaded, by which the index knows it. */
  name: string;
  /** Where files stay, and whether other tabs use it too; undefined keeps none. */
  cache?: { store: Store; isShared: boolean } | undefined;
  /** Files are wanted whole. Otherwise only what is read is fetched, and nothing is kept. */
  isWhole: boolean;
  /** Whether the server is asked if it has something newer than what is kept. */
  update: 'check' | 'never';
  /** Requests for one file at the same time. */
  connections: number;
  /** SHA-256 by the last part of a file's address, or of the only file. */
  integrity: string | Record<string, string> | undefined;
  policy: RetryPolicy;
  signal: AbortSignal | undefined;
  makeDigester: MakeDigester;
  /** What reads chunks of a cache that all pages share; undefined if they are read where they are wanted. */
  makeChunkReader(): Promise<ChunkReader | undefined>;
  onBytes: (arrived: Arrived) => void;
  onEvent: (event: FileEvent) => void;
  /** How far a file is that is waited for: another tab brings it in, or it has to be kept as a whole. */
  onWait: (loaded: number, total: number) => void;
}

/** What an answer or a record says of a file, before it is read. */
interface Found {
  facts: FileFacts;
  /** What asked: it knows where the server sent it on to. */
  http?: HttpFile;
  first?: Body;
  isOnePass?: boolean;
}

export class RemoteFiles {
  #options: RemoteFilesOptions;
  #index: ModelIndex | undefined;
  #model: Promise<ModelRecord | undefined>;
  /** What this load opened. */
  #entries: Entries = {};
  #opening = new Map<string, Promise<OpenedFile | null>>();
  #downloads: Download[] = [];
  #closers: (() => void)[] = [];
  #closed = new AbortController();
  #reading: Promise<ChunkReader | undefined> | undefined;
  /** Files that the model named before. */
  #mayBeUnused = new Set<string>();
  /** The files of before can be used if the network is not there. */
  #isOffline = false;

  constructor(options: RemoteFilesOptions) {
    this.#options = options;
    this.#index = options.cache && new ModelIndex(options.cache.store, options.cache.isShared);
    this.#model = this.#index === undefined ? Promise.resolve(undefined) : this.#orNothing(this.#index.find(options.name));
  }

  /** Opens a file; null if the server has none. Rejects with an EngineError or a RefusedError. */
  open(request: RemoteRequest): Promise<OpenedFile | null> {
    const { url } = request;
    let opening = this.#opening.get(url);
    if (opening === undefined) {
      opening = this.#open(request);
      this.#opening.set(url, opening);
    }
    return opening;
  }

  /** Resolves when all that was opened is kept and is what it should be. */
  async finish(): Promise<void> {
    try {
      await Promise.all(this.#downloads.map((download) => download.finish()));
    } catch (thrown) {
      throw refusedAsError(thrown);
    }
    await this.#saveModel(true);
  }

  /** Ends what is under way. What was kept stays. */
  close(): void {
    this.#closed.abort();
    for (const download of this.#downloads) download.close();
    for (const close of this.#closers) close();
  }

  async #open(request: RemoteRequest): Promise<OpenedFile | null> {
    const known = await this.#known(request);
    if (known === null) return null;
    if (known !== undefined) return known;
    let found: Found | null;
    const isKept = await this.#isKeptWhole(request);
    try {
      found = await this.#ask(request, isKept ? RETRIES_WITH_KEPT : Infinity);
    } catch (thrown) {
      if (!isKept || this.#isOffline || !wasPassing(thrown)) throw thrown;
      const kept = await this.#offline(request, thrown as EngineError);
      if (kept === undefined) throw thrown;
      return kept;
    }
    if (found === null) {
      await this.#enter(request.url, null);
      return null;
    }
    return this.#openFound(request, found);
  }

  /** The file as the index knows it, without asking the server. */
  async #known(request: RemoteRequest): Promise<OpenedFile | null | undefined> {
    const model = await this.#model;
    const { update } = this.#options;
    const mayBeOld = update === 'never' || this.#isOffline || isPinned(request);
    if (model === undefined || !mayBeOld) return this.#knownByDigest(request);
    // A model that is whole stays as it is; what is begun of a new revision is not mixed with it.
    const next = isWhole(model) && !isPinned(request) ? {} : model.next;
    const id = { ...next, ...model.entries }[request.url];
    if (id === undefined) return this.#knownByDigest(request);
    if (id === null) return isWhole(model) ? this.#enterNothing(request.url) : undefined;
    const kept = await this.#orNothing(KeptFile.find(this.#index!.store, id));
    return kept && this.#openKept(request, kept);
  }

  /** Another model, or another revision, may have the same file. */
  async #knownByDigest(request: RemoteRequest): Promise<OpenedFile | undefined> {
    if (request.sha256 === undefined || this.#index === undefined) return undefined;
    const kept = await this.#orNothing(KeptFile.find(this.#index.store, `sha256-${request.sha256}`));
    return kept?.record.whole ? this.#openKept(request, kept) : undefined;
  }

  async #enterNothing(url: string): Promise<null> {
    await this.#enter(url, null);
    return null;
  }

  /** Whether a model that is there as a whole has the file. */
  async #isKeptWhole({ url }: RemoteRequest): Promise<boolean> {
    const model = await this.#model;
    return model !== undefined && isWhole(model) && url in model.entries;
  }

  /** The file of before, where the server can't be reached. */
  #offline(request: RemoteRequest, thrown: EngineError): Promise<OpenedFile | null | undefined> {
    this.#isOffline = true;
    this.#options.onEvent({
      type: 'fallback',
      reason: 'offline',
      message: `the server can't be asked for something newer, so what is kept is loaded: ${thrown.message}`,
    });
    return this.#known(request);
  }

  /** Asks the server for the start of the file; null if it has none. */
  async #ask(request: RemoteRequest, retries = Infinity): Promise<Found | null> {
    const { isWhole } = this.#options;
    const http = this.#http(request);
    const range = request.limit === undefined ? { offset: 0, length: isWhole ? SEGMENT_BYTES : HEADER_BYTES } : undefined;
    const answer = await http.attempts({ retries }).run(() => http.get(range));
    if (answer.kind === 'missing') return null;
    const { body } = answer;
    this.#closers.push(() => body.end());
    const { size } = body.range;
    if (size === undefined && request.limit === undefined) {
      body.end();
      throw sizeUnknown(request.url, answer.kind === 'whole');
    }
    if (request.limit !== undefined && (size ?? 0) > request.limit) {
      body.end();
      throw tooLong(request.url, request.limit);
    }
    const facts: FileFacts = { url: request.url, size: size ?? -1 };
    if (body.entityTag !== undefined) facts.entityTag = body.entityTag;
    if (body.version !== undefined) facts.modified = body.version;
    const wanted = this.#digestOf(request);
    if (wanted !== undefined) facts.sha256 = wanted;
    return { facts, http, first: body, isOnePass: answer.kind === 'whole' };
  }

  async #openFound(request: RemoteRequest, found: Found): Promise<OpenedFile> {
    if (request.limit !== undefined) return this.#openText(request, found);
    const { facts, first } = found;
    if (!this.#options.isWhole && !found.isOnePass) return this.#openRanges(request, found);
    const cache = await this.#room(facts);
    if (cache === undefined) return this.#download(request, found, undefined, undefined);
    const id = await idOf(facts);
    const lock = await this.#lock(id, facts.url);
    try {
      const before = await this.#orNothing(KeptFile.find(cache, id));
      if (before?.record.whole) {
        first?.end();
        lock?.release();
        return await this.#openKept(request, before);
      }
      const kept = before ?? KeptFile.begin(cache, id, facts);
      if (before !== undefined) await this.#resumed(before);
      // Before its bytes, or nobody would know what they are of.
      else await this.#orNothing(kept.save());
      await this.#enter(request.url, id);
      return this.#download(request, found, kept, lock);
    } catch (thrown) {
      lock?.release();
      throw thrown;
    }
  }

  /** A file that the index names: all of it may be there, or a part. */
  async #openKept(request: RemoteRequest, kept: KeptFile): Promise<OpenedFile> {
    if (!kept.record.whole && !isPinned(request)) {
      const found = await this.#askAgain(request, kept.record);
      if (found !== undefined) return this.#openFound(request, found);
    }
    const { facts, lock, file } = await this.#take(kept);
    await this.#enter(request.url, file.id);
    return this.#download(request, { facts }, file, lock);
  }

  /** Asks whether a file that is there in part is still the same; what the server has instead, if it is not. */
  async #askAgain(request: RemoteRequest, { size, modified }: FileFacts): Promise<Found | undefined> {
    const http = this.#http(request);
    const answer = await http.attempts().run(() => http.get({ offset: 0, length: 1 }));
    if (answer.kind !== 'missing') answer.body.end();
    const isSame = answer.kind === 'part' && (answer.body.range.size ?? size) === size && answer.body.version === modified;
    return isSame ? undefined : ((await this.#ask(request)) ?? undefined);
  }

  async #take(kept: KeptFile): Promise<{ facts: FileFacts; file: KeptFile; lock: FileLock | undefined }> {
    const facts = kept.record;
    if (kept.record.whole || !this.#options.isWhole) return { facts, file: kept, lock: undefined };
    const lock = await this.#lock(kept.id, facts.url);
    // Another tab may have gone on with it.
    const now = (await this.#orNothing(KeptFile.find(this.#index!.store, kept.id))) ?? kept;
    if (now.record.whole) {
      lock?.release();
      return { facts, file: now, lock: undefined };
    }
    await this.#resumed(now);
    return { facts, file: now, lock };
  }

  async #resumed(kept: KeptFile): Promise<void> {
    const bytes = await this.#orNothing(kept.bytesBegun());
    if (bytes) this.#options.onEvent({ type: 'resumed', url: kept.record.url, bytes, total: kept.record.size });
  }

  async #lock(id: string, url: string): Promise<FileLock | undefined> {
    if (!this.#options.cache?.isShared) return undefined;
    return lockFile(id, this.#options.signal, (loaded, total) => {
      if (loaded === undefined || total === undefined) this.#options.onEvent({ type: 'joined', url });
      else this.#options.onWait(loaded, total);
    });
  }

  async #download(
    request: RemoteRequest,
    { facts, http = this.#http(request), first, isOnePass }: Found,
    kept: KeptFile | undefined,
    lock: FileLock | undefined,
  ) {
    const { makeDigester, onBytes, onEvent, onWait, connections } = this.#options;
    const digest = this.#digestOf(request) ?? facts.sha256;
    if (digest !== undefined && kept?.record.whole && kept.record.sha256 !== undefined && kept.record.sha256 !== digest) {
      throw mismatch(facts.url, kept.record.sha256, digest);
    }
    const isChecked = this.#options.isWhole && digest !== undefined && !kept?.record.whole;
    const expected = isChecked ? { sha256: digest, digester: await makeDigester() } : undefined;
    if (kept?.record.whole && facts.size >= READER_BYTES && this.#options.cache?.isShared) {
      const reader = await this.#chunkReader();
      if (reader !== undefined) kept.readBy(reader);
    }
    let loaded = 0;
    const state = stateOf(facts);
    let opened: Download | undefined;
    const download = new Download({
      ranges: new Ranges({ http, state, first: isOnePass ? undefined : first }),
      connections,
      kept: this.#options.isWhole || kept?.record.whole ? kept : undefined,
      expected,
      signal: this.#options.signal,
      onePass: isOnePass ? new FileStream({ http, state, offset: 0, end: facts.size, first, mostSkipped: Infinity }) : undefined,
      onBytes: (arrived) => {
        loaded += arrived.bytes;
        lock?.report(loaded, facts.size);
        onBytes(arrived);
        if (opened?.isAwaited) onWait(loaded, facts.size);
      },
      onEvent,
    });
    opened = download;
    this.#downloads.push(download);
    if (lock !== undefined) {
      // Whatever reads it, a file that is kept comes in by itself, and others wait no longer than that.
      const release = () => lock.release();
      download.whenKept().then(release, release);
      this.#closers.push(release);
    }
    return download;
  }

  /** One for all files. */
  #chunkReader(): Promise<ChunkReader | undefined> {
    this.#reading ??= this.#options.makeChunkReader().then((reader) => {
      if (reader !== undefined) this.#closers.push(() => reader.free());
      return reader;
    });
    return this.#reading;
  }

  /** A file of which only a part is read. */
  #openRanges(request: RemoteRequest, { facts, http = this.#http(request), first }: Found): OpenedFile {
    const ranges = new Ranges({ http, state: stateOf(facts), first });
    this.#closers.push(() => ranges.close());
    const start = new Uint8Array(Math.min(HEADER_BYTES, facts.size));
    const started = ranges.fill(0, start);
    started.catch(() => {});
    return {
      size: facts.size,
      async read(offset, length) {
        if (offset + length <= start.length) {
          await started;
          return start.subarray(offset, offset + length);
        }
        const bytes = new Uint8Array(length);
        let filled = 0;
        if (offset < start.length) {
          await started;
          bytes.set(start.subarray(offset));
          filled = start.length - offset;
        }
        await ranges.fill(offset, bytes, filled);
        return bytes;
      },
      lasting: async () => null,
    };
  }

  /** A file of unknown length that is wanted whole, such as a list. */
  async #openText(request: RemoteRequest, { facts, http = this.#http(request), first }: Found): Promise<OpenedFile> {
    const bytes = await readText(http, first!, request.limit!);
    const size = bytes.length;
    const source: OpenedFile = {
      size,
      read: async (offset, length) => bytes.subarray(offset, offset + length),
      lasting: async () => null,
    };
    const cache = this.#options.isWhole ? await this.#room({ ...facts, size }) : undefined;
    if (cache !== undefined) {
      // Two lists of one length may differ, so the bytes themselves name it.
      const id = `text-${(await sha256(bytes)).slice(0, 40)}`;
      try {
        const kept = KeptFile.begin(cache, id, { ...facts, size });
        for (let index = 0; index * SEGMENT_BYTES < size; index++) {
          const segment = bytes.slice(index * SEGMENT_BYTES, (index + 1) * SEGMENT_BYTES);
          const writing = await kept.write(index, segment);
          writing.write(segment.subarray(writing.filled));
          await writing.finish();
        }
        await kept.setWhole();
        await this.#enter(request.url, id);
      } catch (thrown) {
        this.#options.onEvent({ type: 'fallback', reason: 'failed', message: `${request.url} is not kept: ${textOf(thrown)}` });
      }
    }
    return source;
  }

  /** The store, if there is room for the rest of a file. */
  async #room(facts: FileFacts): Promise<Store | undefined> {
    const { cache, isWhole, onEvent } = this.#options;
    if (cache === undefined || !isWhole) return undefined;
    if (!canDigest()) {
      const message = `${facts.url} is not kept: there is no crypto.subtle here, which pages that are served by https have`;
      onEvent({ type: 'fallback', reason: 'unavailable', message });
      return undefined;
    }
    if (!cache.isShared || facts.size <= 0) return cache.store;
    // Safari has had it since version 17, and its file system since 15.2.
    const estimate = await this.#orNothing(Promise.resolve(navigator.storage.estimate?.()));
    const kept = await this.#orNothing(KeptFile.find(cache.store, await idOf(facts)));
    const needed = facts.size - (kept?.bytes() ?? 0);
    const free = (estimate?.quota ?? Infinity) - (estimate?.usage ?? 0);
    if (needed <= free) return cache.store;
    onEvent({
      type: 'fallback',
      reason: 'quota',
      message:
        `${facts.url} is not kept: it needs ${needed} bytes and the browser grants this site ${Math.max(0, Math.floor(free))} more; ` +
        'delete other models (models.delete, models.prune), or ask for more with the option persist',
    });
    return undefined;
  }

  async #enter(url: string, id: string | null): Promise<void> {
    if (this.#index === undefined || !this.#options.isWhole || this.#entries[url] === id) return;
    this.#entries[url] = id;
    await this.#saveModel(false);
  }

  async #saveModel(isWhole: boolean): Promise<void> {
    if (this.#index === undefined || !this.#options.isWhole || Object.keys(this.#entries).length === 0) return;
    const opened = { ...this.#entries };
    try {
      await this.#index.change(this.#options.name, (model) => {
        const { next, ...rest } = model;
        for (const id of filesOf(model)) this.#mayBeUnused.add(id);
        // Other options may read less of the same model.
        const added = Object.entries(opened).filter(([url, id]) => model.entries[url] !== id);
        if (!isWhole) return added.length === 0 ? model : { ...rest, next: { ...next, ...Object.fromEntries(added) } };
        if (added.length > 0) return { ...rest, entries: opened, used: Date.now() };
        // What has begun to come in of a newer version is not of this load.
        return { ...model, used: Date.now() };
      });
      if (isWhole) await this.#index.deleteUnused(this.#mayBeUnused);
    } catch (thrown) {
      this.#options.onEvent({ type: 'fallback', reason: 'failed', message: `the list of models can't be written: ${textOf(thrown)}` });
    }
  }

  #http(request: RemoteRequest): HttpFile {
    const { cache, isWhole, policy, signal } = this.#options;
    return new HttpFile(request, {
      policy,
      signals: [signal, this.#closed.signal],
      cache: cache !== undefined && isWhole ? 'no-store' : 'default',
    });
  }

  /** What the file's SHA-256 should be: what the caller says, or else the listing. */
  #digestOf({ url, sha256 }: RemoteRequest): string | undefined {
    const { integrity } = this.#options;
    if (typeof integrity === 'string') return /\.(gguf|safetensors)$/.test(pathOf(url)) ? integrity : sha256;
    const path = pathOf(url);
    const name = Object.keys(integrity ?? {}).find((name) => path === name || path.endsWith(`/${name}`));
    return name === undefined ? sha256 : integrity![name];
  }

  /** A store that fails keeps nobody from loading. */
  async #orNothing<T>(work: Promise<T>): Promise<T | undefined> {
    try {
      return await work;
    } catch (thrown) {
      this.#options.onEvent({ type: 'fallback', reason: 'failed', message: `the cache failed: ${textOf(thrown)}` });
      return undefined;
    }
  }
}

/** The name under which a file is kept: by what is in it, or else by where it is and what the server says of its state. */
async function idOf({ url, size, modified, sha256: digest }: FileFacts): Promise<string> {
  if (digest !== undefined) return `sha256-${digest}`;
  const text = new TextEncoder().encode(`${url}\n${size}\n${modified ?? ''}`);
  return (await sha256(text)).slice(0, 40);
}

function stateOf({ size, entityTag, modified }: FileFacts): FileState {
  return { size, entityTag, version: modified };
}

/** The addresses of a hub name a commit, and what has a digest can't change either. */
function isPinned({ url, sha256 }: RemoteRequest): boolean {
  return sha256 !== undefined || /\/resolve\/[0-9a-f]{40}\//.test(url);
}

function pathOf(url: string): string {
  return decodeURIComponent(new URL(url).pathname);
}

function mismatch(url: string, found: string, wanted: string): EngineError {
  return new EngineError(
    'integrity_mismatch',
    `${url}: the kept file's SHA-256 is ${found}, wanted ${wanted}; delete the model and load it again`,
  );
}

function sizeUnknown(url: string, isOnePass: boolean): EngineError {
  return new EngineError(
    'range_not_supported',
    isOnePass
      ? `${url}: the server does not serve ranges (it answered 200 and not 206) and does not say the file's size; serve it with ` +
          'Accept-Ranges: bytes and without compression, or pass a File'
      : `${url}: the server answered a range request without the total size in Content-Range; if it is of another origin, it must send ` +
          'Access-Control-Expose-Headers: Content-Range; or pass a File',
  );
}
