// The notice above the conversation: what went wrong, what to do, and where it helps a button that does it.

import { html, nothing } from 'lit-html';

import { ICONS } from './icons.js';

/** `notice`: {title, words: text or list of steps, detail, action: {label, run}}. */
export function noticeTemplate({ notice, actions }) {
  if (notice === undefined) return nothing;
  const { title, words, detail, action } = notice;
  const isList = Array.isArray(words) && words.length > 1;
  return html`<div class="notice-text">
      <strong>${title}</strong>
      ${isList ? html`<ol>${words.map((step) => html`<li>${step}</li>`)}</ol>` : html`<p>${words}</p>`}
      ${detail === undefined ? nothing : html`<p class="small">${detail}</p>`}
      ${action === undefined ? nothing : html`<div class="row"><button type="button" id="notice-action" @click=${() => action.run()}>${action.label}</button></div>`}
    </div>
    <button type="button" class="quiet" aria-label="Close this notice" @click=${() => actions.hideNotice()}>${ICONS.close}</button>`;
}
