// The adapters of a model, which every host that takes another one's place has to have too, and those of the answers under way: an answer keeps the
// adapters and scales that it began with, whatever becomes of them meanwhile.

import { unlessAborted } from '../abort.js';
import { isRecord } from '../arguments.js';
import { unkept } from '../files/options.js';
import type { AdapterData, LoadedHost, LoadServices } from '../protocol.js';
import type { HostSource } from '../source.js';
import type { LoadedAdapter } from '../types.js';

export interface KnownAdapter {
  source: HostSource;
  data: AdapterData & { name: string; scale: number };
  services: LoadServices;
}

interface Known extends KnownAdapter {
  /** A host was asked to unload it. */
  isLeaving: boolean;
  /** How many answers have it. */
  leases: number;
  /** By which names hosts have it for its answers alone. */
  copies: Map<LoadedHost, Copy>;
}

interface Copy {
  name: string;
  isLoaded: boolean;
  loading: Promise<unknown>;
}

export class KnownAdapters {
  /** In the order in which they were loaded. */
  #all: Known[] = [];
  /** Names of copies, of which no caller is told. */
  #hidden = new Set<string>();
  #copies = 0;
  #turns = new WeakMap<LoadedHost, Promise<unknown>>();

  /** One that was loaded from this source. It is the same adapter again, whatever its server has by then, and nobody hears of it. */
  add({ name, scale }: LoadedAdapter, source: HostSource, data: AdapterData, services: LoadServices): void {
    const again = { ...data, name, scale, files: { ...data.files, update: 'never' as const } };
    this.addOwn({ source, data: again, services: { ...services, onProgress: () => {}, startDigester: () => undefined } });
  }

  /** One that was made here. */
  addOwn(own: KnownAdapter): void {
    this.#all.push({ ...own, isLeaving: false, leases: 0, copies: new Map() });
  }

  /** To be called when a host is asked to, and not when it has: what it is asked next finds it so. Returns what takes that back. */
  setScale(name: string, scale: number): () => void {
    const known = this.#find(name);
    if (known === undefined) return () => {};
    const before = known.data.scale;
    known.data.scale = scale;
    return () => {
      if (known.data.scale === scale) known.data.scale = before;
    };
  }

  /** Likewise. Returns what tells whether it was unloaded. */
  unload(name: string): (isUnloaded: boolean) => void {
    const known = this.#find(name);
    if (known === undefined) return () => {};
    known.isLeaving = true;
    return (isUnloaded) => {
      if (isUnloaded) this.#all = this.#all.filter((other) => other !== known);
      else known.isLeaving = false;
    };
  }

