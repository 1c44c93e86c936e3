// Where a person writes: the field, what it costs of the context, and the one button that sends or stops. The field is never switched off, so that
// neither the text nor the focus is lost while a model loads or answers.

import { html, nothing } from 'lit-html';
import { live } from 'lit-html/directives/live.js';

import { ICONS } from './icons.js';

export function composerTemplate(app) {
  const { chat, loader, actions, draft } = app;
  const isRunning = chat.run !== undefined;
  const isReady = loader.current !== undefined;
  const text = isRunning ? 'Stop' : 'Send';
  return html`${contextBar(app)}
    <div class="field">
      <label class="hidden" for="prompt">Message</label>
      <textarea
        id="prompt"
        rows="1"
        dir="auto"
        placeholder=${isReady ? 'Message' : loader.loading === undefined ? 'Choose a model to begin' : 'You can write while the model loads'}
        autocomplete="off"
        enterkeyhint="send"
        .value=${live(draft)}
        @input=${({ currentTarget }) => actions.setDraft(currentTarget.value)}
        @keydown=${(event) => actions.promptKey(event)}
      ></textarea>
      <button id="send" type="submit" class=${isRunning ? 'danger' : 'primary'} aria-label=${text} title=${isRunning ? 'Stop (Escape)' : 'Send (Enter)'} ?disabled=${!isRunning && (!isReady || draft.trim() === '')}>
        ${isRunning ? ICONS.stop : ICONS.send}<span>${text}</span>
      </button>
    </div>`;
}

function contextBar({ chat, loader }) {
  const length = loader.current?.engine.info.context_length;
  if (length === undefined) return nothing;
  const last = chat.path.findLast(({ usage }) => usage !== undefined);
  const { run } = chat;
  const used = Math.min(length, (last?.usage.total_tokens ?? 0) + (run?.tokens ?? 0));
  const cached = Math.min(used, last?.cached ?? 0);
  const part = (tokens) => `${((tokens / length) * 100).toFixed(2)}%`;
  const words = `${used.toLocaleString('en')} of ${length.toLocaleString('en')} tokens of the context`;
  return html`<div class=${`context${used / length > 0.9 ? ' full' : ''}`} title=${cached > 0 ? `${words}; ${cached} came from the cache` : words}>
    <div class="track" role="meter" aria-label="Context used" aria-valuemin="0" aria-valuemax=${length} aria-valuenow=${used} aria-valuetext=${words}>
      <span class="cached" style=${`width: ${part(cached)}`}></span><span class="used" style=${`width: ${part(used - cached)}`}></span>
    </div>
    <small>${used.toLocaleString('en')} / ${length.toLocaleString('en')}</small>
  </div>`;
}
