// The conversation that is shown: its messages, or a welcome where it is empty; and a question to the person where a tool wants something.

import { html, nothing } from 'lit-html';
import { repeat } from 'lit-html/directives/repeat.js';

import { messageTemplate } from './messages.js';

export function logTemplate(app) {
  const { chat, logWindow, actions } = app;
  const path = chat.path;
  const from = logWindow.from(chat.shown.meta.id, path.length);
  if (path.length === 0) return welcome(app);
  return html`${from === 0 ? nothing : html`<button type="button" class="quiet" id="earlier" @click=${() => (actions.showEarlier(), actions.keepFocus('log'))}>Show earlier messages (${from})</button>`}
    ${repeat(
      path.slice(from),
      ({ id }) => id,
      (message) => messageTemplate(app, message, path),
    )}
    ${chat.run?.consent === undefined ? nothing : consent(chat.run.consent)}`;
}

function consent({ url, answer }) {
  return html`<section class="consent" role="alertdialog" aria-labelledby="consent-title" aria-describedby="consent-url">
    <div role="alert">
      <h2 id="consent-title">May the model fetch this address?</h2>
      <p id="consent-url">${url}</p>
    </div>
    <p class="small">Its server will see your network address and what the address itself says. The page’s text goes to the model.</p>
    <div class="row">
      <button type="button" class="primary" id="allow" @click=${() => answer(true)}>Fetch it</button>
      <button type="button" id="deny" @click=${() => answer(false)}>Don’t</button>
    </div>
  </section>`;
}

function welcome({ loader, examples, actions, chat }) {
  const isReady = loader.current !== undefined;
  const words = isReady
    ? 'Or begin with one of these.'
    : loader.loading === undefined
      ? 'Choose a model to begin. It is downloaded once, and then it runs on this device.'
      : 'The model is loading.';
  return html`<div id="welcome" class="welcome">
    <h2>Ask something</h2>
    <p id="welcome-text">${words}</p>
    <ul id="examples" class="examples" aria-label="Example prompts">
      ${examples.map(
        (example) => html`<li>
          <button type="button" ?disabled=${!isReady || chat.run !== undefined} @click=${() => actions.example(example)}><strong>${example.title ?? example.skill}</strong>${example.prompt}</button>
        </li>`,
      )}
    </ul>
  </div>`;
}
