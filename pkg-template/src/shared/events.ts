// What is said of an engine that tabs share, and the options that it takes. Types only.

import type { FileEvent } from '../files/events.js';
import type { LoadOptions } from '../loading.js';
import type { RecoveryEvent } from '../recovery/events.js';

/** Something about who runs the model. */
export type SharedEvent =
  /** This tab runs the model from now on, for all tabs; it begins to load it. */
  | { type: 'leader' }
  /** Another tab runs the model. */
  | { type: 'follower' }
  /**
   * The tab that ran the model is gone, and the model is loaded again: here, if `leader` came before, or else in another tab. So many requests
   * of this tab were under way and go on.
   */
  | { type: 'takeover'; requests: number }
  /** Tabs can't share here; this one has loaded an engine of its own. `message` says why. */
  | { type: 'unshared'; message: string };

/** As for `Engine.load`. What is a function, and where the engine's own files are served, is each tab's own. */
export interface SharedOptions extends Omit<LoadOptions, 'onEvent'> {
  /** Called for what happens to the model's files and to the engine, in whichever tab, and for who runs the model. */
  onEvent?: ((event: FileEvent | RecoveryEvent | SharedEvent) => void) | undefined;
}
