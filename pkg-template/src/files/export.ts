// A kept model as a folder of files, and back. `rillm-model.json` says which file belongs to which address.

import { describe, reading, refuse } from '../arguments.js';
import { EngineError } from '../errors.js';
import { type FileFacts, KeptFile } from './kept_file.js';
import type { Entries, ModelIndex, ModelRecord } from './model_index.js';
import { CHUNK_BYTES, SEGMENT_BYTES, segmentLength } from './segments.js';

const MANIFEST = 'rillm-model.json';
const VERSION = 1;

interface Manifest {
  rillm_model: typeof VERSION;
  name: string;
  /** Of each address its file, or null if the server has none. */
  entries: Record<string, ExportedFile | null>;
  /** What autotuning found on the device that exported it. */
  tunings?: string;
}

interface ExportedFile {
  file: string;
  id: string;
  facts: FileFacts;
  /** Of each segment, the SHA-256 of its chunks. */
  digests: string[][];
}

export class ModelExport {
  #index: ModelIndex;

  constructor(index: ModelIndex) {
    this.#index = index;
  }

  async write(model: ModelRecord, folder: FileSystemDirectoryHandle, tunings: string | undefined): Promise<void> {
    const manifest: Manifest = { rillm_model: VERSION, name: model.name, entries: {}, ...(tunings === undefined ? {} : { tunings }) };
    const names = new Set([MANIFEST]);
    for (const [url, id] of Object.entries(model.entries)) {
      if (id === null) {
        manifest.entries[url] = null;
        continue;
      }
      const kept = await KeptFile.find(this.#index.store, id);
      if (kept === undefined) throw damaged(url);
      const file = unusedName(url, names);
      await this.#writeFile(folder, file, kept);
      const { whole: _, version: __, digests, ...facts } = kept.record;
      manifest.entries[url] = { file, id, facts, digests: digests as string[][] };
    }
    // Last, so that a folder with it holds everything.
    await writeTo(folder, MANIFEST, async (write) => write(new TextEncoder().encode(JSON.stringify(manifest, null, 2))));
  }

  async #writeFile(folder: FileSystemDirectoryHandle, name: string, kept: KeptFile): Promise<void> {
    await writeTo(folder, name, async (write) => {
      const { size, url } = kept.record;
      for (let offset = 0; offset < size; offset += CHUNK_BYTES) {
        const index = Math.floor(offset / SEGMENT_BYTES);
        const chunk = await kept.chunk(index, (offset - index * SEGMENT_BYTES) / CHUNK_BYTES);
        if (chunk === undefined) throw damaged(url);
        await write(chunk);
      }
    });
  }

  /** Keeps the files of an export, or of one GGUF file as `name`. */
  async read(from: Iterable<File> | FileSystemDirectoryHandle, name: string | undefined): Promise<{ model: string; tunings?: string }> {
    const files = await filesOf(from);
    const manifestFile = files.get(MANIFEST);
    if (manifestFile === undefined) {
      if (name === undefined || files.size !== 1) {
        throw new EngineError(
          'invalid_file',
          `wanted ${MANIFEST} and the files beside it, or one GGUF file and the option name; got ${files.size} files`,
        );
      }
      const [file] = files.values();
      const facts: FileFacts = { url: name, size: file!.size };
      await this.#keep({ [name]: { file: file!.name, id: `import-${crypto.randomUUID()}`, facts, digests: [] } }, name, files);
      return { model: name };
    }
    const manifest = parseManifest(await manifestFile.text());
    await this.#keep(manifest.entries, manifest.name, files);
    return { model: manifest.name, ...(manifest.tunings === undefined ? {} : { tunings: manifest.tunings }) };
  }

