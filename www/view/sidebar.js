// The list of conversations: search, open, rename, delete, export and import.

import { html, nothing } from 'lit-html';
import { live } from 'lit-html/directives/live.js';
import { repeat } from 'lit-html/directives/repeat.js';

import { ICONS } from './icons.js';
import { isComposing } from './keys.js';

export function sidebarTemplate(app) {
  const { chat, actions, search, renaming } = app;
  const shown =
    search.found === undefined ? chat.list : chat.list.filter(({ id, created }) => search.found.has(id) || created >= search.since);
  // Escape ends the search, and not the answer that is being written.
  const keys = (event) => {
    if (event.key !== 'Escape' || isComposing(event)) return;
    event.preventDefault();
    if (search.text !== '') void actions.search('');
  };
  return html`<div class="side-head">
      <button type="button" class="primary" id="new-chat" @click=${() => actions.startNew()}>${ICONS.plus}<span>New conversation</span></button>
      <label class="hidden" for="search">Search the conversations</label>
      <input id="search" type="search" dir="auto" placeholder="Search" autocomplete="off" .value=${live(search.text)} @keydown=${keys} @input=${({ currentTarget }) => actions.search(currentTarget.value)} />
    </div>
    <ul id="conversations" class="conversations" aria-label="Conversations">
      ${repeat(
        shown,
        ({ id }) => id,
        (meta) =>
          html`<li class=${meta.id === chat.shown.meta.id ? 'current' : ''}>${renaming?.id === meta.id ? renameForm(app, meta) : item(app, meta)}</li>`,
      )}
    </ul>
    ${shown.length === 0 ? html`<p class="small" id="no-conversations">${search.found === undefined ? 'Conversations that you begin are listed here. They stay in this browser.' : 'Nothing was found.'}</p>` : nothing}
    <div class="side-foot">
      ${app.isKept ? nothing : html`<p class="small warn">What is said now is not kept (a private window, or no room): export what you want to have tomorrow.</p>`}
      <div class="row">
        <button type="button" id="export" aria-label="Export all conversations" @click=${() => actions.exportAll()} ?disabled=${chat.list.length === 0}>Export</button>
        <button type="button" id="import" aria-label="Import conversations" @click=${() => document.getElementById('import-file').click()}>Import</button>
        <input id="import-file" class="hidden" type="file" accept=".json,application/json" tabindex="-1" aria-label="A file of conversations" @change=${(event) => actions.importFile(event.currentTarget)} />
      </div>
    </div>`;
}

function item({ chat, actions, confirming }, meta) {
  const isCurrent = meta.id === chat.shown.meta.id;
  if (confirming === meta.id) {
    return html`<div class="confirm" role="group" aria-label="Delete this conversation?">
      <p>Delete “<bdi>${meta.title}</bdi>”?</p>
      <div class="row">
        <button type="button" class="danger" data-confirm @click=${() => actions.delete(meta.id)}>Delete</button>
        <button type="button" @click=${() => actions.confirmDelete(undefined)}>Keep</button>
      </div>
    </div>`;
  }
  return html`<button type="button" class="open" aria-current=${isCurrent ? 'true' : nothing} @click=${() => actions.open(meta.id)}>
      <span class="title" dir="auto">${meta.title}</span>
      <small>${chat.isRunning(meta.id) ? 'answering…' : dateOf(meta.updated)}</small>
    </button>
    <span class="item-tools">
      <button type="button" class="quiet" aria-label=${`Rename ${meta.title}`} title="Rename" data-rename=${meta.id} @click=${() => actions.startRename(meta)}>${ICONS.edit}</button>
      <button type="button" class="quiet" aria-label=${`Delete ${meta.title}`} title="Delete" data-delete=${meta.id} @click=${() => actions.confirmDelete(meta.id)}>${ICONS.bin}</button>
    </span>`;
}

function renameForm({ actions, renaming }, meta) {
  const submit = (event) => {
    event.preventDefault();
    void actions.rename(meta.id, event.currentTarget.elements.title.value);
  };
  const keys = (event) => {
    if (event.key !== 'Escape' || isComposing(event)) return;
    event.preventDefault();
    actions.startRename(undefined);
  };
  return html`<form class="rename" @submit=${submit}>
    <input name="title" aria-label="Title" dir="auto" maxlength="200" .value=${renaming.title} @input=${({ currentTarget }) => (renaming.title = currentTarget.value)} @keydown=${keys} />
    <button type="submit">Save</button>
  </form>`;
}

const DAY = 86_400_000;

function dateOf(time) {
  const date = new Date(time);
  if (Date.now() - time < DAY && date.getDate() === new Date().getDate())
    return new Intl.DateTimeFormat(undefined, { timeStyle: 'short' }).format(date);
  return new Intl.DateTimeFormat(undefined, { dateStyle: 'medium' }).format(date);
}
