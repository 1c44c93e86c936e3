// One of the memories of a team: the module for the thread that has the engine, and where what it works with is copied to.

import type { TeamExports } from './helper.js';

/** Bytes of a scratch area at least, so that it seldom grows. */
const LEAST_SCRATCH = 64 << 10;
/** Bytes of one that is kept, at most: what a long context has in keys and values is given back. */
const MOST_SCRATCH = 16 << 20;
/** Where what is copied begins: at multiples of this. */
const ALIGNMENT = 16;
/** The part of a memory that is left to what is worked with, while weights find room elsewhere: prompts of large models take a hundred megabytes. */
const LEFT_FREE = 1 / 16;
/** The module's own data and stack, and a little more. */
const OF_MODULE = 1 << 20;
/** More than a page's thread takes in a millisecond, each with a look at the clock. */
const LOOKS_PER_MS = 100_000;

export class TeamMemory {
  readonly exports: TeamExports;
  readonly memory: WebAssembly.Memory;
  #bytes: Uint8Array;
  #floats: Float32Array;
  /** Bytes that stay. */
  #kept = OF_MODULE;
  #most: number;
  #scratch = { in: { at: 0, bytes: 0 }, out: { at: 0, bytes: 0 } };

  /** `most` is how many bytes the memory may have. */
  constructor(module: WebAssembly.Module, memory: WebAssembly.Memory, most: number) {
    this.memory = memory;
    this.#most = most;
    const words = new Int32Array(memory.buffer);
    const threads = {
      wait(address: number, seen: number, milliseconds: number) {
        try {
          Atomics.wait(words, address >>> 2, seen | 0, milliseconds);
        } catch {
          // A page's own thread may not sleep: it looks until time is up. The clock of a page may stand still.
          const end = performance.now() + milliseconds;
          for (let looks = 0; looks < milliseconds * LOOKS_PER_MS; looks += 1) {
            if (Atomics.load(words, address >>> 2) !== (seen | 0) || performance.now() >= end) return;
          }
        }
      },
      wake: (address: number, count: number) => void Atomics.notify(words, address >>> 2, count >>> 0),
    };
    this.exports = new WebAssembly.Instance(module, { env: { memory }, threads }).exports as unknown as TeamExports;
    this.#bytes = new Uint8Array(memory.buffer);
    this.#floats = new Float32Array(memory.buffer);
  }

  /** Allocates zeros for what stays. Returns their address; 0 if there is no room. `isTight` takes what is left free as well. */
  keep(bytes: number, isTight = false): number {
    if (!isTight && this.#kept + bytes > mostKept(this.#most)) return 0;
    const at = this.#allocate(bytes);
    if (at !== 0) this.#kept += bytes;
    return at;
  }

  giveBack(at: number, bytes: number): void {
    this.#kept -= bytes;
    this.exports.release(at, bytes);
  }

  /** All bytes. A memory that has grown is another buffer. */
  view(): Uint8Array {
    if (this.#bytes.buffer.byteLength !== this.memory.buffer.byteLength) {
      this.#bytes = new Uint8Array(this.memory.buffer);
      this.#floats = new Float32Array(this.memory.buffer);
    }
    return this.#bytes;
  }

  writeFloats(at: number, floats: Float32Array): void {
    this.view();
    this.#floats.set(floats, at >>> 2);
  }

  readFloats(at: number, floats: Float32Array): void {
    this.view();
    floats.set(this.#floats.subarray(at >>> 2, (at >>> 2) + floats.length));
  }

  /** Copies arrays one after the other to where they are worked with; their addresses, or undefined if there is no room. */
  place(arrays: ArrayBufferView[]): number[] | undefined {
    const places = this.placesFor('in', arrays);
    if (places === undefined) return undefined;
    const memory = this.view();
    for (const [number, array] of arrays.entries()) memory.set(bytesOf(array), places[number]);
    return places;
  }

  /** Addresses for arrays that stand one after the other; undefined if there is no room. */
  placesFor(name: 'in' | 'out', arrays: ArrayBufferView[]): number[] | undefined {
    const spaceFor = (some: ArrayBufferView[]) => some.reduce((bytes, array) => bytes + aligned(array.byteLength), 0);
    const first = this.area(name, spaceFor(arrays));
    return first === 0 ? undefined : arrays.map((_, number) => first + spaceFor(arrays.slice(0, number)));
  }

  /** Room for what goes in or comes out of one call. Returns its address; 0 if there is none. */
  area(name: 'in' | 'out', bytes: number): number {
    const area = this.#scratch[name];
    if (bytes > area.bytes || area.at === 0) {
      this.#empty(name);
      const size = Math.max(LEAST_SCRATCH, bytes);
      const at = this.#allocate(size);
      this.#scratch[name] = at === 0 ? { at: 0, bytes: 0 } : { at, bytes: size };
    }
    return this.#scratch[name].at;
  }

  /** Gives back what was larger than is kept. */
  shrink(): void {
    if (this.#scratch.in.bytes > MOST_SCRATCH) this.#empty('in');
  }

  #allocate(bytes: number): number {
    return this.exports.allocate(bytes) >>> 0;
  }

  #empty(name: 'in' | 'out'): void {
    const { at, bytes } = this.#scratch[name];
    this.#scratch[name] = { at: 0, bytes: 0 };
    this.exports.release(at, bytes);
  }
}

/** How much may stay in a memory that has `most` bytes. */
export function mostKept(most: number): number {
  return most * (1 - LEFT_FREE);
}

function bytesOf(array: ArrayBufferView): Uint8Array {
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}

function aligned(bytes: number): number {
  return Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;
}
