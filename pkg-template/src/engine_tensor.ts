// A tensor on the GPU as JavaScript holds it: a handle whose numbers stay where they are until they are asked for.

import { EngineError } from './errors.js';
import type { LoadedHost, TensorData } from './protocol.js';

/** Numbers of an engine that stay on the GPU until they are asked for, such as logits. */
export class Tensor {
  /** The length of each dimension; elements are in row-major order. */
  readonly shape: readonly number[];
  /** The type of the elements, as WGSL calls it, such as `f32`. */
  readonly dtype: string;
  #host: LoadedHost;
  #handle: number;
  #disposed = false;

  /** @internal */
  constructor(host: LoadedHost, { handle, shape, dtype }: TensorData) {
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

  /**
   * The GPUBuffer that the numbers lie in: `size` bytes from byte `offset` on, of the engine's GPUDevice ({@link Engine.gpuDevice}). It is valid until
   * the tensor is disposed of, and is the engine's: neither written nor destroyed by others. `Device.fromEngine` of `rillm/tensor` makes a tensor of
   * it, without a copy.
   *
   * @throws EngineError `invalid_request` where the engine runs in a worker, whose GPU this thread can't use: load it with `worker: false`.
   */
  buffer(): { buffer: GPUBuffer; offset: number; size: number } {
    if (this.#disposed) throw new EngineError('disposed', 'the tensor was disposed of: use it before dispose()');
    if (this.#host.tensorBuffer === undefined) {
      throw new EngineError('invalid_request', 'the tensor is on the GPU of a worker: load the model with worker: false to share it');
    }
    const [buffer, offset] = this.#host.tensorBuffer(this.#handle);
    return { buffer, offset, size: 4 * this.shape.reduce((product, dim) => product * dim, 1) };
  }

  /** Frees the GPU memory. Calling it twice is harmless. */
  async dispose(): Promise<void> {
    if (this.#disposed) return;
    this.#disposed = true;
    await this.#host.disposeTensor(this.#handle);
  }
}
