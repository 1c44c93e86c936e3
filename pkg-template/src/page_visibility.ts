// Whether anybody sees the page of this thread. While nobody does, no frame waits for the GPU.

/** Calls `tell` now and at each change; never where there is no page. What it returns ends that. */
export function watchVisibility(tell: (isHidden: boolean) => void): () => void {
  const page = globalThis.document as Document | undefined;
  if (typeof page?.addEventListener !== 'function') return () => {};
  const say = () => tell(page.visibilityState === 'hidden');
  page.addEventListener('visibilitychange', say);
  say();
  return () => page.removeEventListener('visibilitychange', say);
}
