// The sessions of an engine: conversations that are saved with what the model made of them. It decides when a place in the queue is taken
// and what becomes of an abort; the engine writes and reads the bytes.

import { unlessAborted } from '../abort.js';
import { abortError, EngineError, toEngineError } from '../errors.js';
import { abortSignal, anything, type Checks, describe, readOptions, reading } from '../arguments.js';
import type { LoadedHost } from '../protocol.js';
import type { ResponseStore } from '../responses/store.js';
import { keepAgain, savedOf } from './conversation.js';
import { checkName, openSessions, putSession } from './files.js';
import { readHeader } from './header.js';
import type { Conversation, RestoreSessionOptions, SavedSession, SaveSessionOptions, Session } from './types.js';

/** Conversations that are saved with what the model made of them. */
export interface Sessions {
  /**
   * Saves a conversation with keys, values and states of the model. What the engine does not hold of it is computed before. Resolves to a
   * file, for `restore`: with this model file, loaded with the same `kvCache`, in any browser. It holds the conversation as plain text.
   *
   * @throws EngineError `context_length_exceeded` if the conversation is longer than the context; `not_found` if its response is not kept;
   *   `cache_unavailable` if it can't be kept by its name: then `error.session` has it, if it was computed.
   */
  save(conversation: Conversation, options?: SaveSessionOptions): Promise<Blob>;
  /**
   * Takes over a session, from its file or by its name: a request that begins with its conversation need not take that in again. Resolves
   * to what was saved.
   *
   * @throws EngineError `session_mismatch` if it is of another model; `invalid_file` if it is damaged, or no session; `not_found` if none
   *   is kept by that name; `context_length_exceeded` if it is longer than this engine's context.
   */
  restore(session: Blob | string, options?: RestoreSessionOptions): Promise<Session>;
  /** The sessions that are kept by name, of all models, those saved last first. Of each file the beginning is read, and no more. */
  list(): Promise<SavedSession[]>;
  /** Deletes what is kept by a name. Resolves to whether there was something. */
  delete(name: string): Promise<boolean>;
}

/** What an engine offers for its sessions. */
export interface SessionEngine {
  store: ResponseStore;
  /** Throws when the engine was disposed of. */
  check(): void;
  /** Does something with the host when it is the turn of this. */
  inTurn<T>(work: (host: LoadedHost) => Promise<T>, signal: AbortSignal | undefined): Promise<T>;
}

export function sessionsOf({ store, check, inTurn }: SessionEngine): Sessions {
  return {
    async save(conversation, options) {
      check();
      const { name, signal } = optionsOf(options, SAVE, 'saving the session');
      if (name !== undefined) checkName(name);
      const { conversation: saved, attachment } = savedOf(conversation, store);
      const save = async () => {
        // Where nothing can be kept, nothing is computed.
        const opening = name === undefined ? undefined : openSessions();
        const saving = inTurn(async (host) => {
          await opening;
          return host.saveSession(saved, attachment, signal);
        }, signal);
        const [files, session] = await Promise.all([opening, saving]);
        if (name !== undefined && files !== undefined) await putSession(files, name, session, signal);
        return session;
      };
      return unlessAborted(save(), signal, 'saving the session');
    },

    async restore(session, options) {
      check();
      const { signal } = optionsOf(options, RESTORE, 'restoring the session');
      const isBlob = reading('the session', () => session instanceof Blob);
      if (!isBlob) {
        if (typeof session !== 'string') {
          throw new EngineError('invalid_request', `a session is a Blob or the name of one, got ${describe(session)}`);
        }
        checkName(session);
      }
      const restoring = inTurn((host) => {
        const restore = (blob: Blob) => host.restoreSession(blob, signal);
        return isBlob ? restore(session as Blob) : withKept(session as string, restore);
      }, signal);
      const { attachment, ...restored } = await unlessAborted(restoring, signal, 'restoring the session');
      const response = keepAgain(attachment, store);
      return response === undefined ? restored : { ...restored, response };
    },

    async list() {
      check();
      const kept = await (await openSessions()).list();
      kept.sort((a, b) => b.file.lastModified - a.file.lastModified);
      return Promise.all(kept.map(({ name, file }) => described(name, file)));
    },

    async delete(name) {
      check();
      checkName(name);
      return (await openSessions()).delete(name);
    },
  };
}

const SAVE: Checks<SaveSessionOptions> = { name: anything, signal: abortSignal };
const RESTORE: Checks<RestoreSessionOptions> = { signal: abortSignal };

function optionsOf<Options extends RestoreSessionOptions>(given: unknown, checks: Checks<Options>, what: string): Options {
  const options = readOptions(`the options of ${what}`, given, checks);
  if (options.signal?.aborted) throw abortError(options.signal, what);
  return options;
}

/** Reads the file that is kept by a name; that of now, if somebody replaces it meanwhile. */
async function withKept<T>(name: string, read: (file: File) => Promise<T>): Promise<T> {
  const files = await openSessions();
  for (let last: File | undefined; ; ) {
    const file = await files.find(name);
    if (file === undefined) {
      throw new EngineError('not_found', `no session is kept by the name ${describe(name)}; sessions.list() has those that are`);
    }
    try {
      // By its name errors tell of it.
      return await read(new File([file], `the session ${describe(name)}`));
    } catch (thrown) {
      const isSame = last?.lastModified === file.lastModified;
      if (toEngineError(thrown).code !== 'read' || isSame) throw thrown;
      last = file;
    }
  }
}

async function described(name: string, file: File): Promise<SavedSession> {
  const bytes = file.size;
  const header = await readHeader(file);
  if (header === undefined) return { name, bytes, created: Math.floor(file.lastModified / 1000), damaged: true };
  const { created, tokens, model } = header;
  return { name, bytes, created, damaged: false, tokens, model };
}
