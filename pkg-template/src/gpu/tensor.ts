/// <reference lib="esnext.disposable" preserve="true" />
// A tensor on a device: a handle whose numbers stay on the GPU until they are read back.

import { isA, truth, checkArgument } from '../arguments.js';
import { EngineError, textOf } from '../errors.js';
import { NONE, type WasmGpu, type WasmOperations, type WasmTensorInfo } from '../tensor_wasm.js';
import type { Device } from './device.js';
import { bytesOf, bytesOfElement, elementsOf, isWhole } from './elements.js';
import { LayerOperations } from './operations/layers.js';
import type { BackwardOptions, Tape } from './tape.js';
import type { DType, TensorData, TensorValues } from './types.js';

/** What a tensor is to its device. @internal */
export interface TensorHandle {
  id: number;
  /** What its numbers are stored in, where that is known to be somebody else's: tensors with the same object share them. */
  storage: object;
}

/** The handle of a tensor that is to be used on `device`; throws when it can't be. @internal */
export let handleOn: (device: Device, tensor: unknown, what: string) => TensorHandle;

/** The device's side of a tensor. @internal */
export interface TensorOwner {
  /** Runs `work` on the device, unless that is gone. */
  call<T>(work: (gpu: WasmGpu) => T): T;
  /** The same with the operations on its tensors. */
  operate<T>(work: (on: WasmOperations) => T): T;
  /** The tensor of an id that the wasm gave. */
  made(id: number): Tensor;
  readTensors(tensors: readonly Tensor[]): Promise<TensorValues[]>;
  flush(): void;
  disposed(tensor: Tensor, id: number): void;
  tape: Tape;
}

/**
 * An array of numbers on the GPU. Made by {@link Device.tensor} and its like, and by the operations on other tensors. It is freed by
 * {@link Tensor.dispose}, `using` or {@link Device.tidy}: the browser's garbage collector, which frees what was forgotten, does not know how much
 * GPU memory hangs on it.
 *
 * Operations are lazy: functions of elements, and the matrix product before them, wait until somebody reads the result, and one kernel computes what
 * came together by then.
 */
export class Tensor extends LayerOperations implements Disposable {
  /** The device that it lives on. */
  readonly device: Device;

  #owner: TensorOwner;
  #handle: TensorHandle;
  #info: WasmTensorInfo | undefined;
  #disposed = false;
  #grad: Tensor | undefined;

  static {
    handleOn = (device, tensor, what) => {
      if (!isA(tensor, Tensor)) throw new EngineError('invalid_request', `${what} is a Tensor, got ${textOf(tensor)}`);
      if (tensor.device !== device) {
        throw new EngineError('wrong_device', `${what} is a tensor of another device: read it back there and make one of this device`);
      }
      if (tensor.#disposed) throw new EngineError('disposed', `${what} was disposed of`);
      return tensor.#handle;
    };
  }

  /** @internal */
  constructor(device: Device, owner: TensorOwner, handle: TensorHandle, info?: WasmTensorInfo) {
    super();
    this.device = device;
    this.#owner = owner;
    this.#handle = handle;
    this.#info = info;
  }

  /** @internal */
  protected override made(work: (on: WasmOperations, id: number) => number): Tensor {
    return this.#owner.made(this.#operate(work));
  }

  /** @internal */
  protected override madeAll(work: (on: WasmOperations, id: number) => Uint32Array): Tensor[] {
    return Array.from(this.#operate(work), (id) => this.#owner.made(id));
  }

  /** @internal */
  protected override idOf(tensor: unknown, what: string): number {
    return handleOn(this.device, tensor, what).id;
  }

  /** Dimensions, outermost first. */
  get shape(): readonly number[] {
    return this.#described().shape;
  }

  /** What the elements are. */
  get dtype(): DType {
    return this.#described().dtype;
  }

  /** The number of elements. */
  get size(): number {
    return elementsOf(this.shape);
  }

  /** Bytes of the elements. */
  get byteSize(): number {
    return this.size * bytesOfElement(this.dtype);
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
    const { bytes, elements } = bytesOf(data, this.dtype);
    if (!isWhole(first) || first < 0 || first + elements > this.size) {
      throw new EngineError('out_of_range', `${elements} elements from element ${first} don't fit a tensor of ${this.size} elements`);
    }
    this.#call((gpu, id) => {
      if (elements > 0) gpu.write(id, first, bytes);
    });
  }

  /**
   * Overwrites all elements with those of another tensor, which broadcasts and is cast, or with a number. What was derived from this tensor before keeps
   * the old elements; views of the same memory see the new ones.
   */
  assign(from: Tensor | number): this {
    if (typeof from === 'number') {
      const filled = this.made((on, id) => on.fullLike(id, from));
      this.assign(filled);
      filled.dispose();
      return this;
    }
    const source = this.idOf(from, 'assign: the source');
    this.#operate((on, id) => on.assign(id, source));
    return this;
  }

