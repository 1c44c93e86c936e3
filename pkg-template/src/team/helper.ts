// A thread that multiplies and attends with others on the CPU. It knows nothing of workers.

/** What a thread gets: the module, the memory that all share, and the end of its own stack there. */
export interface HelperData {
  module: WebAssembly.Module;
  memory: WebAssembly.Memory;
  stack: number;
}

/** What the module exports (`cpu_team/src/wasm.rs`). */
export interface TeamExports {
  allocate(bytes: number): number;
  release(at: number, bytes: number): void;
  pack_rows(at: number, type: number, rows: number, columns: number, first: number, count: number, file: number): number;
  restore_row(at: number, type: number, isPacked: number, rows: number, columns: number, row: number, out: number): number;
  multiply(
    at: number,
    type: number,
    isPacked: number,
    rows: number,
    columns: number,
    first: number,
    end: number,
    tokens: number,
    x: number,
    out: number,
  ): number;
  feed_forward(words: number, x: number, bias: number, out: number): number;
  attend(words: number, q: number, keys: number, values: number, numbers: number, sums: number, totals: number): number;
  stack(bytes: number): number;
  help(): void;
  joined(): number;
  fail(): void;
  end(): void;
  __stack_pointer: WebAssembly.Global;
}

/** Helps until the team ends; that is when it returns. {@link SERVER_HELPER} does the same. */
export function helpOn({ module, memory, stack }: HelperData): void {
  const words = new Int32Array(memory.buffer);
  const threads = {
    wait: (address: number, seen: number, milliseconds: number) => void Atomics.wait(words, address >>> 2, seen | 0, milliseconds),
    wake: (address: number, count: number) => void Atomics.notify(words, address >>> 2, count >>> 0),
  };
  const exports = new WebAssembly.Instance(module, { env: { memory }, threads }).exports as unknown as TeamExports;
  exports.__stack_pointer.value = stack;
  try {
    exports.help();
  } catch (thrown) {
    // The others must not wait for what it had begun.
    exports.fail();
    throw thrown;
  }
}

/** What a thread of a server runs: {@link helpOn}. Its text is not taken of the function, into which tools put names that a thread does not know. */
export const SERVER_HELPER = `
const { module, memory, stack } = process.getBuiltinModule('node:worker_threads').workerData;
const words = new Int32Array(memory.buffer);
const threads = {
  wait: (address, seen, milliseconds) => void Atomics.wait(words, address >>> 2, seen | 0, milliseconds),
  wake: (address, count) => void Atomics.notify(words, address >>> 2, count >>> 0),
};
const { exports } = new WebAssembly.Instance(module, { env: { memory }, threads });
exports.__stack_pointer.value = stack;
try {
  exports.help();
} catch (thrown) {
  exports.fail();
  throw thrown;
}
`;
