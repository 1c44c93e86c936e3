// Workers that share what waits, and one more as soon as there is a core for it.

/**
 * Runs `worker`, which takes from what waits until nothing does, `count` times at once, and once more when `coreIsFree` resolves, if something
 * waits then. Rejects when one of them does.
 */
export async function runWorkers(count, worker, coreIsFree, somethingWaits) {
  let oneMore;
  const free = coreIsFree.then(() => {
    if (somethingWaits()) oneMore = worker();
    return oneMore;
  });
  // It may fail before the others end, and is waited for after them.
  free.catch(() => {});
  await Promise.all(Array.from({ length: count }, () => worker()));
  await oneMore;
}
