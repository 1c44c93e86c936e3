// One message of a conversation: question, answer or result of a tool, with what can be done with it.

import { html, nothing } from 'lit-html';
import { keyed } from 'lit-html/directives/keyed.js';

import { judged } from '../chat/format.js';
import { MOST_ROUNDS } from '../chat/rounds.js';
import { isBuiltIn } from '../chat/tools.js';
import { openCalls, resultsOf, versionsOf } from '../conversations/tree.js';
import { adviceOf } from './advice.js';
import { tokensText } from './figures.js';
import { ICONS } from './icons.js';
import { isComposing } from './keys.js';
import { markdown } from './markdown.js';

/** Tools whose results are shown under their call and nowhere else. */
const RESULT_LINES = 12;

/** `app`: {chat, editing, actions}. */
export function messageTemplate(app, message, path) {
  if (message.role === 'tool') return nothing;
  return message.role === 'user' ? question(app, message) : answer(app, message, path);
}

function question(app, message) {
  if (app.editing?.id === message.id) return keyed(message.id, editor(app, message));
  return html`<article class="message user" aria-label="You" data-id=${message.id}>
    <div class="bubble" dir="auto">${message.content}</div>
    <div class="tools">
      ${versions(app, message)} ${action(app, message, 'edit', ICONS.edit, 'Edit', 'Edit this message')} ${action(app, message, 'copy', ICONS.copy, 'Copy', 'Copy this message')}
    </div>
  </article>`;
}

function editor({ actions, editing, chat }, message) {
  const submit = (event) => {
    event.preventDefault();
    void actions.saveEdit(event.currentTarget.elements.text.value);
  };
  const keys = (event) => {
    if (event.key === 'Enter' && !event.shiftKey && !isComposing(event)) {
      event.preventDefault();
      event.currentTarget.form.requestSubmit();
    }
  };
  return html`<form class="message user editor" aria-label="Edit your message" data-id=${message.id} @submit=${submit}>
    <textarea name="text" aria-label="Your message" dir="auto" rows="3" .value=${editing.text} @input=${({ currentTarget }) => (editing.text = currentTarget.value)} @keydown=${keys}></textarea>
    <div class="row">
      <button type="submit" class="primary" ?disabled=${chat.run !== undefined}>Ask again</button>
      <button type="button" @click=${() => actions.cancelEdit()}>Cancel</button>
    </div>
  </form>`;
}

function answer(app, message, path) {
  const { chat, actions } = app;
  const isWriting = message.state === 'writing';
  const isLast = path.at(-1)?.id === message.id;
  const { content, reasoning, calls = [], error } = message;
  const open = isWriting ? undefined : openCalls(path, message);
  const isLeft = chat.run === undefined && waitsForPage(message, open);
  return html`<article class="message assistant" aria-label=${`Answer of ${message.model ?? 'the model'}`} aria-busy=${isWriting ? 'true' : nothing} data-id=${message.id}>
    ${reasoning ? thought(reasoning, isWriting && content === '') : nothing}
    ${isWriting && content === '' && !reasoning && calls.length === 0 ? html`<p class="waiting">Reading the prompt…</p>` : nothing}
    <div class="prose" ${markdown(content, !isWriting)}></div>
    ${calls.map((call) => callTemplate(app, message, call, path, open))}
    ${message.format !== undefined && isLast && !isWriting && content !== '' ? verdict(content, message.format) : nothing}
    ${error === undefined ? nothing : failure(error)} ${isLeft ? waiting(path) : remark(message)}
    ${
      isWriting
        ? nothing
        : html`<div class="tools">
          ${versions(app, message)} ${content === '' ? nothing : action(app, message, 'copy', ICONS.copy, 'Copy', 'Copy this answer')}
          ${action(app, message, 'again', ICONS.again, error === undefined ? 'Again' : 'Try again', error === undefined ? 'Write this answer again' : 'Try again')}
          ${isLeft || (isLast && canGoOn(message)) ? html`<button type="button" class="quiet" @click=${() => actions.resume(message.id)} ?disabled=${chat.run !== undefined}><span>Continue</span></button>` : nothing}
          ${figures(message)}
        </div>`
    }
  </article>`;
}

const canGoOn = ({ state, finish, content, calls = [] }) =>
  calls.length === 0 && (state === 'interrupted' || (state === 'failed' && content !== '') || finish === 'length');

/** Whether calls are left that the page could run, or all have results and the model has not gone on: after a stop, a reload or too many in a row. */
const waitsForPage = ({ finish }, open) =>
  finish === 'tool_calls' && open !== undefined && (open.length === 0 || open.some(({ name }) => isBuiltIn(name)));