  async loadInto(host: LoadedHost, signal: AbortSignal): Promise<void> {
    for (const { source, data, services } of this.#all) await host.loadAdapter(source, data, services, signal);
  }

  /** A host reads for one load at a time. */
  inTurn<T>(host: LoadedHost, signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
    const before = this.#turns.get(host) ?? Promise.resolve();
    const working = unlessAborted(before, signal, 'loading the adapter').then(work);
    this.#turns.set(host, Promise.allSettled([before, working]));
    return working;
  }

  /** Without copies. */
  told(adapters: LoadedAdapter[]): LoadedAdapter[] {
    return adapters.filter(({ name }) => !this.#hidden.has(name));
  }

  /** What a request that begins now says of adapters, or what is said for it. */
  lease(request: object): AdapterLease {
    const { adapters: asked } = request as { adapters?: unknown };
    const staying = this.#all.filter(({ isLeaving }) => !isLeaving);
    if (asked === undefined || asked === null) {
      return new AdapterLease(
        this,
        staying.filter(({ data }) => data.scale !== 0).map((known) => ({ known, scale: known.data.scale })),
        {},
      );
    }
    // The engine says what is wrong with it.
    if (!isRecord(asked)) return new AdapterLease(this, [], asked);
    const scales = Object.entries(asked);
    const found = staying.flatMap((known) => scales.flatMap(([name, scale]) => (name === known.data.name ? [{ known, scale }] : [])));
    const unknown = scales.filter(([name]) => !staying.some(({ data }) => data.name === name));
    return new AdapterLease(this, found, Object.fromEntries(unknown));
  }

  /** What this host calls it; undefined if it has to be loaded for an answer. */
  nameOn(host: LoadedHost, known: Known): string | undefined {
    if (this.#all.includes(known) && !known.isLeaving) return known.data.name;
    const copy = known.copies.get(host);
    return copy?.isLoaded ? copy.name : undefined;
  }

  /** Loads one that was unloaded meanwhile, for its answers alone. */
  async copyTo(host: LoadedHost, known: Known): Promise<true> {
    const { source, data, services, copies } = known;
    let copy = copies.get(host);
    if (copy === undefined) {
      // Its name may be another's by now. Sums are in the order of names, so it keeps its place.
      const name = `${data.name}\0${++this.#copies}`;
      this.#hidden.add(name);
      // Nobody has it who does not name it.
      const load = () => host.loadAdapter(source, { ...data, name, scale: 0 }, services);
      const made: Copy = { name, isLoaded: false, loading: this.inTurn(host, undefined, load).then(() => (made.isLoaded = true)) };
      copy = made;
      copies.set(host, made);
      made.loading.catch(() => copies.delete(host));
    }
    await copy.loading;
    return true;
  }

  /** An answer has ended. */
  end(known: Known): void {
    known.leases -= 1;
    if (known.leases > 0) return;
    for (const [host, { name, loading }] of known.copies) {
      const unload = () => host.unloadAdapter(name);
      // With its host it is gone.
      void loading.then(unload).catch(() => {});
    }
    known.copies.clear();
  }

  #find(name: string): Known | undefined {
    return this.#all.find(({ data, isLeaving }) => data.name === name && !isLeaving);
  }
}

/** The adapters and scales of one answer. */
export class AdapterLease {
  #adapters: KnownAdapters;
  #scaled: { known: Known; scale: unknown }[];
  /** What else its request says. */
  #more: unknown;
  #hasEnded = false;

  constructor(adapters: KnownAdapters, scaled: { known: Known; scale: unknown }[], more: unknown) {
    this.#adapters = adapters;
    this.#scaled = scaled;
    this.#more = more;
    for (const { known } of scaled) known.leases += 1;
  }

  /** Loads what this host lacks. Undefined if it lacks nothing. */
  supply(host: LoadedHost): Promise<true> | undefined {
    const missing = this.#scaled.find(({ known }) => this.#adapters.nameOn(host, known) === undefined);
    return missing === undefined ? undefined : this.#adapters.copyTo(host, missing.known);
  }

  /** The request as this host, which lacks nothing, has to be asked now. */
  of(request: object, host: LoadedHost): object {
    if (!isRecord(this.#more)) return request;
    const scales = this.#scaled.map(({ known, scale }) => [this.#adapters.nameOn(host, known), scale]);
    return { ...request, adapters: { ...this.#more, ...Object.fromEntries(scales) } };
  }

  end(): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    for (const { known } of this.#scaled) this.#adapters.end(known);
  }
}

/** A trained adapter as one that is loaded from its file. */
export function trainedAdapter({ name, scale }: Pick<LoadedAdapter, 'name' | 'scale'>, gguf: Blob): KnownAdapter {
  const services: LoadServices = {
    onProgress: () => {},
    onEvent: () => {},
    onMemoryPressure: () => {},
    store: undefined,
    isOfOnePage: false,
    startDigester: () => undefined,
    startHelpers: () => 0,
    shareWithHelpers: () => {},
    stopHelpers: () => {},
  };
  const source: HostSource = { kind: 'files', files: [{ name: 'trained.gguf', data: gguf }] };
  return { source, data: { name, scale, files: unkept('files', {}) }, services };
}
