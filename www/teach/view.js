// How the panel looks in which the model is taught.

import { html, nothing } from 'lit-html';
import { live } from 'lit-html/directives/live.js';

import { sizeText } from '../loading/fit.js';
import { adviceOf } from '../view/advice.js';
import { plot } from '../view/plot.js';

export function teachTemplate({ teach, loader }) {
  const { examples, phase, isBusy, fault, error, progress } = teach;
  return html`<p class="small">The model learns these answers here, by an adapter beside its weights. It is loaded once more for that, with the part of rillm that trains.</p>
    <ol class="lessons">
      ${examples.map(
        (pair, line) => html`<li>
          ${['Question', 'Answer'].map(
            (label, part) =>
              html`<input
                type="text"
                id=${`teach-${label.toLowerCase()}-${line + 1}`}
                aria-label=${`${label} ${line + 1}`}
                placeholder=${label}
                autocomplete="off"
                dir="auto"
                ?disabled=${isBusy}
                .value=${live(pair[part])}
                @input=${({ currentTarget }) => teach.edit(line, part, currentTarget.value)}
              />`,
          )}
        </li>`,
      )}
    </ol>
    ${fault === undefined ? nothing : html`<p class="small warn" id="teach-fault">${fault}</p>`}
    <div class="row">
      ${
        isBusy
          ? html`<button type="button" id="teach-stop" @click=${() => teach.stop()}>Stop</button>`
          : html`<button type="button" id="teach-begin" class="primary" ?disabled=${fault !== undefined || loader.current === undefined} @click=${() => teach.begin()}>Teach</button>`
      }
      ${phase === 'taught' ? html`<button type="button" id="teach-forget" @click=${() => teach.forget()}>Forget it</button>` : nothing}
    </div>
    ${progress === undefined ? nothing : progressTemplate(progress)}
    <p class="small" id="teach-state" role="status">${stateOf(phase, progress, loader)}</p>
    ${error === undefined ? nothing : html`<p class="small warn" id="teach-error">${adviceOf(error.code)} <span>${error.message}</span></p>`}`;
}

function progressTemplate({ step, steps, losses }) {
  return html`<progress max="1" value=${steps > 0 ? step / steps : 0} aria-label="Learning"></progress>
    <div class="live-plots">${plot({ id: 'teach-loss', label: 'Loss', text: losses.length > 0 ? losses.at(-1).toFixed(3) : '–', series: losses })}</div>`;
}

function stateOf(phase, progress, loader) {
  switch (phase) {
    case 'loading':
      return 'Loading the model with what trains…';
    case 'training':
      return progress === undefined
        ? 'Beginning…'
        : `Step ${progress.step} of ${progress.steps}, with ${sizeText(progress.bytes)} of ${loader.current?.engine.info.device === 'cpu' ? 'memory' : 'GPU memory'}.`;
    case 'taught':
      return 'Learnt. Ask it in the chat.';
    default:
      return loader.current === undefined ? 'Load a model first.' : '';
  }
}
