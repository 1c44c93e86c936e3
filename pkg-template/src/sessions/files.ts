// The sessions that are kept by name.

import { EngineError, toEngineError } from '../errors.js';
import { checkFileName, type FileKind, keptBytes, NamedFiles } from '../files/named_files.js';

const SESSIONS: FileKind = { folder: 'sessions', suffix: '.session', noun: 'session' };

/** Refuses what can't be the name of a session. */
export function checkName(name: unknown): asserts name is string {
  checkFileName(SESSIONS, name);
}

/** Rejects with `cache_unavailable` where nothing can be kept. */
export function openSessions(): Promise<NamedFiles> {
  return NamedFiles.open(SESSIONS);
}

/** Keeps a session in place of what has its name. If that fails, the error has the session; what was there stays. */
export async function putSession(files: NamedFiles, name: string, session: Blob, signal: AbortSignal | undefined): Promise<void> {
  try {
    await files.put(name, session, signal, "; the error's `session` has them");
  } catch (thrown) {
    const { code, message, cause } = toEngineError(thrown);
    throw new EngineError(code, message, { cause, session });
  }
}

/** Bytes of all sessions that are kept by name; 0 where there can be none. */
export function keptSessionBytes(): Promise<number> {
  return keptBytes(SESSIONS);
}
