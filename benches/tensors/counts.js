// Counts what any engine gives to WebGPU, by standing in front of its methods for a while.

/** Runs `work` and resolves to {dispatches, submits} of all devices meanwhile. */
export async function countGpuCalls(work) {
  const counts = { dispatches: 0, submits: 0 };
  const undo = [
    count(GPUComputePassEncoder.prototype, 'dispatchWorkgroups', () => counts.dispatches++),
    count(GPUQueue.prototype, 'submit', () => counts.submits++),
  ];
  try {
    await work();
  } finally {
    for (const restore of undo) restore();
  }
  return counts;
}

function count(prototype, name, note) {
  const original = prototype[name];
  prototype[name] = function (...parameters) {
    note();
    return original.apply(this, parameters);
  };
  return () => {
    prototype[name] = original;
  };
}
