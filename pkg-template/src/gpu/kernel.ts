// A compute shader of the caller's own, compiled, with the signature that its bindings are checked against.

import { type Checks, anything, describe, isA, isArray, readOptions, reading, text } from '../arguments.js';
import { EngineError, textOf } from '../errors.js';
import type { Device } from './device.js';
import { isWhole } from './elements.js';
import { handleOn, type Tensor } from './tensor.js';
import type { BindingKind, Extent, KernelOptions } from './types.js';

const KINDS: readonly unknown[] = ['read', 'read_write', 'uniform'] satisfies BindingKind[];
const DEFAULT_WORKGROUP: Extent = [64];

/** What is bound, and how much is to run. */
export interface DispatchOptions {
  /** For each binding of the kernel in order: a tensor, or the bytes of a uniform block. */
  bindings: readonly (Tensor | ArrayBufferView | ArrayBuffer)[];
  /** Workgroups in x, y and z. */
  grid?: Extent | undefined;
  /** Invocations in x, y and z: as many workgroups are started as hold them. Instead of `grid`. */
  threads?: Extent | undefined;
}

/** A kernel's options, complete. @internal */
export interface KernelSignature {
  label: string;
  wgsl: string;
  bindings: readonly BindingKind[];
  workgroup: readonly [number, number, number];
}

/** Options of a dispatch on a device or in a batch, which name tensors in ways of their own. @internal */
export type UncheckedDispatch = Omit<DispatchOptions, 'bindings'> & { bindings: readonly unknown[] };

/** A dispatch, checked: tensors as their ids, and workgroups in x, y and z. @internal */
export interface CheckedDispatch {
  kernel: number;
  resources: (number | Uint8Array)[];
  grid: Uint32Array;
}

/** What is bound where a tensor is wanted: its id, and an object that is the same for all that share its numbers. @internal */
export type FindTensor = (value: unknown, what: string) => { id: number; storage: object };

/** What a kernel of this device is to do with these options; throws when it can't. @internal */
export let dispatchOf: (device: Device, kernel: unknown, options: UncheckedDispatch, find: FindTensor) => CheckedDispatch;

const KERNEL: Checks<KernelOptions> = { label: text, wgsl: text, bindings: anything, workgroup: anything };
const DISPATCH: Checks<DispatchOptions> = { bindings: anything, grid: anything, threads: anything };

/** @internal */
export function checkKernelOptions(options: KernelOptions, limits: GPUSupportedLimits): KernelSignature {
  const {
    label = 'kernel',
    wgsl,
    bindings: given,
    workgroup = DEFAULT_WORKGROUP,
  } = readOptions('the options of a kernel', options, KERNEL);
  if (typeof wgsl !== 'string') throw new EngineError('invalid_request', `a kernel's wgsl is a string, got ${typeof wgsl}`);
  if (!isArray(given)) throw new EngineError('invalid_request', "a kernel's bindings are an array of 'read', 'read_write' and 'uniform'");
  const wrong = reading('the bindings of a kernel', () => given.findIndex((kind) => !KINDS.includes(kind)));
  const bindings = wrong === -1 ? reading('the bindings of a kernel', () => [...given]) : [];
  const unknown: unknown = given[wrong];
  if (wrong !== -1) throw new EngineError('invalid_request', `a binding is 'read', 'read_write' or 'uniform', not ${textOf(unknown)}`);
  const buffers = bindings.filter((kind) => kind !== 'uniform').length;
  if (buffers > limits.maxStorageBuffersPerShaderStage) {
    throw new EngineError(
      'adapter_limits',
      `${label} binds ${buffers} tensors and this device allows ${limits.maxStorageBuffersPerShaderStage}`,
    );
  }
  const size = extent(workgroup, 'workgroup');
  const most = [limits.maxComputeWorkgroupSizeX, limits.maxComputeWorkgroupSizeY, limits.maxComputeWorkgroupSizeZ];
  if (size.some((n, axis) => n > most[axis]!) || size[0] * size[1] * size[2] > limits.maxComputeInvocationsPerWorkgroup) {
    throw new EngineError(
      'adapter_limits',
      `${label}: a workgroup of ${size.join(' × ')}; this device allows ${most.join(' × ')} and ${limits.maxComputeInvocationsPerWorkgroup} in all`,
    );
  }
  return { label, wgsl, bindings: [...bindings], workgroup: size };
}

