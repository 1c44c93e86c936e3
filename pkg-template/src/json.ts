// Data of callers, copied as JSON has it: a request that crosses to a worker, another tab or the wasm is the same for all of them, and nobody can change
// it any more. What JSON would leave out or change without a word is refused by its place.

import { describe, isRecord, reading, refuse } from './arguments.js';

/** The wasm refuses what is nested deeper than 128. */
const MOST_DEPTH = 100;

/**
 * How much there may be of it, in what a number of a list costs. An object that is referred to often counts each time: a few objects, each of which refers
 * twice to the next, are a text of any length.
 */
const MOST_COST = 2 ** 24;
/** Of an object, a list, a field or a text, whose characters cost besides. */
const COST = 16;
const CHARACTERS_FOR_ONE = 4;

/** Of which JSON would make an empty object. */
const WITHOUT_FIELDS = [
  'Map',
  'Set',
  'WeakMap',
  'WeakSet',
  'Promise',
  'ArrayBuffer',
  'SharedArrayBuffer',
  'RegExp',
  'Blob',
  'File',
  'FormData',
];

/** A copy that is being made: what it is called, and how much of it there may still be. */
interface Copy {
  what: string;
  left: number;
}

/** An error that names the place with which it is too much. */
function pay(copy: Copy, cost: number, place: string): void {
  copy.left -= cost;
  if (copy.left >= 0) return;
  const [values, numbers, characters] = [MOST_COST / COST, MOST_COST, MOST_COST * CHARACTERS_FOR_ONE].map((n) => n.toLocaleString('en'));
  refuse(
    `${place === copy.what ? place : `${copy.what} with ${place}`} is too large: at most ${values} objects, lists, fields and texts, or ${numbers} numbers, or ${characters} characters`,
  );
}

/** Refuses a text that is longer than a request's may be. */
export function checkLength(what: string, text: string): void {
  pay({ what, left: MOST_COST }, COST + text.length / CHARACTERS_FOR_ONE, what);
}

/** A text as wherever JavaScript makes UTF-8 of one: half of a surrogate pair is no character. */
export function wellFormed(text: string): string {
  return text.replace(/\p{Surrogate}/gu, '\ufffd');
}

/** `what` names all of it in messages, and places in it are named by their fields. */
export function dataOf(what: string, value: unknown): unknown {
  return reading(what, () => copied(value, { what, left: MOST_COST }, '', []));
}

/** The same of what has to be an object. */
export function objectOf(what: string, example: string, value: unknown): Record<string, unknown> {
  if (!reading(what, () => isRecord(value))) {
    refuse(`${what} is an object such as ${example}, got ${describe(value)}`);
  }
  return dataOf(what, value) as Record<string, unknown>;
}

function copied(value: unknown, copy: Copy, path: string, around: object[]): unknown {
  const place = path === '' ? copy.what : path;
  switch (typeof value) {
    case 'string':
      pay(copy, COST + value.length / CHARACTERS_FOR_ONE, place);
      return wellFormed(value);
    case 'number':
      if (!Number.isFinite(value)) refuse(`${place} is ${value}, wanted a number`);
      return value;
    case 'function':
      return refuse(
        `${place} is a function, and a request is data; a logits processor goes into the second argument: create(request, {logitsProcessor})`,
      );
    case 'bigint':
    case 'symbol':
      return refuse(`${place} is a ${typeof value}, which JSON can't hold`);
    case 'object':
      break;
    default:
      return value;
  }
  pay(copy, COST, place);
  return value === null ? null : reading(place, () => copiedObject(value, copy, path, around));
}

function copiedObject(value: object, copy: Copy, path: string, around: object[]): unknown {
  const place = path === '' ? copy.what : path;
  if (ArrayBuffer.isView(value)) refuse(`${place} is a typed array, which JSON doesn't have: make an array of it with Array.from()`);
  const isConverted = 'toJSON' in value && typeof value.toJSON === 'function';
  const own: unknown = isConverted ? (value as { toJSON(): unknown }).toJSON() : value;
  if (typeof own !== 'object' || own === null) return copied(own, copy, path, around);
  const kind = Object.prototype.toString.call(own).slice('[object '.length, -1);
  if (WITHOUT_FIELDS.includes(kind)) refuse(`${place} is a ${kind}, which JSON can't hold: make an object or an array of it`);
  if (around.includes(own)) refuse(`${place} holds itself`);
  if (around.length >= MOST_DEPTH) refuse(`${place} is nested too deep: at most ${MOST_DEPTH} objects and arrays lie in each other`);
  const inside = [...around, own];
  const isList = Array.isArray(own);
  const at = (name: string | number) => (path !== '' ? `${path}.${name}` : isList ? `${copy.what}.${name}` : String(name));
  const parts: unknown[] = [];
  // Of a proxy it may be another one each time.
  const length = isList ? own.length : 0;
  pay(copy, length, place);
  for (let index = 0; index < length; index++) {
    const part: unknown = (own as unknown[])[index];
    if (part === undefined) refuse(`${at(index)} is undefined`);
    parts.push(copied(part, copy, at(index), inside));
  }
  if (isList) return parts;
  const names = Object.keys(own);
  pay(copy, COST * names.length, place);
  const fields = names.map((name) => [name, reading(at(name), () => (own as Record<string, unknown>)[name])] as const);
  // A field set to undefined is an absent field.
  const given = fields.filter(([, part]) => part !== undefined);
  return Object.fromEntries(given.map(([name, part]) => [name, copied(part, copy, at(name), inside)]));
}
