// Checks of fields that come as JSON. An error names the field.

import { describe, refuse } from '../arguments.js';

export type Json = Record<string, unknown>;

export function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function objectAt(at: string, value: unknown): Json {
  return isObject(value) ? value : refuse(`${at} is ${describe(value)}, wanted an object`);
}

export function arrayAt(at: string, value: unknown): unknown[] {
  return Array.isArray(value) ? value : refuse(`${at} is ${describe(value)}, wanted an array`);
}

export function textAt(at: string, value: unknown): string {
  return typeof value === 'string' ? value : refuse(`${at} is ${describe(value)}, wanted a text`);
}

export function booleanAt(at: string, value: unknown): boolean {
  return typeof value === 'boolean' ? value : refuse(`${at} is ${describe(value)}, wanted true or false`);
}

export function wholeNumberAt(at: string, value: unknown, least: number, most = Number.MAX_SAFE_INTEGER): number {
  const range = most === Number.MAX_SAFE_INTEGER ? `from ${least}` : `from ${least} to ${most}`;
  if (Number.isInteger(value) && (value as number) >= least && (value as number) <= most) return value as number;
  return refuse(`${at} is ${describe(value)}, wanted a whole number ${range}`);
}

export function oneOf<const Name extends string>(at: string, value: unknown, names: readonly Name[]): Name {
  if ((names as readonly unknown[]).includes(value)) return value as Name;
  return refuse(`${at} is ${describe(value)}, wanted ${names.map((name) => `"${name}"`).join(', ')}`);
}

/** Refuses fields that are set and have another name. */
export function onlyFields(at: string, value: Json, names: readonly string[]): void {
  const unknown = Object.keys(value).find((name) => value[name] !== null && !names.includes(name));
  if (unknown !== undefined) refuse(`${at}.${unknown} is not supported here: there are ${names.join(', ')}`);
}