  async #keep(exported: Manifest['entries'], model: string, files: Map<string, File>): Promise<void> {
    const entries: Entries = {};
    const unused: string[] = [];
    for (const [url, entry] of Object.entries(exported)) {
      if (entry === null) {
        entries[url] = null;
        continue;
      }
      const file = files.get(entry.file);
      if (file === undefined) throw new EngineError('invalid_file', `the export's file ${entry.file} is not among the files`);
      if (file.size !== entry.facts.size) {
        throw new EngineError('invalid_file', `${entry.file} has ${file.size} bytes, wanted ${entry.facts.size}`);
      }
      await this.#keepFile(entry, file);
      entries[url] = entry.id;
    }
    await this.#index.change(model, ({ next: _, ...record }) => {
      unused.push(...Object.values(record.entries).filter((id) => id !== null));
      return { ...record, entries, used: Date.now() };
    });
    await this.#index.deleteUnused(unused);
  }

  async #keepFile({ id, facts, digests }: ExportedFile, file: File): Promise<void> {
    const before = await KeptFile.find(this.#index.store, id);
    if (before?.record.whole) return;
    await before?.delete();
    const kept = KeptFile.begin(this.#index.store, id, facts);
    try {
      for (let index = 0; index * SEGMENT_BYTES < facts.size; index++) {
        const start = index * SEGMENT_BYTES;
        const bytes = await file.slice(start, start + segmentLength(facts.size, index)).arrayBuffer();
        const segment = new Uint8Array(bytes);
        const writing = await kept.write(index, segment);
        writing.write(segment.subarray(writing.filled));
        await writing.finish();
        const found = kept.record.digests[index]!;
        if (digests[index] !== undefined && digests[index]!.join() !== found.join()) {
          throw new EngineError('integrity_mismatch', `${file.name}: its bytes from ${start} are not those that were exported`);
        }
      }
      await kept.setWhole();
    } catch (thrown) {
      await kept.delete().catch(() => {});
      throw thrown;
    }
  }
}

async function writeTo(
  folder: FileSystemDirectoryHandle,
  name: string,
  work: (write: (bytes: Uint8Array<ArrayBuffer>) => Promise<void>) => Promise<void>,
): Promise<void> {
  const writable = await (await folder.getFileHandle(name, { create: true })).createWritable();
  try {
    await work((bytes) => writable.write(bytes));
    await writable.close();
  } catch (thrown) {
    await writable.abort().catch(() => {});
    throw thrown;
  }
}

async function filesOf(from: Iterable<File> | FileSystemDirectoryHandle): Promise<Map<string, File>> {
  const wanted = 'models.import takes Files or a directory handle';
  if (typeof from !== 'object' || from === null) throw new EngineError('invalid_request', `${wanted}, got ${describe(from)}`);
  const files = new Map<string, File>();
  if (reading(wanted, () => 'getFileHandle' in from)) {
    const handles = (from as FileSystemDirectoryHandle & { values(): AsyncIterable<FileSystemHandle> }).values();
    for await (const handle of handles)
      if (handle.kind === 'file') files.set(handle.name, await (handle as FileSystemFileHandle).getFile());
    return files;
  }
  return reading(wanted, () => {
    if (!(Symbol.iterator in from)) refuse(`${wanted}, got ${describe(from)}`);
    for (const file of from) {
      if (!(file instanceof File)) refuse(`${wanted}, got ${describe(file)} among them`);
      files.set(file.name, file);
    }
    return files;
  });
}

/** The last part of an address, which other files may have too. */
function unusedName(url: string, names: Set<string>): string {
  const last = decodeURIComponent(new URL(url).pathname.split('/').pop() ?? '').replace(/[^\w.-]/g, '_') || 'file';
  let name = last;
  for (let number = 2; names.has(name); number++) name = `${number}-${last}`;
  names.add(name);
  return name;
}

function parseManifest(text: string): Manifest {
  const wrong = (what: string) => new EngineError('invalid_file', `${MANIFEST} ${what}; export the model again`);
  let manifest: Manifest;
  try {
    manifest = JSON.parse(text) as Manifest;
  } catch {
    throw wrong('is not JSON');
  }
  if (manifest?.rillm_model !== VERSION) throw wrong(`is of version ${String(manifest?.rillm_model)}, wanted ${VERSION}`);
  const isEntry = (entry: ExportedFile | null) =>
    entry === null ||
    (typeof entry?.file === 'string' &&
      /^[\w-]+$/.test(entry.id) &&
      Number.isSafeInteger(entry.facts?.size) &&
      Array.isArray(entry.digests));
  const isManifest = typeof manifest.name === 'string' && typeof manifest.entries === 'object' && manifest.entries !== null;
  if (!isManifest || !Object.values(manifest.entries).every(isEntry)) throw wrong('lacks the names of files');
  return manifest;
}

function damaged(url: string): EngineError {
  return new EngineError('invalid_file', `${url}: the kept file is damaged; load the model once, which repairs it, and export it then`);
}
