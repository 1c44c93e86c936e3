// Which tabs share an engine: those that name the same model and the same options of the engine.

import { EngineError } from '../errors.js';
import type { FilesData } from '../files/options.js';
import type { HostLoadOptions } from '../protocol.js';
import type { HostSource } from '../source.js';
import { PROTOCOL } from './messages.js';

/** The name of the locks and channels for a model with these options. */
export async function sharedName(source: HostSource, { draft, files, wasm, grammarWasm, ...options }: HostLoadOptions): Promise<string> {
  const named = {
    source: identity(source, 'the model'),
    draft: draft === undefined ? null : identity(draft, 'the option draft'),
    integrity: sorted(files.integrity ?? null),
    options: sorted(options),
  };
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(JSON.stringify(named)));
  const hex = Array.from(new Uint8Array(digest).subarray(0, 16), (byte) => byte.toString(16).padStart(2, '0')).join('');
  return `rillm:shared:${PROTOCOL}:${hex}`;
}

/** What a source is for every tab. A token of the hub opens the model and doesn't name it. */
function identity(source: HostSource, what: string): unknown {
  switch (source.kind) {
    case 'url':
      return [source.kind, source.url, source.file ?? null];
    case 'opfs':
      return [source.kind, source.path, source.file ?? null];
    case 'hub':
      return [source.kind, source.reference, source.hub.endpoint ?? null];
    default:
      throw new EngineError(
        'invalid_request',
        `${what} is a file or an object of this tab, which other tabs don't have: share one with an address (a URL, "hf:…", "opfs:…"), such as ` +
          'a file that models.import keeps under a name',
      );
  }
}

function sorted(value: HostLoadOptions | FilesData['integrity'] | null | object): unknown {
  if (typeof value !== 'object' || value === null) return value;
  return Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
}
