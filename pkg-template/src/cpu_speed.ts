// How fast this CPU multiplies weights, in a tenth of a second: most of a decoded token are products. It takes turns with the page and needs no other wasm.

import { abortError, EngineError } from './errors.js';

/** What a token costs, in products of the measured loop: for each weight and for each layer. */
export interface DecodeCost {
  weight: number;
  layer: number;
}

/**
 * Fitted to SmolLM2-135M (Q4_1) and Qwen2.5-0.5B (Q4_0) in Node on one CPU, on one thread: `exact` unpacks weights to floats, `fast` multiplies integers as
 * the loop does (docs/benchmarks.md). `benches/cpu.mjs` prints what it comes to beside what it measures.
 */
export const DECODE_COST: Record<'exact' | 'fast', DecodeCost> = {
  exact: { weight: 3, layer: 3.5e6 },
  fast: { weight: 1.25, layer: 1.7e6 },
};

const PAGE = 1 << 16;
/** Beyond most caches of a core, as weights are. */
const BYTES = 8 << 20;
/** Between two looks at the clock: some microseconds. */
const PIECE = 4 * PAGE;
/** Then the page has its turn. */
const TURN = 32 << 20;
const INTERVAL_MS = 4;
const LASTS_MS = 100;
/** For clocks that tick ten times a second; one that stands still gives no speed. */
const AT_MOST_MS = 300;

/** Products of 8-bit integers a second on one thread; undefined where the clock tells no time. */
export async function measureCpu(signal?: AbortSignal): Promise<number | undefined> {
  const multiply = await multiplier();
  let isLate = false;
  const limit = setTimeout(() => (isLate = true), AT_MOST_MS);
  const turns = new Turns();
  try {
    let best = 0;
    let measured = 0;
    let done = 0;
    let turn = 0;
    let at = 0;
    // What is before a clock's first tick is not counted: it may have been about to tick.
    let isCounting = false;
    let from = performance.now();
    while (measured < LASTS_MS && !isLate) {
      if (signal?.aborted) throw abortError(signal, 'the recommendation');
      multiply(PAGE + at, PAGE + at + PIECE, 0);
      at = (at + PIECE) % BYTES;
      done += PIECE;
      turn += PIECE;
      const now = performance.now();
      if (now > from && (!isCounting || now - from >= INTERVAL_MS)) {
        if (isCounting) {
          best = Math.max(best, (done / (now - from)) * 1000);
          measured += now - from;
        }
        isCounting = true;
        [from, done] = [now, 0];
      }
      if (turn >= TURN) {
        await turns.next();
        turn = 0;
      }
    }
    return best === 0 ? undefined : best;
  } finally {
    clearTimeout(limit);
    turns.end();
  }
}

/** Lets others run. Timers would wait for milliseconds. */
class Turns {
  #channel = new MessageChannel();
  #resolve = () => {};

  constructor() {
    this.#channel.port1.onmessage = () => this.#resolve();
  }

  next(): Promise<void> {
    return new Promise((resolve) => {
      this.#resolve = resolve;
      this.#channel.port2.postMessage(undefined);
    });
  }

  /** A program in Node ends only without open ports. */
  end(): void {
    this.#channel.port1.close();
  }
}

type Multiply = (from: number, to: number, other: number) => number;

async function multiplier(): Promise<Multiply> {
  let exports: WebAssembly.Exports;
  try {
    ({ exports } = (await WebAssembly.instantiate(DOT)).instance);
  } catch (thrown) {
    const message = `models on the CPU need WebAssembly with vectors, which does not run here: ${String(thrown)}`;
    throw new EngineError('wasm_unavailable', message, { cause: thrown });
  }
  const { memory, dot } = exports as { memory: WebAssembly.Memory; dot: Multiply };
  try {
    memory.grow(BYTES / PAGE);
  } catch (thrown) {
    throw new EngineError('out_of_memory', `there is no memory for ${BYTES} bytes`, { cause: thrown });
  }
  // Pages that nothing was written to would all be one.
  new Uint32Array(memory.buffer).fill(0x3f1280c5);
  return dot;
}

/**
 * `dot(from, to, other)`: the sum of the products of the signed bytes from `from` to `to`, in steps of 16, with the 16 at `other`.
 *
 *     (loop $again
 *       sum += i32x4.dot_i16x8_s(extend_low(load from), extend_low(load other)) + i32x4.dot_i16x8_s(extend_high(load from), extend_high(load other))
 *       from += 16
 *       (br_if $again (from < to)))
 *     the four lanes of sum
 */
// biome-ignore format: a line for each section, and for each instruction with its operands
const DOT = new Uint8Array([
  0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00,
  0x01, 0x08, 0x01, 0x60, 0x03, 0x7f, 0x7f, 0x7f, 0x01, 0x7f,
  0x03, 0x02, 0x01, 0x00,
  0x05, 0x03, 0x01, 0x00, 0x01,
  0x07, 0x10, 0x02, 0x06, 0x6d, 0x65, 0x6d, 0x6f, 0x72, 0x79, 0x02, 0x00, 0x03, 0x64, 0x6f, 0x74, 0x00, 0x00,
  0x0a, 0x62, 0x01, 0x60, 0x01, 0x01, 0x7b,
  0x03, 0x40,
  0x20, 0x03,
  0x20, 0x00, 0xfd, 0x00, 0x04, 0x00, 0xfd, 0x87, 0x01,
  0x20, 0x02, 0xfd, 0x00, 0x04, 0x00, 0xfd, 0x87, 0x01,
  0xfd, 0xba, 0x01,
  0x20, 0x00, 0xfd, 0x00, 0x04, 0x00, 0xfd, 0x88, 0x01,
  0x20, 0x02, 0xfd, 0x00, 0x04, 0x00, 0xfd, 0x88, 0x01,
  0xfd, 0xba, 0x01,
  0xfd, 0xae, 0x01,
  0xfd, 0xae, 0x01,
  0x21, 0x03,
  0x20, 0x00, 0x41, 0x10, 0x6a, 0x21, 0x00,
  0x20, 0x00, 0x20, 0x01, 0x49, 0x0d, 0x00,
  0x0b,
  0x20, 0x03, 0xfd, 0x1b, 0x00, 0x20, 0x03, 0xfd, 0x1b, 0x01, 0x6a,
  0x20, 0x03, 0xfd, 0x1b, 0x02, 0x20, 0x03, 0xfd, 0x1b, 0x03, 0x6a, 0x6a,
  0x0b,
]);
