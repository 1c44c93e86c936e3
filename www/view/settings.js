// The settings of answers: system prompt, sampling, tools and the form of the answer.

import { html, nothing } from 'lit-html';
import { live } from 'lit-html/directives/live.js';

import { EXAMPLE_SCHEMA } from '../chat/format.js';
import { DEFAULTS, faultOf, SETTINGS } from '../chat/settings.js';
import { TOOLS } from '../chat/tools.js';

const PROMPTS = [
  ['Short', 'Answer in one or two sentences.'],
  ['Teacher', 'Explain step by step, in plain words, as to somebody who is new to this.'],
  ['Editor', 'Correct the text of the user. Give the corrected text first, then a list of what was changed and why.'],
  ['Programmer', 'You are a careful programmer. Answer with code in fences, and say what it does in a sentence.'],
];

export function systemTemplate({ chat, actions, prompts }) {
  const all = [...PROMPTS, ...prompts];
  const { system } = chat.shown.meta;
  const isOwn = prompts.some(([, text]) => text === system);
  const choose = ({ currentTarget }) => {
    if (currentTarget.value !== '') void actions.setSystem(all[Number(currentTarget.value)][1]);
  };
  const at = all.findIndex(([, text]) => text === system);
  return html`<label for="system">System prompt of this conversation</label>
    <textarea id="system" rows="3" dir="auto" placeholder="None" .value=${live(system)} @input=${({ currentTarget }) => actions.typeSystem(currentTarget.value)} @change=${({ currentTarget }) => actions.setSystem(currentTarget.value)}></textarea>
    <label for="system-prompts">Take a prompt</label>
    <select id="system-prompts" @change=${choose}>
      <option value="" .selected=${live(at < 0)}>${system.trim() === '' ? 'None' : 'Your own'}</option>
      ${all.map(([name], i) => html`<option value=${i} .selected=${live(i === at)}>${name}</option>`)}
    </select>
    <div class="row">
      <button type="button" id="save-prompt" ?disabled=${system.trim() === '' || at >= 0} @click=${() => actions.savePrompt(system)}>Keep this prompt</button>
      <button type="button" ?disabled=${!isOwn} @click=${() => actions.forgetPrompt(system)}>Forget it</button>
    </div>`;
}

export function settingsTemplate({ texts, actions }) {
  const isChanged = (name) => (texts[name] ?? '') !== (DEFAULTS[name] ?? '');
  return html`<div class="row">
      <button type="button" id="reset-settings" @click=${() => actions.resetSettings()}>Reset all</button>
    </div>
    ${SETTINGS.map(
      ({ title, fields }, i) => html`<details class="group" ?open=${i === 0}>
        <summary>${title}${fields.some(({ name }) => isChanged(name)) ? html`<span class="tag">changed</span>` : nothing}</summary>
        ${fields.map((field) => fieldTemplate(field, texts[field.name], isChanged(field.name), actions))}
      </details>`,
    )}`;
}

function fieldTemplate(field, text, isChanged, actions) {
  const { name, label, words, usual } = field;
  const id = `set-${name}`;
  const fault = faultOf(field, text);
  const reset = isChanged
    ? html`<button type="button" class="quiet reset" aria-label=${`Reset ${label}`} @click=${() => actions.resetSetting(name)}>Reset</button>`
    : nothing;
  if (field.kind === 'switch') {
    return html`<div class="setting">
      <div class="setting-head">
        <label class="check"><input id=${id} type="checkbox" .checked=${live(text === true)} @change=${({ currentTarget }) => actions.setSetting(name, currentTarget.checked || '')} aria-describedby=${`${id}-words`} /> ${label}</label>${reset}
      </div>
      <p class="small" id=${`${id}-words`}>${words}</p>
    </div>`;
  }
  const attributes = `${id}-words`;
  return html`<div class="setting">
    <div class="setting-head"><label for=${id}>${label}</label>${reset}</div>
    ${control(field, id, text ?? '', fault, attributes, actions, usual)}
    <p class="small" id=${attributes}>${words}</p>
    ${fault === undefined ? nothing : html`<p class="small warn" id=${`${id}-fault`}>${fault}</p>`}
  </div>`;
}

