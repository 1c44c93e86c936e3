// An end for waiting on a store. Browsers and applications can leave a promise unsettled for ever, and a load must not hang on that.

/** A limit is over after this number of ticks. A sleep of the machine is one tick, however long it is; what is waited for may answer after it. */
const TICKS = 10;

/** Waits for calls of one store. After one that took too long none is made any more: each would be waited for as long. */
export class TimeLimit {
  #seconds: number;
  #silent: DOMException | undefined;

  constructor(seconds: number) {
    this.#seconds = seconds;
  }

  /** Settles as `work` does, or rejects with a `TimeoutError`. `late` is given what comes after that. */
  async run<T>(what: string, work: () => PromiseLike<T> | T, late: (value: T) => void = () => {}): Promise<T> {
    if (this.#silent !== undefined) throw this.#silent;
    let timer: ReturnType<typeof setInterval> | undefined;
    let isOver = false;
    const limit = new Promise<never>((_, reject) => {
      let ticks = 0;
      timer = setInterval(
        () => {
          ticks += 1;
          if (ticks < TICKS) return;
          isOver = true;
          this.#silent ??= new DOMException(`${what} did not answer for ${this.#seconds} seconds`, 'TimeoutError');
          reject(this.#silent);
        },
        (this.#seconds * 1000) / TICKS,
      );
    });
    const working = (async () => await work())();
    working.then(
      (value) => isOver && late(value),
      () => {},
    );
    try {
      return await Promise.race([working, limit]);
    } finally {
      clearInterval(timer);
    }
  }
}
