// Where files are kept if the application names no place: in the origin private file system, or on a server in a folder.

import { folderStore, isServer } from '../node.js';
import { openOpfs } from './opfs_store.js';
import { OwnStore } from './own_store.js';
import type { Store } from './store.js';

/** Rejects where there is none. `isShared` if other tabs keep files there too. */
export async function openDefaultStore(): Promise<{ store: Store; isShared: boolean }> {
  return isServer() ? { store: new OwnStore(folderStore()), isShared: false } : { store: await openOpfs(), isShared: true };
}
