// The tensors of an engine by numbers of their own: each is on the host that made it, and is lost with it.

import { EngineError } from '../errors.js';
import type { LoadedHost, TensorData } from '../protocol.js';

interface Lent {
  host: LoadedHost;
  /** Its number there. */
  handle: number;
}

export class LentTensors {
  #all = new Map<number, Lent>();
  #next = 1;

  add(host: LoadedHost, { handle, ...data }: TensorData): TensorData {
    const own = this.#next++;
    this.#all.set(own, { host, handle });
    return { ...data, handle: own };
  }

  /** Throws unless it is on this host. */
  find(own: number, host: LoadedHost | undefined): Lent {
    const tensor = this.#all.get(own);
    if (tensor === undefined) throw new EngineError('disposed', 'the tensor was disposed of: use it before dispose()');
    if (tensor.host !== host) throw tensorLost();
    return tensor;
  }

  remove(own: number): Lent | undefined {
    const tensor = this.#all.get(own);
    this.#all.delete(own);
    return tensor;
  }
}

export function tensorLost(): EngineError {
  return new EngineError('device_lost', 'the tensor was lost with its GPU device: compute it again');
}
