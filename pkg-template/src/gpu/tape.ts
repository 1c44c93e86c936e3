// What is recorded for gradients, and the way back through it.

import { callable, checkArgument, isArray, reading } from '../arguments.js';
import { EngineError, textOf } from '../errors.js';
import { NONE, type WasmGpu } from '../tensor_wasm.js';
import { flag, options } from './operations/arguments.js';
import type { Scopes } from './scopes.js';
import type { Tensor } from './tensor.js';

/** How a backward pass runs. */
export interface BackwardOptions {
  /** The gradient of the tensor itself, in its shape. Default: 1, for a tensor of one element. */
  gradient?: Tensor | undefined;
  /** Whether what was recorded stays, for another pass through it. Default: false. */
  retainGraph?: boolean | undefined;
}

/** What the tape asks of its device. @internal */
export interface TapeOwner {
  call<T>(work: (gpu: WasmGpu) => T): T;
  made(id: number): Tensor;
  idOf(tensor: unknown, what: string): number;
  scopes: Scopes;
}

/**
 * The operations of a device that were recorded for gradients: those on tensors with {@link Tensor.requiresGrad}, and what follows from them. A
 * backward pass goes through them once and frees what they keep.
 */
export class Tape {
  #owner: TapeOwner;
  /** What requires a gradient, by the numbers of the wasm. */
  #leaves = new Map<number, WeakRef<Tensor>>();
  /** What functions of the caller's made for a pass that still runs. */
  #borrowed: Tensor[] = [];
  /** What one of them threw. */
  #thrown: { error: unknown } | undefined;

  /** @internal */
  constructor(owner: TapeOwner) {
    this.#owner = owner;
  }

  /** Whether operations are recorded. They are by default. */
  get isEnabled(): boolean {
    return this.#owner.call((gpu) => gpu.isRecording());
  }

  /** How many operations are recorded, those through which a pass went left out. */
  get numOps(): number {
    return this.#recorded()[0];
  }

  /** Bytes of the tensors that recorded operations keep for a backward pass. Parameters and inputs that they keep are counted too. */
  get savedBytes(): number {
    return this.#recorded()[1];
  }

  /** Bytes that calls of {@link Device.checkpoint} did not keep so far. */
  get checkpointedBytes(): number {
    return this.#recorded()[2];
  }

  /** From now on operations are recorded. */
  enable(): void {
    this.#owner.call((gpu) => gpu.setRecording(true));
  }

  /** From now on operations are not recorded. {@link Device.noGrad} does the same for a function. */
  disable(): void {
    this.#owner.call((gpu) => gpu.setRecording(false));
  }

  /** Forgets what was recorded and frees what it keeps. Gradients stay. */
  clear(): void {
    this.#owner.call((gpu) => gpu.clearRecorded());
  }

