// What the page remembers besides conversations: settings, the last model, prompts that were kept. Where the browser keeps nothing, it is forgotten with
// the page.

const KEY = 'rillm-preferences';

export class Preferences {
  #values;

  constructor() {
    try {
      const kept = JSON.parse(localStorage.getItem(KEY) ?? '{}');
      this.#values = typeof kept === 'object' && kept !== null && !Array.isArray(kept) ? kept : {};
    } catch {
      this.#values = {};
    }
  }

  /** A value, if one of this type is kept. */
  get(name, fallback) {
    const value = this.#values[name];
    const isSame = typeof value === typeof fallback && Array.isArray(value) === Array.isArray(fallback) && value !== null;
    return isSame ? value : fallback;
  }

  set(name, value) {
    this.#values[name] = value;
    try {
      localStorage.setItem(KEY, JSON.stringify(this.#values));
    } catch {
      // No room, or no right to: it holds until the page goes.
    }
  }
}
