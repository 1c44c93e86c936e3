// An end for waiting on a store. Browsers and applications can leave a promise unsettled for ever, and a load must not hang on that.

/** The time is counted in so many ticks: a machine that slept makes one tick of hours, and what is waited for may still answer. */
const TICKS = 10;

/** Settles as `work` does, or rejects with a `TimeoutError` after `seconds`. `late` is given what comes after that. */
export async function withTimeLimit<T>(
  seconds: number,
  what: string,
  work: () => PromiseLike<T> | T,
  late: (value: T) => void = () => {},
): Promise<T> {
  let timer: ReturnType<typeof setInterval> | undefined;
  let isOver = false;
  const limit = new Promise<never>((_, reject) => {
    let ticks = 0;
    timer = setInterval(
      () => {
        ticks += 1;
        if (ticks < TICKS) return;
        isOver = true;
        reject(new DOMException(`${what} did not answer for ${seconds} seconds`, 'TimeoutError'));
      },
      (seconds * 1000) / TICKS,
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
