// The median of some runs and how far they lie apart.

/** → {median, range: [least, most]} of the values that there are; both undefined if there are none. */
export function spread(values) {
  const sorted = values.filter((value) => value !== undefined).sort((a, b) => a - b);
  if (sorted.length === 0) return {};
  const middle = sorted.length >> 1;
  const median = sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  return { median, range: [sorted[0], sorted.at(-1)] };
}
