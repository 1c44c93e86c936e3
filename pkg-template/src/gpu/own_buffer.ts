// What has to be known of a GPUBuffer before it is used. Whose device it is of WebGPU tells only when it is asked like this.

import { EngineError } from '../errors.js';

// WebGPU's numbers for the two flags that are needed here; the types of the DOM leave the namespaces of them out.
const USAGE_STORAGE = 0x80;
const STAGE_COMPUTE = 0x4;

/** @internal */
export function isStorage({ usage }: GPUBuffer): boolean {
  return (usage & USAGE_STORAGE) !== 0;
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
