// Where a model is loaded: on the GPU, and with the device `auto` on the CPU once the GPU has failed it. It loads nothing.

import { type ChosenDevice, mayBeCpu, reasonOf } from './device_choice.js';
import type { EngineError } from './errors.js';
import type { DeviceReason } from './generated/loading.js';
import type { HostLoadOptions } from './protocol.js';
import { isPassing } from './recovery/losses.js';
import type { LoadOptions } from './types.js';
import { engineWasm } from './wasm_source.js';

/** The losses of its GPU's device after which a model goes on with the CPU. */
const LOSSES = 2;
/** How often a browser is asked in vain for a GPU that was lost: it may be starting its GPU process again. */
const REFUSALS = 3;

type Options = Pick<LoadOptions, 'device' | 'forceFallbackAdapter' | 'signal' | 'training'>;

/** What a host is asked to load, on this device. */
export async function onDevice(host: HostLoadOptions, options: Options, { kind, reason }: ChosenDevice): Promise<HostLoadOptions> {
  return { ...host, device: kind, deviceReason: reason, wasm: await engineWasm(options, kind, options.signal) };
}

export class LoadPlace {
  /** What the next host is asked to load. */
  host: HostLoadOptions;
  #options: Options;
  #losses = 0;
  #refusals = 0;

  constructor(options: Options, host: HostLoadOptions) {
    this.#options = options;
    this.host = host;
  }

  /** Notes why the model is loaded again. */
  async after(lost: EngineError | undefined): Promise<void> {
    if (lost === undefined || !this.#mayLeaveGpu()) return;
    if (lost.code === 'device_lost') this.#losses += 1;
    if (isPassing(lost)) this.#refusals += 1;
    if (this.#losses >= LOSSES) await this.#useCpu('device_lost');
    else if (this.#refusals >= REFUSALS) await this.#useCpu('no_adapter');
  }

  /** Whether a model that the GPU does not load is loaded on the CPU. */
  async leavesGpu({ code }: EngineError): Promise<boolean> {
    const reason = reasonOf(code);
    if (reason === undefined || !this.#mayLeaveGpu()) return false;
    await this.#useCpu(reason);
    return true;
  }

  #mayLeaveGpu(): boolean {
    return this.host.device === 'gpu' && mayBeCpu(this.#options);
  }

  async #useCpu(reason: DeviceReason): Promise<void> {
    this.host = await onDevice(this.host, this.#options, { kind: 'cpu', reason });
  }
}
