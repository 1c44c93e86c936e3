// The wasm of rillm/gpu. The only file that touches its glue: it gives the glue's classes their types and loads the wasm once per thread.

import init, * as glue from './wasm/rillm_tensor.js';
import { compileWasm, wasmLoader } from './compile_wasm.js';
import type { GpuStats, KernelTime } from './stats.js';
import { guardedAgainstTraps, type Guarded, renewal } from './traps.js';
import type { BindingKind, CacheSizes, DType, MemoryStats } from './gpu/types.js';

/** The id of a tensor that is left out. */
export const NONE = 0xffffffff;

/** What a tensor is. */
export interface WasmTensorInfo {
  shape: number[];
  dtype: DType;
}

/**
 * The operations on tensors of a device, or on buffers of a batch. Functions and dtypes are numbers, in the order in which the wasm lists them; a
 * tensor that is left out is {@link NONE}.
 */
export interface WasmOperations {
  unary(kind: number, x: number): number;
  binary(kind: number, a: number, b: number): number;
  binaryScalar(kind: number, x: number, value: number, reversed: boolean): number;
  compare(kind: number, a: number, b: number): number;
  compareScalar(kind: number, x: number, value: number): number;
  logical(kind: number, a: number, b: number): number;
  logicalNot(x: number): number;
  choose(condition: number, x: number, y: number): number;
  chooseScalars(condition: number, x: number, y: number, xNumber: number, yNumber: number): number;
  clamp(x: number, least: number | undefined, most: number | undefined): number;
  softplus(x: number, beta: number, threshold: number): number;
  cast(x: number, dtype: number): number;
  reduce(kind: number, x: number, dims: Int32Array | undefined, keepDims: boolean): number;
  variance(x: number, dims: Int32Array | undefined, correction: number, keepDims: boolean): number;
  argReduce(largest: boolean, x: number, dim: number | undefined, keepDims: boolean): number;
  cumsum(x: number, dim: number): number;
  softmax(x: number, dim: number, log: boolean): number;
  norm(rms: boolean, x: number, dims: number, weight: number, bias: number, epsilon: number): number;
  crossEntropy(x: number, target: number, ignore: number, smoothing: number, reduction: number): number;
  mseLoss(x: number, target: number, reduction: number): number;
  matmul(a: number, b: number): number;
  dot(a: number, b: number): number;
  convolution(flat: boolean, transposed: boolean, x: number, weight: number, bias: number, how: Uint32Array): number;
  maxPool2d(x: number, how: Uint32Array, ceilMode: boolean): Uint32Array;
  avgPool2d(x: number, how: Uint32Array, ceilMode: boolean, countIncludePad: boolean): number;
  attention(q: number, k: number, v: number, causal: boolean, scale: number | undefined): number;
  reshape(x: number, dims: Int32Array): number;
  flatten(x: number, first: number, last: number): number;
  permute(x: number, order: Int32Array): number;
  transpose(x: number, a: number, b: number): number;
  expand(x: number, dims: Int32Array): number;
  squeeze(x: number, dims: Int32Array | undefined): number;
  unsqueeze(x: number, dim: number): number;
  slice(x: number, dim: number, start: number | undefined, stop: number | undefined, step: number): number;
  select(x: number, dim: number, index: number): number;
  split(x: number, sizes: Uint32Array, dim: number): Uint32Array;
  splitEvery(x: number, size: number, dim: number): Uint32Array;
  chunk(x: number, chunks: number, dim: number): Uint32Array;
  flip(x: number, dims: Int32Array): number;
  cat(tensors: Uint32Array, dim: number): number;
  stack(tensors: Uint32Array, dim: number): number;
  repeat(x: number, times: Uint32Array): number;
  pad(x: number, counts: Int32Array, value: number): number;
  triangle(x: number, upper: boolean, diagonal: number): number;
  contiguous(x: number): number;
  copied(x: number): number;
  assign(x: number, from: number): void;
  fullLike(x: number, value: number): number;
  gather(x: number, dim: number, index: number): number;
  scatterAdd(x: number, dim: number, index: number, source: number): number;
  indexSelect(x: number, dim: number, index: number): number;
  embedding(weight: number, index: number): number;
  sort(x: number, dim: number, descending: boolean): Uint32Array;
  topk(x: number, k: number, dim: number, largest: boolean): Uint32Array;
  full(shape: number, dtype: number, value: number): number;
  arange(start: number, end: number, step: number, dtype: number): number;
  linspace(start: number, end: number, count: number, dtype: number): number;
  eye(rows: number, columns: number, dtype: number): number;
  random(shape: number, normal: boolean, seedHigh: number, seedLow: number): number;
}

