// Threads that multiply and attend for one engine on the CPU, in whose memory its weights are. The engine's thread is one of them: its wasm calls the
// methods, and works there as the others do.

import type { RetryPolicy } from '../files/attempts.js';
import type { Warning } from '../generated/loading.js';
import { coresOfServer, isServer } from '../node.js';
import { textOf } from '../errors.js';
import { compileTeam, hasRelaxedVectors, sharedMemory } from '../team_wasm.js';
import type { SentWasm } from '../wasm_source.js';
import type { HelperData, TeamExports } from './helper.js';

/** More gain little on any CPU, and take what else the machine does. */
const DEFAULT_MOST = 8;
const STACK_BYTES = 256 << 10;
/** Bytes of a scratch area at least, so that it seldom grows. */
const LEAST_SCRATCH = 64 << 10;
/** Bytes of one that is kept, at most: what a long context has in keys and values is given back. */
const MOST_SCRATCH = 16 << 20;
/** Where what is copied begins: at multiples of this. */
const ALIGNMENT = 16;
/** More than a page's thread takes in a millisecond, each with a look at the clock. */
const LOOKS_PER_MS = 100_000;
/** How long a load waits for threads. Those that come later help all the same. */
const START_MS = 2000;

/** Starts threads; how many could be. */
export type StartHelpers = (helpers: HelperData[]) => number | Promise<number>;

export interface StartedTeam {
  /** Undefined where the engine's own wasm does as well. */
  team?: CpuTeam;
  warning?: Warning;
}

