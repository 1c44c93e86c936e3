// The model picker: loads what was chosen, with progress, and can be cancelled. Knows nothing of chats.

import { Engine } from 'rillm';

import { hideNotice } from './notices.js';
import { SourceChoice } from './source.js';

const byId = (id) => document.getElementById(id);

export function megabytes(bytes) {
  return bytes >= 1e9 ? `${(bytes / 1e9).toFixed(2)} GB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

export class ModelPicker {
  #events;
  #engine;
  #abort;
  #choice;

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
    const there = await fetch(source, { method: 'HEAD' }).then(
      (response) => response.ok,
      () => false,
    );
    if (there) await this.#load(new URL(source, document.baseURI));
    else byId('model-summary').textContent = 'The demo model is not on this server. Choose a file or an address.';
  }

  async #load(source) {
    this.#abort = new AbortController();
    hideNotice();
    this.#show(true);
    try {
      this.#events.onUnload();
      await this.#engine?.dispose();
      this.#engine = undefined;
      const begin = performance.now();
      this.#engine = await Engine.load(source, {
        signal: this.#abort.signal,
        onProgress: (progress) => this.#showProgress(progress, performance.now() - begin),
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

  #showProgress({ phase, loaded, total }, ms) {
    if (total > 0) byId('progress').value = loaded / total;
    byId('progress-text').textContent =
      phase === 'header'
        ? `Reading the header${total > 0 ? ` of ${megabytes(total)}` : ''}…`
        : `${megabytes(loaded)} of ${megabytes(total)}, ${megabytes((loaded / ms) * 1000)}/s`;
  }

  #showSummary(ms) {
    const { name, architecture, parameters, quantization, weight_bytes, context_length } = this.#engine.info;
    byId('model-summary').textContent =
      `${name ?? architecture}: ${(parameters / 1e6).toFixed(1)} M parameters, ${quantization}, ${megabytes(weight_bytes)}, ` +
      `context ${context_length}. Loaded in ${(ms / 1000).toFixed(1)} s.`;
  }
}
