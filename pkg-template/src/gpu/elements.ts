// Shapes, dtypes and data of callers, checked and turned into what crosses to the wasm. It knows nothing of devices.

import { EngineError } from '../errors.js';
import type { DType, TensorData, TensorValues } from './types.js';

const MAX_DIMENSIONS = 4;

/** Checks a dtype that a caller named. @internal */
export function checkDType(dtype: unknown): DType {
  if (dtype === 'f32' || dtype === 'u32') return dtype;
  throw new EngineError('dtype_mismatch', `a tensor is of dtype f32 or u32, not ${String(dtype)}`);
}

/** Checks a shape that a caller gave and copies it. @internal */
export function checkShape(shape: unknown): Uint32Array {
  if (!Array.isArray(shape) && !ArrayBuffer.isView(shape)) {
    throw new EngineError('shape_mismatch', `a shape is an array of whole numbers, got ${String(shape)}`);
  }
  const dims = Array.from(shape as ArrayLike<unknown>);
  if (dims.length > MAX_DIMENSIONS) {
    throw new EngineError(
      'shape_mismatch',
      `the shape [${dims.join(', ')}] has ${dims.length} dimensions and at most ${MAX_DIMENSIONS} are possible`,
    );
  }
  for (const dim of dims) {
    if (!isWhole(dim) || dim < 1 || dim > 0xffffffff) {
      throw new EngineError('shape_mismatch', `the shape [${dims.join(', ')}] holds ${String(dim)}: dimensions are whole numbers from 1`);
    }
  }
  return Uint32Array.from(dims as number[]);
}

/** The number of elements of a shape. @internal */
export function elementsOf(shape: ArrayLike<number>): number {
  return Array.from(shape).reduce((product, dim) => product * dim, 1);
}

/** The data as bytes of its dtype; without a wished dtype, that of the typed array, or f32. @internal */
export function bytesOf(data: unknown, wished: DType | undefined): { bytes: Uint8Array; dtype: DType; elements: number } {
  const wanted = wished === undefined ? undefined : checkDType(wished);
  const found = data instanceof Float32Array ? 'f32' : data instanceof Uint32Array ? 'u32' : undefined;
  if (found !== undefined) {
    if (wanted !== undefined && wanted !== found) {
      throw new EngineError(
        'dtype_mismatch',
        `the data is a ${data!.constructor.name} and the tensor is to be ${wanted}: convert the data first`,
      );
    }
    return asBytes(data as TensorValues, found);
  }
  if (!Array.isArray(data)) {
    const what = ArrayBuffer.isView(data) || data instanceof ArrayBuffer ? `a ${data.constructor.name}` : String(data);
    throw new EngineError('dtype_mismatch', `the data of a tensor is a Float32Array, a Uint32Array or an array of numbers, not ${what}`);
  }
  const dtype = wanted ?? 'f32';
  const wrong = data.findIndex(
    (value) => typeof value !== 'number' || (dtype === 'u32' && !(isWhole(value) && value >= 0 && value <= 0xffffffff)),
  );
  if (wrong !== -1) throw new EngineError('dtype_mismatch', `element ${wrong} is ${String(data[wrong])}, which no ${dtype} can hold`);
  return asBytes(dtype === 'f32' ? Float32Array.from(data) : Uint32Array.from(data), dtype);
}

/** Data that is to fill a whole shape. @internal */
export function dataOfShape(data: TensorData, shape: Uint32Array, wished: DType | undefined): { bytes: Uint8Array; dtype: DType } {
  const { bytes, dtype, elements } = bytesOf(data, wished);
  if (elements !== elementsOf(shape)) {
    throw new EngineError(
      'shape_mismatch',
      `${elements} elements don't fill the shape [${shape.join(', ')}], which has ${elementsOf(shape)}`,
    );
  }
  return { bytes, dtype };
}

/** Bytes that were read back, as an array of their dtype. @internal */
export function valuesOf(bytes: Uint8Array, dtype: DType): TensorValues {
  return dtype === 'f32'
    ? new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4)
    : new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
}

/** @internal */
export function isWhole(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value);
}

function asBytes(array: TensorValues, dtype: DType): { bytes: Uint8Array; dtype: DType; elements: number } {
  return { bytes: new Uint8Array(array.buffer, array.byteOffset, array.byteLength), dtype, elements: array.length };
}
