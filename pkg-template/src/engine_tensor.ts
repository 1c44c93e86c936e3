// A tensor on the GPU as JavaScript holds it: a handle whose numbers stay where they are until they are asked for.

import { EngineError } from './errors.js';
import type { HostCalls, TensorData } from './protocol.js';

export class Tensor {
  readonly shape: readonly number[];
  readonly dtype: string;
  #host: HostCalls;
  #handle: number;
  #disposed = false;

  /** @internal */
  constructor(host: HostCalls, { handle, shape, dtype }: TensorData) {
    this.#host = host;
    this.#handle = handle;
    this.shape = shape;
    this.dtype = dtype;
  }

  /** Copies the numbers out of the GPU, in row-major order. */
  async readback(): Promise<Float32Array> {
    if (this.#disposed) throw new EngineError('disposed', 'the tensor was disposed of: read it back before dispose()');
    return this.#host.readback(this.#handle);
  }

  /** Frees the GPU memory. Calling it twice is harmless. */
  async dispose(): Promise<void> {
    if (this.#disposed) return;
    this.#disposed = true;
    await this.#host.disposeTensor(this.#handle);
  }
}