  /**
   * Records an operation of your own: from now on `output` is what it made of `inputs`, which it was computed from without a record, such as by a
   * kernel. `backward` gets the gradient of the output and gives an array with the gradient of each input, in its shape, or null for none. It
   * is called in a backward pass, and nothing that it does is recorded.
   *
   * ```js
   * cube.dispatch({ bindings: [x, y], threads: [x.size] });
   * device.tape.record('cube', [x], y, (gradient) => [gradient.mul(x.mul(x).mul(3))]);
   * ```
   *
   * @throws EngineError `invalid_request` for an output that has a gradient already, `dtype_mismatch` for one of whole numbers.
   */
  record(
    name: string,
    inputs: readonly Tensor[],
    output: Tensor,
    backward: (gradient: Tensor) => readonly (Tensor | null | undefined)[],
  ): void {
    if (typeof name !== 'string') throw new EngineError('invalid_request', `record: the name is a string, got ${textOf(name)}`);
    if (!isArray(inputs)) throw new EngineError('invalid_request', `record: inputs are an array of tensors, got ${textOf(inputs)}`);
    checkArgument('the backward function of record', backward, callable);
    const idOf = (input: unknown, index: number) => this.#owner.idOf(input, `record: input ${index}`);
    const ids = Uint32Array.from(reading('the inputs of record', () => Array.from(inputs, idOf)));
    const id = this.#owner.idOf(output, 'record: the output');
    const rule = (gradient: number) =>
      this.#lent(() => {
        const given: unknown = backward(this.#owner.made(gradient));
        if (!isArray(given)) {
          throw new EngineError('invalid_request', `${name}: the backward function gives an array of gradients, got ${textOf(given)}`);
        }
        if (given.length !== ids.length) {
          throw new EngineError('shape_mismatch', `${name}: the backward function gives ${given.length} gradients, wanted ${ids.length}`);
        }
        const idOf = (tensor: unknown, index: number) =>
          tensor === null || tensor === undefined ? NONE : this.#owner.idOf(tensor, `${name}: gradient ${index}`);
        return { result: given, value: Uint32Array.from(given, idOf) };
      });
    this.#owner.call((gpu) => gpu.record(name, ids, id, rule));
  }

  /**
   * The gradients of a tensor with regard to all that it was computed from and that requires one. Nothing is added to {@link Tensor.grad}; the
   * gradients are yours to dispose of.
   */
  backward(loss: Tensor, given?: BackwardOptions): Map<Tensor, Tensor> {
    const found = this.#pass(loss, given, (gpu, id, gradient, retain) => gpu.gradients(id, gradient, retain));
    const gradients = new Map<Tensor, Tensor>();
    for (let at = 0; at < found.length; at += 2) {
      const [leaf, gradient] = [this.#leaf(found[at]!), this.#owner.made(found[at + 1]!)];
      if (leaf === undefined) gradient.dispose();
      else gradients.set(leaf, gradient);
    }
    return gradients;
  }

  /** Adds to the gradients of tensors, which are told. @internal */
  accumulate(loss: Tensor, given: BackwardOptions | undefined, changed: (tensor: Tensor) => void): void {
    for (const number of this.#pass(loss, given, (gpu, id, gradient, retain) => gpu.backward(id, gradient, retain))) {
      const leaf = this.#leaf(number);
      if (leaf !== undefined) changed(leaf);
    }
  }

  /** Hears of a tensor that requires a gradient from now on, or does not. @internal */
  require(tensor: Tensor, id: number, on: boolean): void {
    this.#owner.call((gpu) => gpu.requireGrad(id, on));
    const number = this.#owner.call((gpu) => gpu.leafNumber(id));
    if (number > 0) this.#leaves.set(number, new WeakRef(tensor));
  }

  /** Whether a tensor requires a gradient, and was not computed from others that do. @internal */
  isLeaf(tensor: Tensor): boolean {
    const id = this.#owner.idOf(tensor, 'the tensor');
    return this.#owner.call((gpu) => gpu.leafNumber(id)) > 0;
  }

  /** Runs `work`, of which nothing is recorded. @internal */
  paused<T>(work: () => T): T {
    checkArgument('the argument of noGrad', work, callable);
    const before = this.isEnabled;
    this.disable();
    let result: T;
    try {
      result = work();
    } finally {
      if (before) this.#owner.call((gpu) => gpu.setRecording(true));
    }
    if (result instanceof Promise) {
      result.catch(() => {});
      throw new EngineError(
        'invalid_request',
        'noGrad: the function may not be asynchronous, since what others do meanwhile would not be recorded',
      );
    }
    return result;
  }

  /** What `work` gives, which is called again by a backward pass. @internal */
  checkpoint(work: () => Tensor): Tensor {
    checkArgument('the argument of checkpoint', work, callable);
    const call = () =>
      this.#lent(() => {
        const result = work();
        return { result, value: this.#owner.idOf(result, 'checkpoint: what the function gives') };
      });
    return this.#owner.made(this.#lending((gpu) => gpu.checkpoint(call)));
  }

  /** The gradients of the tensors that `work` gets, where `gradient` is that of what it gives. @internal */
  pullBack(inputs: readonly Tensor[], gradient: Tensor, work: (inputs: Tensor[]) => Tensor): (Tensor | undefined)[] {
    const ids = Uint32Array.from(inputs.map((input, index) => this.#owner.idOf(input, `vjp: tensor ${index}`)));
    const from = this.#owner.idOf(gradient, 'vjp: the gradient');
    const call = (leaves: Uint32Array) =>
      this.#lent(() => {
        const result = work(Array.from(leaves, (id) => this.#owner.made(id)));
        return { result, value: this.#owner.idOf(result, 'vjp: the result') };
      });
    const found = this.#lending((gpu) => gpu.pullBack(ids, from, call));
    return Array.from(found, (id) => (id === NONE ? undefined : this.#owner.made(id)));
  }

  #pass(
    loss: Tensor,
    given: BackwardOptions | undefined,
    run: (gpu: WasmGpu, id: number, gradient: number, retain: boolean) => Float64Array,
  ): Float64Array {
    const { gradient, retainGraph = false } = options(given, 'backward', ['gradient', 'retainGraph']);
    const id = this.#owner.idOf(loss, 'backward: the tensor');
    const from = gradient === undefined || gradient === null ? NONE : this.#owner.idOf(gradient, 'backward: the gradient');
    const retain = flag(retainGraph, 'backward: retainGraph');
    return this.#lending((gpu) => run(gpu, id, from, retain));
  }

  /** A call of the wasm that calls functions of the caller's. What they throw is thrown as it is. */
  #lending<T>(work: (gpu: WasmGpu) => T): T {
    try {
      return this.#owner.call(work);
    } catch (error) {
      const thrown = this.#thrown;
      this.#thrown = undefined;
      throw thrown === undefined ? error : thrown.error;
    } finally {
      for (const tensor of this.#borrowed.splice(0)) tensor.dispose();
    }
  }

  /** Runs a function of the caller's within a call of the wasm, which takes what it gives before it is disposed of. */
  #lent<T>(work: () => { result: unknown; value: T }): T {
    let value: T | undefined;
    const { made } = this.#owner.scopes.madeBy(() => {
      try {
        const done = work();
        value = done.value;
        return done.result;
      } catch (error) {
        this.#thrown = { error };
        throw error;
      }
    });
    this.#borrowed.push(...made);
    return value as T;
  }

  #leaf(number: number): Tensor | undefined {
    const leaf = this.#leaves.get(number)?.deref();
    if (leaf !== undefined && !leaf.disposed) return leaf;
    this.#leaves.delete(number);
    return undefined;
  }

  #recorded(): [number, number, number] {
    const [operations, saved, checkpointed] = this.#owner.call((gpu) => gpu.recorded());
    return [operations!, saved!, checkpointed!];
  }
}