function waiting(path) {
  const rounds = path.slice(path.findLastIndex(({ role }) => role === 'user') + 1).filter(({ role }) => role === 'assistant').length;
  return html`<p class="remark">${
    rounds < MOST_ROUNDS
      ? 'The answer stopped at this call. “Continue” goes on with it.'
      : `The model has called tools ${rounds} times in a row, and the page has stopped it here. “Continue” lets it go on.`
  }</p>`;
}

function thought(reasoning, isOpenNow) {
  return html`<details class="reasoning">
    <summary>${isOpenNow ? 'Thinking…' : 'Reasoning'}</summary>
    <div class="plain" dir="auto">${reasoning}</div>
  </details>`;
}

/** `open`: the calls of the message that wait for a result. What a person writes there stays while another call is being answered. */
function callTemplate({ chat, actions }, message, call, path, open) {
  const result = resultsOf(path, message).find(({ call: id }) => id === call.id);
  const isOpen = open?.includes(call) && !isBuiltIn(call.name);
  const give = (event) => {
    event.preventDefault();
    void actions.answerCall(message.id, call.id, event.currentTarget.elements.result.value);
  };
  return html`<section class="call" aria-label=${`Call of ${call.name}`}>
    <h2><span class="tag">Tool</span> ${call.name}</h2>
    <pre tabindex="0">${pretty(call.arguments)}</pre>
    ${result === undefined ? nothing : html`<p class="label">Result</p><pre tabindex="0">${firstLines(result.content)}</pre>`}
    ${
      isOpen
        ? html`<form @submit=${give}>
          <label>Nothing on this page answers this call. What did it return?<textarea name="result" rows="2" required></textarea></label>
          <button type="submit" ?disabled=${chat.run !== undefined}>Give the result</button>
        </form>`
        : nothing
    }
  </section>`;
}

function firstLines(text) {
  const lines = text.split('\n');
  return lines.length <= RESULT_LINES ? text : `${lines.slice(0, RESULT_LINES).join('\n')}\n… ${lines.length - RESULT_LINES} lines more`;
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** By the form that the answer was asked for in. */
function verdict(content, { json_schema: asked }) {
  const { valid, words } = judged(content, asked?.schema);
  return html`<p class=${valid ? 'verdict good' : 'verdict bad'}>${valid ? '✓' : '✗'} ${words}</p>`;
}

function failure({ code, message }) {
  return html`<div class="failure"><strong>No answer.</strong> ${code === 'page' ? message : html`${adviceOf(code)} <small>${message} (${code})</small>`}</div>`;
}

function remark({ state, finish }) {
  const words =
    state === 'interrupted'
      ? finish === 'cancelled'
        ? 'Stopped.'
        : 'Interrupted.'
      : state === 'done' && finish === 'length'
        ? 'The answer reached its length limit.'
        : undefined;
  return words === undefined ? nothing : html`<p class="remark">${words}</p>`;
}

function figures({ usage, timings, cached }) {
  if (usage === undefined) return nothing;
  const speed = timings?.tokens_per_s > 0 ? ` · ${timings.tokens_per_s.toFixed(1)} tokens/s` : '';
  const reused = cached > 0 ? ` · ${cached} of ${usage.prompt_tokens} from the cache` : '';
  return html`<span class="counts">${tokensText(usage.completion_tokens)}${speed}${reused}</span>`;
}

function action({ chat, actions }, message, name, icon, label, words) {
  const isBlocked = name !== 'copy' && chat.run !== undefined;
  return html`<button type="button" class="quiet" data-action=${name} aria-label=${words} title=${words} ?disabled=${isBlocked} @click=${({ currentTarget }) => actions[name](message.id, currentTarget)}>
    ${icon}<span>${label}</span>
  </button>`;
}

/** Changes between the versions of a message. */
function versions({ chat, actions }, message) {
  const all = versionsOf(chat.shown.messages, message);
  if (all.length < 2) return nothing;
  const at = all.findIndex(({ id }) => id === message.id);
  const go = (to, label, icon) =>
    html`<button type="button" class="quiet" aria-label=${label} ?disabled=${all[to] === undefined || chat.run !== undefined} @click=${() => actions.choose(all[to].id)}>${icon}</button>`;
  return html`<span class="versions" role="group" aria-label="Versions">
    ${go(at - 1, 'Earlier version', ICONS.left)}<span>${at + 1} of ${all.length}</span>${go(at + 1, 'Later version', ICONS.right)}
  </span>`;
}
