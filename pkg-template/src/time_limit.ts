// Waiting that ends when time is up.

/** What work comes to; undefined if that takes more milliseconds than `most`. The work goes on then, and nobody hears of it. */
export async function withinTime<T>(work: Promise<T>, most: number): Promise<T | undefined> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<undefined>((resolve) => (timer = setTimeout(() => resolve(undefined), most)));
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
