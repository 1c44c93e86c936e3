// The notice above the conversation: what went wrong, what to do, and where it helps a button that does it; or what is good to know, with more behind a click.

import { html, nothing } from 'lit-html';

import { ICONS } from './icons.js';

/** `notice`: {title, words: text or list of steps, more: what the words are about if they are behind a click, detail, action: {label, run}}. */
export function noticeTemplate({ notice, actions }) {
  if (notice === undefined) return nothing;
  const { title, words, more, detail, action } = notice;
  const isList = Array.isArray(words) && words.length > 1;
  const said = isList ? html`<ol>${words.map((step) => html`<li>${step}</li>`)}</ol>` : html`<p>${words}</p>`;
  return html`<div class="notice-text">
      <strong>${title}</strong>
      ${more === undefined ? said : html`<details><summary>${more}</summary>${said}</details>`}
      ${detail === undefined ? nothing : html`<p class="small">${detail}</p>`}
      ${action === undefined ? nothing : html`<div class="row"><button type="button" id="notice-action" @click=${() => action.run()}>${action.label}</button></div>`}
    </div>
    <button type="button" class="quiet" aria-label="Close this notice" @click=${() => actions.hideNotice()}>${ICONS.close}</button>`;
}
