// Shapes, dtypes and data of callers, checked and turned into what crosses to the wasm. It knows nothing of devices.

import { isA, isArray, reading } from '../arguments.js';
import { EngineError, textOf } from '../errors.js';
import { bfloatBits, bfloatValue, halfBits, halfValue } from './halves.js';
import type { DType, TensorData, TensorValues } from './types.js';

const MAX_DIMENSIONS = 6;

const DTYPES: readonly unknown[] = ['bool', 'u32', 'i32', 'f16', 'bf16', 'f32'] satisfies DType[];

/** Checks a dtype that a caller named. @internal */
export function checkDType(dtype: unknown): DType {
  if (DTYPES.includes(dtype)) return dtype as DType;
  throw new EngineError('dtype_mismatch', `a tensor is of dtype ${DTYPES.join(', ')}, not ${textOf(dtype)}`);
}

/** Bytes of an element on the GPU. @internal */
export function bytesOfElement(dtype: DType): number {
  return dtype === 'f16' || dtype === 'bf16' ? 2 : 4;
}

/** Checks a shape that a caller gave and copies it. @internal */
export function checkShape(shape: unknown): Uint32Array {
  if (!isArray(shape) && !ArrayBuffer.isView(shape)) {
    throw new EngineError('shape_mismatch', `a shape is an array of whole numbers, got ${textOf(shape)}`);
  }
  // One more tells that there are too many.
  const dims = reading('a shape', () => Array.prototype.slice.call(shape, 0, MAX_DIMENSIONS + 1) as unknown[]);
  if (dims.length > MAX_DIMENSIONS) {
    throw new EngineError(
      'shape_mismatch',
      `the shape [${dims.map(textOf).join(', ')}] has ${(shape as ArrayLike<unknown>).length} dimensions and at most ${MAX_DIMENSIONS} are possible`,
    );
  }
  for (const dim of dims) {
    if (!isWhole(dim) || dim < 0 || dim > 0xffffffff) {
      throw new EngineError(
        'shape_mismatch',
        `the shape [${dims.map(textOf).join(', ')}] holds ${textOf(dim)}: dimensions are whole numbers from 0`,
      );
    }
  }
  return Uint32Array.from(dims as number[]);
}

/** The number of elements of a shape. @internal */
export function elementsOf(shape: ArrayLike<number>): number {
  return Array.from(shape).reduce((product, dim) => product * dim, 1);
}

/** The dtypes that the elements of a typed array may be, as they are, the first by default. */
function dtypesOf(data: unknown): readonly DType[] {
  if (isA(data, Float32Array)) return ['f32'];
  if (isA(data, Int32Array)) return ['i32'];
  if (isA(data, Uint32Array)) return ['u32'];
  if (isA(data, Uint8Array)) return ['bool'];
  if (isA(data, Uint16Array)) return ['f16', 'bf16'];
  return [];
}

/** The data as bytes of its dtype; without a wished dtype, that of the typed array, or f32. @internal */
export function bytesOf(data: unknown, wished: DType | undefined): { bytes: Uint8Array; dtype: DType; elements: number } {
  return reading('the data of a tensor', () => bytesOfData(data, wished));
}

function bytesOfData(data: unknown, wished: DType | undefined): { bytes: Uint8Array; dtype: DType; elements: number } {
  const wanted = wished === undefined ? undefined : checkDType(wished);
  const [found, ...others] = dtypesOf(data);
  if (found !== undefined) {
    if (wanted !== undefined && wanted !== found && !others.includes(wanted)) {
      throw new EngineError(
        'dtype_mismatch',
        `the data is a ${(data as object).constructor.name} and the tensor is to be ${wanted}: convert the data first`,
      );
    }
    const dtype = wanted ?? found;
    if (isA(data, Uint8Array))
      return asBytes(
        Uint32Array.from(data, (value) => (value === 0 ? 0 : 1)),
        dtype,
      );
    return asBytes(data as TensorValues, dtype);
  }
  if (!isArray(data)) {
    const what = ArrayBuffer.isView(data) || isA(data, ArrayBuffer) ? `a ${data.constructor.name}` : textOf(data);
    throw new EngineError(
      'dtype_mismatch',
      `the data of a tensor is a Float32Array, an Int32Array, a Uint32Array, a Uint8Array, a Uint16Array or an array of numbers, not ${what}`,
    );
  }
  const dtype = wanted ?? (typeof data[0] === 'boolean' && data.every((value) => typeof value === 'boolean') ? 'bool' : 'f32');
  const wrong = data.findIndex((value) => !fits(value, dtype));
  if (wrong !== -1)
    throw new EngineError(
      'dtype_mismatch',
      `element ${wrong} is ${textOf((data as readonly unknown[])[wrong])}, which no ${dtype} can hold`,
    );
  const numbers = data as number[];
  switch (dtype) {
    case 'f32':
      return asBytes(Float32Array.from(numbers), dtype);
    case 'i32':
      return asBytes(Int32Array.from(numbers), dtype);
    case 'bool':
      return asBytes(
        Uint32Array.from(numbers, (value) => (value ? 1 : 0)),
        dtype,
      );
    case 'u32':
      return asBytes(Uint32Array.from(numbers), dtype);
    default:
      return asBytes(Uint16Array.from(numbers, dtype === 'f16' ? halfBits : bfloatBits), dtype);
  }
}

function fits(value: unknown, dtype: DType): boolean {
  if (dtype === 'bool') return typeof value === 'boolean' || value === 0 || value === 1;
  if (typeof value !== 'number') return false;
  if (dtype === 'u32') return isWhole(value) && value >= 0 && value <= 0xffffffff;
  if (dtype === 'i32') return isWhole(value) && value >= -0x80000000 && value <= 0x7fffffff;
  return true;
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

/** Bytes that were read back, as an array of their dtype. Those of 16 bits may have one too many, which fills a word. @internal */
export function valuesOf(bytes: Uint8Array, dtype: DType, elements: number = bytes.byteLength / 4): TensorValues {
  const { buffer, byteOffset } = bytes;
  switch (dtype) {
    case 'f32':
      return new Float32Array(buffer, byteOffset, elements);
    case 'i32':
      return new Int32Array(buffer, byteOffset, elements);
    case 'u32':
      return new Uint32Array(buffer, byteOffset, elements);
    case 'bool':
      return Uint8Array.from(new Uint32Array(buffer, byteOffset, elements));
    default:
      return Float32Array.from(new Uint16Array(buffer, byteOffset, elements), dtype === 'f16' ? halfValue : bfloatValue);
  }
}

/** @internal */
export function isWhole(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value);
}

function asBytes(array: TensorValues | Uint16Array, dtype: DType): { bytes: Uint8Array; dtype: DType; elements: number } {
  return { bytes: new Uint8Array(array.buffer, array.byteOffset, array.byteLength), dtype, elements: array.length };
}
