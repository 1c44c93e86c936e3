// What the engine is asked: the messages of a branch as OpenAI's, with tools and form. Pure functions.

import { wellFormed } from '../conversations/text.js';

/** What a call without a result counts as, so that templates which want one for each call don't fail. */
const NO_RESULT = 'There is no result.';

/** The messages of a path. Answers that hold nothing are left out, and questions that then follow each other become one: many templates want turns. */
export function messagesOf(path, system) {
  const messages = system.trim() === '' ? [] : [{ role: 'system', content: wellFormed(system) }];
  let waiting = [];
  const close = () => {
    for (const id of waiting) messages.push({ role: 'tool', tool_call_id: id, content: NO_RESULT });
    waiting = [];
  };
  for (const { role, content, reasoning, calls = [], call } of path) {
    if (role === 'tool') {
      if (!waiting.includes(call)) continue;
      waiting = waiting.filter((id) => id !== call);
      messages.push({ role, tool_call_id: call, content });
      continue;
    }
    close();
    if (role === 'user') {
      const last = messages.at(-1);
      if (last?.role === 'user') last.content += `\n\n${content}`;
      else messages.push({ role, content });
    } else if (content !== '' || calls.length > 0) {
      messages.push({
        role,
        content,
        ...(reasoning ? { reasoning_content: reasoning } : {}),
        ...(calls.length > 0
          ? { tool_calls: calls.map(({ id, name, arguments: text }) => ({ id, type: 'function', function: { name, arguments: text } })) }
          : {}),
      });
      waiting = calls.map(({ id }) => id);
    }
  }
  close();
  return messages;
}

/** `goesOn`: the last message is the beginning of the answer. */
export function requestOf({ path, system, fields, tools = [], format, goesOn = false }) {
  return {
    messages: messagesOf(path, system),
    ...fields,
    ...(tools.length > 0 && format === undefined ? { tools } : {}),
    ...(format === undefined ? {} : { response_format: format }),
    ...(goesOn ? { continue_final_message: true } : {}),
    stream: true,
  };
}
