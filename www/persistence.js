// Asks the browser not to take away what is kept here when it needs room.

/** Some browsers ask the person, who is not to be asked each day; others decide by how much the page is used, which may change. */
const AGAIN_MS = 7 * 86_400_000;

/** To be called when something was kept that is worth it: a conversation, or a model that was chosen. */
export async function askToPersist(preferences, storage = globalThis.navigator?.storage) {
  if (storage?.persist === undefined) return;
  try {
    if (await storage.persisted()) return;
    if (Date.now() - preferences.get('askedToPersist', 0) < AGAIN_MS) return;
    preferences.set('askedToPersist', Date.now());
    await storage.persist();
  } catch {
    // What is kept stays as long as there is room.
  }
}
