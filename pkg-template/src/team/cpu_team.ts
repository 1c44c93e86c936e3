// Threads that multiply and attend for one engine on the CPU, in whose memories its weights are. The engine's thread is one of them: its wasm calls the
// methods, and works there as the others do. A memory of WebAssembly has 4 GiB, so a larger model has several, and threads go from one to the other.

import type { RetryPolicy } from '../files/attempts.js';
import type { Warning } from '../generated/loading.js';
import { memoryOfMachine } from '../machine.js';
import { coresOfServer, isServer } from '../node.js';
import type { LoadServices } from '../protocol.js';
import { textOf } from '../errors.js';
import { compileTeam, hasRelaxedVectors, sharedMemory } from '../team_wasm.js';
import type { SentWasm } from '../wasm_source.js';
import type { HelperData } from './helper.js';
import { mostKept, TeamMemory } from './team_memory.js';

/** More gain little on any CPU, and take what else the machine does. */
const DEFAULT_MOST = 8;
const STACK_BYTES = 256 << 10;
/** How long a load waits for threads. Those that come later help all the same. */
const START_MS = 2000;
/** An address holds the number of its memory too: it is that number times this, plus the address in that memory. */
const MEMORY_STEP = 2 ** 32;
/** Memories of a team at most, for 60 GiB of weights. */
const MOST_MEMORIES = 16;
/** What the module allocates in one piece at most, however empty a memory is: Rust's limit, in whole pieces of 16 bytes. */
const MOST_AT_ONCE = 2 ** 31 - 16;

/** Who starts threads, and gives each of them a memory more. */
export type TeamThreads = Pick<LoadServices, 'startHelpers' | 'shareWithHelpers'>;

export interface StartedTeam {
  /** Undefined where the engine's own wasm does as well. */
  team?: CpuTeam;
  warning?: Warning;
}

/** Starts threads, of a module that lies beside that of the engine; a failure costs speed and nothing else, so it is a warning. */
export async function startTeam(
  asked: number | null | undefined,
  engine: SentWasm | undefined,
  others: TeamThreads,
  policy: RetryPolicy,
): Promise<StartedTeam> {
  const mayShare = mayShareMemory();
  const threads = mayShare ? (asked ?? defaultThreads()) : 1;
  const warning =
    !mayShare && (asked ?? 1) > 1
      ? warned(`${asked} threads need a page that is cross-origin isolated, and this one is not, so one thread computes`)
      : undefined;
  const told = warning === undefined ? {} : { warning };
  if (threads === 1 && !hasRelaxedVectors()) return told;
  try {
    const { memory, most } = sharedMemory();
    const team = new CpuTeam(await compileTeam(engine, policy), memory, most);
    const joined = await team.start(threads - 1, others);
    if (joined === threads - 1) return { team, ...told };
    return { team, warning: warned(`${joined + 1} of ${threads} threads compute: the others did not start`) };
  } catch (thrown) {
    // Where one thread was wanted, nobody needs to know.
    return threads === 1 ? told : { warning: warned(`one thread computes, as others can't: ${textOf(thrown)}`) };
  }
}

/** Bytes that the memories of a team may have here; undefined where there would be none. */
export function bytesOfTeam(asked: number | null | undefined): number | undefined {
  const isThere = (mayShareMemory() && (asked ?? defaultThreads()) > 1) || hasRelaxedVectors();
  return isThere ? mostBytes() : undefined;
}

/** All memories, or what the machine has if it tells, but what one memory may have in any case. */
function mostBytes(): number {
  return Math.max(MEMORY_STEP, Math.min(MOST_MEMORIES * mostKept(MEMORY_STEP), memoryOfMachine() ?? Infinity));
}

function mayShareMemory(): boolean {
  return isServer() || globalThis.crossOriginIsolated === true;
}

function warned(message: string): Warning {
  return { code: 'fewer_threads', message };
}

function defaultThreads(): number {
  const cores = globalThis.navigator?.hardwareConcurrency ?? coresOfServer();
  return Math.min(DEFAULT_MOST, Math.max(1, cores - 1));
}

/** Null, or what is wrong. */
type Problem = string | null;

export class CpuTeam {
  #module: WebAssembly.Module;
  /** Each has its own board: threads work in one at a time. */
  #memories: TeamMemory[];
  /** The number of the one in which they do. */
  #current = 0;
  #others: TeamThreads | undefined;
  #helpers = 0;
  /** Why nothing is multiplied any more. */
  #broken: string | undefined;
  #onBroken: (message: string) => void = () => {};

