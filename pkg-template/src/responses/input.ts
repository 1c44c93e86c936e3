// From the input of the Responses API to the messages of a chat. An answer of several items (reasoning, texts, calls) is one message of
// the assistant's there. It knows nothing of how an answer comes about.

import { describe, refuse } from '../arguments.js';
import { newId } from '../openai.js';
import type { ChatMessage, ToolCall } from '../types.js';
import { arrayAt, type Json, objectAt, oneOf, textAt } from './fields.js';
import type { InputText, ResponseItem } from './types.js';

/** Finds an item that is kept, by its id. */
export type Lookup = (id: string) => ResponseItem | undefined;

/** The items of a request, checked, each with an id. */
export function itemsOf(input: unknown, lookup: Lookup): ResponseItem[] {
  if (typeof input === 'string') {
    return [{ type: 'message', id: newId('msg_'), role: 'user', content: [{ type: 'input_text', text: input }] }];
  }
  if (!Array.isArray(input)) return refuse(`input is ${describe(input)}, wanted a text or an array of items`);
  return input.map((value, index) => itemOf(`input[${index}]`, objectAt(`input[${index}]`, value), lookup));
}

function itemOf(at: string, item: Json, lookup: Lookup): ResponseItem {
  // The type of messages may be left out, and of references too.
  const type = item.type ?? ('role' in item ? 'message' : Object.keys(item).length === 1 && 'id' in item ? 'item_reference' : undefined);
  switch (type) {
    case 'message':
      return messageItem(at, item);
    case 'function_call':
      return {
        type: 'function_call',
        id: idOf(at, item, 'fc_'),
        call_id: textAt(`${at}.call_id`, item.call_id),
        name: textAt(`${at}.name`, item.name),
        arguments: textAt(`${at}.arguments`, item.arguments),
        status: 'completed',
      };
    case 'function_call_output':
      return {
        type: 'function_call_output',
        id: idOf(at, item, 'fco_'),
        call_id: textAt(`${at}.call_id`, item.call_id),
        output: typeof item.output === 'string' ? item.output : inputTexts(`${at}.output`, arrayAt(`${at}.output`, item.output)),
        status: 'completed',
      };
    case 'reasoning':
      return reasoningItem(at, item);
    case 'item_reference': {
      const id = textAt(`${at}.id`, item.id);
      return lookup(id) ?? refuse(`${at} refers to the item ${id}, which is not kept: send the item itself`);
    }
    default:
      return refuse(
        `${at}.type is ${describe(type)}: there are message, function_call, function_call_output, reasoning and item_reference; tools that ` +
          'a server runs are not supported',
      );
  }
}

function idOf(at: string, { id }: Json, prefix: string): string {
  return id === undefined || id === null ? newId(prefix) : textAt(`${at}.id`, id);
}

function messageItem(at: string, item: Json): ResponseItem {
  const role = oneOf(`${at}.role`, item.role, ['user', 'assistant', 'system', 'developer']);
  const id = idOf(at, item, 'msg_');
  if (role === 'assistant') {
    const texts = typeof item.content === 'string' ? [item.content] : textsOf(`${at}.content`, item.content, ['output_text', 'input_text']);
    const content = texts.map((text) => ({ type: 'output_text', text, annotations: [] }) as const);
    return { type: 'message', id, role, status: 'completed', content };
  }
  const content: InputText[] =
    typeof item.content === 'string'
      ? [{ type: 'input_text', text: item.content }]
      : inputTexts(`${at}.content`, arrayAt(`${at}.content`, item.content));
  return { type: 'message', id, role, content };
}

function inputTexts(at: string, parts: unknown[]): InputText[] {
  return textsOf(at, parts, ['input_text']).map((text) => ({ type: 'input_text', text }));
}

function textsOf(at: string, parts: unknown, types: string[]): string[] {
  return arrayAt(at, parts).map((value, index) => {
    const part = objectAt(`${at}[${index}]`, value);
    if (!types.includes(part.type as string)) {
      refuse(`${at}[${index}].type is ${describe(part.type)}, wanted ${types.join(' or ')}: models here read text only`);
    }
    return textAt(`${at}[${index}].text`, part.text);
  });
}

