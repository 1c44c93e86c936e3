// From bytes to what a page shows: how fast they come, and how long it will take.

import type { Progress } from '../generated/loading.js';
import type { Arrived } from './events.js';

/** How far a load or a download is. */
export interface LoadProgress {
  /**
   * `download`: files come in and nothing is loaded yet, or another tab downloads them; `header`, `weights`: they are read; `ready`: the
   * model can be used.
   */
  phase: 'download' | Progress['phase'];
  /** Bytes so far. */
  loaded: number;
  /** Bytes of the headers and the weights; 0 while that is not known. */
  total: number;
  /** Of the last seconds; 0 at the beginning. */
  bytesPerSecond: number;
  /** Seconds until `loaded` is `total`, if it goes on like this; undefined while that is not known. */
  secondsLeft: number | undefined;
  /** `network` if any of the bytes came from there, `file` for models that are not downloaded. */
  from: 'network' | 'cache' | 'file';
}

/** The milliseconds over which the rate is measured. */
const WINDOW_MS = 3000;

export class ProgressMeter {
  #from: LoadProgress['from'] = 'file';
  #marks: { time: number; loaded: number }[] = [];

  /** Notes where bytes came from. */
  arrived({ bytes, from }: Arrived): void {
    if (bytes > 0 && this.#from !== 'network') this.#from = from;
  }

  progress(phase: LoadProgress['phase'], loaded: number, total: number): LoadProgress {
    const time = performance.now();
    const last = this.#marks.at(-1);
    // A second file, or another kind of counting, begins anew.
    if (last !== undefined && loaded < last.loaded) this.#marks = [];
    this.#marks.push({ time, loaded });
    while (this.#marks.length > 2 && time - this.#marks[0]!.time > WINDOW_MS) this.#marks.shift();
    const first = this.#marks[0]!;
    const bytesPerSecond = time > first.time ? ((loaded - first.loaded) / (time - first.time)) * 1000 : 0;
    const secondsLeft = total > 0 && bytesPerSecond > 0 ? Math.max(0, total - loaded) / bytesPerSecond : undefined;
    return { phase, loaded, total, bytesPerSecond, secondsLeft, from: this.#from };
  }
}
