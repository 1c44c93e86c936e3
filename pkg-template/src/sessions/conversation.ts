// From what a caller wants saved to the fields of a chat, and back to a response that is kept. It knows nothing of files.

import { describe, refuse } from '../arguments.js';
import { EngineError, toEngineError } from '../errors.js';
import { dataOf } from '../json.js';
import { effortInTemplate } from '../reasoning_effort.js';
import { isObject, type Json, onlyFields, textAt } from '../responses/fields.js';
import { itemsOf, messagesOf } from '../responses/input.js';
import { readRequest } from '../responses/request.js';
import type { ResponseStore } from '../responses/store.js';
import type { ModelResponse, ResponseItem } from '../responses/types.js';

/** What goes into a session: a conversation for the model, and what the caller gets back besides. */
export interface Saved {
  conversation: Json;
  attachment?: KeptResponse;
}

/** A response, as the store takes it. */
interface KeptResponse {
  response: ModelResponse;
  input: ResponseItem[];
  output: ResponseItem[];
}

/** What is to be saved, as data of our own, which the caller can't change any more. */
export function savedOf(given: unknown, store: ResponseStore): Saved {
  if (typeof given !== 'object' || given === null) {
    return refuse(`a conversation is an array of messages or an object such as {messages: […]}, got ${describe(given)}`);
  }
  const copy = dataOf('the conversation', given) as Json | unknown[];
  const data = Array.isArray(copy) ? { messages: copy } : copy;
  return 'response' in data ? responseSaved(data, store) : { conversation: effortInTemplate(data) };
}

/** The conversation that a response ends, as its endpoint shows it to the model. */
function responseSaved(given: Json, store: ResponseStore): Saved {
  onlyFields('the conversation', given, ['response', 'chat_template', 'chat_template_kwargs']);
  const { response: id, ...template } = given;
  const kept = store.kept(textAt('the conversation.response', id));
  const { instructions, tools, tool_choice, parallel_tool_calls, reasoning } = kept.response;
  const { chat } = readRequest({ tools, tool_choice, parallel_tool_calls, reasoning } as unknown as Json);
  const messages = messagesOf(instructions, [...kept.input, ...kept.output]);
  return { conversation: effortInTemplate({ ...chat, ...template, messages }), attachment: kept };
}

/** Keeps the response of a session again, if it is of one; undefined if it isn't, or if there is no room for it. */
export function keepAgain(attachment: unknown, store: ResponseStore): ModelResponse | undefined {
  if (attachment === undefined) return undefined;
  const { response, input, output } = checked(attachment);
  if (!store.has(response.id)) store.put(response, input, output);
  return store.has(response.id) ? store.response(response.id) : undefined;
}

/** A file may say anything. */
function checked(attachment: unknown): KeptResponse {
  try {
    const { response, input, output } = attachment as KeptResponse;
    if (!isObject(response) || typeof response.id !== 'string') refuse('its response has no id');
    if (![...input, ...output].every((item) => isObject(item) && typeof item.id === 'string')) refuse('an item has no id');
    messagesOf(null, [...itemsOf(input, () => undefined), ...itemsOf(output, () => undefined)]);
    return { response, input, output };
  } catch (thrown) {
    throw new EngineError('invalid_file', `the session holds no response as it says: ${toEngineError(thrown).message}`, { cause: thrown });
  }
}
