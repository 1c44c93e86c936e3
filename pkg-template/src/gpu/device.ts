// A GPU device as callers hold it: makes tensors, kernels and batches, orders what they record, and tells when it is lost.
// Everything runs on the calling thread, a page's or a worker's. It checks what callers pass; the work is the wasm's.

import type { Tensor as EngineTensor } from '../engine_tensor.js';
import { callable, checkArgument, isArray, reading, truth } from '../arguments.js';
import { EngineError, textOf, toEngineError } from '../errors.js';
import { loadTensorWasm, type TensorWasm, type WasmGpu, type WasmOperations } from '../tensor_wasm.js';
import { sentWasm } from '../wasm_source.js';
import { describe, requestGpuDevice } from './adapters.js';
import { CommandBatch } from './batch.js';
import { checkCounts, checkGiven, deviceOptions } from './device_options.js';
import { bytesOf, checkShape, dataOfShape, valuesOf } from './elements.js';
import { checkKernelOptions, Kernel, type CheckedDispatch } from './kernel.js';
import { options } from './operations/arguments.js';
import { checkImport, checkOwnBuffer } from './own_buffer.js';
import { Creation, type RandomOptions } from './operations/creation.js';
import { Plan, PlannedStep, type PlanOwner } from './plan.js';
import { RecordedReadback, type ValuesOf } from './recorded_readback.js';
import { Scopes } from './scopes.js';
import { DEFAULT_SHAPES, ShapeNumbers } from './shapes.js';
import { Tape } from './tape.js';
import { handleOn, Tensor, type TensorOwner } from './tensor.js';
import type {
  AdapterInfo,
  DeviceLostInfo,
  DeviceOptions,
  DeviceStats,
  DType,
  KernelOptions,
  KernelTime,
  MemoryStats,
  TensorData,
} from './types.js';

/**
 * A WebGPU device with rillm's runtime on it: commands are recorded in program order and submitted together, uniforms, bind
 * groups and pipelines are cached, and buffers are reused.
 *
 * Recorded commands are submitted by {@link Device.flush}, {@link Device.sync}, a read-back, or a batch's `execute()`.
 * Mistakes are thrown at the call as an {@link EngineError}, and the device stays usable.
 *
 * ```js
 * const device = await Device.request();
 * const x = device.tensor([1, 2, 3], [3]);
 * const double = await device.kernel({
 *   wgsl: `
 *     @group(0) @binding(0) var<storage, read_write> x: array<f32>;
 *     @compute @workgroup_size(WORKGROUP_X)
 *     fn main(@builtin(global_invocation_id) id: vec3u) {
 *       if (id.x < arrayLength(&x)) { x[id.x] *= 2; }
 *     }`,
 *   bindings: ['read_write'],
 * });
 * double.dispatch({ bindings: [x], threads: [x.size] });
 * console.log(await x.readback()); // Float32Array [2, 4, 6]
 * device.destroy();
 * ```
 */
export class Device {
  /** The adapter that it runs on; `features` are those that are switched on. */
  readonly adapter: AdapterInfo;
  /** The features that are switched on, by WebGPU's names. */
  readonly features: ReadonlySet<string>;
  /** What the device allows, by WebGPU's names. */
  readonly limits: GPUSupportedLimits;
  /** The GPUDevice beneath, such as to make buffers for {@link Device.importBuffer}. */
  readonly gpuDevice: GPUDevice;
  /** Resolves when the device is lost or {@link Device.destroy} is called; never rejects. */
  readonly lost: Promise<DeviceLostInfo>;
  /** What is recorded for gradients. */
  readonly tape: Tape;

  #wasm: TensorWasm;
  #gpu: WasmGpu;
  #operations: WasmOperations;
  #creation: Creation;
  #shared: boolean;
  #destroyed: EngineError | undefined;
  #tellDestroyed!: (info: DeviceLostInfo) => void;
  #owner: TensorOwner;
  #shapes: ShapeNumbers;
  #forgotten: FinalizationRegistry<number>;
  #scopes = new Scopes();

