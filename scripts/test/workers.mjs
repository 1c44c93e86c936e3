// Workers that share what waits, and more of them as soon as there is a core for them.

/**
 * Runs `worker`, which takes from what waits until nothing does, `count` times at once, and once more whenever one of the promises `coresAreFree`
 * resolves, if something waits then. Rejects when one of them does.
 */
export async function runWorkers(count, worker, coresAreFree, somethingWaits) {
  const more = [];
  for (const isFree of coresAreFree) {
    const started = isFree.then(() => {
      if (!somethingWaits()) return undefined;
      more.push(worker());
      return more.at(-1);
    });
    // It may fail before the others end, and is waited for after them.
    started.catch(() => {});
  }
  await Promise.all(Array.from({ length: count }, () => worker()));
  await Promise.all(more);
}
