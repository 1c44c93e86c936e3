// Texts as they may come from anywhere. Pure functions.

/** A text without halves of characters, which no tokenizer can read. */
export function wellFormed(text) {
  return text.toWellFormed?.() ?? text.replace(/[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/g, '\uFFFD');
}