/** A GPU device; tensors and kernels are ids of it. */
export interface WasmGpu {
  operations(): WasmOperations;
  /** Calls `step` several times; it returns the ids of its results, of which the last ones stay. */
  plan(step: () => Uint32Array): Promise<WasmPlan>;
  /** Computes a tensor, without a submit. */
  evaluate(tensor: number): void;
  /** The number by which a shape is named in other calls, until more others are asked for than are kept. */
  shape(dims: Uint32Array): number;
  tensor(bytes: Uint8Array, shape: number, dtype: DType): number;
  importBuffer(buffer: GPUBuffer, shape: number, dtype: DType, offset: number): number;
  describe(tensor: number): WasmTensorInfo;
  write(tensor: number, first: number, bytes: Uint8Array): void;
  disposeTensor(tensor: number): void;
  kernel(label: string, wgsl: string, bindings: BindingKind[], workgroup: Uint32Array): Promise<number>;
  dispatch(kernel: number, bindings: (number | Uint8Array)[], grid: Uint32Array): void;
  batch(): WasmBatch;
  flush(): void;
  sync(): Promise<void>;
  readback(tensors: Uint32Array): Promise<Uint8Array[]>;
  recordReadback(tensors: Uint32Array): WasmReadback;
  setProfiling(on: boolean): void;
  kernelTimes(): Promise<Record<string, KernelTime>>;
  stats(): GpuStats;
  resetStats(): void;
  memoryStats(): MemoryStats;
  trim(): void;
  /** How many dispatches and copies wait to be submitted. */
  pending(): number;
  setMaxBatchSize(most: number): void;
  setLazyMode(on: boolean): void;
  copyTensor(from: number, to: number, first: number): void;
  tensorBuffer(tensor: number): [buffer: GPUBuffer, offset: number];
  requireGrad(tensor: number, on: boolean): void;
  requiresGrad(tensor: number): boolean;
  /** The number of what requires a gradient itself, 0 for others. */
  leafNumber(tensor: number): number;
  detach(tensor: number): number;
  /** The id of a tensor's gradient, or {@link NONE}; a known id becomes that of the gradient as it is now. */
  gradient(tensor: number, known: number): number;
  setGradient(tensor: number, gradient: number): void;
  /** The numbers of what got a gradient. */
  backward(tensor: number, gradient: number, retainGraph: boolean): Float64Array;
  /** The number of each leaf, then the id of its gradient. */
  gradients(tensor: number, gradient: number, retainGraph: boolean): Float64Array;
  record(name: string, inputs: Uint32Array, output: number, rule: (gradient: number) => Uint32Array): void;
  checkpoint(work: () => number): number;
  pullBack(inputs: Uint32Array, gradient: number, work: (leaves: Uint32Array) => number): Uint32Array;
  setRecording(on: boolean): void;
  isRecording(): boolean;
  /** Operations, bytes that they keep, and bytes that checkpoints did not keep. */
  recorded(): Float64Array;
  clearRecorded(): void;
  destroy(): void;
}

/** Copies that are recorded. */
export interface WasmReadback {
  start(): Promise<Uint8Array[]>;
  free(): void;
}

/** What a step recorded, to be recorded again. */
export interface WasmPlan {
  replay(): void;
  dispatches(): number;
  /** Bytes of the arena, and what they would be without sharing. */
  arenaBytes(): [bytes: number, withoutReuse: number];
  dispose(): void;
  free(): void;
}

/** A batch of a device; its buffers are ids of it, other than those of the device's tensors. */
export interface WasmBatch {
  operations(): WasmOperations;
  upload(bytes: Uint8Array, shape: number, dtype: DType): number;
  adopt(tensor: number): number;
  matmulAs(a: number, b: number, m: number, k: number, n: number): number;
  dotOfAll(a: number, b: number): number;
  dispatch(kernel: number, bindings: (number | Uint8Array)[], grid: Uint32Array): void;
  compile(): Promise<void>;
  numOperations(): number;
  numBuffers(): number;
  describe(buffer: number): WasmTensorInfo;
  execute(outputs: Uint32Array | undefined): Promise<void>;
  read(buffer: number): Promise<Uint8Array>;
  /** The device's id of a buffer. */
  tensor(buffer: number): number;
  dispose(): void;
}

interface Glue {
  WasmGpu: {
    adopt(device: GPUDevice, options: { shared: boolean; debug: boolean; caches: CacheSizes; maxBatchSize: number }): Promise<WasmGpu>;
  };
}

/** The loaded wasm of this thread. */
export interface TensorWasm extends Glue, Guarded {}

const NAMES = {
  file: 'rillm_tensor_bg.wasm',
  option: 'wasmModule',
  advice:
    "check that the file is served and that the content security policy allows 'wasm-unsafe-eval', or hand it in with the option wasmUrl or " +
    'wasmModule of Device.request()',
};

/** Guards the glue's instance against its traps. */
function instance(): TensorWasm {
  return { ...(glue as unknown as Glue), ...guardedAgainstTraps('rillm_tensor', 'all devices of this thread are gone; request new ones') };
}

/** Fetches and compiles the wasm on the first call, and makes a new instance after a trap. */
export const loadTensorWasm = wasmLoader(
  NAMES,
  async (source, policy): Promise<TensorWasm> => {
    // Bundlers look for exactly this expression. Those that leave it as it is put all code into one file, beside which the folder wasm lies.
    const module = await compileWasm(source ?? new URL('./wasm/rillm_tensor_bg.wasm', import.meta.url), 'wasmgpu_adopt', policy);
    await init({ module_or_path: module });
    return instance();
  },
  renewal(() => glue.__wbg_reset_state(), instance),
);
