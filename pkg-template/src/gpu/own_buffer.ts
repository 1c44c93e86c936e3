// What has to be known of a GPUBuffer before it is used. Whose device it is of WebGPU tells only when it is asked like this.

import { isA } from '../arguments.js';
import { EngineError, textOf } from '../errors.js';
import { bytesOfElement, checkDType, checkShape, elementsOf, isWhole } from './elements.js';
import type { DType } from './types.js';

// WebGPU's numbers for the two flags that are needed here; the types of the DOM leave the namespaces of them out.
const USAGE_STORAGE = 0x80;
const STAGE_COMPUTE = 0x4;

/** The dimensions of a tensor in a buffer; throws where that can't hold it. @internal */
export function checkImport(buffer: GPUBuffer, shape: ArrayLike<number>, dtype: DType, offset: number): Uint32Array {
  if (!isA(buffer, GPUBuffer)) throw new EngineError('invalid_request', `a GPUBuffer is wanted, got ${textOf(buffer)}`);
  const dims = checkShape(shape);
  if ((buffer.usage & USAGE_STORAGE) === 0) {
    throw new EngineError('invalid_request', 'the GPUBuffer lacks the usage STORAGE: create it with GPUBufferUsage.STORAGE');
  }
  const bytes = elementsOf(dims) * bytesOfElement(checkDType(dtype));
  if (!isWhole(offset) || offset < 0 || offset % 256 !== 0) {
    throw new EngineError('out_of_range', `the offset is a multiple of 256 bytes, got ${textOf(offset)}`);
  }
  if (bytes === 0) throw new EngineError('shape_mismatch', `the shape [${dims.join(', ')}] has no elements`);
  if (offset + bytes > buffer.size) {
    throw new EngineError(
      'shape_mismatch',
      `the shape [${dims.join(', ')}] takes ${bytes} bytes${offset > 0 ? ` from byte ${offset} on` : ''} and the GPUBuffer has ${buffer.size}`,
    );
  }
  return dims;
}

/** Rejects when a buffer is another GPUDevice's. @internal */
export async function checkOwnBuffer(gpuDevice: GPUDevice, buffer: GPUBuffer): Promise<void> {
  gpuDevice.pushErrorScope('validation');
  const layout = gpuDevice.createBindGroupLayout({
    entries: [{ binding: 0, visibility: STAGE_COMPUTE, buffer: { type: 'read-only-storage' } }],
  });
  const size = Math.min(buffer.size, gpuDevice.limits.maxStorageBufferBindingSize);
  gpuDevice.createBindGroup({ layout, entries: [{ binding: 0, resource: { buffer, size: size - (size % 4) } }] });
  const error = await gpuDevice.popErrorScope();
  if (error !== null) throw new EngineError('wrong_device', `the GPUBuffer is one of another device: ${error.message}`);
}
