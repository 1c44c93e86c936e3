// Where conversations stay: two stores of IndexedDB, one of conversations and one of their messages, so that two tabs that write to one
// conversation add to it and overwrite nothing. Where the browser keeps nothing they live as long as the page does.

import { openDB } from 'idb';

const CHANNEL = 'rillm-conversations';

/** `onChange({id, deleted})` hears what other tabs changed; `onProblem(error)` that something could not be kept. */
export async function openStore({ onChange = () => {}, onProblem = () => {} } = {}) {
  try {
    return new Store(await openDatabase(), onChange);
  } catch (error) {
    onProblem(error);
    return new MemoryStore();
  }
}

function openDatabase() {
  return openDB('rillm', 1, {
    upgrade(database) {
      database.createObjectStore('conversations', { keyPath: 'id' });
      database.createObjectStore('messages', { keyPath: 'id' }).createIndex('conversation', 'conversation');
    },
    // A tab with a newer version of this page wants to change the database.
    blocking: (_now, _wanted, { target }) => target.close(),
  });
}

class Store {
  isKept = true;
  #database;
  #channel;

  constructor(database, onChange) {
    this.#database = database;
    this.#channel = new BroadcastChannel(CHANNEL);
    this.#channel.onmessage = ({ data }) => onChange(data);
  }

  /** All conversations, the one that was changed last first. */
  async list() {
    return byTime(await this.#database.getAll('conversations'));
  }

  /** {conversation, messages: Map}; undefined if it is not there. */
  async read(id) {
    const transaction = this.#database.transaction(['conversations', 'messages']);
    const [conversation, messages] = await Promise.all([
      transaction.objectStore('conversations').get(id),
      transaction.objectStore('messages').index('conversation').getAll(id),
    ]);
    return conversation && { conversation, messages: mapOf(messages) };
  }

  /** Keeps a conversation and, of its messages, those in `messages`. */
  write(conversation, messages = []) {
    return this.writeAll([{ conversation, messages }]);
  }

  /** Keeps all of [{conversation, messages: list}], or none. */
  async writeAll(all) {
    const transaction = this.#database.transaction(['conversations', 'messages'], 'readwrite');
    transaction.done.catch(() => {});
    const asked = [];
    const put = (name, value) => {
      const kept = transaction.objectStore(name).put(value);
      // If another one fails first, nobody waits for this one.
      kept.catch(() => {});
      asked.push(kept);
    };
    try {
      for (const { conversation, messages } of all) {
        put('conversations', conversation);
        for (const message of messages) put('messages', message);
      }
      await Promise.all([...asked, transaction.done]);
    } catch (error) {
      // What was put before would stay otherwise.
      try {
        transaction.abort();
      } catch {
        // The database has done so itself.
      }
      throw error;
    }
    for (const { conversation } of all) this.#tell(conversation.id);
  }

  /** Changes what is kept of a conversation; resolves to false if another tab has deleted it, and then nothing of it comes back. */
  async update(conversation, messages = []) {
    const transaction = this.#database.transaction(['conversations', 'messages'], 'readwrite');
    const all = transaction.objectStore('conversations');
    if ((await all.getKey(conversation.id)) === undefined) {
      await transaction.done;
      return false;
    }
    await Promise.all([
      all.put(conversation),
      ...messages.map((message) => transaction.objectStore('messages').put(message)),
      transaction.done,
    ]);
    this.#tell(conversation.id);
    return true;
  }

  async delete(id) {
    const transaction = this.#database.transaction(['conversations', 'messages'], 'readwrite');
    const messages = transaction.objectStore('messages');
    const keys = await messages.index('conversation').getAllKeys(id);
    await Promise.all([transaction.objectStore('conversations').delete(id), ...keys.map((key) => messages.delete(key)), transaction.done]);
    this.#tell(id, true);
  }

  /** The ids of conversations that have these words in their title or in a message, whatever the case. */
  async search(words) {
    const fits = matcher(words);
    const found = new Set();
    for (const { id, title } of await this.#database.getAll('conversations')) if (fits(title)) found.add(id);
    // One message after the other: all of them together may be more than a page should hold.
    for (let cursor = await this.#database.transaction('messages').store.openCursor(); cursor !== null; cursor = await cursor.continue()) {
      const { conversation, content } = cursor.value;
      if (!found.has(conversation) && fits(content)) found.add(conversation);
    }
    return found;
  }

  #tell(id, deleted = false) {
    this.#channel.postMessage({ id, deleted });
  }
}

/** The same where there is no database. */
class MemoryStore {
  isKept = false;
  #all = new Map();

  async list() {
    return byTime([...this.#all.values()].map(({ conversation }) => ({ ...conversation })));
  }

  async read(id) {
    const found = this.#all.get(id);
    return found && structuredClone(found);
  }

  async write(conversation, messages = []) {
    const { messages: known = new Map() } = this.#all.get(conversation.id) ?? {};
    for (const message of messages) known.set(message.id, structuredClone(message));
    this.#all.set(conversation.id, { conversation: { ...conversation }, messages: known });
  }

  async writeAll(all) {
    for (const { conversation, messages } of all) await this.write(conversation, messages);
  }

  async update(conversation, messages) {
    if (!this.#all.has(conversation.id)) return false;
    await this.write(conversation, messages);
    return true;
  }

  async delete(id) {
    this.#all.delete(id);
  }

  async search(words) {
    const fits = matcher(words);
    const found = [...this.#all].filter(
      ([, { conversation, messages }]) => fits(conversation.title) || [...messages.values()].some(({ content }) => fits(content)),
    );
    return new Set(found.map(([id]) => id));
  }
}

const mapOf = (messages) => new Map(messages.map((message) => [message.id, message]));
export const byTime = (all) => all.sort((a, b) => b.updated - a.updated);

/** Whether a text has these words, whatever the case. */
export function matcher(words) {
  const wanted = words.trim().toLocaleLowerCase();
  return (text) => text.toLocaleLowerCase().includes(wanted);
}
