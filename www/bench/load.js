// Seconds from the call of Engine.load to an engine that is ready, by where the bytes come from. Knows the package's public face only.

import { median } from './measure.js';

/**
 * Loads a model again and again and disposes of it: kept nowhere, downloaded and kept, the same with its SHA-256 compared if `integrity` is
 * given, and from the cache. → {adapter, layers, autotune, bytes, kinds: [{name, ms, range, bytes_per_s}]}
 */
export async function measureLoads(Engine, models, source, { integrity, repetitions = 3, onRow, ...load } = {}) {
  let found;
  const loadOnce = async (options) => {
    let bytes = 0;
    const begin = performance.now();
    const engine = await Engine.load(source, { ...load, ...options, onProgress: ({ total }) => (bytes = total) });
    const ms = performance.now() - begin;
    const { adapter, layers, autotune } = engine.info;
    found = { adapter, layers, autotune, bytes };
    await engine.dispose();
    return ms;
  };
  const forget = () => models.delete(source);
  const kinds = [
    ['not kept', { cache: 'none' }, () => {}],
    ['downloaded and kept', {}, forget],
    ...(integrity === undefined ? [] : [['downloaded, kept and compared', { integrity }, forget]]),
    ['from the cache', {}, () => {}],
  ];
  // Kernels are compiled and tuned by the first load.
  await loadOnce({ cache: 'none' });
  const times = kinds.map(() => []);
  for (let run = 0; run < repetitions; run++) {
    for (const [index, [, options, before]] of kinds.entries()) {
      await before();
      times[index].push(await loadOnce(options));
    }
  }
  await forget();
  const rows = kinds.map(([name], index) => {
    const ms = median(times[index]);
    return { name, ms, range: [Math.min(...times[index]), Math.max(...times[index])], bytes_per_s: (found.bytes / ms) * 1000 };
  });
  for (const row of rows) onRow?.(row);
  return { ...found, kinds: rows };
}
