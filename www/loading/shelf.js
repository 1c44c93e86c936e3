// What there is to choose from: models that are kept in this browser, those of this server, well-known ones, and what the hub finds. Entries are
// {source, name, facts, words, fit, kept}.

import { Engine, models } from 'rillm';

import { deviceOf, fitOf, fitOfInspection, fitOfRecommendation, neededBytes, sizeText } from './fit.js';
import { isAddress, searchHub, searchIn } from './hub.js';
import { KNOWN, SERVED } from './known.js';
import { nameOf } from './loader.js';

/** Typing is over when nothing came for this long. */
const TYPING_MS = 350;
/** Of so many folders with safetensors the headers are read, to see whether they run here. */
const MOST_FOLDERS = 6;
/** About as fast as people read. */
const READING = 6;

export class Shelf {
  query = '';
  state = '';
  kept = [];
  served = [];
  known = [];
  found = [];
  /** Models run on the CPU here. */
  isOnCpu = false;
  #onChange;
  #options;
  #device;
  #search;
  /** What `Engine.inspect` said of a load with the options that hold now, by source. */
  #checked = new Map();

  /** `options()`: those that models are loaded with. */
  constructor(onChange, options = () => ({})) {
    this.#onChange = onChange;
    this.#options = options;
  }

  get isAddress() {
    return isAddress(this.query.trim());
  }

  /** What this device is, which is found out once. */
  async device() {
    this.#device ??= deviceOf();
    const device = await this.#device;
    this.isOnCpu = device.is_on_cpu;
    return device;
  }

  /** Looks again at what is kept and what this server has. */
  async refresh() {
    const turn = ++this.#refreshes;
    const device = await this.device();
    const [kept, served] = await Promise.all([models.list().catch(() => []), servedHere()]);
    // What was listed later is there already.
    if (turn < this.#refreshed) return;
    this.#refreshed = turn;
    const about = new Map([...KNOWN, ...served].map((entry) => [entry.source, entry]));
    this.kept = kept.map((model) => {
      const { name: source, bytes, size, complete } = model;
      const facts = complete ? sizeText(bytes) : `${sizeText(bytes)} of ${sizeText(size)} downloaded`;
      return this.#entry({ ...about.get(source), source, name: about.get(source)?.name ?? nameOf(source), facts, kept: model }, device);
    });
    const isKept = new Set(kept.map(({ name }) => name));
    const described = (entry) =>
      this.#entry({ ...entry, facts: `${sizeText(entry.bytes)}, context ${entry.context.toLocaleString('en')}` }, device);
    this.#all = {
      kept: this.kept,
      served: served.filter(({ source }) => !isKept.has(source)).map(described),
      known: KNOWN.filter(({ source }) => !isKept.has(source)).map(described),
    };
    this.#filter();
  }

  #all = { kept: [], served: [], known: [] };
  /** Times that it was refreshed, and the last of them that is shown. */
  #refreshes = 0;
  #refreshed = 0;

