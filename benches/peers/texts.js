// Texts of a given length in the vocabularies of the synthetic models (synthetic/vocabulary.py), in which each letter is a token.

const LETTERS = 'abcdefghijklmnopqrstuvwxyz';

/** A text of so many tokens; each of the first 676 numbers gives one that its first two tokens tell from the others. */
export function textOf(tokens, number) {
  const [first, second] = [number % 26, Math.floor(number / 26) % 26];
  return Array.from({ length: tokens }, (_, i) => ` ${LETTERS[[first, second][i] ?? (first + second + i * 7) % 26]}`).join('');
}
