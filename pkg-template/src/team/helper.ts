// A thread that multiplies and attends with others on the CPU. It knows nothing of workers.

/** What a thread gets: the module, the memory that all share, and the end of its own stack there. */
export interface HelperData {
  module: WebAssembly.Module;
  memory: WebAssembly.Memory;
  stack: number;
}

/** A memory that a team has taken since, and the ends of the stacks there, in the order in which threads were started. */
export interface SharedMemory {
  memory: WebAssembly.Memory;
  stacks: number[];
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
  join(): void;
  help(): number;
  send_to(memory: number): void;
  call_here(helpers: number): void;
  joined(): number;
  fail(): void;
  end(): void;
  __stack_pointer: WebAssembly.Global;
}

/** One thread that helps. {@link SERVER_HELPER} does the same. */
export class Helper {
  #module: WebAssembly.Module;
  /** Of each memory the module there. */
  #instances: TeamExports[] = [];
  /** The number of the memory where help is wanted. */
  #at = 0;

  constructor({ module, memory, stack }: HelperData) {
    this.#module = module;
    this.add(memory, stack);
    this.#instances[0]?.join();
  }

  /** Takes a memory more. */
  add(memory: WebAssembly.Memory, stack: number): void {
    const words = new Int32Array(memory.buffer);
    const threads = {
      wait: (address: number, seen: number, milliseconds: number) => void Atomics.wait(words, address >>> 2, seen | 0, milliseconds),
      wake: (address: number, count: number) => void Atomics.notify(words, address >>> 2, count >>> 0),
    };
    const exports = new WebAssembly.Instance(this.#module, { env: { memory }, threads }).exports as unknown as TeamExports;
    exports.__stack_pointer.value = stack;
    this.#instances.push(exports);
  }

  /** Helps until the team ends, true, or until help is wanted in a memory that is still to come, false. */
  help(): boolean {
    for (;;) {
      const exports = this.#instances[this.#at];
      if (exports === undefined) return false;
      let next: number;
      try {
        next = exports.help();
      } catch (thrown) {
        // The others must not wait for what it had begun.
        exports.fail();
        throw thrown;
      }
      if (next === 0) return true;
      this.#at = next - 1;
    }
  }
}

/** What a thread of a server runs: {@link Helper}. Its text is not taken of the class, into which tools put names that a thread does not know. */
export const SERVER_HELPER = `
const { parentPort, workerData } = process.getBuiltinModule('node:worker_threads');
const instances = [];
let at = 0;
const add = (memory, stack) => {
  const words = new Int32Array(memory.buffer);
  const threads = {
    wait: (address, seen, milliseconds) => void Atomics.wait(words, address >>> 2, seen | 0, milliseconds),
    wake: (address, count) => void Atomics.notify(words, address >>> 2, count >>> 0),
  };
  const { exports } = new WebAssembly.Instance(workerData.module, { env: { memory }, threads });
  exports.__stack_pointer.value = stack;
  instances.push(exports);
};
const help = () => {
  for (let exports = instances[at]; exports !== undefined; exports = instances[at]) {
    let next;
    try {
      next = exports.help();
    } catch (thrown) {
      exports.fail();
      throw thrown;
    }
    if (next === 0) return parentPort.close();
    at = next - 1;
  }
};
parentPort.on('message', ({ memory, stack }) => {
  add(memory, stack);
  help();
});
add(workerData.memory, workerData.stack);
instances[0].join();
help();
`;