/** Starts threads, of a module that lies beside that of the engine; a failure costs speed and nothing else, so it is a warning. */
export async function startTeam(
  asked: number | null | undefined,
  engine: SentWasm | undefined,
  startHelpers: StartHelpers,
  policy: RetryPolicy,
): Promise<StartedTeam> {
  const mayShare = isServer() || globalThis.crossOriginIsolated === true;
  const threads = mayShare ? (asked ?? defaultThreads()) : 1;
  const warning =
    !mayShare && (asked ?? 1) > 1
      ? warned(`${asked} threads need a page that is cross-origin isolated, and this one is not, so one thread computes`)
      : undefined;
  const told = warning === undefined ? {} : { warning };
  if (threads === 1 && !hasRelaxedVectors()) return told;
  try {
    const team = new CpuTeam(await compileTeam(engine, policy), sharedMemory());
    const joined = await team.start(threads - 1, startHelpers);
    if (joined === threads - 1) return { team, ...told };
    return { team, warning: warned(`${joined + 1} of ${threads} threads compute: the others did not start`) };
  } catch (thrown) {
    // Where one thread was wanted, nobody needs to know.
    return threads === 1 ? told : { warning: warned(`one thread computes, as others can't: ${textOf(thrown)}`) };
  }
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
  #memory: WebAssembly.Memory;
  #exports: TeamExports;
  #bytes: Uint8Array;
  #floats: Float32Array;
  /** Why nothing is multiplied any more. */
  #broken: string | undefined;
  #onBroken: (message: string) => void = () => {};
  /** Where what is multiplied is copied to, and what comes out. */
  #scratch = { in: { at: 0, bytes: 0 }, out: { at: 0, bytes: 0 } };

  constructor(module: WebAssembly.Module, memory: WebAssembly.Memory) {
    this.#module = module;
    this.#memory = memory;
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
    this.#exports = new WebAssembly.Instance(module, { env: { memory }, threads }).exports as unknown as TeamExports;
    this.#bytes = new Uint8Array(memory.buffer);
    this.#floats = new Float32Array(memory.buffer);
  }

  /** Starts helpers; resolves to how many of them help, when all do or time is up. */
  async start(helpers: number, startHelpers: StartHelpers): Promise<number> {
    if (helpers <= 0) return 0;
    const data: HelperData[] = [];
    for (let at = 0; at < helpers; at += 1) {
      const stack = this.#exports.stack(STACK_BYTES) >>> 0;
      if (stack !== 0) data.push({ module: this.#module, memory: this.#memory, stack });
    }
    const started = await startHelpers(data);
    const began = performance.now();
    while (this.#exports.joined() < started && performance.now() - began < START_MS) {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    return this.#exports.joined();
  }

  threads(): number {
    return this.#exports.joined() + 1;
  }

  /** Hears once when a thread broke, at once if one did: nothing is multiplied from then on. */
  onBroken(hear: (message: string) => void): void {
    this.#onBroken = hear;
    if (this.#broken !== undefined) hear(this.#broken);
  }

  memoryBytes(): number {
    return this.#memory.buffer.byteLength;
  }

  /** The address; 0 if there is no room. */
  allocate(bytes: number): number {
    return this.#broken === undefined ? this.#exports.allocate(bytes) >>> 0 : 0;
  }

  release(at: number, bytes: number): void {
    if (this.#broken === undefined) this.#exports.release(at, bytes);
  }

  write(at: number, bytes: Uint8Array): void {
    this.#view().set(bytes, at);
  }

  read(at: number, bytes: Uint8Array): void {
    bytes.set(this.#view().subarray(at, at + bytes.length));
  }

  pack(at: number, type: number, rows: number, columns: number, first: number, count: number, file: Uint8Array): Problem {
    const from = this.#area('in', file.byteLength);
    if (from === 0) return NO_ROOM;
    this.#view().set(file, from);
    return this.#call(() => this.#exports.pack_rows(at, type, rows, columns, first, count, from));
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
    const [from, to] = [this.#area('in', x.byteLength), this.#area('out', out.byteLength)];
    if (from === 0 || to === 0) return NO_ROOM;
    const tokens = columns === 0 ? 0 : x.length / columns;
    this.#view();
    this.#floats.set(x, from >>> 2);
    const problem = this.#call(() => this.#exports.multiply(at, type, isPacked ? 1 : 0, rows, columns, first, end, tokens, from, to));
    if (problem === null) this.#copy(to, out);
    return problem;
  }

  /** Attention of what the words say (`Sent` in `cpu_kernels`). Keys and values are in the memory already where they have an address other than 0. */
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
    const inputs = [words, q, keys, values, numbers];
    const outputs = [sums, totals];
    const [from, to] = [this.#area('in', spaceFor(inputs)), this.#area('out', spaceFor(outputs))];
    if (from === 0 || to === 0) return NO_ROOM;
    const [ofInputs, ofOutputs] = [placed(inputs, from), placed(outputs, to)];
    const memory = this.#view();
    for (const [at, input] of inputs.entries()) memory.set(bytesOf(input), ofInputs[at]);
    const [ofWords, ofQ, ofKeys, ofValues, ofNumbers] = ofInputs as [number, number, number, number, number];
    const [ofSums, ofTotals] = ofOutputs as [number, number];
    const problem = this.#call(() =>
      this.#exports.attend(ofWords, ofQ, keysAt || ofKeys, valuesAt || ofValues, ofNumbers, ofSums, ofTotals),
    );
    if (problem === null) {
      this.#copy(ofSums, sums);
      this.#copy(ofTotals, totals);
    }
    if (this.#scratch.in.bytes > MOST_SCRATCH) this.#empty('in');
    return problem;
  }

  /** A feed-forward of what the words say (`TeamFeedForward` in `cpu_device`). */
  feedForward(words: Uint32Array, x: Float32Array, bias: Float32Array, out: Float32Array): Problem {
    const inputs = [words, x, bias];
    const [from, to] = [this.#area('in', spaceFor(inputs)), this.#area('out', out.byteLength)];
    if (from === 0 || to === 0) return NO_ROOM;
    const ofInputs = placed(inputs, from);
    const memory = this.#view();
    for (const [at, input] of inputs.entries()) memory.set(bytesOf(input), ofInputs[at]);
    const [ofWords, ofX, ofBias] = ofInputs as [number, number, number];
    const problem = this.#call(() => this.#exports.feed_forward(ofWords, ofX, bias.length === 0 ? 0 : ofBias, to));
    if (problem === null) this.#copy(to, out);
    return problem;
  }

  row(at: number, type: number, isPacked: boolean, rows: number, columns: number, row: number, out: Float32Array): Problem {
    const to = this.#area('out', out.byteLength);
    if (to === 0) return NO_ROOM;
    const problem = this.#call(() => this.#exports.restore_row(at, type, isPacked ? 1 : 0, rows, columns, row, to));
    if (problem === null) this.#copy(to, out);
    return problem;
  }

  /** Lets the helpers end. Called once, when nothing is multiplied any more. */
  end(): void {
    this.#exports.end();
  }

  /** All bytes. A memory that has grown is another buffer. */
  #view(): Uint8Array {
    if (this.#bytes.buffer.byteLength !== this.#memory.buffer.byteLength) {
      this.#bytes = new Uint8Array(this.#memory.buffer);
      this.#floats = new Float32Array(this.#memory.buffer);
    }
    return this.#bytes;
  }

  /** Copies products from the memory, which may have grown meanwhile. */
  #copy(from: number, out: Float32Array): void {
    this.#view();
    out.set(this.#floats.subarray(from >>> 2, (from >>> 2) + out.length));
  }

  #call(work: () => number): Problem {
    if (this.#broken !== undefined) return this.#broken;
    let status: number;
    try {
      status = work();
    } catch (thrown) {
      // A trap leaves locks as they are. Who waits for one, waits for good, so nothing of it is called again.
      return this.#break(`the thread of the engine broke: ${textOf(thrown)}`);
    }
    if (status === BROKE) return this.#break(NO_ANSWER);
    if (status === HAD_NO_ROOM) return NO_ROOM;
    return status === 0 ? null : 'what was asked does not fit together';
  }

  #break(problem: string): string {
    this.#broken = problem;
    this.#onBroken(problem);
    return problem;
  }

  #area(name: 'in' | 'out', bytes: number): number {
    const area = this.#scratch[name];
    if (bytes > area.bytes || area.at === 0) {
      this.#empty(name);
      const size = Math.max(LEAST_SCRATCH, bytes);
      const at = this.allocate(size);
      this.#scratch[name] = at === 0 ? { at: 0, bytes: 0 } : { at, bytes: size };
    }
    return this.#scratch[name].at;
  }

  #empty(name: 'in' | 'out'): void {
    const { at, bytes } = this.#scratch[name];
    this.#scratch[name] = { at: 0, bytes: 0 };
    this.release(at, bytes);
  }
}

function bytesOf(array: ArrayBufferView): Uint8Array {
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}

function aligned(bytes: number): number {
  return Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;
}

/** Bytes of arrays that stand one after the other. */
function spaceFor(arrays: ArrayBufferView[]): number {
  return arrays.reduce((bytes, array) => bytes + aligned(array.byteLength), 0);
}

/** Where each of them begins. */
function placed(arrays: ArrayBufferView[], first: number): number[] {
  return arrays.map((_, at) => first + spaceFor(arrays.slice(0, at)));
}

/** `src/web/team.rs` knows it. */
const NO_ROOM = 'there is no room for activations';
const NO_ANSWER = 'a thread broke, or gave no answer for 15 seconds';
/** What calls return then (`status` of `cpu_team/src/wasm.rs`). */
const [BROKE, HAD_NO_ROOM] = [2, 3];