/** What takes more than one line. */
const SEVERAL = ['lines', 'ids', 'biases'];

function control({ name, kind, choices, min, max, step }, id, text, fault, describedBy, actions, usual) {
  const set = ({ currentTarget }) => actions.setSetting(name, currentTarget.value);
  const described = fault === undefined ? describedBy : `${describedBy} ${id}-fault`;
  const invalid = fault === undefined ? nothing : 'true';
  if (kind === 'choice') {
    return html`<select id=${id} @change=${set} aria-describedby=${described}>
      <option value="" .selected=${live(text === '')}>${usual}</option>
      ${choices.map((choice) => html`<option value=${choice} .selected=${live(choice === text)}>${choice}</option>`)}
    </select>`;
  }
  if (SEVERAL.includes(kind)) {
    return html`<textarea id=${id} rows="2" placeholder=${usual} .value=${live(text)} @input=${set} aria-describedby=${described} aria-invalid=${invalid}></textarea>`;
  }
  // A field of type number gives an empty text for what it can't read, and then nobody could say what is wrong.
  return html`<input
    id=${id}
    type="text"
    inputmode=${kind === 'integer' ? 'numeric' : 'decimal'}
    autocomplete="off"
    placeholder=${usual ?? ''}
    .value=${live(text)}
    @input=${set}
    @keydown=${(event) => nudge(event, { min, max, step })}
    aria-describedby=${described}
    aria-invalid=${invalid}
  />`;
}

/** ArrowUp and ArrowDown move a number by its step, as in a field of type number. */
function nudge(event, { min, max, step }) {
  const sign = { ArrowUp: 1, ArrowDown: -1 }[event.key];
  const field = event.currentTarget;
  if (sign === undefined || !Number.isFinite(Number(field.value))) return;
  event.preventDefault();
  const next = Math.min(max ?? Infinity, Math.max(min ?? -Infinity, Number(field.value) + sign * step));
  field.value = String(Number(next.toFixed(6)));
  field.dispatchEvent(new Event('input', { bubbles: true }));
}

export function toolsTemplate({ tools, format, actions, chat }) {
  const isText = format.kind === 'text';
  const own = chat.shown.meta.tools ?? [];
  return html`<fieldset>
    <legend>Tools that the model may call</legend>
    ${Object.entries(TOOLS).map(
      ([name, { label, words }]) => html`<label class="check"
          ><input id=${`tool-${name}`} type="checkbox" .checked=${live(tools.includes(name))} ?disabled=${!isText} @change=${({ currentTarget }) => actions.setTool(name, currentTarget.checked)} /> ${label}</label
        >
        <p class="small">${words}</p>`,
    )}
    ${own.length > 0 ? html`<p class="small">Of this conversation: ${own.map(({ function: { name } }) => name).join(', ')}.</p>` : nothing}
    ${isText ? nothing : html`<p class="small warn">No tools while the answer has to be JSON.</p>`}
  </fieldset>`;
}

export function formatTemplate({ format, actions }) {
  const { kind, schema, read } = format;
  const choice = (value, label) =>
    html`<label class="check"><input type="radio" name="format" value=${value} .checked=${live(kind === value)} @change=${() => actions.setFormat({ kind: value })} /> ${label}</label>`;
  return html`<fieldset>
      <legend>Form of the answer</legend>
      ${choice('text', 'Any text')} ${choice('json', 'JSON')} ${choice('schema', 'JSON by a schema')}
    </fieldset>
    ${
      kind === 'schema'
        ? html`<label for="schema">JSON schema</label>
          <textarea id="schema" class="code" rows="9" spellcheck="false" .value=${live(schema)} @input=${({ currentTarget }) => actions.setFormat({ schema: currentTarget.value })} aria-describedby="schema-state" aria-invalid=${read.fault === undefined ? nothing : 'true'}></textarea>
          <p id="schema-state" class=${read.fault === undefined ? 'verdict good' : 'verdict bad'} role="status">${read.fault === undefined ? '✓ A schema.' : `✗ ${read.fault}`}</p>
          <div class="row"><button type="button" @click=${() => actions.setFormat({ schema: EXAMPLE_SCHEMA })}>An example</button></div>`
        : nothing
    }`;
}