  /**
   * Asks for a device, or takes in an application's own with `{device}`.
   *
   * @throws EngineError `webgpu_unavailable`, `adapter_unavailable`, `adapter_limits` or `wasm_unavailable`.
   */
  static async request(wanted?: DeviceOptions): Promise<Device> {
    const options = deviceOptions(wanted);
    const { device: given, debug = false, caches = {}, maxBatchSize = 0 } = options;
    checkCounts({ ...caches, maxBatchSize });
    if (given !== undefined) checkGiven(given, options);
    const wasm = await loadTensorWasm(await sentWasm(options));
    const gpuDevice = given ?? (await requestGpuDevice(options));
    try {
      const gpu = await wasm.guard(() => wasm.WasmGpu.adopt(gpuDevice, { shared: given !== undefined, debug, caches, maxBatchSize }));
      return new Device(wasm, gpu, gpuDevice, given !== undefined, caches.shapes ?? DEFAULT_SHAPES);
    } catch (thrown) {
      if (given === undefined) gpuDevice.destroy();
      throw toEngineError(thrown);
    }
  }

  private constructor(wasm: TensorWasm, gpu: WasmGpu, gpuDevice: GPUDevice, shared: boolean, shapes: number) {
    this.#wasm = wasm;
    this.#gpu = gpu;
    this.#operations = gpu.operations();
    this.#shared = shared;
    this.#shapes = new ShapeNumbers(shapes, (dims) => gpu.shape(dims));
    this.#creation = new Creation(this.#operations, (dims) => this.#shapes.numberOf(dims));
    this.gpuDevice = gpuDevice;
    this.features = gpuDevice.features;
    this.limits = gpuDevice.limits;
    this.adapter = describe(gpuDevice.adapterInfo, gpuDevice.features);
    const destroyed = new Promise<DeviceLostInfo>((resolve) => (this.#tellDestroyed = resolve));
    const gone = gpuDevice.lost.then(
      ({ reason, message }): DeviceLostInfo => ({ reason: reason === 'destroyed' ? 'destroyed' : 'unknown', message }),
    );
    this.lost = Promise.race([destroyed, gone]);
    const free = (id: number) => {
      if (this.#destroyed === undefined && !wasm.isBroken()) wasm.call(() => gpu.disposeTensor(id));
    };
    // What nobody can reach any more, and nobody disposed of.
    this.#forgotten = new FinalizationRegistry(free);
    const call: TensorOwner['call'] = (work) => this.#call(work);
    const idOf = (tensor: unknown, what: string) => handleOn(this, tensor, what).id;
    this.tape = new Tape({ call, idOf, made: (id) => this.#made(id), scopes: this.#scopes });
    this.#owner = {
      call,
      tape: this.tape,
      operate: (work) => this.#call(() => work(this.#operations)),
      made: (id) => this.#made(id),
      readTensors: (tensors) => this.readback(...tensors),
      flush: () => this.flush(),
      disposed: (tensor, id) => {
        this.#forgotten.unregister(tensor);
        free(id);
      },
    };
  }

  /** Whether the GPUDevice is an application's own. */
  get isShared(): boolean {
    return this.#shared;
  }

  /**
   * A tensor of this data. Without a shape it has one dimension. Without a dtype, it has that of the typed array; arrays of numbers become f32, and of
   * truth values bool.
   *
   * @throws EngineError `shape_mismatch`, `dtype_mismatch`, or `adapter_limits` for more bytes than a binding may have.
   */
  tensor(data: TensorData, shape?: ArrayLike<number>, dtype?: DType): Tensor {
    const dims = checkShape(shape ?? [bytesOf(data, dtype).elements]);
    const { bytes, dtype: found } = dataOfShape(data, dims, dtype);
    return this.#made(this.#call((gpu) => gpu.tensor(bytes, this.#shapes.numberOf(dims), found)));
  }

  /** A tensor of zeros. */
  zeros(shape: ArrayLike<number>, dtype: DType = 'f32'): Tensor {
    return this.full(shape, 0, dtype);
  }

  /** A tensor of ones. */
  ones(shape: ArrayLike<number>, dtype: DType = 'f32'): Tensor {
    return this.full(shape, 1, dtype);
  }

  /** A tensor of one number. */
  full(shape: ArrayLike<number>, value: number | boolean, dtype: DType = 'f32'): Tensor {
    return this.#created((make) => make.full(shape, value, dtype));
  }

  /** Numbers from `start` to before `end`, `step` apart. Without a dtype i32 if all three are whole, and else f32. */
  arange(start: number, end?: number, step = 1, dtype?: DType): Tensor {
    return this.#created((make) => make.arange(start, end, step, dtype));
  }

  /** `steps` numbers from `start` to `end`, both included, equally far apart. */
  linspace(start: number, end: number, steps: number, dtype: DType = 'f32'): Tensor {
    return this.#created((make) => make.linspace(start, end, steps, dtype));
  }

  /** A matrix with ones on its diagonal and zeros elsewhere. */
  eye(rows: number, columns: number = rows, dtype: DType = 'f32'): Tensor {
    return this.#created((make) => make.eye(rows, columns, dtype));
  }

  /** An f32 tensor of random numbers, uniform in [0, 1). The same seed gives the same numbers on every device. */
  rand(shape: ArrayLike<number>, options?: RandomOptions): Tensor {
    return this.#created((make) => make.random(shape, false, options));
  }

  /** An f32 tensor of random numbers, normally distributed with mean 0 and variance 1 (Box, Muller 1958). */
  randn(shape: ArrayLike<number>, options?: RandomOptions): Tensor {
    return this.#created((make) => make.random(shape, true, options));
  }

  /** Tensors one after the other along a dimension, in the dtype that all are promoted to. */
  cat(tensors: readonly Tensor[], dim = 0): Tensor {
    const ids = this.#idsOf(tensors, 'cat');
    return this.#created((make) => make.cat(ids, dim));
  }

  /** Tensors of one shape along a new dimension. */
  stack(tensors: readonly Tensor[], dim = 0): Tensor {
    const ids = this.#idsOf(tensors, 'stack');
    return this.#created((make) => make.stack(ids, dim));
  }

  /**
   * Runs `work` and disposes of the tensors that it made, but for those that it returns, alone or in an array or object. It may be asynchronous; what
   * others make on this device until it ends counts as its own.
   *
   * ```js
   * const norm = device.tidy(() => x.mul(x).sum().sqrt());
   * ```
   */
  tidy<T>(work: () => T): T {
    checkArgument('the argument of tidy', work, callable);
    return this.#scopes.tidied(work);
  }

  /** Runs `work`, of which nothing is recorded for gradients, such as a write to parameters. It may not be asynchronous. */
  noGrad<T>(work: () => T): T {
    return this.tape.paused(work);
  }

  /** What `work` gives. A backward pass calls it again and keeps no intermediate tensor for that (Chen et al. 2016): {@link Tape.checkpointedBytes}. */
  checkpoint(work: () => Tensor): Tensor {
    return this.tape.checkpoint(work);
  }

  /**
   * Records what `work` does with tensors, once to run and to be replayed: a replay creates nothing and writes nothing. Tensors that `work` makes
   * lie in an arena, where those that are never needed at the same time share bytes; but for what it returns, alone or in an array or object, they
   * are freed when it ends. New inputs go into tensors that were there before, by {@link Tensor.write} or {@link Tensor.assign}.
   *
   * `work` is called a few times while the plan is made, and must do the same each time. It can't be asynchronous, and inside it nothing is
   * uploaded, read or submitted. Random numbers are the same in every replay.
   *
   * ```js
   * const plan = await device.plan(() => x.matmul(w).add(b).relu());
   * for (const row of rows) {
   *   x.write(row);
   *   plan.replay();
   *   console.log(await plan.result.readback());
   * }
   * ```
   *
   * @throws what `work` throws; EngineError `invalid_request` for what can't be in a plan.
   */
  async plan<T>(work: () => T): Promise<Plan<T>> {
    if (typeof work !== 'function') throw new EngineError('invalid_request', `plan: a function is wanted, got ${textOf(work)}`);
    this.#check();
    const step = new PlannedStep(this.#scopes, work, (tensor) => handleOn(this, tensor, 'a result').id);
    const plan = await this.#wasm.guard(() => this.#gpu.plan(step.run)).catch((error: unknown) => step.fail(error));
    const owner: PlanOwner = {
      call: (made, call) => this.#call(() => call(made)),
      free: (made) => {
        if (!this.#wasm.isBroken()) this.#wasm.call(() => made.dispose());
      },
    };
    return new Plan(owner, plan, step.result);
  }

  /**
   * A tensor whose numbers are those of an application's GPUBuffer, without a copy. The buffer stays the application's:
   * disposing of the tensor or destroying this device leaves it as it is. It needs the usage STORAGE, COPY_SRC to be read
   * back, and COPY_DST to be written.
   *
   * What the application itself submits to the GPUDevice's queue is ordered by the calls: {@link Device.flush} submits what
   * was recorded here.
   *
   * @throws EngineError `wrong_device` for a buffer of another device, `invalid_request` for one without STORAGE,
   * `shape_mismatch` for a shape that is larger than the buffer, `out_of_range` for an offset that is no multiple of 256 bytes.
   */
  async importBuffer(
    buffer: GPUBuffer,
    shape: ArrayLike<number>,
    dtype: DType = 'f32',
    given?: { offset?: number | undefined },
  ): Promise<Tensor> {
    const { offset = 0 } = options(given, 'importBuffer', ['offset']);
    const tensor = this.#imported(buffer, shape, dtype, offset);
    try {
      await checkOwnBuffer(this.gpuDevice, buffer);
    } catch (error) {
      tensor.dispose();
      throw error;
    }
    return tensor;
  }

  /**
   * A tensor whose numbers are those of an engine's tensor, such as the logits and hidden states of `engine.forward()`, without a copy. This device has
   * to be the engine's: `Device.request({ device: engine.gpuDevice })`. The engine's tensor must not be disposed of before this one is done with.
   *
   * @throws EngineError `invalid_request` where the engine runs in a worker, `wrong_device` for an engine with another GPUDevice.
   */
  async fromEngine(tensor: EngineTensor): Promise<Tensor> {
    if (reading('the tensor of an engine', () => typeof tensor?.buffer !== 'function')) {
      throw new EngineError('invalid_request', `fromEngine: a tensor of an engine is wanted, got ${textOf(tensor)}`);
    }
    const { buffer, offset } = tensor.buffer();
    return this.importBuffer(buffer, tensor.shape, 'f32', { offset });
  }

  /**
   * Compiles a kernel of the caller's own. A WGSL text is compiled at most once in the device's life.
   *
   * @throws EngineError `shader_compilation`, with the line, for WGSL that does not compile or does not fit the bindings.
   */
  async kernel(options: KernelOptions): Promise<Kernel> {
    const signature = checkKernelOptions(options, this.limits);
    this.#check();
    const { label, wgsl, bindings, workgroup } = signature;
    const id = await this.#wasm.guard(() => this.#gpu.kernel(label, wgsl, [...bindings], Uint32Array.from(workgroup)));
    const record = ({ kernel, resources, grid }: CheckedDispatch) => this.#call((gpu) => gpu.dispatch(kernel, resources, grid));
    return new Kernel(this, id, signature, this.limits, record);
  }

  /** A list of operations that one submit executes. */
  batch(): CommandBatch {
    return new CommandBatch(
      this,
      this.#wasm,
      this.#call((gpu) => gpu.batch()),
      {
        check: () => this.#check(),
        shape: (dims) => this.#call(() => this.#shapes.numberOf(dims)),
        importBuffer: (buffer, shape, dtype) => ({
          tensor: this.#imported(buffer, shape, dtype),
          checked: checkOwnBuffer(this.gpuDevice, buffer),
        }),
        made: (id) => this.#made(id),
      },
    );
  }

  /** How many dispatches and copies were recorded and not submitted. */
  get pendingWork(): number {
    return this.#call((gpu) => gpu.pending());
  }

  /** From now on, what was recorded is submitted when it has this number of dispatches; 0 for no limit. */
  setMaxBatchSize(most: number): void {
    checkCounts({ maxBatchSize: most ?? null });
    this.#call((gpu) => gpu.setMaxBatchSize(most));
  }

  /**
   * Whether what is recorded waits for a read, a sync, a flush or the batch limit. It does by default; off, each dispatch is submitted at
   * once, which is slower and finds mistakes sooner.
   */
  setLazyMode(on: boolean): void {
    if (typeof on !== 'boolean') throw new EngineError('invalid_request', `setLazyMode: true or false is wanted, got ${textOf(on)}`);
    this.#call((gpu) => gpu.setLazyMode(on));
  }

  /** Submits what was recorded, without waiting for it. */
  flush(): void {
    this.#call((gpu) => gpu.flush());
  }

  /** Submits what was recorded and resolves when the GPU has done it; rejects with what went wrong since the last wait. */
  async sync(): Promise<void> {
    this.#check();
    await this.#wasm.guard(() => this.#gpu.sync());
  }

  /** Copies tensors out of the GPU, all with one submit and one mapping. */
  async readback<const T extends readonly Tensor[]>(...tensors: T): Promise<ValuesOf<T>> {
    const { ids, valuesOfAll } = this.#toRead(tensors);
    return valuesOfAll(await this.#wasm.guard(() => this.#gpu.readback(ids)));
  }

  /**
   * Records copies of tensors as they stand now, to be read later. They go with the next submit, so that reading costs no submit of its own,
   * and what is recorded afterwards does not change them.
   *
   * ```js
   * const before = device.recordReadback(x);
   * double.dispatch({ bindings: [x], threads: [x.size] });
   * await device.sync(); // one submit, with the copy in it
   * const [values] = await before.values();
   * ```
   */
  recordReadback<const T extends readonly Tensor[]>(...tensors: T): RecordedReadback<T> {
    const { ids, valuesOfAll } = this.#toRead(tensors);
    const recorded = this.#call((gpu) => gpu.recordReadback(ids));
    return new RecordedReadback<T>({
      start: async () => {
        this.#check();
        return valuesOfAll(await this.#wasm.guard(() => recorded.start()));
      },
      free: () => {
        if (!this.#wasm.isBroken()) this.#wasm.call(() => recorded.free());
      },
    });
  }

  /** The ids of tensors, and what makes numbers of their bytes. */
  #toRead<const T extends readonly Tensor[]>(tensors: T): { ids: Uint32Array; valuesOfAll: (bytes: Uint8Array[]) => ValuesOf<T> } {
    const handles = tensors.map((tensor, index) => handleOn(this, tensor, tensors.length === 1 ? 'the tensor' : `tensor ${index}`));
    this.#check();
    const infos = tensors.map(({ dtype, size }) => ({ dtype, size }));
    return {
      ids: Uint32Array.from(handles, ({ id }) => id),
      valuesOfAll: (bytes) => bytes.map((part, index) => valuesOf(part, infos[index]!.dtype, infos[index]!.size)) as ValuesOf<T>,
    };
  }

  /** The counters. */
  stats(): DeviceStats {
    return { ...this.#call((gpu) => gpu.stats()), shapes: this.#shapes.stats() };
  }

  /** Sets the counters to zero; what is alive stays counted. */
  resetStats(): void {
    this.#call((gpu) => gpu.resetStats());
    this.#shapes.resetStats();
  }

  /**
   * Switches the timing of kernels on or off. While it is on, each dispatch has a compute pass of its own.
   *
   * @throws EngineError `adapter_limits` where the adapter has no `timestamp-query`.
   */
  setProfiling(on: boolean): void {
    checkArgument('the argument of setProfiling', on, truth);
    this.#call((gpu) => gpu.setProfiling(on));
  }

  /** The GPU time that each kernel took since the last call, by its label. Browsers may round it. */
  async kernelTimes(): Promise<Record<string, KernelTime>> {
    this.#check();
    return this.#wasm.guard(() => this.#gpu.kernelTimes());
  }

  /** Submits what was recorded, and frees the buffers that wait for reuse: those that the GPU still uses when it is done with them. */
  trim(): void {
    this.#call((gpu) => gpu.trim());
  }

  /** What is alive on the GPU. */
  memoryStats(): MemoryStats {
    return this.#call((gpu) => gpu.memoryStats());
  }

  /**
   * Frees everything of this device. What is in flight is rejected and every later call throws, with code `disposed`. An
   * application's own GPUDevice and its buffers stay as they are. Calling it twice is harmless.
   */
  destroy(): void {
    if (this.#destroyed !== undefined) return;
    this.#destroyed = new EngineError('disposed', 'the device was destroyed: request another one with Device.request()');
    if (!this.#wasm.isBroken()) this.#wasm.call(() => this.#gpu.destroy());
    this.#tellDestroyed({ reason: 'destroyed', message: 'destroy() was called' });
    if (!this.#shared) this.gpuDevice.destroy();
  }

  #created(make: (creation: Creation) => number): Tensor {
    return this.#made(this.#call(() => make(this.#creation)));
  }

  #idsOf(tensors: readonly Tensor[], what: string): Uint32Array {
    if (!isArray(tensors)) throw new EngineError('invalid_request', `${what}: an array of tensors is wanted, got ${textOf(tensors)}`);
    return reading(what, () =>
      Uint32Array.from(Array.from(tensors, (tensor, index) => handleOn(this, tensor, `${what}: tensor ${index}`).id)),
    );
  }

  #imported(buffer: GPUBuffer, shape: ArrayLike<number>, dtype: DType, offset = 0): Tensor {
    const dims = checkImport(buffer, shape, dtype, offset);
    return this.#made(
      this.#call((gpu) => gpu.importBuffer(buffer, this.#shapes.numberOf(dims), dtype, offset)),
      buffer,
    );
  }

  /** The tensor of an id that the wasm gave. */
  #made(id: number, storage: object = {}): Tensor {
    const tensor = new Tensor(this, this.#owner, { id, storage });
    this.#forgotten.register(tensor, id, tensor);
    this.#scopes.add(tensor);
    return tensor;
  }

  #call<T>(work: (gpu: WasmGpu) => T): T {
    this.#check();
    return this.#wasm.call(() => work(this.#gpu));
  }

  #check(): void {
    if (this.#destroyed !== undefined) throw this.#destroyed;
  }
}
