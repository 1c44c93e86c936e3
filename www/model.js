// The model picker: demo models, an address, a local file; loads with progress and can be cancelled. Knows nothing of chats.

import { Engine } from 'rillm';

import { hideNotice } from './notices.js';

const byId = (id) => document.getElementById(id);

export function megabytes(bytes) {
  return bytes >= 1e9 ? `${(bytes / 1e9).toFixed(2)} GB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

export class ModelPicker {
  #events;
  #engine;
  #abort;
  #file;

  constructor(events) {
    this.#events = events;
    byId('model').addEventListener('change', () => this.#showFields());
    byId('model-form').addEventListener('submit', (event) => {
      event.preventDefault();
      const source = this.#source();
      if (source !== undefined) void this.#load(source);
    });
    byId('cancel-load').addEventListener('click', () => this.#abort?.abort());
    byId('file').addEventListener('change', () => {
      const [file] = byId('file').files;
      if (file !== undefined) this.#take(file);
    });
    this.#acceptDrops();
    // The browser may restore the last choice after a reload.
    this.#showFields();
  }

  get loading() {
    return this.#abort !== undefined;
  }

  /** Loads the demo model if it is served beside the page, which it need not be. */
  async loadDemo() {
    const source = byId('model').value;
    if (source === 'url' || source === 'file') return;
    const there = await fetch(source, { method: 'HEAD' }).then((response) => response.ok, () => false);
    if (there) await this.#load(new URL(source, document.baseURI));
    else byId('model-summary').textContent = 'The demo model is not on this server. Choose a file or an address.';
  }

  #showFields() {
    const choice = byId('model').value;
    byId('url-field').hidden = choice !== 'url';
    byId('file-field').hidden = choice !== 'file';
  }

  #source() {
    const choice = byId('model').value;
    if (choice === 'url') {
      const url = byId('url').value.trim();
      if (url === '') byId('url').focus();
      return url === '' ? undefined : url;
    }
    if (choice === 'file') {
      if (this.#file === undefined) byId('file').click();
      return this.#file;
    }
    return new URL(choice, document.baseURI);
  }

  #take(file) {
    this.#file = file;
    byId('model').value = 'file';
    this.#showFields();
    byId('file-name').textContent = file.name;
    if (!this.loading) void this.#load(file);
  }

  #acceptDrops() {
    const holdsFile = (event) => event.dataTransfer?.types.includes('Files');
    let depth = 0;
    addEventListener('dragenter', (event) => {
      if (!holdsFile(event)) return;
      depth += 1;
      document.body.classList.add('dragging');
    });
    addEventListener('dragleave', (event) => {
      if (holdsFile(event) && --depth <= 0) document.body.classList.remove('dragging');
    });
    addEventListener('dragover', (event) => holdsFile(event) && event.preventDefault());
    addEventListener('drop', (event) => {
      if (!holdsFile(event)) return;
      event.preventDefault();
      depth = 0;
      document.body.classList.remove('dragging');
      const [file] = event.dataTransfer.files;
      if (file !== undefined) this.#take(file);
    });
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
      phase === 'header' ? `Reading the header${total > 0 ? ` of ${megabytes(total)}` : ''}…` : `${megabytes(loaded)} of ${megabytes(total)}, ${megabytes((loaded / ms) * 1000)}/s`;
  }

  #showSummary(ms) {
    const { name, architecture, parameters, quantization, weight_bytes, context_length } = this.#engine.info;
    byId('model-summary').textContent =
      `${name ?? architecture}: ${(parameters / 1e6).toFixed(1)} M parameters, ${quantization}, ${megabytes(weight_bytes)}, ` +
      `context ${context_length}. Loaded in ${(ms / 1000).toFixed(1)} s.`;
  }
}
