/// <reference lib="esnext.disposable" preserve="true" />
// A list of operations on buffers that is executed as a whole. It checks ids and devices; shapes are checked by the wasm.

import { isA, isArray, reading } from '../arguments.js';
import { EngineError, textOf } from '../errors.js';
import type { TensorWasm, WasmBatch, WasmOperations } from '../tensor_wasm.js';
import type { Device } from './device.js';
import { checkDType, checkShape, bytesOf, dataOfShape, isWhole, valuesOf } from './elements.js';
import { dispatchOf, type DispatchOptions, type Kernel } from './kernel.js';
import { options } from './operations/arguments.js';
import { BINARY, type ReduceOptions } from './operations/elements.js';
import { Creation, type RandomOptions } from './operations/creation.js';
import { bufferId, noted, type BufferId, type OperationName } from './operations/noted.js';
import { BatchOperations } from './operations/batch.js';
import { handleOn, Tensor } from './tensor.js';
import type { DType, TensorData, TensorValues } from './types.js';

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
 * A batch has the operations of tensors, with ids of its buffers in their place: `batch.softmax(batch.matmul(a, b), -1)`. Numbers among buffers
 * are made by {@link CommandBatch.scalar}. Shapes and dtypes are checked at the call; functions of elements that follow each other become one
 * kernel.
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
export class CommandBatch extends BatchOperations implements Disposable {
  #device: Device;
  #wasm: TensorWasm;
  #batch: WasmBatch;
  #owner: BatchDevice;
  #operations: WasmOperations;
  #creation: Creation;
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
    super();
    this.#device = device;
    this.#wasm = wasm;
    this.#batch = batch;
    this.#owner = owner;
    this.#operations = batch.operations();
    this.#creation = new Creation(this.#operations, (dims) => owner.shape(dims));
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
    if (isA(source, Tensor)) {
      if (shape !== undefined) throw new EngineError('invalid_request', 'a tensor brings its own shape: leave the shape out');
      return this.#adopt(source);
    }
    const { tensor, checked } = this.#owner.importBuffer(
      source,
      shape ?? [reading('the buffer', () => Math.floor(source?.size / 4))],
      checkDType(dtype),
    );
    this.#imported.add(tensor);
    this.#checks.push(
      checked.then(
        () => undefined,
        (error: EngineError) => error,
      ),
    );
    return this.#adopt(tensor);
  }

  /** A number, to be used with other buffers. */
  scalar(value: number | boolean, dtype: DType = typeof value === 'boolean' ? 'bool' : 'f32'): BufferId {
    return this.#call(() => this.#creation.full([], value, dtype));
  }

  /** A buffer of zeros, such as for a kernel to write to. */
  zeros(shape: ArrayLike<number>, dtype: DType = 'f32'): BufferId {
    return this.full(shape, 0, dtype);
  }

  /** A buffer of ones. */
  ones(shape: ArrayLike<number>, dtype: DType = 'f32'): BufferId {
    return this.full(shape, 1, dtype);
  }

  /** A buffer of one number. */
  full(shape: ArrayLike<number>, value: number | boolean, dtype: DType = 'f32'): BufferId {
    return this.#call(() => this.#creation.full(shape, value, dtype));
  }

  /** Numbers from `start` to before `end`, `step` apart; see {@link Device.arange}. */
  arange(start: number, end?: number, step = 1, dtype?: DType): BufferId {
    return this.#call(() => this.#creation.arange(start, end, step, dtype));
  }

  /** `steps` numbers from `start` to `end`, both included, equally far apart. */
  linspace(start: number, end: number, steps: number, dtype: DType = 'f32'): BufferId {
    return this.#call(() => this.#creation.linspace(start, end, steps, dtype));
  }

  /** A matrix with ones on its diagonal and zeros elsewhere. */
  eye(rows: number, columns: number = rows, dtype: DType = 'f32'): BufferId {
    return this.#call(() => this.#creation.eye(rows, columns, dtype));
  }

  /** Random numbers, uniform in [0, 1). */
  rand(shape: ArrayLike<number>, options?: RandomOptions): BufferId {
    return this.#call(() => this.#creation.random(shape, false, options));
  }

  /** Random numbers, normally distributed with mean 0 and variance 1. */
  randn(shape: ArrayLike<number>, options?: RandomOptions): BufferId {
    return this.#call(() => this.#creation.random(shape, true, options));
  }

  /** Buffers one after the other along a dimension, in the dtype that all are promoted to. */
  cat(buffers: readonly BufferId[], dim = 0): BufferId {
    return this.#call(() => this.#creation.cat(idsOf(buffers, 'cat'), dim));
  }

  /** Buffers of one shape along a new dimension. */
  stack(buffers: readonly BufferId[], dim = 0): BufferId {
    return this.#call(() => this.#creation.stack(idsOf(buffers, 'stack'), dim));
  }

  /** Overwrites all elements of a buffer, at this place among the operations, with those of another, which broadcasts and is cast. */
  assign(x: BufferId, from: BufferId): void {
    this.#call(() => this.#operations.assign(bufferId(x, 'assign: the buffer'), bufferId(from, 'assign: the source')));
  }

  /** x · sigmoid(x), also called SiLU. */
  swish(x: BufferId): BufferId {
    return this.silu(x);
  }

  /** The Gaussian error linear unit: in its tanh approximation unless `approximate` is `'none'`. */
  gelu(x: BufferId, given?: { approximate?: 'none' | 'tanh' | undefined }): BufferId {
    const { approximate = 'tanh' } = options(given, 'gelu', ['approximate']);
    return this.noted('gelu', x, [{ approximate }]);
  }

  /** x · factor */
  scale(x: BufferId, factor: number): BufferId {
    if (typeof factor !== 'number') throw new EngineError('invalid_request', `the factor is a number, got ${textOf(factor)}`);
    this.#check();
    return this.#call(() => this.#operations.binaryScalar(BINARY.indexOf('mul'), bufferId(x, 'scale: the buffer'), factor, false));
  }

  /** The larger of each two elements. The largest element over dimensions is `amax`. */
  max(a: BufferId, b: BufferId): BufferId {
    return this.maximum(a, b);
  }

  /** The smaller of each two elements. The smallest element over dimensions is `amin`. */
  min(a: BufferId, b: BufferId): BufferId {
    return this.minimum(a, b);
  }

  /** The largest element over dimensions, over all of them by default; NaN if one is. */
  amax(x: BufferId, dims?: number | readonly number[] | null, options?: ReduceOptions): BufferId {
    return this.noted('max', x, [dims, options]);
  }

  /** The smallest element over dimensions, over all of them by default; NaN if one is. */
  amin(x: BufferId, dims?: number | readonly number[] | null, options?: ReduceOptions): BufferId {
    return this.noted('min', x, [dims, options]);
  }

  /** The sum of a · b over all elements of two buffers of one shape: a buffer of one element. */
  dot(a: BufferId, b: BufferId): BufferId {
    return this.#call((batch) => batch.dotOfAll(bufferId(a, 'dot: an operand'), bufferId(b, 'dot: an operand')));
  }

  /**
   * The matrix product of the last two dimensions, as that of tensors. With `m`, `k` and `n` buffers of any shape are read as matrices `[m, k]` and
   * `[k, n]`, row by row.
   */
  matmul(a: BufferId, b: BufferId, m?: number, k?: number, n?: number): BufferId {
    if (m === undefined && k === undefined && n === undefined) return this.noted('matmul', a, [b]);
    for (const [name, size] of Object.entries({ m, k, n })) {
      if (!isWhole(size) || size < 1 || size > 0xffffffff)
        throw new EngineError('shape_mismatch', `matmul: ${name} is a whole number from 1, got ${textOf(size)}`);
    }
    const [left, right] = [bufferId(a, 'matmul: an operand'), bufferId(b, 'matmul: an operand')];
    return this.#call((batch) => batch.matmulAs(left, right, m!, k!, n!));
  }

  /** Notes an operation of tensors. @internal */
  protected override noted<K extends OperationName>(name: K, x: BufferId, args: readonly unknown[]): never {
    return this.#call(() => noted(this.#operations, name, x, args)) as never;
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
    return this.#call((batch) => batch.describe(bufferId(id, 'shape: the buffer'))).shape;
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
   *
   * With `outputs`, only these results can be read or used afterwards, and those that lead to them share memory: a long batch needs as much as its
   * largest step.
   *
   * @throws EngineError what a kernel of the batch fails with; the operations that did not run stay written down.
   */
  async execute(given?: { outputs?: readonly BufferId[] | undefined }): Promise<void> {
    this.#check();
    const { outputs } = options(given, 'execute', ['outputs']);
    const wanted = outputs === undefined ? undefined : idsOf(outputs, 'execute: outputs');
    const checks = this.#checks;
    const { gpuDevice } = this.#device;
    // What the GPU says of a buffer that is not ours must be heard by nobody else.
    if (checks.length > 0) gpuDevice.pushErrorScope('validation');
    // At the call: what the caller does next with a buffer must come after this.
    const done = this.#wasm.guard(() => this.#batch.execute(wanted));
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
    const { dtype } = this.#call((batch) => batch.describe(bufferId(id, 'read: the buffer')));
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
    const tensor = this.#owner.made(this.#call((batch) => batch.tensor(bufferId(id, 'tensor: the buffer'))));
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

  /** {@link CommandBatch.dispose}, for `using`. */
  [Symbol.dispose](): void {
    this.dispose();
  }

  /** A buffer that a kernel is to use: its id, and what its numbers are stored in. */
  #bound(value: unknown, what: string): { id: BufferId; storage: object } {
    if (isA(value, Tensor)) {
      const { storage } = handleOn(this.#device, value, what);
      let id = this.#bindings.get(value);
      if (id === undefined) this.#bindings.set(value, (id = this.#adopt(value)));
      return { id, storage };
    }
    if (!isWhole(value) || value < 0 || value >= this.numBuffers) {
      throw new EngineError('invalid_request', `${what} is a buffer of the batch or a Tensor, got ${textOf(value)}`);
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

function idsOf(buffers: unknown, what: string): Uint32Array {
  if (!isArray(buffers)) throw new EngineError('invalid_request', `${what}: an array of buffers is wanted, got ${textOf(buffers)}`);
  return reading(what, () => Uint32Array.from(Array.from(buffers, (buffer) => bufferId(buffer, what))));
}
