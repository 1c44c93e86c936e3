// The model that answers, with its load, and the dialog in which another one is chosen: kept here, on this server, well known, found on the hub, an
// address, or files of this device.

import { html, nothing } from 'lit-html';
import { live } from 'lit-html/directives/live.js';
import { repeat } from 'lit-html/directives/repeat.js';

import { faultOfContext, sizeText } from '../loading/fit.js';
import { ICONS } from './icons.js';
import { isComposing } from './keys.js';

const WHENCE = { network: '', cache: ' from the cache', file: ' from the file' };

export function modelTemplate(app) {
  const { loader, actions } = app;
  const { current } = loader;
  return html`<p id="model-summary" class="small" aria-live="polite">${current === undefined ? (loader.loading === undefined ? 'No model is loaded.' : '') : summary(current)}</p>
    ${loadingTemplate(app)}
    <div class="row">
      <button type="button" id="choose-model" class=${current === undefined ? 'primary' : ''} @click=${() => actions.openModels()}>Choose a model…</button>
      ${current === undefined ? nothing : html`<button type="button" id="unload" @click=${() => actions.unload()}>Unload</button>`}
    </div>`;
}

function summary({ engine: { info }, ms, note }) {
  const { name, architecture, parameters, quantization, weight_bytes, context_length } = info;
  return `${name ?? architecture}: ${count(parameters)} parameters, ${quantization}, ${sizeText(weight_bytes)}, context ${context_length.toLocaleString('en')}. Loaded in ${(ms / 1000).toFixed(1)} s.${note === '' ? '' : ` ${note}`}`;
}

const count = (parameters) => (parameters >= 1e9 ? `${(parameters / 1e9).toFixed(2)} B` : `${(parameters / 1e6).toFixed(1)} M`);

export function loadingTemplate({ loader, actions }) {
  const { loading } = loader;
  if (loading === undefined) return nothing;
  const { name, phase, progress, status } = loading;
  const part = progress?.total > 0 ? progress.loaded / progress.total : undefined;
  const isPaused = phase === 'paused';
  return html`<div class="loading" id="loading">
    <p class="name">${isPaused ? 'Paused: ' : 'Loading '}${name}</p>
    <progress max="1" value=${part ?? nothing} aria-label="Loading the model"></progress>
    <p class="small" id="progress-text">${status ?? (isPaused ? `${sizeText(progress?.loaded ?? 0)} are kept.` : progressText(progress))}</p>
    <div class="row">
      ${
        typeof loading.source !== 'string'
          ? nothing
          : html`<button type="button" id="pause-load" @click=${() => (isPaused ? loader.resume() : loader.pause())}>${isPaused ? 'Resume' : 'Pause'}</button>`
      }
      <button type="button" id="cancel-load" @click=${() => actions.cancelLoad()}>Cancel</button>
    </div>
  </div>`;
}

function progressText(progress) {
  if (progress === undefined) return 'Starting…';
  const { phase, loaded, total, bytesPerSecond, secondsLeft, from } = progress;
  if (phase === 'header') return `Reading the header${total > 0 ? ` of ${sizeText(total)}` : ''}…`;
  const rate = bytesPerSecond > 0 ? `, ${sizeText(bytesPerSecond)}/s` : '';
  return `${sizeText(loaded)} of ${sizeText(total)}${WHENCE[from] ?? ''}${rate}${secondsLeft > 1 ? `, ${timeText(secondsLeft)} left` : ''}`;
}

