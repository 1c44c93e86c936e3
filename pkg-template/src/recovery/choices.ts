/** How many answers a request asks for; the engine says whether that is too many. */
export function choicesOf(request: unknown): number {
  const { n } = (request ?? {}) as { n?: unknown };
  return typeof n === 'number' && Number.isInteger(n) && n > 0 ? n : 1;
}
