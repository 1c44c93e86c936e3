// Where the benchmark's model comes from: the fields that choose a demo model, an address or files of this device, and files dropped on the
// page. Knows nothing of what is done with it.

import { acceptDrops } from './view/drop.js';

const byId = (id) => document.getElementById(id);

export class SourceChoice {
  #onFile;
  #file;

  /** `onFile(files)` is called when files were chosen or dropped. */
  constructor(onFile) {
    this.#onFile = onFile;
    byId('model').addEventListener('change', () => this.#showFields());
    byId('file').addEventListener('change', () => {
      if (byId('file').files.length > 0) this.#take([...byId('file').files]);
    });
    acceptDrops((files) => this.#take(files));
    // The browser may restore the last choice after a reload.
    this.#showFields();
  }

  /** What Engine.load takes; undefined while the address or the file is missing, which is then asked for. */
  get() {
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

  /** Puts an address into the fields. */
  setUrl(url) {
    byId('model').value = 'url';
    byId('url').value = url;
    this.#showFields();
  }

  #showFields() {
    const choice = byId('model').value;
    byId('url-field').hidden = choice !== 'url';
    byId('file-field').hidden = choice !== 'file';
  }

  #take(files) {
    this.#file = files.length === 1 ? files[0] : files;
    byId('model').value = 'file';
    this.#showFields();
    byId('file-name').textContent = files.length === 1 ? files[0].name : `${files.length} files`;
    this.#onFile(this.#file);
  }
}
