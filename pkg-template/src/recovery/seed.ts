/** A seed for a request that has none, so that its answer can be generated again. */
export const randomSeed = (): number => crypto.getRandomValues(new Uint32Array(1))[0]!;
