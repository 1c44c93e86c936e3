// The model picker: loads what was chosen, with progress, and can be cancelled. Knows nothing of chats.

import { Engine, models } from 'rillm';

import { hideNotice } from './notices.js';
import { SourceChoice } from './source.js';

const WHENCE = { network: '', cache: ' from the cache', file: ' from the file' };

const byId = (id) => document.getElementById(id);

export function megabytes(bytes) {
  return bytes >= 1e9 ? `${(bytes / 1e9).toFixed(2)} GB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

export class ModelPicker {
  #events;
  #engine;
  #abort;
  #choice;
  /** What went otherwise than it should while the model was loaded. */
  #note = '';

  constructor(events) {
    this.#events = events;
    this.#choice = new SourceChoice((file) => {
      if (!this.loading) void this.#load(file);
    });
    byId('model-form').addEventListener('submit', (event) => {
      event.preventDefault();
      const source = this.#choice.get();
      if (source !== undefined) void this.#load(source);
    });
    byId('cancel-load').addEventListener('click', () => this.#abort?.abort());
  }

  get loading() {
    return this.#abort !== undefined;
  }

  /** Loads the demo model if it is served beside the page, which it need not be. */
  async loadDemo() {
    const source = byId('model').value;
    if (source === 'url' || source === 'file') return;
    const isServed = () =>
      fetch(source, { method: 'HEAD' }).then(
        (response) => response.ok,
        () => false,
      );
    const kept = await models.info(new URL(source, document.baseURI)).catch(() => undefined);
    const there = kept?.complete || (await isServed());
    if (there) await this.#load(new URL(source, document.baseURI));
    else byId('model-summary').textContent = 'The demo model is not on this server. Choose a file or an address.';
  }

  async #load(source) {
    this.#abort = new AbortController();
    hideNotice();
    this.#note = '';
    this.#show(true);
    try {
      this.#events.onUnload();
      await this.#engine?.dispose();
      this.#engine = undefined;
      const begin = performance.now();
      this.#engine = await Engine.load(source, {
        signal: this.#abort.signal,
        onProgress: (progress) => this.#showProgress(progress),
        onEvent: (event) => this.#showEvent(event),
      });
      this.#showSummary(performance.now() - begin);
      this.#abort = undefined;
      this.#events.onLoaded(this.#engine);
    } catch (error) {
      if (error.code !== 'aborted') this.#events.onError(error);
    } finally {
      this.#abort = undefined;
      this.#show(false);
    }
  }

  #show(loading) {
    byId('loading').hidden = !loading;
    byId('load').disabled = loading;
    byId('cancel-load').hidden = !loading;
    if (loading) {
      byId('progress').removeAttribute('value');
      byId('progress-text').textContent = 'Starting…';
      byId('model-summary').textContent = '';
    }
    this.#events.onState();
  }

  #showProgress({ phase, loaded, total, bytesPerSecond, secondsLeft, from }) {
    if (total > 0) byId('progress').value = loaded / total;
    const rate = bytesPerSecond > 0 ? `, ${megabytes(bytesPerSecond)}/s` : '';
    const left = secondsLeft > 1 ? `, ${Math.ceil(secondsLeft)} s left` : '';
    byId('progress-text').textContent =
      phase === 'header'
        ? `Reading the header${total > 0 ? ` of ${megabytes(total)}` : ''}…`
        : `${megabytes(loaded)} of ${megabytes(total)}${WHENCE[from]}${rate}${left}`;
  }

  #showEvent({ type, message, bytes, waitMs }) {
    if (type === 'fallback') this.#note = ` Not kept for the next visit: ${message}`;
    else if (type === 'joined') byId('progress-text').textContent = 'Another tab is downloading this model…';
    else if (type === 'retrying') byId('progress-text').textContent = `Trying again in ${Math.ceil(waitMs / 1000)} s: ${message}`;
    else if (type === 'resumed') byId('progress-text').textContent = `${megabytes(bytes)} were here already…`;
  }

  #showSummary(ms) {
    const { name, architecture, parameters, quantization, weight_bytes, context_length } = this.#engine.info;
    byId('model-summary').textContent =
      `${name ?? architecture}: ${(parameters / 1e6).toFixed(1)} M parameters, ${quantization}, ${megabytes(weight_bytes)}, ` +
      `context ${context_length}. Loaded in ${(ms / 1000).toFixed(1)} s.${this.#note}`;
  }
}
