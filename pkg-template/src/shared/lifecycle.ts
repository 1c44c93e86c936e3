// When a page stops to run and may come back: it is put into the back/forward cache, or frozen. What runs for others must be given away
// before, since a page that stands still answers nobody.

/** Calls `suspend` before the page stands still or goes, and `resume` when it runs again. Returns what ends that. */
export function watchPage(suspend: () => void, resume: () => void = () => {}): () => void {
  const page = globalThis.document === undefined ? undefined : globalThis;
  const listeners: [EventTarget | undefined, string, () => void][] = [
    [page, 'pagehide', suspend],
    [page, 'pageshow', resume],
    [page?.document, 'freeze', suspend],
    [page?.document, 'resume', resume],
  ];
  for (const [target, type, listener] of listeners) target?.addEventListener(type, listener);
  return () => {
    for (const [target, type, listener] of listeners) target?.removeEventListener(type, listener);
  };
}
