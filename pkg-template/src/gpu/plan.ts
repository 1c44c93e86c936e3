// What a function recorded, to be recorded again.

import { EngineError } from '../errors.js';
import type { WasmPlan } from '../tensor_wasm.js';
import type { Scopes } from './scopes.js';
import type { Tensor } from './tensor.js';

/** What a plan asks of its device. @internal */
export interface PlanOwner {
  /** Runs `work` on the plan, unless the device is gone. */
  call<T>(plan: WasmPlan, work: (plan: WasmPlan) => T): T;
  free(plan: WasmPlan): void;
}

/**
 * Commands that were recorded once and are replayed: nothing is created and nothing is written for a replay, so that it costs a fraction of a
 * microsecond a dispatch. Made by {@link Device.plan}.
 */
export class Plan<T = unknown> implements Disposable {
  /** What the function returned. Its tensors hold what the last replay computed; they are the caller's to dispose of. */
  readonly result: T;
  /** Dispatches of a replay. */
  readonly dispatches: number;
  /** Bytes of the memory that the tensors of the function share. */
  readonly arenaBytes: number;
  /** Bytes that they would take without sharing. */
  readonly arenaBytesWithoutReuse: number;

  #owner: PlanOwner;
  #plan: WasmPlan | undefined;

  /** @internal */
  constructor(owner: PlanOwner, plan: WasmPlan, result: T) {
    this.#owner = owner;
    this.#plan = plan;
    this.result = result;
    this.dispatches = owner.call(plan, () => plan.dispatches());
    [this.arenaBytes, this.arenaBytesWithoutReuse] = owner.call(plan, () => plan.arenaBytes());
  }

  /**
   * Records all commands again, after everything that was called before. They are submitted as other commands are. What was derived from the
   * results before keeps the old values.
   *
   * @throws EngineError `disposed` after {@link Plan.dispose} or when the device was destroyed.
   */
  replay(): void {
    if (this.#plan === undefined) throw new EngineError('disposed', 'the plan was disposed of: make another one with device.plan()');
    this.#owner.call(this.#plan, (plan) => plan.replay());
  }

  /** Frees what replays need. The results stay. Calling it twice is harmless. */
  dispose(): void {
    if (this.#plan !== undefined) this.#owner.free(this.#plan);
    this.#plan = undefined;
  }

  /** {@link Plan.dispose}, for `using`. */
  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** A caller's function as the wasm calls it, several times. @internal */
export class PlannedStep<T> {
  /** What the last call returned. */
  result!: T;
  #thrown: { error: unknown } | undefined;
  #scopes: Scopes;
  #work: () => T;
  #idOf: (tensor: Tensor) => number;

  constructor(scopes: Scopes, work: () => T, idOf: (tensor: Tensor) => number) {
    this.#scopes = scopes;
    this.#work = work;
    this.#idOf = idOf;
  }

  /** The ids of the tensors that the function made and returned. */
  readonly run = (): Uint32Array => {
    const { result, made } = this.#scopes.madeBy(() => {
      try {
        return this.#work();
      } catch (error) {
        this.#thrown = { error };
        throw error;
      }
    });
    if (result instanceof Promise) {
      result.catch(() => {});
      throw new EngineError('invalid_request', 'plan: the function may not be asynchronous');
    }
    this.result = result;
    return Uint32Array.from(made, this.#idOf);
  };

  /** Throws what the function threw, as it is, or else what went wrong. */
  fail(error: unknown): never {
    throw this.#thrown === undefined ? error : this.#thrown.error;
  }
}