/** A compiled kernel. Made by {@link Device.kernel}; it lives as long as its device. */
export class Kernel {
  readonly device: Device;
  readonly label: string;
  readonly bindings: readonly BindingKind[];
  /** Invocations in a workgroup. */
  readonly workgroup: readonly [number, number, number];
  #id: number;
  #record: (dispatch: CheckedDispatch) => void;
  #limits: GPUSupportedLimits;

  static {
    dispatchOf = (device, kernel, options, find) => {
      if (!isA(kernel, Kernel)) throw new EngineError('invalid_request', `a Kernel is wanted, got ${textOf(kernel)}`);
      if (kernel.device !== device) {
        throw new EngineError('wrong_device', `${kernel.label} is a kernel of another device: compile it on this one`);
      }
      return kernel.#checked(options, find);
    };
  }

  /** @internal */
  constructor(
    device: Device,
    id: number,
    { label, bindings, workgroup }: KernelSignature,
    limits: GPUSupportedLimits,
    record: (dispatch: CheckedDispatch) => void,
  ) {
    this.device = device;
    this.#id = id;
    this.label = label;
    this.bindings = bindings;
    this.workgroup = workgroup;
    this.#limits = limits;
    this.#record = record;
  }

  /**
   * Records one dispatch. It runs with the next flush, read-back or sync, after everything that was called before.
   *
   * ```js
   * double.dispatch({ bindings: [input, output], threads: [input.size] });
   * ```
   */
  dispatch(options: DispatchOptions): void {
    this.#record(this.#checked(options, (value, what) => handleOn(this.device, value, what)));
  }

  #checked(given: UncheckedDispatch, find: FindTensor): CheckedDispatch {
    const { bindings: bound, grid, threads } = readOptions<UncheckedDispatch>(`the options of ${this.label}`, given, DISPATCH);
    const bindings: unknown = isArray(bound)
      ? reading(`the bindings of ${this.label}`, () => bound.slice(0, this.bindings.length + 1))
      : undefined;
    if (!Array.isArray(bindings) || bindings.length !== this.bindings.length) {
      throw new EngineError(
        'invalid_request',
        `${this.label} has ${this.bindings.length} bindings, got ${isArray(bound) ? bound.length : 'none'}`,
      );
    }
    if ((grid === undefined) === (threads === undefined)) {
      throw new EngineError('invalid_request', `${this.label}: give either grid (workgroups) or threads (invocations)`);
    }
    const workgroups =
      grid === undefined ? extent(threads!, 'threads').map((n, axis) => Math.ceil(n / this.workgroup[axis]!)) : extent(grid, 'grid');
    const written = new Set<object>();
    const used = new Set<object>();
    const resources = bindings.map((value: unknown, number) => {
      const what = `${this.label}: binding ${number}`;
      const kind = this.bindings[number]!;
      if (kind === 'uniform') return this.#uniform(value, what);
      const { id, storage } = find(value, what);
      if (written.has(storage) || (kind === 'read_write' && used.has(storage))) {
        throw new EngineError(
          'invalid_request',
          `${what} is bound twice and written: WebGPU allows a buffer that a dispatch writes in one binding only`,
        );
      }
      used.add(storage);
      if (kind === 'read_write') written.add(storage);
      return id;
    });
    return { kernel: this.#id, resources, grid: Uint32Array.from(workgroups) };
  }

  #uniform(value: unknown, what: string): Uint8Array {
    const bytes = reading(what, () => bytesOfBlock(value));
    if (bytes === undefined || bytes.length === 0) {
      throw new EngineError(
        'invalid_request',
        `${what} is a uniform: it takes the bytes of its block as a typed array, a DataView or an ArrayBuffer`,
      );
    }
    const most = this.#limits.maxUniformBufferBindingSize;
    if (bytes.length > most)
      throw new EngineError('adapter_limits', `${what} is a uniform of ${bytes.length} bytes and this device allows ${most}`);
    return bytes;
  }
}

function bytesOfBlock(value: unknown): Uint8Array | undefined {
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  return ArrayBuffer.isView(value) ? new Uint8Array(value.buffer, value.byteOffset, value.byteLength) : undefined;
}

function extent(value: Extent, what: string): [number, number, number] {
  const [x, y = 1, z = 1, ...more] = isArray(value) ? reading(what, () => (value as readonly number[]).slice(0, 4)) : [];
  if (x === undefined || more.length > 0 || ![x, y, z].every((n) => isWhole(n) && n >= 1 && n <= 0xffffffff)) {
    throw new EngineError('invalid_request', `${what} is an array of one to three whole numbers from 1, got ${describe(value)}`);
  }
  return [x, y, z];
}
