// Which models are in a store, and which files each is made of. One record for all, changed by one tab at a time.

import type { FileRecord } from './kept_file.js';
import { KeptFile } from './kept_file.js';
import type { Store } from './store.js';
import { webLocks } from './web_locks.js';

const KEY = 'models.json';
const VERSION = 1;
const LOCK = 'rillm:models';

/** Of each address that the model asked for, the id of the kept file; null if there was none. */
export type Entries = Record<string, string | null>;

export interface ModelRecord {
  /** What was loaded: a URL or `hf:…`. */
  name: string;
  /** The files of the model that can be loaded without a network. Empty until all of them were whole. */
  entries: Entries;
  /** The files of a download, or of a new revision, that is not whole yet. */
  next?: Entries;
  /** Milliseconds since 1970. */
  created: number;
  used: number;
}

interface Index {
  version: typeof VERSION;
  models: ModelRecord[];
}

export class ModelIndex {
  readonly store: Store;
  /** The store is shared with other tabs. */
  readonly isShared: boolean;

  constructor(store: Store, isShared: boolean) {
    this.store = store;
    this.isShared = isShared;
  }

  async list(): Promise<ModelRecord[]> {
    return (await this.#read()).models;
  }

  async find(name: string): Promise<ModelRecord | undefined> {
    return (await this.list()).find((model) => model.name === name);
  }

  /** Changes the record of a model, which is made if there is none; `change` returns undefined to forget it. */
  async change(name: string, change: (model: ModelRecord) => ModelRecord | undefined): Promise<void> {
    await this.#exclusively(async () => {
      const index = await this.#read();
      const now = Date.now();
      const found = index.models.find((model) => model.name === name) ?? { name, entries: {}, created: now, used: now };
      const changed = change(found);
      index.models = index.models.filter((model) => model.name !== name);
      if (changed !== undefined) index.models.push(changed);
      await this.#write(index);
    });
  }

  /** Deletes those of the files that no model names. */
  async deleteUnused(ids: Iterable<string>): Promise<void> {
    await this.#exclusively(async () => {
      const { models } = await this.#read();
      const used = new Set(models.flatMap(filesOf));
      for (const id of new Set(ids)) if (!used.has(id)) await (await KeptFile.find(this.store, id))?.delete();
    });
  }

  /** What is known of the files of a model, those that are there. */
  async files(model: ModelRecord): Promise<{ record: FileRecord; bytes: number; id: string }[]> {
    const files = [];
    for (const id of new Set(filesOf(model))) {
      const kept = await KeptFile.find(this.store, id);
      if (kept !== undefined) files.push({ id, record: kept.record, bytes: await kept.bytesBegun() });
    }
    return files;
  }

  async #read(): Promise<Index> {
    const bytes = await this.store.read(KEY);
    try {
      const index = bytes && (JSON.parse(new TextDecoder().decode(bytes)) as Index);
      if (index?.version === VERSION && Array.isArray(index.models) && index.models.every(isRecord)) return index;
    } catch {
      // Written by nobody that we know: what it names is downloaded again.
    }
    return { version: VERSION, models: [] };
  }

  async #write(index: Index): Promise<void> {
    await this.store.put(KEY, new TextEncoder().encode(JSON.stringify(index)));
  }

  async #exclusively(work: () => Promise<void>): Promise<void> {
    // A store of a page's is asked from the workers of several loads.
    const locks = await webLocks();
    if (locks !== undefined) await locks.request(LOCK, work);
    else {
      const before = turns.get(this.store) ?? Promise.resolve();
      const turn = before.then(work);
      turns.set(
        this.store,
        turn.catch(() => {}),
      );
      await turn;
    }
  }
}

const turns = new WeakMap<Store, Promise<void>>();

/** The ids of all files of a model. */
export function filesOf(model: ModelRecord): string[] {
  return [...Object.values(model.entries), ...Object.values(model.next ?? {})].filter((id) => id !== null);
}

/** Whether it can be loaded without a network. */
export function isWhole(model: ModelRecord): boolean {
  return Object.keys(model.entries).length > 0;
}

function isRecord(value: unknown): value is ModelRecord {
  const model = value as Partial<ModelRecord> | null;
  return typeof model?.name === 'string' && typeof model.entries === 'object' && model.entries !== null;
}
