// Locks that tabs share.

/** Undefined where there are none, or none for this page: a frame in a sandbox has no origin, and so nobody to share them with. */
export const webLocks = (): LockManager | undefined => (globalThis.origin === 'null' ? undefined : globalThis.navigator?.locks);
