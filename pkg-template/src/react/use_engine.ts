// An engine that lives as long as a component.

import { useCallback, useEffect, useRef, useState } from 'react';

import { Engine } from '../engine.js';
import { type EngineError, toEngineError } from '../errors.js';
import type { LoadOptions, LoadProgress, ModelSource } from '../types.js';

/** Those of the render in which a load begins count. */
export type EngineOptions = Omit<LoadOptions, 'signal'>;

interface LoadState {
  /** Undefined until the model is loaded. */
  engine?: Engine;
  /** How far the load is. */
  progress?: LoadProgress;
  /** Why the model could not be loaded. */
  error?: EngineError;
}

export interface LoadedEngine extends LoadState {
  /** Loads the model anew, such as after an error. */
  reload: () => void;
}

/**
 * Loads a model, and another one when `source` changes: an address, or an object that is the same in every render. When the component goes, the load is
 * aborted or the engine disposed of. Each component that calls it has an engine of its own: call it once, high up, and hand the engine down.
 *
 * ```jsx
 * const { engine, progress, error, reload } = useEngine('hf:owner/name');
 * ```
 */
export function useEngine(source: ModelSource | null | undefined, options: EngineOptions = {}): LoadedEngine {
  const [state, setState] = useState<LoadState>({});
  const [attempt, setAttempt] = useState(0);
  const latest = useRef(options);
  useEffect(() => {
    latest.current = options;
  });
  const place = source instanceof URL ? source.href : source;
  useEffect(() => {
    if (place === undefined || place === null) return undefined;
    const ending = new AbortController();
    const { signal } = ending;
    // An engine that comes back loads again, and stays.
    const set = (change: LoadState) => signal.aborted || setState((last) => ({ ...last, ...change }));
    const onProgress = (progress: LoadProgress) => {
      set({ progress });
      latest.current.onProgress?.(progress);
    };
    const loading = Engine.load(place, { ...latest.current, onProgress, signal });
    loading.then(
      (engine) => set({ engine }),
      (thrown: unknown) => set({ error: toEngineError(thrown) }),
    );
    return () => {
      ending.abort();
      setState({});
      loading.then((engine) => engine.dispose()).catch(() => {});
    };
  }, [place, attempt]);
  return { ...state, reload: useCallback(() => setAttempt((last) => last + 1), []) };
}