function reasoningItem(at: string, item: Json): ResponseItem {
  const summary = item.summary === undefined || item.summary === null ? [] : textsOf(`${at}.summary`, item.summary, ['summary_text']);
  const content = item.content === undefined || item.content === null ? [] : textsOf(`${at}.content`, item.content, ['reasoning_text']);
  if (summary.length === 0 && content.length === 0 && typeof item.encrypted_content === 'string') {
    refuse(
      `${at}.encrypted_content is all that there is of the reasoning, and only the server that wrote it can read it: leave the item out`,
    );
  }
  return {
    type: 'reasoning',
    id: idOf(at, item, 'rs_'),
    summary: summary.map((text) => ({ type: 'summary_text', text })),
    ...(content.length === 0 ? {} : { content: content.map((text) => ({ type: 'reasoning_text', text }) as const) }),
    status: 'completed',
  };
}

/**
 * The messages of a conversation. System messages at the beginning become one, as most templates take no more; so do the items of one
 * answer. Outputs must follow their calls.
 */
export function messagesOf(instructions: string | null, items: ResponseItem[]): ChatMessage[] {
  const messages: ChatMessage[] = [];
  const names = new Map<string, string>();
  if (instructions !== null) messages.push({ role: 'system', content: instructions });
  items.forEach((item, index) => {
    const last = messages.at(-1);
    switch (item.type) {
      case 'function_call':
        names.set(item.call_id, item.name);
        withCall(answerAt(messages), {
          id: item.call_id,
          type: 'function',
          function: { name: item.name, arguments: item.arguments },
        });
        break;
      case 'reasoning': {
        const texts = item.content ?? item.summary;
        const text = texts.map((part) => part.text).join('\n\n');
        if (text !== '') {
          const answer = answerAt(messages);
          answer.reasoning_content = (answer.reasoning_content ?? '') + text;
        }
        break;
      }
      case 'function_call_output': {
        const name = names.get(item.call_id);
        if (name === undefined) refuse(`there is no function_call for the output of ${item.call_id}: the call comes before its output`);
        messages.push({ role: 'tool', tool_call_id: item.call_id, name, content: joined(item.output) });
        break;
      }
      default: {
        const content = joined(item.content);
        if (item.role === 'assistant') {
          // Two in a row are two messages; with a call or reasoning before it, the text is of the same answer.
          if (last?.role !== 'assistant' || items[index - 1]?.type === 'message') messages.push({ role: 'assistant', content });
          else last.content = ((last.content as string | null | undefined) ?? '') + content;
        } else if (isSystem(item.role) && messages.length === 1 && isSystem(last!.role)) {
          last!.content = `${last!.content}\n\n${content}`;
        } else messages.push({ role: item.role, content });
      }
    }
  });
  return messages;
}

function isSystem(role: string): boolean {
  return role === 'system' || role === 'developer';
}

/** The assistant's message that goes on, or a new one. */
function answerAt(messages: ChatMessage[]): ChatMessage {
  const last = messages.at(-1);
  if (last?.role === 'assistant') return last;
  const answer: ChatMessage = { role: 'assistant', content: null };
  messages.push(answer);
  return answer;
}

function withCall(answer: ChatMessage, call: ToolCall): void {
  if (answer.tool_calls === undefined) answer.tool_calls = [call];
  else answer.tool_calls.push(call);
}

function joined(content: string | { text: string }[]): string {
  return typeof content === 'string' ? content : content.map(({ text }) => text).join('');
}

/** Messages that can be left out together, the oldest ones: one, or an answer with calls and what the calls gave. */
export function withoutOldest(messages: ChatMessage[]): ChatMessage[] | undefined {
  const first = messages.findIndex(({ role }) => !isSystem(role));
  if (first === -1) return undefined;
  let end = first + 1;
  while (messages[end]?.role === 'tool') end += 1;
  // The last message is what is to be answered.
  if (end >= messages.length) return undefined;
  return [...messages.slice(0, first), ...messages.slice(end)];
}
