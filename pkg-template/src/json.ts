// Data of callers, copied as JSON has it: a request that crosses to a worker, another tab or the wasm is the same for all of them, and nobody can change
// it any more. What JSON would leave out or change without a word is refused by its place.

import { describe, isRecord, reading, refuse } from './arguments.js';

/** The wasm refuses what is nested deeper than 128. */
const MOST_DEPTH = 100;

/** `what` names all of it in messages, and places in it are named by their fields. */
export function dataOf(what: string, value: unknown): unknown {
  return reading(what, () => copied(value, what, '', []));
}

/** The same of what has to be an object. */
export function objectOf(what: string, example: string, value: unknown): Record<string, unknown> {
  if (!reading(what, () => isRecord(value))) {
    refuse(`${what} is an object such as ${example}, got ${describe(value)}`);
  }
  return dataOf(what, value) as Record<string, unknown>;
}

function copied(value: unknown, what: string, path: string, around: object[]): unknown {
  const place = path === '' ? what : path;
  switch (typeof value) {
    case 'string':
      // As wherever JavaScript makes UTF-8 of a text: half of a pair is no character.
      return value.replace(/\p{Surrogate}/gu, '\ufffd');
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
  return value === null ? null : reading(place, () => copiedObject(value, what, path, around));
}

function copiedObject(value: object, what: string, path: string, around: object[]): unknown {
  const place = path === '' ? what : path;
  if (ArrayBuffer.isView(value)) refuse(`${place} is a typed array, which JSON doesn't have: make an array of it with Array.from()`);
  const isConverted = 'toJSON' in value && typeof value.toJSON === 'function';
  const own: unknown = isConverted ? (value as { toJSON(): unknown }).toJSON() : value;
  if (typeof own !== 'object' || own === null) return copied(own, what, path, around);
  if (around.includes(own)) refuse(`${place} holds itself`);
  if (around.length >= MOST_DEPTH) refuse(`${place} is nested too deep: at most ${MOST_DEPTH} objects and arrays lie in each other`);
  const inside = [...around, own];
  const isList = Array.isArray(own);
  const at = (name: string | number) => (path !== '' ? `${path}.${name}` : isList ? `${what}.${name}` : String(name));
  const parts: unknown[] = [];
  for (let index = 0; isList && index < own.length; index++) {
    const part: unknown = own[index];
    if (part === undefined) refuse(`${at(index)} is undefined`);
    parts.push(copied(part, what, at(index), inside));
  }
  if (isList) return parts;
  const fields = Object.keys(own).map((name) => [name, reading(at(name), () => (own as Record<string, unknown>)[name])] as const);
  // A field set to undefined is an absent field.
  const given = fields.filter(([, part]) => part !== undefined);
  return Object.fromEntries(given.map(([name, part]) => [name, copied(part, what, at(name), inside)]));
}
