// Tells a page of HTML by its first bytes, as browsers do (WHATWG MIME Sniffing, section 7.1): what servers send for a login, for a file
// that is not there or for an error, whatever they call it.

/** Bytes that tell, after white space. */
const ENOUGH = 16;
const SPACE = [9, 10, 12, 13, 32];
/** White space that a page may begin with. */
const MOST_SPACE = 64 << 10;
const START =
  /^<(!--|(!doctype|\?xml|html|head|body|title|meta|link|style|script|iframe|h1|div|center|font|table|form|p|a|b|br)([\s/>]|$))/i;
/** By their marks of byte order. */
const ENCODINGS: [mark: number[], label: string][] = [
  [[0xef, 0xbb, 0xbf], 'utf-8'],
  [[0xff, 0xfe], 'utf-16le'],
  [[0xfe, 0xff], 'utf-16be'],
];

/** Whether a file that begins with these bytes, or that is no more than these, is a page; undefined if it takes more of them to tell. */
export function isHtml(bytes: Uint8Array, isWhole = false): boolean | undefined {
  if (bytes.length < 3 && !isWhole) return undefined;
  const [mark, label] = ENCODINGS.find(([mark]) => mark.every((byte, at) => bytes[at] === byte)) ?? [[], 'utf-8'];
  const unit = label === 'utf-8' ? 1 : 2;
  const start = spaceEnd(bytes, mark.length, unit, label === 'utf-16be' ? 1 : 0);
  if (start >= MOST_SPACE) return false;
  const head = bytes.subarray(start, start + ENOUGH * unit);
  const text = new TextDecoder(label).decode(head);
  if (text !== '' && !text.startsWith('<')) return false;
  if (head.length < ENOUGH * unit && !isWhole) return undefined;
  // The header of safetensors begins with a small number of 64 bits, which may look like a short tag.
  return !text.includes('\0') && START.test(text);
}

/** Where the white space from `at` ends; `low` is where the lower byte of a character is. */
function spaceEnd(bytes: Uint8Array, at: number, unit: number, low: number): number {
  let end = at;
  while (end + unit <= bytes.length && SPACE.includes(bytes[end + low]!) && (unit === 1 || bytes[end + 1 - low] === 0)) end += unit;
  return end;
}