  /**
   * Overwrites elements from `first` on (counted in row-major order) with all of another tensor, on the GPU.
   *
   * @throws EngineError `dtype_mismatch` for a tensor of another dtype, `out_of_range` for elements past the end, `wrong_device` for a tensor
   * of another device.
   */
  copyFrom(tensor: Tensor, first = 0): void {
    const source = this.idOf(tensor, 'the tensor to copy');
    if (!isWhole(first) || first < 0) {
      throw new EngineError('out_of_range', `the first element is a whole number from 0, got ${textOf(first)}`);
    }
    if (tensor === this) throw new EngineError('invalid_request', 'a tensor is not copied to itself: clone() a part of it first');
    this.#call((gpu, id) => gpu.copyTensor(source, id, first));
  }

  /**
   * Computes this tensor and what else waits, and submits what was recorded, without waiting for the GPU.
   *
   * ```js
   * double.dispatch({ bindings: [x], threads: [x.size] });
   * x.eval(); // the GPU begins
   * ```
   */
  eval(): this {
    this.#call((gpu, id) => gpu.evaluate(id));
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
    const [buffer, offset] = this.#call((gpu, id) => gpu.tensorBuffer(id));
    return { buffer, offset, size: this.byteSize };
  }

  /**
   * Whether what is computed from this tensor is followed back to it: true of parameters, for which you set it, and of what is computed from them.
   *
   * ```js
   * const w = device.randn([784, 10]).requireGrad();
   * x.matmul(w).crossEntropy(labels).backward();
   * console.log(await w.grad.readback());
   * ```
   */
  get requiresGrad(): boolean {
    return this.#call((gpu, id) => gpu.requiresGrad(id));
  }

  set requiresGrad(on: boolean) {
    this.requireGrad(on);
  }

  /**
   * Sets {@link Tensor.requiresGrad}, and returns the tensor itself.
   *
   * @throws EngineError `dtype_mismatch` for whole numbers, `invalid_request` for what was computed from a tensor that requires a gradient.
   */
  requireGrad(on = true): this {
    checkArgument('requireGrad: the argument', on, truth);
    const { id } = handleOn(this.device, this, 'the tensor');
    this.#owner.tape.require(this, id, on);
    this.#refreshGrad();
    return this;
  }

  /**
   * The gradient, the sum over all {@link Tensor.backward} since {@link Tensor.zeroGrad}; undefined before the first one. It belongs to this tensor and is
   * disposed of with it, by `zeroGrad()`, or at the end of the `tidy` in which it was first asked for.
   */
  get grad(): Tensor | undefined {
    const known = this.#knownGrad();
    const id = this.#call((gpu, own) => gpu.gradient(own, known === undefined ? NONE : handleOn(this.device, known, 'the gradient').id));
    if (id === NONE) return undefined;
    this.#grad = known ?? this.#owner.made(id);
    return this.#grad;
  }

  /** Another gradient in its place, in the shape and dtype of the tensor, such as a scaled one; or undefined for none. */
  set grad(gradient: Tensor | undefined) {
    const id = gradient === undefined || gradient === null ? NONE : this.idOf(gradient, 'the gradient');
    this.#call((gpu, own) => gpu.setGradient(own, id));
    this.#refreshGrad();
  }

  /** Forgets the gradient. In a plan, a gradient from before the plan becomes zeros, so that replays do the same. */
  zeroGrad(): void {
    this.grad = undefined;
  }

  /**
   * Computes the gradients of this tensor with regard to all that it was computed from and that requires one, and adds them to those that they
   * have ({@link Tensor.grad}). What was recorded is freed, unless `retainGraph` is set. They stay on the GPU; nothing is submitted.
   *
   * @throws EngineError `shape_mismatch` for a tensor of several elements without `gradient`; `invalid_request` where nothing requires a gradient,
   * what was recorded is gone, an operation has no gradient, or a tensor that is needed was written since.
   */
  backward(given?: BackwardOptions): void {
    this.#owner.tape.accumulate(this, given, (leaf) => leaf.#refreshGrad());
  }

  /** The same numbers in the same memory, not followed back. */
  detach(): Tensor {
    return this.#owner.made(this.#call((gpu, id) => gpu.detach(id)));
  }

  /** Frees the GPU memory once everything that uses it is done. Calling it twice is harmless. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#grad?.dispose();
    this.#owner.disposed(this, this.#handle.id);
  }

  /** The same at the end of a block that declares it with `using`. */
  [Symbol.dispose](): void {
    this.dispose();
  }

  #knownGrad(): Tensor | undefined {
    return this.#grad === undefined || this.#grad.disposed ? undefined : this.#grad;
  }

  /** Lets the tensor of the gradient, if somebody has it, be the gradient as it is now. */
  #refreshGrad(): void {
    const known = this.#knownGrad();
    if (known === undefined || this.grad !== undefined) return;
    known.dispose();
    this.#grad = undefined;
  }

  #described(): WasmTensorInfo {
    if (this.#info === undefined) {
      const { shape, dtype } = this.#call((gpu, id) => gpu.describe(id));
      this.#info = { shape: Object.freeze(shape) as number[], dtype };
    }
    return this.#info;
  }

  #operate<T>(work: (on: WasmOperations, id: number) => T): T {
    const { id } = handleOn(this.device, this, 'the tensor');
    return this.#owner.operate((on) => work(on, id));
  }

  #call<T>(work: (gpu: WasmGpu, id: number) => T): T {
    const { id } = handleOn(this.device, this, 'the tensor');
    return this.#owner.call((gpu) => work(gpu, id));
  }
}
