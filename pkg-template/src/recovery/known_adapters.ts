// The adapters of a model, which every host that takes another one's place has to have too.

import { unkept } from '../files/options.js';
import type { AdapterData, LoadedHost, LoadServices } from '../protocol.js';
import type { HostSource } from '../source.js';
import type { LoadedAdapter } from '../types.js';

export interface KnownAdapter {
  source: HostSource;
  data: AdapterData & { name: string; scale: number };
  services: LoadServices;
}

export class KnownAdapters {
  /** In the order in which they were loaded. */
  #all: KnownAdapter[] = [];

  /** One that was loaded from this source. It is the same adapter again, whatever its server has by then, and nobody hears of it. */
  add({ name, scale }: LoadedAdapter, source: HostSource, data: AdapterData, services: LoadServices): void {
    const again = { ...data, name, scale, files: { ...data.files, update: 'never' as const } };
    this.#all.push({ source, data: again, services: { ...services, onProgress: () => {}, startDigester: () => undefined } });
  }

  /** One that was made here. */
  addOwn(own: KnownAdapter): void {
    this.#all.push(own);
  }

  setScale(name: string, scale: number): void {
    for (const { data } of this.#all) if (data.name === name) data.scale = scale;
  }

  remove(name: string): void {
    this.#all = this.#all.filter(({ data }) => data.name !== name);
  }

  async loadInto(host: LoadedHost, signal: AbortSignal): Promise<void> {
    for (const { source, data, services } of this.#all) await host.loadAdapter(source, data, services, signal);
  }
}

/** A trained adapter as one that is loaded from its file. */
export function trainedAdapter({ name, scale }: LoadedAdapter, gguf: Blob): KnownAdapter {
  const services: LoadServices = {
    onProgress: () => {},
    onEvent: () => {},
    onMemoryPressure: () => {},
    store: undefined,
    isOfOnePage: false,
    startDigester: () => undefined,
    startHelpers: () => {},
  };
  const source: HostSource = { kind: 'files', files: [{ name: 'trained.gguf', data: gguf }] };
  return { source, data: { name, scale, files: unkept('files', {}) }, services };
}
