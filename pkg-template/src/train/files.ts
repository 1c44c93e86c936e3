// The checkpoints of trainings, which are kept by the names of their adapters.

import { onAbort } from '../abort.js';
import { describe } from '../arguments.js';
import { abortError, EngineError, toEngineError } from '../errors.js';
import { checkFileName, type FileKind, keptBytes, NamedFiles } from '../files/named_files.js';
import type { TrainingEvent } from './types.js';

const CHECKPOINTS: FileKind = { folder: 'checkpoints', suffix: '.checkpoint', noun: 'checkpoint' };

/** Refuses what can't be the name of a checkpoint. */
export function checkName(name: unknown): asserts name is string {
  checkFileName(CHECKPOINTS, name);
}

/** Rejects with `cache_unavailable` where nothing can be kept. */
export function openCheckpoints(): Promise<NamedFiles> {
  return NamedFiles.open(CHECKPOINTS);
}

/** Bytes of all checkpoints; 0 where there can be none. */
export function keptCheckpointBytes(): Promise<number> {
  return keptBytes(CHECKPOINTS);
}

/** Whoever trains holds a lock of this and the name. */
const LOCK = 'rillm:training:';
/** How long another training is waited for: a page that is loaded again may come before the browser has ended the one before. */
const PATIENCE_MS = 1000;

/** Works while no other training, of any tab, keeps its state by this name: one would write over the other's, and delete it when it is done. */
export async function withName<T>(name: string, signal: AbortSignal | undefined, what: string, work: () => Promise<T>): Promise<T> {
  const waiting = new AbortController();
  const timer = setTimeout(() => waiting.abort(), PATIENCE_MS);
  const release = onAbort([signal], () => waiting.abort());
  const stop = () => {
    clearTimeout(timer);
    release();
  };
  let isHeld = false;
  try {
    return await navigator.locks.request(LOCK + name, { signal: waiting.signal }, () => {
      isHeld = true;
      stop();
      return work();
    });
  } catch (thrown) {
    if (isHeld) throw thrown;
    if (signal?.aborted) throw abortError(signal, what);
    if (!waiting.signal.aborted) throw toEngineError(thrown);
    throw new EngineError(
      'invalid_request',
      `another training, maybe of another tab, keeps its checkpoints by the name ${describe(name)}: wait for it, abort it, or give another name`,
    );
  } finally {
    stop();
  }
}

/** Keeps the newest checkpoint of a training, which goes on meanwhile. One that comes while another is written waits, and takes the place of one that waits. */
export class CheckpointWriter {
  #files: NamedFiles;
  #name: string;
  #tell: (event: TrainingEvent) => void;
  #waiting: { step: number; bytes: Blob } | undefined;
  #writing: Promise<void> | undefined;

  constructor(files: NamedFiles, name: string, tell: (event: TrainingEvent) => void) {
    this.#files = files;
    this.#name = name;
    this.#tell = tell;
  }

  keep(step: number, bytes: Blob): void {
    this.#waiting = { step, bytes };
    this.#writing ??= this.#write().finally(() => (this.#writing = undefined));
  }

  /** Resolves when nothing is written any more. Never rejects. */
  async ended(): Promise<void> {
    await this.#writing;
  }

  async #write(): Promise<void> {
    for (let next = this.#waiting; next !== undefined; next = this.#waiting) {
      this.#waiting = undefined;
      const { step, bytes } = next;
      try {
        await this.#files.put(this.#name, bytes, undefined);
        this.#tell({ type: 'checkpoint', step });
      } catch (thrown) {
        this.#tell({ type: 'checkpoint', step, error: toEngineError(thrown) });
      }
    }
  }
}