function timeText(seconds) {
  if (seconds < 100) return `${Math.ceil(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

export function modelDialogTemplate(app) {
  const { actions, shelf } = app;
  // The button below may not be drawn yet as one that can be pressed, and then the form would not be submitted.
  const keys = (event) => {
    if (event.key !== 'Enter' || isComposing(event)) return;
    event.preventDefault();
    actions.submitModel();
  };
  return html`<div class="dialog-head">
      <h2 id="models-title">Models</h2>
      <button type="button" class="quiet" aria-label="Close" @click=${() => actions.closeModels()}>${ICONS.close}</button>
    </div>
    <form id="model-form" role="search" @submit=${(event) => (event.preventDefault(), actions.submitModel())}>
      <label for="model-query">Search, or an address: hf:owner/name, or https://… of a GGUF file or a folder</label>
      <div class="query">
        <input id="model-query" autocomplete="off" spellcheck="false" .value=${live(shelf.query)} @input=${({ currentTarget }) => actions.findModels(currentTarget.value)} @keydown=${keys} />
        <button type="submit" id="load" class="primary" ?disabled=${shelf.query.trim() === ''}>${shelf.isAddress ? 'Load' : 'Search'}</button>
      </div>
      <div class="row">
        <button type="button" @click=${() => document.getElementById('file').click()}>A file…</button>
        <button type="button" @click=${() => document.getElementById('folder').click()}>A folder…</button>
        <input id="file" class="hidden" type="file" multiple tabindex="-1" aria-label="Files of a model" accept=".gguf,.safetensors,.json,.model,.txt" @change=${(event) => actions.loadFiles(event.currentTarget)} />
        <input id="folder" class="hidden" type="file" webkitdirectory tabindex="-1" aria-label="A folder with a model" @change=${(event) => actions.loadFiles(event.currentTarget)} />
      </div>
      <p class="small">Or drop a file or a folder on this page.</p>
      ${loadOptions(app)}
    </form>
    ${shelf.isOnCpu ? html`<p class="small" id="runs-on">The CPU runs models here: choose a small one.</p>` : nothing}
    <p class="small" id="shelf-state" role="status">${shelf.state}</p>
    ${shelfTemplate(app, 'kept', 'On this device', shelf.kept)} ${shelfTemplate(app, 'served', 'On this server', shelf.served)}
    ${shelfTemplate(app, 'found', 'On the hub', shelf.found)} ${shelfTemplate(app, 'known', 'Known to run well', shelf.known)}`;
}

function loadOptions({ loadOptions: given, actions }) {
  const fault = faultOfContext(given.contextLength);
  return html`<details class="group">
    <summary>Context and cache</summary>
    <div class="pair">
      <div>
        <label for="context-length">Context, tokens</label>
        <input id="context-length" inputmode="numeric" placeholder="4096, or less if it has to be" aria-invalid=${fault === undefined ? nothing : 'true'} aria-describedby="context-fault" .value=${live(given.contextLength ?? '')} @input=${({ currentTarget }) => actions.setLoadOption('contextLength', currentTarget.value)} />
      </div>
      <div>
        <label for="kv-cache">KV cache</label>
        <select id="kv-cache" .value=${live(given.kvCache ?? '')} @change=${({ currentTarget }) => actions.setLoadOption('kvCache', currentTarget.value)}>
          <option value="">as usual (f16)</option>
          <option value="q8_0">q8_0: half of it</option>
          <option value="f32">f32: exact</option>
        </select>
      </div>
    </div>
    <p class="small warn" id="context-fault">${fault ?? ''}</p>
  </details>`;
}

function shelfTemplate(app, id, title, entries) {
  if (entries.length === 0) return nothing;
  return html`<section class="shelf" aria-labelledby=${`shelf-${id}`}>
    <h3 id=${`shelf-${id}`}>${title}</h3>
    <ul>
      ${repeat(
        entries,
        ({ source }) => source,
        (entry) => entryTemplate(app, entry),
      )}
    </ul>
  </section>`;
}

function entryTemplate({ actions, loader, confirming, shelf }, entry) {
  const { source, name, facts, words, fit, kept } = entry;
  const isCurrent = loader.current?.source === source;
  const isChecking = shelf.isChecking(source);
  if (confirming === source) {
    return html`<li><div class="confirm" role="group" aria-label="Delete the files of this model?">
      <p>Delete the files of ${name} (${sizeText(kept.bytes)})?</p>
      <div class="row">
        <button type="button" class="danger" data-confirm @click=${() => actions.deleteModel(source)}>Delete</button>
        <button type="button" @click=${() => actions.confirmDelete(undefined)}>Keep</button>
      </div>
    </div></li>`;
  }
  return html`<li>
    <div class="entry">
      <p class="name">${name} ${fit === undefined ? nothing : html`<span class=${`fit ${fit.verdict.replace(' ', '-')}`} title=${fit.words}>${fit.verdict}</span>`}</p>
      <p class="small">${[facts, words].filter(Boolean).join(' · ')}</p>
      ${fit !== undefined && (fit.isChecked || fit.verdict !== 'fits') && fit.verdict !== 'unknown' ? html`<p class="small">${fit.words}</p>` : nothing}
      ${fit?.isChecked && fit.verdict === 'unknown' ? html`<p class="small warn">${fit.words}</p>` : nothing}
    </div>
    <div class="entry-tools">
      <button type="button" class="primary" aria-label=${`Load ${name}`} ?disabled=${isCurrent} @click=${() => actions.loadModel(source, name)}>${isCurrent ? 'Loaded' : 'Load'}</button>
      ${fit?.isChecked ? nothing : html`<button type="button" aria-label=${`Check ${name}`} ?disabled=${isChecking} @click=${() => actions.checkModel(entry)}>${isChecking ? 'Checking…' : 'Check'}</button>`}
      ${kept === undefined ? nothing : html`<button type="button" aria-label=${`Delete the files of ${name}`} data-delete=${source} @click=${() => actions.confirmDelete(source)}>Delete</button>`}
    </div>
  </li>`;
}
