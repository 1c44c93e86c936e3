// The sections of a wasm, as the WebAssembly specification has them (Binary Format, Modules). Built-in modules only.

/** Their ids. */
export const SECTION = { custom: 0, import: 2, function: 3, code: 10, data: 11 };
/** What the custom section of names has of functions. */
export const NAMES_OF_FUNCTIONS = 1;

/** Reads what a wasm is made of. */
export class Reader {
  constructor(bytes, at = 0) {
    this.bytes = bytes;
    this.at = at;
  }

  byte() {
    return this.bytes[this.at++];
  }

  /** An unsigned LEB128 number. */
  number() {
    let value = 0;
    for (let factor = 1; ; factor *= 128) {
      const byte = this.byte();
      value += (byte & 127) * factor;
      if (byte < 128) return value;
    }
  }

  take(length) {
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }

  text() {
    return this.take(this.number()).toString('utf8');
  }
}

/** A number as the same bytes. */
export function number(value) {
  const bytes = [];
  for (let rest = value; ; rest = Math.floor(rest / 128)) {
    if (rest < 128) return Buffer.from([...bytes, rest]);
    bytes.push((rest % 128) + 128);
  }
}

/** A text as the same bytes. */
export function text(value) {
  const bytes = Buffer.from(value);
  return Buffer.concat([number(bytes.length), bytes]);
}

/** What `read` makes of each of a section's entries. */
export function entries(section, read) {
  const reader = new Reader(section);
  return Array.from({ length: reader.number() }, () => read(reader));
}

/** The sections of a wasm: their ids, the names of custom ones, their bytes, and these with id and length. */
export function* sections(wasm) {
  const reader = new Reader(wasm, 8);
  while (reader.at < wasm.length) {
    const start = reader.at;
    const id = reader.byte();
    const length = reader.number();
    const end = reader.at + length;
    const name = id === SECTION.custom ? reader.text() : '';
    yield { id, name, bytes: wasm.subarray(reader.at, end), whole: wasm.subarray(start, end) };
    reader.at = end;
  }
}

/** How many functions a wasm imports, by its section of imports. */
export function importedFunctions(section) {
  const reader = new Reader(section);
  let functions = 0;
  for (let left = reader.number(); left > 0; left--) {
    reader.text();
    reader.text();
    const kind = reader.byte();
    if (kind === 0) functions += 1;
    // A table's type comes before its limits.
    if (kind === 0 || kind === 1 || kind === 3) reader.number();
    if (kind === 3) reader.byte();
    if (kind === 1 || kind === 2) {
      const hasMost = reader.number() & 1;
      reader.number();
      if (hasMost) reader.number();
    }
  }
  return functions;
}
