// The model that answers, and the one that is being loaded: the old one stays until the new one is ready. Models of servers are shared by all tabs of this
// page, so that two tabs hold their weights once. Knows nothing of chats or of how anything looks.

import { Engine } from 'rillm';

/** `onChange()`; `onLoaded(host)`; `onError(error, {source})`. */
export class ModelLoader {
  /** {source, name, phase: 'loading' | 'paused' | 'failed', progress, note}; undefined where nothing is loaded. */
  loading;
  /** What answers: {engine, name, source, ms, note, use() → release}. */
  current;
  #events;
  #abort;

  constructor(events) {
    this.#events = events;
  }

  /** Loads a model in place of the one that is there. What was being loaded is given up. `replaces`: frees the old one first, for GPUs that can't hold both. */
  async load(source, { name = nameOf(source), options = {}, replaces = false } = {}) {
    this.#abort?.abort();
    const abort = (this.#abort = new AbortController());
    const { signal } = abort;
    const loading = (this.loading = { source, name, options, phase: 'loading', progress: undefined, note: '' });
    if (replaces) this.#retire();
    this.#events.onChange();
    const begin = performance.now();
    // What trains can't be shared.
    const isShared = typeof source === 'string' && options.training !== true;
    const settings = {
      ...options,
      signal,
      onProgress: (progress) => this.#report(loading, { progress, status: undefined }),
      onEvent: (event) => this.#report(loading, wordsOf(event)),
      onWarning: ({ message }) => this.#report(loading, { note: `${loading.note} ${message}`.trim() }),
    };
    try {
      const engine = await (isShared ? Engine.shared(source, settings) : Engine.load(source, settings));
      if (signal.aborted) {
        await engine.dispose();
        return;
      }
      this.#retire();
      this.current = hostOf(engine, { name: engine.info.name ?? name, source, options, ms: performance.now() - begin, note: loading.note });
      this.loading = undefined;
      this.#events.onLoaded(this.current);
    } catch (error) {
      if (this.loading !== loading) return;
      if (loading.phase !== 'paused') this.loading = undefined;
      if (!signal.aborted) this.#events.onError(error, { source, name, options, hasOld: this.current !== undefined });
    } finally {
      this.#events.onChange();
    }
  }

  /** Ends the download; what came in stays, and `resume` goes on at its byte. */
  pause() {
    if (this.loading?.phase !== 'loading') return;
    Object.assign(this.loading, { phase: 'paused', status: undefined });
    this.#abort.abort();
    this.#events.onChange();
  }

  resume() {
    if (this.loading?.phase !== 'paused') return undefined;
    const { source, name, options } = this.loading;
    return this.load(source, { name, options });
  }

  cancel() {
    this.#abort?.abort();
    this.loading = undefined;
    this.#events.onChange();
  }

  /** Frees the model; answers under way end first. */
  unload() {
    this.#retire();
    this.#events.onChange();
  }

  #retire() {
    const old = this.current;
    this.current = undefined;
    old?.retire();
  }

  #report(loading, what) {
    // What was on its way when it was paused or given up is no news any more.
    if (this.loading !== loading || loading.phase !== 'loading') return;
    Object.assign(loading, what);
    this.#events.onChange();
  }
}

/** An engine and who uses it: it is disposed of when it was replaced and its last answer has ended. */
function hostOf(engine, about) {
  let users = 0;
  let isRetired = false;
  const end = () => void engine.dispose().catch(() => {});
  return {
    ...about,
    engine,
    use() {
      users += 1;
      return () => {
        users -= 1;
        if (isRetired && users === 0) end();
      };
    },
    retire() {
      isRetired = true;
      if (users === 0) end();
    },
  };
}

function wordsOf({ type, message, waitMs, bytes, total, requests }) {
  switch (type) {
    case 'fallback':
      return { note: `Not kept for the next visit: ${message}.` };
    case 'joined':
      return { status: 'Another tab is downloading this model.' };
    case 'retrying':
      return { status: `Trying again in ${Math.ceil(waitMs / 1000)} s: ${message}` };
    case 'resumed':
      return { status: `${Math.floor((bytes / total) * 100)} % were here already.` };
    case 'follower':
      return { status: 'Another tab runs this model; this one asks it.' };
    case 'takeover':
      return { status: requests > 0 ? 'The tab that ran the model is gone; this one goes on.' : undefined };
    default:
      return {};
  }
}

export function nameOf(source) {
  if (typeof source === 'string') {
    const path = source.startsWith('hf:') ? source.slice(3) : source.split(/[?#]/, 1)[0];
    return source.startsWith('hf:') ? path : decoded(path.split('/').filter(Boolean).at(-1) ?? source);
  }
  const files = source instanceof Blob ? [source] : Array.from(source);
  const folder = files[0]?.webkitRelativePath?.split('/', 1)[0];
  return folder || files[0]?.name || 'a model';
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
