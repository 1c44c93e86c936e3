// The form of an answer: any text, JSON, or JSON that a schema allows. Says what is wrong with a schema while it is written, and whether an answer keeps to
// it. The engine holds the answer to the schema itself; this is so that a person can see it.

import { Validator } from '@cfworker/json-schema';

/** What an answer can be held to. */
export const FORMS = ['text', 'json', 'schema'];

const TYPES = ['object', 'array', 'string', 'number', 'integer', 'boolean', 'null'];

export const EXAMPLE_SCHEMA = `{
  "type": "object",
  "properties": {
    "name": { "type": "string" },
    "age": { "type": "integer", "minimum": 0 }
  },
  "required": ["name", "age"]
}`;

/** {schema} or {fault} in words. */
export function readSchema(text) {
  let schema;
  try {
    schema = JSON.parse(text);
  } catch (error) {
    return { fault: text.trim() === '' ? 'The schema is empty.' : `The schema is no JSON: ${error.message}.` };
  }
  if (typeof schema !== 'boolean' && (typeof schema !== 'object' || schema === null || Array.isArray(schema)))
    return { fault: 'A schema is an object, or true or false.' };
  const fault = faultIn(schema, 'the schema');
  return fault === undefined ? { schema } : { fault: `${fault}.` };
}

/** The mistakes that people make: a type that JSON has not, and lists and objects that are something else. */
function faultIn(schema, where) {
  if (typeof schema !== 'object' || schema === null || Array.isArray(schema))
    return typeof schema === 'boolean' ? undefined : `In ${where} stands no schema`;
  const wrong = [schema.type ?? []].flat().find((type) => !TYPES.includes(type));
  if (wrong !== undefined) return `${where} has the type ${JSON.stringify(wrong)}, which JSON has not: there are ${TYPES.join(', ')}`;
  if (schema.required !== undefined && !(Array.isArray(schema.required) && schema.required.every((name) => typeof name === 'string')))
    return `“required” of ${where} has to be a list of names`;
  if (schema.enum !== undefined && !Array.isArray(schema.enum)) return `“enum” of ${where} has to be a list`;
  if (schema.properties !== undefined) {
    if (typeof schema.properties !== 'object' || schema.properties === null || Array.isArray(schema.properties))
      return `“properties” of ${where} has to be an object`;
    for (const [name, inner] of Object.entries(schema.properties)) {
      const fault = faultIn(inner, `“${name}”`);
      if (fault !== undefined) return fault;
    }
  }
  if (schema.items !== undefined && !Array.isArray(schema.items)) return faultIn(schema.items, `“items” of ${where}`);
  return undefined;
}

/** What a request says of it; undefined for any text. `fault` where it can't be asked for. */
export function responseFormat({ kind, schema: text }) {
  if (kind === 'json') return { format: { type: 'json_object' } };
  if (kind !== 'schema') return {};
  const { schema, fault } = readSchema(text);
  return fault === undefined ? { format: { type: 'json_schema', json_schema: { name: 'answer', schema } } } : { fault };
}

/** Whether a text is JSON, and JSON that the schema allows: {valid, words}. */
export function judged(text, schema) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    return { valid: false, words: 'The answer is no complete JSON.' };
  }
  if (schema === undefined) return { valid: true, words: 'Valid JSON.' };
  try {
    const { valid, errors } = new Validator(schema, '2020-12', true).validate(value);
    return valid
      ? { valid, words: 'Valid by the schema.' }
      : { valid, words: `Not valid by the schema: ${errors.at(-1)?.error ?? 'no reason is known'}` };
  } catch (error) {
    return { valid: false, words: `The schema can’t be checked here: ${error.message}` };
  }
}
