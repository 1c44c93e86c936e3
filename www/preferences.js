// What the page remembers besides conversations: settings, the last model, prompts that were kept. Where the browser keeps nothing, it is forgotten with
// the page.

const KEY = 'rillm-preferences';

export class Preferences {
  #values = keptValues() ?? {};

  /** A value, if one of this type is kept. */
  get(name, fallback) {
    const value = this.#values[name];
    const isSame = typeof value === typeof fallback && Array.isArray(value) === Array.isArray(fallback) && value !== null;
    return isSame ? value : fallback;
  }

  set(name, value) {
    // What another tab has changed since stays.
    this.#values = { ...(keptValues() ?? this.#values), [name]: value };
    try {
      localStorage.setItem(KEY, JSON.stringify(this.#values));
    } catch {
      // No room, or no right to: it holds until the page goes.
    }
  }
}

function keptValues() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEY) ?? '{}');
    return typeof kept === 'object' && kept !== null && !Array.isArray(kept) ? kept : {};
  } catch {
    return undefined;
  }
}

/** What a tab remembers over a reload; null where it remembers nothing. */
export function tabGet(name) {
  try {
    return sessionStorage.getItem(name);
  } catch {
    return null;
  }
}

export function tabSet(name, value) {
  try {
    sessionStorage.setItem(name, value);
  } catch {
    // Forgotten with the page, then.
  }
}
