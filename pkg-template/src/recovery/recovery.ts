// What a host that outlives others asks of whoever loads the model. Types, and a default.

import type { EngineError } from '../errors.js';
import type { LoadedHost } from '../protocol.js';
import type { LoadProgress, ModelInfo } from '../types.js';
import type { RecoveryEvent } from './events.js';

export interface LoadedModel {
  host: LoadedHost;
  info: ModelInfo;
}

/** Loads the model into a host of its own. `lost` is why it is loaded again, or why that failed a moment ago. */
export type Load = (lost: EngineError | undefined, signal: AbortSignal) => Promise<LoadedModel>;

export interface Recovery {
  load: Load;
  /** Whether that loads what trains. */
  canTrain: boolean;
  /** Gets what trains, and resolves to what loads the model with it. */
  withTraining(onProgress: (progress: LoadProgress) => void, signal: AbortSignal | undefined): Promise<Load>;
  /** How many recoveries there may be in ten minutes. */
  most: number;
  onEvent(event: RecoveryEvent): void;
  /** Hears what the next host has loaded, which may have less room. */
  onLoadedAgain(info: ModelInfo): void;
}

/** The default of `most`. */
export const MAX_RECOVERIES = 3;
