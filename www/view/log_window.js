// Which messages of a conversation are drawn. Knows nothing of how they look.

/** Messages that are drawn when a conversation is opened: thousands would let the page stand still for seconds. */
const MOST = 60;

/** Which messages of a long conversation are drawn: its end, and more of what comes before when the reader gets there. */
export class LogWindow {
  #id;
  #from = 0;

  /** The index of the first message that is drawn, of `length` in the conversation `id`. */
  from(id, length) {
    if (id !== this.#id) {
      this.#id = id;
      this.#from = Infinity;
    }
    // What is drawn stays while the conversation grows.
    this.#from = Math.min(this.#from, Math.max(0, length - MOST));
    return this.#from;
  }

  /** Draws more; false if all is drawn. */
  grow() {
    if (!(this.#from > 0)) return false;
    this.#from = Math.max(0, this.#from - MOST);
    return true;
  }
}
