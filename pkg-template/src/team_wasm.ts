// The wasm that several threads share on the CPU, and its memory.

import { compileWasm } from './compile_wasm.js';
import type { RetryPolicy } from './files/attempts.js';
import type { SentWasm } from './wasm_source.js';

/** An export by which it is known. */
const MARK = 'pack_rows';

/**
 * A function that makes two vectors of bytes and picks some of the first by the second, which is an instruction of relaxed SIMD (WebAssembly 3.0, opcode
 * 0xfd 0x100).
 */
const RELAXED = new Uint8Array([
  ...[0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00],
  ...[0x01, 0x05, 0x01, 0x60, 0x00, 0x01, 0x7b],
  ...[0x03, 0x02, 0x01, 0x00],
  ...[0x0a, 0x0f, 0x01, 0x0d, 0x00, 0x41, 0x01, 0xfd, 0x0f, 0x41, 0x02, 0xfd, 0x0f, 0xfd, 0x80, 0x02, 0x0b],
]);

const MOST_RETRIES = 1;

/** Whether vectors may be relaxed here: dot products of bytes are one instruction then. */
export function hasRelaxedVectors(): boolean {
  return WebAssembly.validate(RELAXED);
}

/** Compiles the module that is fast here. If the engine's has an address of its own, it lies beside that. */
export function compileTeam(engine: SentWasm | undefined, policy: RetryPolicy): Promise<WebAssembly.Module> {
  const isRelaxed = hasRelaxedVectors();
  const file = isRelaxed ? 'rillm_team_relaxed.wasm' : 'rillm_team.wasm';
  const url = typeof engine === 'string' && /^(https?|file):/i.test(engine) ? new URL(file, engine) : own(isRelaxed);
  // A load waits for it, which can do without.
  return compileWasm(url, MARK, { ...policy, retries: Math.min(policy.retries, MOST_RETRIES) });
}

// Bundlers look for exactly these expressions.
const own = (isRelaxed: boolean): URL =>
  isRelaxed ? new URL('./wasm/rillm_team_relaxed.wasm', import.meta.url) : new URL('./wasm/rillm_team.wasm', import.meta.url);

/** Pages with which the module begins (`scripts/build/team.mjs`). */
const FIRST_PAGES = 64;
const PAGE = 65_536;
/** The most that an address reaches, 4 GiB, and less for browsers that set aside all of it at once. */
const MOST_PAGES = [65_536, 32_768, 16_384, 8192];

/** A memory that threads share, and the bytes that it may have. Throws where there is none. */
export function sharedMemory(): { memory: WebAssembly.Memory; most: number } {
  for (const maximum of MOST_PAGES) {
    try {
      const descriptor = { initial: FIRST_PAGES, maximum, shared: true };
      const memory = new WebAssembly.Memory(descriptor);
      // Read back: whoever stands in for `WebAssembly.Memory` may give less.
      return { memory, most: descriptor.maximum * PAGE };
    } catch (thrown) {
      if (maximum === MOST_PAGES.at(-1)) throw thrown;
    }
  }
  throw new RangeError('no memory is small enough');
}
