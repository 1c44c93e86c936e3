// Where a model is loaded: on the GPU, and with the device `auto` on the CPU once the GPU has failed it. It loads nothing.

import { type ChosenDevice, mayBeCpu, reasonOf } from './device_choice.js';
import type { EngineError } from './errors.js';
import type { DeviceReason } from './generated/loading.js';
import type { HostLoadOptions } from './protocol.js';
import { Allowance, SPAN_MS } from './recovery/allowance.js';
import { isPassing } from './recovery/losses.js';
import type { LoadOptions, Warning } from './types.js';
import { engineWasm } from './wasm_source.js';

/** The losses of its GPU's device, in the span of recoveries, with which a model goes on with the CPU. */
const LOSSES = 2;
/** How often a browser is asked in vain for a GPU that was lost: it may be starting its GPU process again. */
const REFUSALS = 3;

type Options = Pick<LoadOptions, 'device' | 'forceFallbackAdapter' | 'signal' | 'training'>;

/** What a host is asked to load, on this device. */
export async function onDevice(host: HostLoadOptions, options: Options, { kind, reason }: ChosenDevice): Promise<HostLoadOptions> {
  return { ...host, device: kind, deviceReason: reason, wasm: await engineWasm(options, kind, options.signal) };
}

/** Why a model moved to the CPU. */
const MOVED: Partial<Record<DeviceReason, string>> = {
  no_webgpu: 'there is no WebGPU where it is loaded',
  no_adapter: 'the browser gives no GPU any more',
  adapter_limits: 'it is too large for the limits of this GPU',
  device_lost: `its GPU was lost ${LOSSES} times in ${SPAN_MS / 60_000} minutes`,
};

export class LoadPlace {
  /** What the next host is asked to load. */
  host: HostLoadOptions;
  #options: Options;
  /** What it was asked to load before it left the GPU. */
  #onGpu: HostLoadOptions | undefined;
  /** The CPU did not load it. */
  #hasReturned = false;
  #losses: Allowance;
  #refusals: Allowance;
  #hasLostThreads = false;

  constructor(options: Options, host: HostLoadOptions, now?: () => number) {
    this.#options = options;
    this.host = host;
    this.#losses = new Allowance(LOSSES - 1, now);
    this.#refusals = new Allowance(REFUSALS - 1, now);
  }

  /** What is to be said of this place. */
  get warnings(): Warning[] {
    const { device, deviceReason = 'requested' } = this.host;
    const why = MOVED[deviceReason];
    const warnings: Warning[] = [];
    if (this.#onGpu !== undefined && device === 'cpu' && why !== undefined) {
      const message = `the model runs on the CPU, which is slower: ${why}; with device: 'gpu' it never does`;
      warnings.push({ code: 'moved_to_cpu', message });
    }
    if (this.#hasLostThreads && device === 'cpu') {
      warnings.push({ code: 'fewer_threads', message: 'one thread computes, since a thread of the CPU was lost' });
    }
    return warnings;
  }

  /** Notes why the model is loaded again. */
  async after(lost: EngineError | undefined): Promise<void> {
    if (lost === undefined) return;
    const { device } = this.host;
    if (device === 'cpu' && lost.code === 'device_lost') {
      // What broke one thread would break the next.
      this.host = { ...this.host, threads: 1 };
      this.#hasLostThreads = true;
    }
    if (!this.#mayLeaveGpu()) return;
    if (lost.code === 'device_lost' && this.#losses.take() === undefined) await this.#useCpu('device_lost');
    else if (isPassing(lost) && this.#refusals.take() === undefined) await this.#useCpu('no_adapter');
  }

  /** Whether a model that the GPU does not load is loaded on the CPU. */
  async leavesGpu({ code }: EngineError): Promise<boolean> {
    const reason = reasonOf(code);
    if (reason === undefined || !this.#mayLeaveGpu()) return false;
    await this.#useCpu(reason);
    return true;
  }

  /** Whether a model that left the GPU after a loss, and that the CPU does not load, is loaded on the GPU again, where it stays. */
  returnsToGpu(): boolean {
    if (this.host.device !== 'cpu' || this.#onGpu === undefined) return false;
    this.host = this.#onGpu;
    this.#onGpu = undefined;
    this.#hasReturned = true;
    return true;
  }

  #mayLeaveGpu(): boolean {
    return this.host.device === 'gpu' && !this.#hasReturned && mayBeCpu(this.#options);
  }

  async #useCpu(reason: DeviceReason): Promise<void> {
    const before = this.host;
    this.host = await onDevice(before, this.#options, { kind: 'cpu', reason });
    this.#onGpu = before;
  }
}
