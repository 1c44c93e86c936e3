// The public types of rillm/gpu: what a caller passes in and gets back. Types only.

import type { CacheStats, GpuStats } from '../stats.js';
import type { AdapterInfo } from '../types.js';
import type { WasmSource } from '../wasm_source.js';

export type { CacheStats, Flushes, GpuStats, KernelTime } from '../stats.js';
export type { AdapterInfo, SubgroupMatrix } from '../types.js';

/**
 * What the elements of a tensor are. f16 and bf16 take two bytes, are computed in f32 and rounded after each operation; the others take four bytes
 * on the GPU, bool too.
 */
export type DType = 'bool' | 'u32' | 'i32' | 'f16' | 'bf16' | 'f32';

/**
 * Elements for a tensor: a Float32Array for f32, an Int32Array for i32, a Uint32Array for u32, a Uint8Array of 0 and 1 for bool, a Uint16Array of bits
 * for f16 or bf16; or an array of numbers or truth values, which are converted.
 */
export type TensorData = Float32Array | Int32Array | Uint32Array | Uint8Array | Uint16Array | readonly (number | boolean)[];

/** A read-back tensor: `Float32Array` for f32, f16 and bf16, `Int32Array` for i32, `Uint32Array` for u32, `Uint8Array` of 0 and 1 for bool. */
export type TensorValues = Float32Array | Int32Array | Uint32Array | Uint8Array;

/** Sizes of the device's caches; 0 switches one off. */
export interface CacheSizes {
  /** Uniform buffers, found again by their exact content. Default: 512. */
  uniforms?: number | undefined;
  /** Bind groups, found again by layout and buffers. Default: 256. */
  bindGroups?: number | undefined;
  /** Shapes. Default: 256. */
  shapes?: number | undefined;
  /** Staging buffers for reading back. Default: 4. */
  staging?: number | undefined;
}

/** On which device, and with what. */
export interface DeviceOptions {
  /**
   * An application's own GPUDevice to work on. It is shared: rillm never destroys it, and buffers of both sides may be used
   * together (see {@link Device.importBuffer}). The options that choose an adapter are not allowed with it.
   */
  device?: GPUDevice | undefined;
  /** Which GPU to prefer in a machine with two. Default: `"high-performance"`. */
  powerPreference?: 'high-performance' | 'low-power' | undefined;
  /** Ask for the browser's software adapter. */
  forceFallbackAdapter?: boolean | undefined;
  /**
   * Features that must be there; the request is rejected with code `adapter_limits` where one is not. Those that kernels
   * profit from (`shader-f16`, `subgroups`, `timestamp-query`) are switched on anyway where they are.
   */
  features?: readonly string[] | undefined;
  /**
   * Limits that must be granted, by WebGPU's names; the request is rejected with code `adapter_limits` where the adapter has
   * less. The limits of buffers, bindings and workgroups are asked for at the adapter's maximum anyway.
   */
  limits?: Readonly<Record<string, number>> | undefined;
  /**
   * Submit every dispatch by itself, name its kernel when something goes wrong, and log each kernel with `console.debug` when the GPU has
   * finished it: its label, its workgroups and the milliseconds since it was submitted. Slow. Default: false.
   */
  debug?: boolean | undefined;
  caches?: CacheSizes | undefined;
  /** Submit by itself after this many dispatches; 0 never does. Default: 0. */
  maxBatchSize?: number | undefined;
  /** Where rillm_tensor_bg.wasm is served, if not beside the package's JavaScript. */
  wasmUrl?: string | URL | undefined;
  /** The module itself, in place of `wasmUrl`: its address, a Response, its bytes, or a compiled `WebAssembly.Module`. */
  wasmModule?: WasmSource | undefined;
}

/** An adapter that {@link listAdapters} found. */
export interface ListedAdapter extends AdapterInfo {
  /** The options with which {@link Device.request} gets this adapter. */
  request: { powerPreference?: 'high-performance' | 'low-power'; forceFallbackAdapter?: boolean };
}

/** Why a device was lost. */
export interface DeviceLostInfo {
  /** `destroyed`: somebody called `destroy()`. `unknown`: the browser, the driver or the GPU gave up. */
  reason: 'destroyed' | 'unknown';
  message: string;
}

/** How a kernel's WGSL declares a binding. */
export type BindingKind = 'read' | 'read_write' | 'uniform';

/** Numbers in x, y and z; what is left out is 1. */
export type Extent = readonly [x: number, y?: number, z?: number];

/** A kernel of your own. */
export interface KernelOptions {
  /** Names the kernel in error messages. Default: `"kernel"`. */
  label?: string | undefined;
  /**
   * The WGSL, with the entry point `main` and all bindings in group 0. `WORKGROUP_X`, `WORKGROUP_Y` and `WORKGROUP_Z` are
   * constants of the size given as `workgroup`.
   */
  wgsl: string;
  /** What stands at binding 0, 1, 2 …. */
  bindings: readonly BindingKind[];
  /** Invocations in a workgroup. Default: `[64]`. */
  workgroup?: Extent | undefined;
}

/** The counters of a device. */
export interface DeviceStats extends GpuStats {
  /** Shapes that cross to the WebAssembly as a number. */
  shapes: CacheStats;
}

/** GPU memory of a device, its caches included. Imported buffers are not counted: they are not ours. */
export interface MemoryStats {
  /** Tensors that were not disposed of. */
  tensors: number;
  /** Bytes of their elements. */
  tensor_bytes: number;
  /** Bytes of all buffers that the device ever made; a reset leaves it. */
  allocated_bytes: number;
  /** Buffers that are in use or wait for reuse: `active_buffers` and `pooled_buffers`. */
  live_buffers: number;
  /** Bytes of them. */
  live_bytes: number;
  /** The highest that `live_bytes` has been since the last reset. */
  peak_bytes: number;
  /** In use: by tensors, by what is in flight, by caches. */
  active_buffers: number;
  /** Bytes of them. */
  active_bytes: number;
  /** Waiting for reuse; `trim()` frees them. */
  pooled_buffers: number;
  /** Bytes of them. */
  pooled_bytes: number;
  /** The pool of storage buffers since the device began, by the sizes of buffers: below 4 KiB, below 1 MiB, and larger. */
  pool: { small: PoolClassStats; medium: PoolClassStats; large: PoolClassStats };
}

/** A size class of the pool. */
export interface PoolClassStats {
  /** Buffers that were reused. */
  hits: number;
  /** Buffers that had to be made. */
  misses: number;
  /** Bytes of the buffers that were made. */
  allocated_bytes: number;
  /** Bytes of the buffers that were given back to the browser. */
  released_bytes: number;
}
