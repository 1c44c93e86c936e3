// A tensor on a device: a handle whose numbers stay on the GPU until they are read back.

import { EngineError } from '../errors.js';
import type { Device } from './device.js';
import { bytesOf, elementsOf, isWhole } from './elements.js';
import type { DType, TensorData, TensorValues } from './types.js';

/** What a tensor is to its device. @internal */
export interface TensorHandle {
  id: number;
  shape: readonly number[];
  dtype: DType;
  /** What its numbers are stored in: tensors with the same object share them. */
  storage: object;
}

/** The handle of a tensor that is to be used on `device`; throws when it can't be. @internal */
export let handleOn: (device: Device, tensor: unknown, what: string) => TensorHandle;

/** The device's side of a tensor. @internal */
export interface TensorOwner {
  readTensors(tensors: readonly Tensor[]): Promise<TensorValues[]>;
  writeTensor(id: number, first: number, bytes: Uint8Array): void;
  sliceTensor(id: number, start: number, end: number): Tensor;
  copyTensor(from: number, to: number, first: number): void;
  tensorBuffer(id: number): [buffer: GPUBuffer, offset: number];
  flush(): void;
  disposeTensor(id: number): void;
}

/**
 * An array of numbers on the GPU. Made by {@link Device.tensor} and its like; freed by {@link Tensor.dispose}, since the
 * browser's garbage collector does not know how much GPU memory hangs on it.
 */
export class Tensor {
  /** The device that it lives on. */
  readonly device: Device;
  /** Dimensions, outermost first. */
  readonly shape: readonly number[];
  readonly dtype: DType;

  #owner: TensorOwner;
  #handle: TensorHandle;
  #disposed = false;

  static {
    handleOn = (device, tensor, what) => {
      if (!(tensor instanceof Tensor)) throw new EngineError('invalid_request', `${what} is a Tensor, got ${String(tensor)}`);
      if (tensor.device !== device) {
        throw new EngineError('wrong_device', `${what} is a tensor of another device: read it back there and make one of this device`);
      }
      if (tensor.#disposed) throw new EngineError('disposed', `${what} was disposed of`);
      return tensor.#handle;
    };
  }

  /** @internal */
  constructor(device: Device, owner: TensorOwner, handle: TensorHandle) {
    this.device = device;
    this.shape = Object.freeze([...handle.shape]);
    this.dtype = handle.dtype;
    this.#owner = owner;
    this.#handle = handle;
  }

  /** The number of elements. */
  get size(): number {
    return elementsOf(this.shape);
  }

  /** Bytes of the elements. */
  get byteSize(): number {
    return this.size * 4;
  }

  /** Whether it was disposed of. */
  get disposed(): boolean {
    return this.#disposed;
  }

  /**
   * Copies the numbers out of the GPU, in row-major order, as they stand after everything that was called before.
   * Several read-backs may be on their way at once; to wait for many tensors, {@link Device.readback} is cheaper.
   */
  async readback(): Promise<TensorValues> {
    const [values] = await this.#owner.readTensors([this]);
    return values!;
  }

  /**
   * Overwrites elements from `first` on (counted in row-major order), after everything that was called before.
   *
   * @throws EngineError `dtype_mismatch` for data of another dtype, `out_of_range` for elements past the end.
   */
  write(data: TensorData, first = 0): void {
    const { id } = handleOn(this.device, this, 'the tensor');
    const { bytes, elements } = bytesOf(data, this.dtype);
    if (!isWhole(first) || first < 0 || first + elements > this.size) {
      throw new EngineError('out_of_range', `${elements} elements from element ${first} don't fit a tensor of ${this.size} elements`);
    }
    if (elements > 0) this.#owner.writeTensor(id, first, bytes);
  }

  /**
   * A new tensor with a copy of `start` to `end` (exclusive) of the first dimension, as `Array.prototype.slice` but without
   * negative positions.
   *
   * @throws EngineError `out_of_range` for a range that is empty or goes past the end.
   */
  slice(start: number, end: number = this.shape[0] ?? 0): Tensor {
    const { id } = handleOn(this.device, this, 'the tensor');
    const [rows] = this.shape;
    if (rows === undefined) throw new EngineError('shape_mismatch', 'a tensor without dimensions has no slices');
    if (!isWhole(start) || !isWhole(end) || start < 0 || end > rows || start >= end) {
      throw new EngineError(
        'out_of_range',
        `the slice ${start} to ${end} is not a range of the ${rows} rows of [${this.shape.join(', ')}]`,
      );
    }
    return this.#owner.sliceTensor(id, start, end);
  }

  /**
   * Overwrites elements from `first` on (counted in row-major order) with all of another tensor, on the GPU.
   *
   * @throws EngineError `dtype_mismatch` for a tensor of another dtype, `out_of_range` for elements past the end, `wrong_device` for a tensor
   * of another device.
   */
  copyFrom(tensor: Tensor, first = 0): void {
    const { id } = handleOn(this.device, this, 'the tensor');
    const source = handleOn(this.device, tensor, 'the tensor to copy');
    if (!isWhole(first) || first < 0) {
      throw new EngineError('out_of_range', `the first element is a whole number from 0, got ${String(first)}`);
    }
    if (source.storage === this.#handle.storage) {
      throw new EngineError('invalid_request', 'a tensor is not copied to itself: take a slice() of it first');
    }
    this.#owner.copyTensor(source.id, id, first);
  }

  /**
   * Submits what was recorded, this tensor's numbers included, without waiting for it.
   *
   * ```js
   * double.dispatch({ bindings: [x], threads: [x.size] });
   * x.eval(); // the GPU begins
   * ```
   */
  eval(): this {
    handleOn(this.device, this, 'the tensor');
    this.#owner.flush();
    return this;
  }

  /**
   * The number of a tensor with one element.
   *
   * @throws EngineError `shape_mismatch` for a tensor with more.
   */
  async item(): Promise<number> {
    if (this.size !== 1) throw new EngineError('shape_mismatch', `item: the tensor [${this.shape.join(', ')}] has ${this.size} elements`);
    const [value] = await this.readback();
    return value!;
  }

  /**
   * The GPUBuffer that the numbers lie in, to use it in an application's own passes without a copy: `size` bytes from byte `offset` on. What
   * was recorded is submitted first, so that what the application submits afterwards sees it. The buffer has the usages STORAGE, COPY_SRC and
   * COPY_DST (an imported one has its own). It stays the device's: it is valid until the tensor is disposed of, and is not to be destroyed.
   *
   * ```js
   * const { buffer, offset, size } = image.buffer();
   * const group = gpuDevice.createBindGroup({ layout, entries: [{ binding: 0, resource: { buffer, offset, size } }] });
   * ```
   */
  buffer(): { buffer: GPUBuffer; offset: number; size: number } {
    const { id } = handleOn(this.device, this, 'the tensor');
    const [buffer, offset] = this.#owner.tensorBuffer(id);
    return { buffer, offset, size: this.byteSize };
  }

  /** Frees the GPU memory once everything that uses it is done. Calling it twice is harmless. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#owner.disposeTensor(this.#handle.id);
  }
}