  /** `most` is how many bytes the memory may have. */
  constructor(module: WebAssembly.Module, memory: WebAssembly.Memory, most: number) {
    this.#module = module;
    this.#memories = [new TeamMemory(module, memory, most)];
  }

  /** Starts helpers; resolves to how many of them help, when all do or time is up. */
  async start(helpers: number, others: TeamThreads): Promise<number> {
    if (helpers <= 0) return 0;
    const first = this.#first();
    const stacks = stacksIn(first, helpers);
    const data = stacks.map((stack): HelperData => ({ module: this.#module, memory: first.memory, stack }));
    this.#others = others;
    this.#helpers = await others.startHelpers(data);
    const began = performance.now();
    while (first.exports.joined() < this.#helpers && performance.now() - began < START_MS) {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    return first.exports.joined();
  }

  threads(): number {
    return this.#first().exports.joined() + 1;
  }

  /** Hears once when a thread broke, at once if one did: nothing is multiplied from then on. */
  onBroken(hear: (message: string) => void): void {
    this.#onBroken = hear;
    if (this.#broken !== undefined) hear(this.#broken);
  }

  memoryBytes(): number {
    return this.#memories.reduce((bytes, { memory }) => bytes + memory.buffer.byteLength, 0);
  }

  mostBytes(): number {
    return mostBytes();
  }

  /**
   * The address; 0 if there is no room. The newest memory comes first, so that what is used one after the other lies in one, and another is taken if there is
   * room in none.
   */
  allocate(bytes: number): number {
    if (this.#broken !== undefined) return 0;
    return this.#keep(bytes, false) || this.#grow(bytes) || this.#keep(bytes, true);
  }

  #keep(bytes: number, isTight: boolean): number {
    for (let number = this.#memories.length - 1; number >= 0; number -= 1) {
      const at = this.#memories[number]?.keep(bytes, isTight) ?? 0;
      if (at !== 0) return number * MEMORY_STEP + at;
    }
    return 0;
  }

  release(at: number, bytes: number): void {
    if (this.#broken === undefined) this.#at(at).giveBack(at >>> 0, bytes);
  }

  write(at: number, bytes: Uint8Array): void {
    const memory = this.#at(at);
    memory.view().set(bytes, at >>> 0);
  }

  read(at: number, bytes: Uint8Array): void {
    const [memory, first] = [this.#at(at), at >>> 0];
    bytes.set(memory.view().subarray(first, first + bytes.length));
  }

  pack(at: number, type: number, rows: number, columns: number, first: number, count: number, file: Uint8Array): Problem {
    return this.#call(at, (memory) => {
      const [from] = memory.place([file]) ?? [];
      if (from === undefined) return HAD_NO_ROOM;
      return memory.exports.pack_rows(at >>> 0, type, rows, columns, first, count, from);
    });
  }

  multiply(
    at: number,
    type: number,
    isPacked: boolean,
    rows: number,
    columns: number,
    first: number,
    end: number,
    x: Float32Array,
    out: Float32Array,
  ): Problem {
    return this.#call(at, (memory) => {
      const [from, to] = [memory.area('in', x.byteLength), memory.area('out', out.byteLength)];
      if (from === 0 || to === 0) return HAD_NO_ROOM;
      const tokens = columns === 0 ? 0 : x.length / columns;
      memory.writeFloats(from, x);
      this.#gather(at);
      const status = memory.exports.multiply(at >>> 0, type, isPacked ? 1 : 0, rows, columns, first, end, tokens, from, to);
      if (status === DONE) memory.readFloats(to, out);
      return status;
    });
  }

  /**
   * Attention of what the words say (`Sent` in `cpu_kernels`). Keys and values are in a memory already where they have an address other than 0, both in the
   * same.
   */
  attend(
    words: Uint32Array,
    q: Float32Array,
    keys: Uint8Array,
    values: Uint8Array,
    numbers: Float32Array,
    keysAt: number,
    valuesAt: number,
    sums: Float32Array,
    totals: Float32Array,
  ): Problem {
    const at = keysAt || valuesAt || this.#current * MEMORY_STEP;
    return this.#call(at, (memory) => {
      const inputs = memory.place([words, q, keys, values, numbers]);
      const outputs = memory.placesFor('out', [sums, totals]);
      if (inputs === undefined || outputs === undefined) return HAD_NO_ROOM;
      const [ofWords, ofQ, ofKeys, ofValues, ofNumbers] = inputs as [number, number, number, number, number];
      const [ofSums, ofTotals] = outputs as [number, number];
      this.#gather(at);
      const [keysThere, valuesThere] = [keysAt >>> 0 || ofKeys, valuesAt >>> 0 || ofValues];
      const status = memory.exports.attend(ofWords, ofQ, keysThere, valuesThere, ofNumbers, ofSums, ofTotals);
      if (status === DONE) {
        memory.readFloats(ofSums, sums);
        memory.readFloats(ofTotals, totals);
      }
      if (status !== BROKE) memory.shrink();
      return status;
    });
  }

  /** A feed-forward of what the words say (`TeamFeedForward` in `cpu_device`), with weights that are in the memory of this address. */
  feedForward(at: number, words: Uint32Array, x: Float32Array, bias: Float32Array, out: Float32Array): Problem {
    return this.#call(at, (memory) => {
      const inputs = memory.place([words, x, bias]);
      const to = memory.area('out', out.byteLength);
      if (inputs === undefined || to === 0) return HAD_NO_ROOM;
      const [ofWords, ofX, ofBias] = inputs as [number, number, number];
      this.#gather(at);
      const status = memory.exports.feed_forward(ofWords, ofX, bias.length === 0 ? 0 : ofBias, to);
      if (status === DONE) memory.readFloats(to, out);
      return status;
    });
  }

  row(at: number, type: number, isPacked: boolean, rows: number, columns: number, row: number, out: Float32Array): Problem {
    return this.#call(at, (memory) => {
      const to = memory.area('out', out.byteLength);
      if (to === 0) return HAD_NO_ROOM;
      const status = memory.exports.restore_row(at >>> 0, type, isPacked ? 1 : 0, rows, columns, row, to);
      if (status === DONE) memory.readFloats(to, out);
      return status;
    });
  }

  /** Lets the helpers end. Called once, when nothing is multiplied any more. */
  end(): void {
    for (const { exports } of this.#memories) exports.end();
  }

  #first(): TeamMemory {
    return this.#at(0);
  }

  /** The memory that an address is in. */
  #at(at: number): TeamMemory {
    const memory = this.#memories[Math.floor(at / MEMORY_STEP)];
    if (memory === undefined) throw new RangeError(`there is no memory of the address ${at}`);
    return memory;
  }

  /** Takes a memory more and allocates there; 0 if that can't be. */
  #grow(bytes: number): number {
    if (this.#memories.length === MOST_MEMORIES || bytes > MOST_AT_ONCE) return 0;
    try {
      const { memory, most } = sharedMemory();
      const taken = new TeamMemory(this.#module, memory, most);
      const stacks = stacksIn(taken, this.#helpers);
      const at = stacks.length < this.#helpers ? 0 : taken.keep(bytes);
      if (at === 0) return 0;
      const number = this.#memories.push(taken) - 1;
      if (this.#helpers > 0) this.#others?.shareWithHelpers({ memory, stacks });
      return number * MEMORY_STEP + at;
    } catch {
      // There is none to be had.
      return 0;
    }
  }

  /** Calls all threads to the memory of an address. */
  #gather(at: number): void {
    const number = Math.floor(at / MEMORY_STEP);
    if (number === this.#current) return;
    this.#at(at).exports.call_here(this.#first().exports.joined());
    this.#memories[this.#current]?.exports.send_to(number);
    this.#current = number;
  }

  /** Works in the memory of an address, unless a thread broke. `work` returns what the module's calls return. */
  #call(at: number, work: (memory: TeamMemory) => number): Problem {
    if (this.#broken !== undefined) return this.#broken;
    let status: number;
    try {
      status = work(this.#at(at));
    } catch (thrown) {
      // A trap leaves locks as they are. Who waits for one, waits for good, so nothing of it is called again.
      return this.#break(`the thread of the engine broke: ${textOf(thrown)}`);
    }
    if (status === BROKE) return this.#break(NO_ANSWER);
    if (status === HAD_NO_ROOM) return NO_ROOM;
    return status === DONE ? null : 'what was asked does not fit together';
  }

  #break(problem: string): string {
    this.#broken = problem;
    this.#onBroken(problem);
    return problem;
  }
}

/** Allocates a stack for each of `count` threads. Returns where they end; fewer if there is no room. */
function stacksIn(memory: TeamMemory, count: number): number[] {
  const stacks = Array.from({ length: count }, () => memory.keep(STACK_BYTES, true)).filter((at) => at !== 0);
  return stacks.map((at) => at + STACK_BYTES);
}

/** `src/web/team.rs` knows it. */
const NO_ROOM = 'there is no room for activations';
const NO_ANSWER = 'a thread broke, or gave no answer for 15 seconds';
/** What calls return then (`status` of `cpu_team/src/wasm.rs`). */
const [DONE, BROKE, HAD_NO_ROOM] = [0, 2, 3];
