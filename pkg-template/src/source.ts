// What callers may name as a model, and what becomes of it on its way to the wasm: one of a few kinds, with absolute addresses. It
// opens nothing.

import { address, checkArgument, describe, reading, refuse, text } from './arguments.js';
import { EngineError, isEngineError, textOf } from './errors.js';
import { hubOptions } from './load_options.js';
import { filesAt, isServer } from './node.js';
import type { ByteSource, HubOptions, ModelFile, ModelSource } from './types.js';

/** A model's source in the words of the wasm. Everything in it can be sent to a worker, but for `ByteSource`s. */
export type HostSource =
  | { kind: 'url'; url: string; file?: string }
  | { kind: 'hub'; reference: string; hub: { endpoint?: string; token?: string } }
  | { kind: 'opfs'; path: string; file?: string }
  | { kind: 'directory'; handle: FileSystemDirectoryHandle; file?: string }
  | { kind: 'files'; files: { name: string; data: Blob | ByteSource }[]; file?: string };

const WANTED =
  'a URL, "hf:owner/name", "opfs:path", a File or Blob, a file or directory handle, an array of files, or an object with size and read()';

export async function resolveSource(source: ModelSource, file: string | undefined, hub: HubOptions | undefined): Promise<HostSource> {
  if (file !== undefined) checkArgument('the option file', file, text);
  const asked = hubOptions(hub);
  if (isServer() && (typeof source === 'string' || source instanceof URL) && isPath(String(source))) {
    return { kind: 'files', files: await filesAt(String(source)), ...(file === undefined ? {} : { file }) };
  }
  const found = reading('the model', () => sourceOf(source, file, asked));
  if (!('opens' in found)) return found;
  const opened = await reading('the model', () => found.opens.getFile()).catch((thrown: unknown) => {
    throw new EngineError('read', `${textOf(found.opens.name)}: opening failed: ${textOf(thrown)}; ask the user for the file again`, {
      cause: thrown,
    });
  });
  return { kind: 'files', files: [modelFile(opened)] };
}

/** On a server a text without a scheme is a path. */
function isPath(source: string): boolean {
  return source.startsWith('file:') || !/^[a-z][a-z0-9+.-]+:/i.test(source);
}

/** Of a file's handle the file has to be opened. */
function sourceOf(source: ModelSource, file: string | undefined, hub: HubOptions): HostSource | { opens: FileSystemFileHandle } {
  const named = file === undefined ? {} : { file };
  if (typeof source === 'string' && source.startsWith('hf:')) {
    if (file !== undefined) throw new EngineError('invalid_request', `the option file is for folders; write ${source}/${file}`);
    const options: { endpoint?: string; token?: string } = {};
    if (hub.endpoint !== undefined) options.endpoint = resolveUrl(hub.endpoint, 'hub.endpoint');
    if (hub.token !== undefined) options.token = hub.token;
    return { kind: 'hub', reference: source, hub: options };
  }
  if (typeof source === 'string' && source.startsWith('opfs:')) return { kind: 'opfs', path: source.slice('opfs:'.length), ...named };
  if (typeof source === 'string' || source instanceof URL) return { kind: 'url', url: resolveUrl(source, 'the model'), ...named };
  if (typeof source !== 'object' || source === null) refuse(`a model is ${WANTED}; got ${describe(source)}`);
  if (isHandle(source)) {
    if (source.kind === 'directory') return { kind: 'directory', handle: source as FileSystemDirectoryHandle, ...named };
    return { opens: source as FileSystemFileHandle };
  }
  if (source instanceof Blob || isByteSource(source)) return { kind: 'files', files: [modelFile(source)] };
  if (!(Symbol.iterator in source)) refuse(`a model is ${WANTED}; got an object that is none of them`);
  return { kind: 'files', files: Array.from(source, modelFile), ...named };
}

/** A worker would resolve a relative URL against its own script. */
export function resolveUrl(url: unknown, what: string): string {
  checkArgument(what, url, address);
  try {
    // Outside of browsers there is no address that a relative one could be relative to.
    return new URL(url as string | URL, globalThis.document?.baseURI ?? globalThis.location?.href).href;
  } catch (thrown) {
    throw new EngineError('invalid_request', `${what} has no valid URL: ${textOf(url)}`, { cause: thrown });
  }
}

function modelFile(file: Blob | ByteSource | ModelFile): { name: string; data: Blob | ByteSource } {
  if (file instanceof Blob) {
    const { name, webkitRelativePath } = file as Partial<File>;
    return { name: webkitRelativePath || name || 'Blob', data: file };
  }
  if (typeof file === 'object' && file !== null) {
    if (isByteSource(file)) return { name: textOf(file.name ?? 'the source'), data: sized(file) };
    const { name, data } = file;
    if (typeof name === 'string' && data instanceof Blob) return { name, data };
    if (typeof name === 'string' && isByteSource(data)) return { name, data: sized(data) };
  }
  throw new EngineError('invalid_request', 'a file of a model is a File, or {name, data} with a Blob or an object with size and read()');
}

/** Its size is read once. */
function sized(source: ByteSource): ByteSource {
  const { size } = source;
  if (!Number.isSafeInteger(size) || size < 0) refuse(`the size of a source is a whole number of bytes, got ${describe(size)}`);
  const read = async (offset: number, length: number) => {
    try {
      const bytes: unknown = await source.read(offset, length);
      if (bytes instanceof Uint8Array || bytes instanceof ArrayBuffer) return bytes;
      throw new EngineError('read', `read() gave ${describe(bytes)}, wanted a Uint8Array or an ArrayBuffer`);
    } catch (thrown) {
      throw isEngineError(thrown) ? thrown : new EngineError('read', `read() failed: ${textOf(thrown)}`, { cause: thrown });
    }
  };
  return { size, read };
}

function isByteSource(value: unknown): value is ByteSource {
  return typeof value === 'object' && value !== null && 'size' in value && typeof (value as ByteSource).read === 'function';
}

function isHandle(value: object): value is FileSystemHandle {
  return 'kind' in value && (value.kind === 'file' || value.kind === 'directory') && ('getFile' in value || 'getFileHandle' in value);
}
