// Locks that tabs share.

/**
 * Undefined where there are none, or none for this page: a frame in a sandbox has no origin, and so nobody to share them with, and browsers that
 * keep nothing of a site refuse them too.
 */
export async function webLocks(): Promise<LockManager | undefined> {
  const { locks } = globalThis.navigator ?? {};
  try {
    await locks?.query();
    return locks;
  } catch (thrown) {
    // Whatever else goes wrong, the request will tell.
    return thrown instanceof DOMException && thrown.name === 'SecurityError' ? undefined : locks;
  }
}
