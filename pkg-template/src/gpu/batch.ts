// A list of operations on buffers that is executed as a whole. It checks ids and devices; shapes are checked by the wasm.

import { EngineError } from '../errors.js';
import type { TensorWasm, WasmBatch } from '../tensor_wasm.js';
import type { Device } from './device.js';
import { checkDType, checkShape, bytesOf, dataOfShape, isWhole, valuesOf } from './elements.js';
import { dispatchOf, type DispatchOptions, type Kernel } from './kernel.js';
import { handleOn, Tensor } from './tensor.js';
import type { DType, TensorData, TensorValues } from './types.js';

/** Names a buffer of one batch. */
export type BufferId = number;

/** What a kernel of a batch binds, and how much is to run. */
export interface BatchDispatchOptions extends Omit<DispatchOptions, 'bindings'> {
  /** For each binding of the kernel in order: a buffer of the batch, a tensor, or the bytes of a uniform block. */
  bindings: readonly (BufferId | Tensor | ArrayBufferView | ArrayBuffer)[];
}

/** What a batch asks of its device. @internal */
export interface BatchDevice {
  check(): void;
  /** The number of a shape. */
  shape(dims: Uint32Array): number;
  importBuffer(buffer: GPUBuffer, shape: ArrayLike<number>, dtype: DType): { tensor: Tensor; checked: Promise<void> };
  made(id: number): Tensor;
}

/**
 * Operations that are written down first and executed together: one submit, however many there are. Intermediate results
 * stay on the GPU. Made by {@link Device.batch}; {@link CommandBatch.dispose} frees what it made.
 *
 * ```js
 * const batch = device.batch();
 * const x = batch.upload([1, -2, 3, -4]);
 * const y = batch.scale(batch.relu(x), 0.5);
 * await batch.execute();
 * console.log(await batch.read(y)); // Float32Array [0.5, 0, 1.5, 0]
 * batch.dispose();
 * ```
 */
export class CommandBatch {
  #device: Device;
  #wasm: TensorWasm;
  #batch: WasmBatch;
  #owner: BatchDevice;
  #disposed = false;
  /** Tensors that were handed in or out, by id: asking twice gives the same one. */
  #tensors = new Map<BufferId, Tensor>();
  /** The buffers of tensors that kernels bind: one for each, however often it is bound. */
  #bindings = new Map<Tensor, BufferId>();
  /** What stands for the memory of a buffer that is no tensor. */
  #storages = new Map<BufferId, object>();
  /** Tensors that this batch made of GPUBuffers. */
  #imported = new Set<Tensor>();
  /** Answers of WebGPU about imported buffers that are still to come. */
  #checks: Promise<EngineError | undefined>[] = [];

  /** @internal */
  constructor(device: Device, wasm: TensorWasm, batch: WasmBatch, owner: BatchDevice) {
    this.#device = device;
    this.#wasm = wasm;
    this.#batch = batch;
    this.#owner = owner;
  }

  /** Operations that wait for {@link CommandBatch.execute}. */
  get numOperations(): number {
    return this.#call((batch) => batch.numOperations());
  }

  /** Buffers of this batch: uploaded, imported, and results. */
  get numBuffers(): number {
    return this.#call((batch) => batch.numBuffers());
  }

  /** A buffer of this data. Without a shape it has one dimension; without a dtype, that of the typed array or f32. */
  upload(data: TensorData, shape?: ArrayLike<number>, dtype?: DType): BufferId {
    const dims = checkShape(shape ?? [bytesOf(data, dtype).elements]);
    const { bytes, dtype: found } = dataOfShape(data, dims, dtype);
    return this.#call((batch) => batch.upload(bytes, this.#owner.shape(dims), found));
  }

