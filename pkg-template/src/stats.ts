// The counters of the GPU runtime, as the engine and rillm/gpu give them. Types only.

export type { CacheStats, Flushes, KernelTime, Stats as GpuStats } from './generated/stats.js';