  /** The person types: what is here is found at once, the hub is asked when they pause. */
  find(text) {
    this.query = text;
    this.#search?.abort();
    this.found = [];
    this.state = '';
    this.#filter();
    const words = text.trim();
    if (words.length < 2 || this.isAddress) return;
    const search = (this.#search = new AbortController());
    const timer = setTimeout(() => void this.#ask(words, search.signal), TYPING_MS);
    search.signal.addEventListener('abort', () => clearTimeout(timer), { once: true });
  }

  /** Asks the hub at once. */
  async searchNow() {
    this.#search?.abort();
    this.#search = new AbortController();
    await this.#ask(this.query.trim(), this.#search.signal);
  }

  async #ask(words, signal) {
    this.state = 'Searching the hub…';
    this.#onChange();
    const device = await this.device();
    try {
      const [ready, folders] = await Promise.all([searchHub(words, 'gguf', signal), searchHub(words, 'safetensors', signal)]);
      const known = new Set([...this.#all.kept, ...this.#all.known].map(({ source }) => source));
      const facts = ({ downloads }) => `${downloads.toLocaleString('en')} downloads in a month`;
      const entry = (found) => this.#entry({ ...found, facts: facts(found) }, device);
      this.found = ready.filter(({ source }) => !known.has(source)).map(entry);
      const listed = new Set([...known, ...ready.map(({ source }) => source)]);
      const others = folders.filter(({ source }) => !listed.has(source)).slice(0, MOST_FOLDERS);
      const repositories = () => {
        const count = ready.length + this.found.filter((found) => found.isFolder).length;
        return `${count === 0 ? 'Nothing was' : `${count} ${count === 1 ? 'repository was' : 'repositories were'}`} found on the hub.`;
      };
      for (const [at, folder] of others.entries()) {
        const left = others.length - at;
        this.state = `${repositories()} Looking whether ${left === 1 ? 'one more runs' : `${left} more run`} here…`;
        this.#onChange();
        const checked = await this.#checkedFolder(folder.source);
        if (signal.aborted) return;
        if (checked !== undefined) this.found = [...this.found, { ...entry(folder), ...checked, isFolder: true }];
      }
      this.state = repositories();
    } catch (error) {
      if (signal.aborted) return;
      const here = this.kept.length + this.served.length + this.known.length;
      this.state = `The hub can’t be reached (${error.message}). ${here > 0 ? 'Shown is what this page knows itself.' : 'What is kept on this device still loads.'}`;
    }
    this.#onChange();
  }

  /** What the headers of a folder say; undefined if they can't be read or the model is none that runs. */
  async #checkedFolder(source) {
    await this.check({ source });
    const checked = this.#checked.get(source);
    return checked?.facts === undefined || checked.fit.verdict === 'unknown' ? undefined : checked;
  }

  /** Reads a model's headers, and says whether it fits. On the CPU that is the question of how fast it will be, which is measured. */
  async check({ source }) {
    if (this.#checking.has(source)) return;
    this.#checking.add(source);
    this.#onChange();
    const checked = this.#checked;
    try {
      const load = this.#options();
      const found = await Engine.inspect(source, load);
      const device = await this.device();
      const options = { ...load, device: 'cpu', minTokensPerSecond: READING };
      const fit = {
        ...(device.is_on_cpu
          ? fitOfRecommendation((await Engine.recommend([source], options))[0], READING)
          : fitOfInspection(found, device)),
        isChecked: true,
      };
      const context = found.trained_context_length === undefined ? '' : `, context ${found.trained_context_length.toLocaleString('en')}`;
      checked.set(source, { fit, facts: `${sizeText(found.file_bytes)}, ${found.quantization}${context}` });
    } catch ({ message }) {
      checked.set(source, { fit: { verdict: 'unknown', words: message, isChecked: true } });
    }
    this.#checking.delete(source);
    // The lists may be others by now, and what was found may be of options that no longer hold.
    for (const entry of this.#entries()) if (entry.source === source) Object.assign(entry, this.#checked.get(source));
    this.#onChange();
  }

  isChecking(source) {
    return this.#checking.has(source);
  }

  /** Models will be loaded with other options: what was found of them no longer holds. */
  judgeAgain() {
    this.#checked = new Map();
    for (const entry of this.#entries()) Object.assign(entry, this.#judged(entry));
    this.#onChange();
  }

  #checking = new Set();

  #entries() {
    return [...Object.values(this.#all).flat(), ...this.found];
  }

  /** Says something above the lists. */
  tell(words) {
    this.state = words;
    this.#onChange();
  }

  async delete(source) {
    await models.delete(source);
    await this.refresh();
  }

  #entry(entry, device) {
    const described = { ...entry, device, described: entry.facts };
    return { ...described, ...this.#judged(described) };
  }

  /** {facts, fit} of an entry by its figures, or by its headers if they were asked. */
  #judged({ source, bytes, kv = 0, context = 0, kept, device, described }) {
    const known = bytes === undefined ? kept?.size : neededBytes({ bytes, kv, context }, this.#options());
    return {
      facts: described,
      fit: known === undefined ? undefined : fitOf({ needed: known }, device),
      ...this.#checked.get(source),
    };
  }

  #filter() {
    const words = this.isAddress ? '' : this.query;
    for (const name of ['kept', 'served', 'known']) this[name] = searchIn(this.#all[name], words);
    this.#onChange();
  }
}

/** Whether a model loads without a download that nobody asked for: it is kept here, or this server has it. */
export async function isAtHand(source) {
  if (!source.startsWith('hf:') && new URL(source, document.baseURI).origin === location.origin) return true;
  const kept = await models.info(source).catch(() => undefined);
  return kept?.complete === true;
}

/** Those of the models of this server that it has. */
export async function servedHere() {
  const there = await Promise.all(
    SERVED.map(async ({ path, ...entry }) => {
      const source = new URL(path, document.baseURI).href;
      const { ok } = await fetch(source, { method: 'HEAD' }).catch(() => ({ ok: false }));
      return ok ? { ...entry, source } : undefined;
    }),
  );
  return there.filter((entry) => entry !== undefined);
}