  /**
   * A buffer that stays somebody else's: an application's GPUBuffer of this device, or a tensor. It is shared, not copied,
   * and never freed by the batch. A GPUBuffer without a shape has one dimension, over all of it. That a GPUBuffer is another
   * device's is known some time after the call: then `execute` rejects.
   */
  importBuffer(source: GPUBuffer | Tensor, shape?: ArrayLike<number>, dtype: DType = 'f32'): BufferId {
    this.#check();
    if (source instanceof Tensor) {
      if (shape !== undefined) throw new EngineError('invalid_request', 'a tensor brings its own shape: leave the shape out');
      return this.#adopt(source);
    }
    const { tensor, checked } = this.#owner.importBuffer(source, shape ?? [Math.floor(source?.size / 4)], checkDType(dtype));
    this.#imported.add(tensor);
    this.#checks.push(
      checked.then(
        () => undefined,
        (error: EngineError) => error,
      ),
    );
    return this.#adopt(tensor);
  }

  /** max(x, 0) */
  relu(x: BufferId): BufferId {
    return this.#call((batch) => batch.unary('relu', x));
  }

  /** 1 / (1 + e^-x) */
  sigmoid(x: BufferId): BufferId {
    return this.#call((batch) => batch.unary('sigmoid', x));
  }

  /** The hyperbolic tangent. */
  tanh(x: BufferId): BufferId {
    return this.#call((batch) => batch.unary('tanh', x));
  }

  /** x · sigmoid(x), also called SiLU. */
  swish(x: BufferId): BufferId {
    return this.#call((batch) => batch.unary('swish', x));
  }

  /** The Gaussian error linear unit, in its tanh approximation. */
  gelu(x: BufferId): BufferId {
    return this.#call((batch) => batch.unary('gelu', x));
  }

  /** |x| */
  abs(x: BufferId): BufferId {
    return this.#call((batch) => batch.unary('abs', x));
  }

  /** −x */
  neg(x: BufferId): BufferId {
    return this.#call((batch) => batch.unary('neg', x));
  }

  /** e^x; infinite above 88.72. */
  exp(x: BufferId): BufferId {
    return this.#call((batch) => batch.unary('exp', x));
  }

  /** √x; not defined for negative numbers. */
  sqrt(x: BufferId): BufferId {
    return this.#call((batch) => batch.unary('sqrt', x));
  }

  /** x · factor */
  scale(x: BufferId, factor: number): BufferId {
    if (typeof factor !== 'number') throw new EngineError('invalid_request', `the factor is a number, got ${String(factor)}`);
    return this.#call((batch) => batch.scale(x, factor));
  }

  /** a + b, of one shape. */
  add(a: BufferId, b: BufferId): BufferId {
    return this.#call((batch) => batch.binary('add', a, b));
  }

  /** a − b, of one shape. */
  sub(a: BufferId, b: BufferId): BufferId {
    return this.#call((batch) => batch.binary('sub', a, b));
  }

  /** a · b by elements, of one shape. */
  mul(a: BufferId, b: BufferId): BufferId {
    return this.#call((batch) => batch.binary('mul', a, b));
  }

  /** a / b by elements, of one shape; not defined where b is zero. */
  div(a: BufferId, b: BufferId): BufferId {
    return this.#call((batch) => batch.binary('div', a, b));
  }

  /** The larger of each two elements, of one shape. */
  max(a: BufferId, b: BufferId): BufferId {
    return this.#call((batch) => batch.binary('max', a, b));
  }

  /** The smaller of each two elements, of one shape. */
  min(a: BufferId, b: BufferId): BufferId {
    return this.#call((batch) => batch.binary('min', a, b));
  }

  /** The sum of a · b over all elements: one number. */
  dot(a: BufferId, b: BufferId): BufferId {
    return this.#call((batch) => batch.dot(a, b));
  }

  /** The matrix product of a `[m, k]` and b `[k, n]`: `[m, n]`. Buffers of other shapes are read as such matrices, row by row. */
  matmul(a: BufferId, b: BufferId, m: number, k: number, n: number): BufferId {
    for (const [name, size] of Object.entries({ m, k, n })) {
      if (!isWhole(size) || size < 1 || size > 0xffffffff)
        throw new EngineError('shape_mismatch', `matmul: ${name} is a whole number from 1, got ${String(size)}`);
    }
    return this.#call((batch) => batch.matmul(a, b, m, k, n));
  }

  /** A buffer of zeros, such as for a kernel to write to. */
  zeros(shape: ArrayLike<number>, dtype: DType = 'f32'): BufferId {
    const dims = checkShape(shape);
    return this.#call((batch) => batch.zeros(this.#owner.shape(dims), checkDType(dtype)));
  }

  /**
   * A dispatch of a kernel of the caller's own, at this place among the operations. Bindings are buffers of the batch, results among them,
   * or tensors; and for uniforms the bytes of their blocks, which are copied at the call.
   *
   * ```js
   * const squares = batch.zeros([4]);
   * batch.dispatch(square, { bindings: [batch.relu(x), squares], threads: [4] });
   * const sum = batch.add(squares, x);
   * ```
   *
   * @throws EngineError `invalid_request` for an id that the batch does not have, or a buffer that is written and bound twice; `wrong_device`
   * for a kernel or a tensor of another device.
   */
  dispatch(kernel: Kernel, options: BatchDispatchOptions): void {
    this.#check();
    const { kernel: id, resources, grid } = dispatchOf(this.#device, kernel, options, (value, what) => this.#bound(value, what));
    this.#call((batch) => batch.dispatch(id, resources, grid));
  }

  /** The shape of a buffer; for results it is known before they are executed. */
  shape(id: BufferId): readonly number[] {
    return this.#call((batch) => batch.describe(id)).shape;
  }

  /**
   * Compiles the kernels of the operations that wait, all at the same time and without blocking the page, so that {@link execute} has
   * nothing to compile. Nothing runs. It rejects with `shader_compilation` if one does not compile.
   */
  async compile(): Promise<void> {
    this.#check();
    await this.#wasm.guard(() => this.#batch.compile());
  }

  /**
   * Submits all operations that were written down since the last time, in one submit, and resolves when the GPU has done
   * them. Afterwards further operations may be added and executed.
   */
  async execute(): Promise<void> {
    this.#check();
    const checks = this.#checks;
    const { gpuDevice } = this.#device;
    // What the GPU says of a buffer that is not ours must be heard by nobody else.
    if (checks.length > 0) gpuDevice.pushErrorScope('validation');
    // At the call: what the caller does next with a buffer must come after this.
    const done = this.#wasm.guard(() => this.#batch.execute());
    done.catch(() => {});
    if (checks.length > 0) {
      // It rejects when the device is lost, as `done` does.
      const scope = gpuDevice.popErrorScope().catch(() => null);
      const error = (await Promise.all(checks)).find((found) => found !== undefined);
      const refused = await scope;
      if (error !== undefined || refused !== null) {
        await done.catch(() => {});
        throw error ?? new EngineError('gpu_validation', `the GPU refused the batch: ${refused!.message}`);
      }
      this.#checks = this.#checks.filter((check) => !checks.includes(check));
    }
    await done;
  }

  /** Copies a buffer out of the GPU. Results can be read once they are executed. */
  async read(id: BufferId): Promise<TensorValues> {
    const { dtype } = this.#call((batch) => batch.describe(id));
    return valuesOf(await this.#wasm.guard(() => this.#batch.read(id)), dtype);
  }

  /** A buffer as a tensor, which stays when the batch is disposed of; for kernels and other batches. */
  tensor(id: BufferId): Tensor {
    const known = this.#tensors.get(id);
    if (known !== undefined && !known.disposed) {
      // From now on it is the caller's.
      this.#imported.delete(known);
      return known;
    }
    const tensor = this.#owner.made(this.#call((batch) => batch.tensor(id)));
    this.#tensors.set(id, tensor);
    return tensor;
  }

  /** Frees what the batch made, besides what {@link CommandBatch.tensor} handed out. Calling it twice is harmless. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    for (const tensor of this.#imported) tensor.dispose();
    this.#tensors.clear();
    this.#storages.clear();
    this.#bindings.clear();
    if (!this.#wasm.isBroken()) this.#wasm.call(() => this.#batch.dispose());
  }

  /** A buffer that a kernel is to use: its id, and what its numbers are stored in. */
  #bound(value: unknown, what: string): { id: BufferId; storage: object } {
    if (value instanceof Tensor) {
      const { storage } = handleOn(this.#device, value, what);
      let id = this.#bindings.get(value);
      if (id === undefined) this.#bindings.set(value, (id = this.#adopt(value)));
      return { id, storage };
    }
    if (!isWhole(value) || value < 0 || value >= this.numBuffers) {
      throw new EngineError('invalid_request', `${what} is a buffer of the batch or a Tensor, got ${String(value)}`);
    }
    const tensor = this.#tensors.get(value);
    if (tensor !== undefined && !tensor.disposed) return { id: value, storage: handleOn(this.#device, tensor, what).storage };
    let storage = this.#storages.get(value);
    if (storage === undefined) this.#storages.set(value, (storage = {}));
    return { id: value, storage };
  }

  #adopt(tensor: Tensor): BufferId {
    const handle = handleOn(this.#device, tensor, 'the tensor');
    const id = this.#call((batch) => batch.adopt(handle.id));
    this.#tensors.set(id, tensor);
    return id;
  }

  #call<T>(work: (batch: WasmBatch) => T): T {
    this.#check();
    return this.#wasm.call(() => work(this.#batch));
  }

  #check(): void {
    if (this.#disposed) throw new EngineError('disposed', 'the batch was disposed of: make another one with device.batch()');
    this.#owner.check();
  }
}
