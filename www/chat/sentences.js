// Cuts a text that is still being written into sentences, for screen readers: half a sentence is worse to hear than a moment of silence.

/** A sentence ends at a line's end, or at a full stop and the like with a space after it. */
const END = /[.!?…。！？]["'”’)\]]*\s|\n/g;

export class Sentences {
  #waiting = '';

  /** More of the text; gives the sentences that are complete by now. */
  push(text) {
    this.#waiting += text;
    let end = 0;
    for (const found of this.#waiting.matchAll(END)) end = found.index + found[0].length;
    const whole = this.#waiting.slice(0, end);
    this.#waiting = this.#waiting.slice(end);
    return spoken(whole);
  }

  /** What is left when the text ends. */
  end() {
    const rest = this.#waiting;
    this.#waiting = '';
    return spoken(rest);
  }
}

/** Without the signs of Markdown, which would be read out. */
function spoken(text) {
  return text
    .replace(/^\s*(?:[#>]+|[-*+]|```.*|\|?[-:| ]+\|?)\s*$|^\s*(?:#+|>|[-*+])\s/gm, '')
    .replace(/[*`]+/g, '')
    .replace(/\|/g, ' ')
    .replace(/\s+/g, ' ')
    .trim();
}
