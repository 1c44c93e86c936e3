// Conversations as files: JSON, which comes back as it went, and Markdown, which is for reading. Knows nothing of the database.

import { wellFormed } from './text.js';
import { newId, pathTo, titleOf } from './tree.js';

const FORMAT = 'rillm-conversations';
const VERSION = 1;
const ROLES = ['user', 'assistant', 'tool'];
/** What a message may have besides what every message has, and of which type. */
const OPTIONAL = { content: 'string', reasoning: 'string', call: 'string', finish: 'string', model: 'string', cached: 'number' };
/** Objects that a message may have: the fields that the page reads, and of which type. One that lacks a field is left out. */
const OBJECTS = {
  usage: { prompt_tokens: 'number', completion_tokens: 'number', total_tokens: 'number' },
  timings: { tokens_per_s: 'number' },
  error: { code: 'string', message: 'string' },
};
const LONGEST_TITLE = 500;
const NO_TITLE = 'Imported';

/** A file that is no export of this page, in words for the person who chose it. */
export class ImportProblem extends Error {}

/** `all`: [{conversation, messages}], messages as a map or a list. */
export function toJson(all) {
  const conversations = all.map(({ conversation, messages }) => ({ ...conversation, messages: [...messages.values()] }));
  return JSON.stringify({ format: FORMAT, version: VERSION, conversations }, null, 2);
}

/** → [{conversation, messages: Map}], with ids of their own, so that importing a file twice gives two copies and overwrites nothing. */
export function fromJson(text) {
  let data;
  try {
    data = JSON.parse(text);
  } catch (error) {
    throw new ImportProblem(`The file is no JSON: ${error.message}.`);
  }
  if (data?.format !== FORMAT || !Array.isArray(data.conversations)) {
    throw new ImportProblem('The file holds no conversations of this page. Choose one that “Export” or “As JSON” has made.');
  }
  if (data.version !== VERSION)
    throw new ImportProblem(
      `The file has version ${data.version}, and this page reads version ${VERSION}. Reload the page for a newer one.`,
    );
  return data.conversations.map((given, i) => readConversation(given, `Conversation ${i + 1}`));
}

function readConversation(given, where) {
  if (typeof given !== 'object' || given === null || !Array.isArray(given.messages))
    throw new ImportProblem(`${where} has no list of messages.`);
  const { title = NO_TITLE, system = '', created = Date.now(), updated = Date.now(), leaf = null } = given;
  if (typeof title !== 'string' || typeof system !== 'string')
    throw new ImportProblem(`${where}: its title and its system prompt have to be texts.`);
  const id = newId();
  const ids = new Map();
  for (const message of given.messages) {
    if (typeof message?.id !== 'string' || ids.has(message.id)) throw new ImportProblem(`${where}: a message has no id of its own.`);
    ids.set(message.id, newId());
  }
  const messages = new Map();
  given.messages.forEach((message, n) => {
    const at = `${where}, message ${n + 1}`;
    if (!ROLES.includes(message.role))
      throw new ImportProblem(`${at}: its role is ${JSON.stringify(message.role)}, wanted one of ${ROLES.join(', ')}.`);
    const read = { id: ids.get(message.id), conversation: id, parent: ids.get(message.parent) ?? null, role: message.role, content: '' };
    for (const [name, type] of Object.entries(OPTIONAL)) {
      if (message[name] === undefined || message[name] === null) continue;
      if (typeof message[name] !== type) throw new ImportProblem(`${at}: ${name} has to be a ${type}.`);
      read[name] = type === 'string' ? wellFormed(message[name]) : message[name];
    }
    for (const [name, fields] of Object.entries(OBJECTS)) {
      if (message[name] === undefined || message[name] === null) continue;
      const known = Object.entries(message[name]).filter(([, value]) => value !== null);
      for (const [field, type] of Object.entries(fields)) {
        const value = message[name][field];
        // JSON has null for a number without an end.
        if (value !== null && typeof value !== type) throw new ImportProblem(`${at}: ${field} of ${name} has to be a ${type}.`);
      }
      const isWhole = Object.keys(fields).every((field) => known.some(([name]) => name === field));
      if (isWhole) read[name] = Object.fromEntries(known.map(([field, value]) => [field, wellFormedIfText(value)]));
    }
    if (message.format !== undefined && message.format !== null) read.format = readFormat(message.format, at);
    if (message.calls !== undefined) read.calls = readCalls(message.calls, at);
    read.created = Number.isFinite(message.created) ? message.created : n;
    read.state =
      message.state === 'failed' || message.state === 'interrupted' ? message.state : message.state === 'writing' ? 'interrupted' : 'done';
    messages.set(read.id, read);
  });
  if (given.tools !== undefined && !(Array.isArray(given.tools) && given.tools.every(isTool)))
    throw new ImportProblem(`${where}: its tools have to be a list of functions as in OpenAI’s API.`);
  const conversation = {
    id,
    title: titleOf(wellFormed(title), LONGEST_TITLE) || NO_TITLE,
    system: wellFormed(system),
    created: Number.isFinite(created) ? created : Date.now(),
    updated: Number.isFinite(updated) ? updated : Date.now(),
    leaf: ids.get(leaf) ?? [...messages.keys()].at(-1) ?? null,
    ...(given.tools === undefined ? {} : { tools: given.tools }),
  };
  return { conversation, messages };
}

const wellFormedIfText = (value) => (typeof value === 'string' ? wellFormed(value) : value);

/** The form that an answer was asked for in. */
function readFormat(format, at) {
  const isSchema = format?.type === 'json_schema' && ['object', 'boolean'].includes(typeof format.json_schema?.schema);
  if (format?.type !== 'json_object' && !isSchema) throw new ImportProblem(`${at}: its format has to be one of OpenAI’s API.`);
  return format;
}

const isTool = (tool) => tool?.type === 'function' && typeof tool.function?.name === 'string';

function readCalls(calls, at) {
  const isCall = (call) => ['id', 'name', 'arguments'].every((name) => typeof call?.[name] === 'string');
  if (!Array.isArray(calls) || !calls.every(isCall))
    throw new ImportProblem(`${at}: its calls have to be a list of {id, name, arguments}.`);
  return calls.map(({ id, name, arguments: text }) => ({ id: wellFormed(id), name: wellFormed(name), arguments: wellFormed(text) }));
}

/** The branch that is shown, for reading. */
export function toMarkdown({ conversation, messages }) {
  const parts = [`# ${conversation.title}`];
  if (conversation.system !== '') parts.push(`**System prompt**\n\n${quoted(conversation.system)}`);
  for (const { role, content, reasoning, calls = [], model } of pathTo(messages, conversation.leaf)) {
    if (role === 'tool') {
      parts.push(`**Result**\n\n${fenced(content, '')}`);
      continue;
    }
    parts.push(role === 'user' ? '## You' : `## ${model ?? 'Model'}`);
    if (reasoning) parts.push(`<details><summary>Reasoning</summary>\n\n${quoted(reasoning)}\n\n</details>`);
    if (content !== '') parts.push(content);
    for (const call of calls) parts.push(`**Call of ${call.name}**\n\n${fenced(call.arguments, 'json')}`);
  }
  return `${parts.join('\n\n')}\n`;
}

const quoted = (text) =>
  text
    .split('\n')
    .map((line) => `> ${line}`)
    .join('\n');

/** A fence that is longer than any in the text. */
function fenced(text, language) {
  const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((ticks) => ticks.length));
  const fence = '`'.repeat(longest + 1);
  return `${fence}${language}\n${text}\n${fence}`;
}
