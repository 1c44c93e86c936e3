// Where a model comes from: the fields that choose a demo model, an address or a file of this device, and files dropped on the
// page. Knows nothing of what is done with it.

const byId = (id) => document.getElementById(id);

export class SourceChoice {
  #onFile;
  #file;

  /** `onFile(file)` is called when a file was chosen or dropped. */
  constructor(onFile) {
    this.#onFile = onFile;
    byId('model').addEventListener('change', () => this.#showFields());
    byId('file').addEventListener('change', () => {
      const [file] = byId('file').files;
      if (file !== undefined) this.#take(file);
    });
    this.#acceptDrops();
    void this.#offerServed();
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

  /** Shows the models that may be on this server and are. */
  async #offerServed() {
    for (const option of document.querySelectorAll('#model [data-if-served]')) {
      const { ok } = await fetch(option.value, { method: 'HEAD' }).catch(() => ({ ok: false }));
      option.hidden = option.disabled = !ok;
    }
  }

  #showFields() {
    const choice = byId('model').value;
    byId('url-field').hidden = choice !== 'url';
    byId('file-field').hidden = choice !== 'file';
  }

  #take(file) {
    this.#file = file;
    byId('model').value = 'file';
    this.#showFields();
    byId('file-name').textContent = file.name;
    this.#onFile(file);
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
}
