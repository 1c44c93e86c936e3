// The messages of a conversation are a tree: an edited question and an answer that is written again are siblings of what they replace, so nothing
// is lost. Pure functions over a map from id to message. Knows nothing of how messages are kept or shown.

/** An id that no other tab gives. `crypto.randomUUID` is missing on pages that are not served securely. */
export function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** The messages from the first one to `leaf`, in order. A parent that is missing or a circle, as a broken import may have, ends the path. */
export function pathTo(messages, leaf) {
  const path = [];
  const seen = new Set();
  for (let message = messages.get(leaf); message !== undefined && !seen.has(message.id); message = messages.get(message.parent)) {
    seen.add(message.id);
    path.push(message);
  }
  return path.reverse();
}

function childrenOf(messages, parent) {
  return [...messages.values()].filter((message) => message.parent === parent).sort((a, b) => a.created - b.created);
}

/** A message with its siblings, oldest first: the versions between which a reader can change. */
export function versionsOf(messages, { parent }) {
  return childrenOf(messages, parent);
}

/** The newest message that can be reached from here by always taking the newest child. */
export function newestLeaf(messages, id) {
  const seen = new Set();
  for (let at = id; ; ) {
    seen.add(at);
    const child = childrenOf(messages, at).at(-1);
    if (child === undefined || seen.has(child.id)) return at;
    at = child.id;
  }
}

/** The results of a message's calls: what follows it directly. Ids of calls may come again later in a conversation. */
export function resultsOf(path, { id }) {
  const after = path.slice(path.findIndex((message) => message.id === id) + 1);
  const end = after.findIndex(({ role }) => role !== 'tool');
  return end < 0 ? after : after.slice(0, end);
}

/** The calls of a message that have no result yet; undefined where it has no calls, or the conversation went on without them. */
export function openCalls(path, message) {
  const { calls = [] } = message;
  const results = resultsOf(path, message);
  if (calls.length === 0 || path.at(-1)?.id !== (results.at(-1) ?? message).id) return undefined;
  return calls.filter(({ id }) => !results.some(({ call }) => call === id));
}

/** Units of a text that are looked at for each letter of a title: an emoji of a family has eleven. */
const UNITS = 40;

/** The first words of a text, as a title; never cut inside a character that is made of several units. */
export function titleOf(text, most = 60) {
  const line = text.trim().split('\n', 1)[0];
  const letters = [...new Intl.Segmenter(undefined, { granularity: 'grapheme' }).segment(line.slice(0, (most + 1) * UNITS))];
  return letters.length <= most ? line : `${line.slice(0, letters[most].index).trimEnd()}…`;
}
