// Measures engines: load, prefill and decoding, by the wall clock around their streams. Knows engines by their common face only.

import { ENGINES } from './engines.js';
import { spread } from './spread.js';

const LETTERS = 'abcdefghijklmnopqrstuvwxyz';
const PREFILL_TOKENS = 512;
const DECODE_AFTER = [16, 512];

/** A text of so many tokens in the vocabulary of the synthetic models; each of the first 676 is told from the others by its first two tokens. */
export function promptOf(tokens, number) {
  const [first, second] = [number % 26, Math.floor(number / 26) % 26];
  return Array.from({ length: tokens }, (_, i) => ` ${LETTERS[[first, second][i] ?? (first + second + i * 7) % 26]}`).join('');
}

/** One request: tokens per second after the first arrival, and milliseconds until it. */
async function request(engine, promptTokens, newTokens, number) {
  const arrivals = [];
  const begin = performance.now();
  const result = await engine.generate(promptOf(promptTokens, number), newTokens, (count) => {
    if (count > 0) arrivals.push({ ms: performance.now() - begin, count });
  });
  if (result.promptTokens !== promptTokens)
    throw new Error(`the prompt has ${promptTokens} tokens, the engine counts ${result.promptTokens}`);
  // An engine may hold back a token that is part of a character, so its own number counts where it tells one.
  const tokens = result.newTokens ?? arrivals.reduce((sum, { count }) => sum + count, 0);
  if (tokens !== newTokens) throw new Error(`asked for ${newTokens} new tokens, got ${tokens}`);
  const [first, last] = [arrivals[0], arrivals.at(-1)];
  return { firstMs: first.ms, decode: ((tokens - first.count) * 1000) / (last.ms - first.ms), own: result.own };
}

/** One engine while it is measured. */
class Measured {
  #engine;
  #report;
  #rounds = [];
  #error;
  #prompts = 0;

  constructor(name, options) {
    Object.assign(this, options, { name });
  }

  get isBroken() {
    return this.#error !== undefined;
  }

  async open(model) {
    await this.#attempt(async () => {
      this.onProgress(`${this.name}: loading`);
      const begin = performance.now();
      this.#engine = await ENGINES[this.name](model);
      const load_ms = performance.now() - begin;
      const cold = await this.#request(DECODE_AFTER[0], 2);
      this.#report = { name: this.name, ...this.#engine.facts, load_ms, first_answer_ms: load_ms + cold.firstMs };
    });
  }

  /** One run of everything. */
  async round(what) {
    await this.#attempt(async () => {
      const round = { decode: [] };
      for (const after of DECODE_AFTER) {
        this.onProgress(`${this.name}: decoding after ${after} tokens, ${what}`);
        round.decode.push(await this.#request(after, this.newTokens));
      }
      // On the CPU, where prompts take long, the one of the last decoding is measured.
      if (this.inTurns) round.prefill = round.decode.at(-1);
      else {
        this.onProgress(`${this.name}: reading ${PREFILL_TOKENS} tokens, ${what}`);
        round.prefill = await this.#request(PREFILL_TOKENS, 2);
      }
      this.#rounds.push(round);
    });
  }

  /** → {name, facts, load_ms, first_answer_ms, decode: [...], prefill}, or {name, error}. */
  async close() {
    await this.#attempt(async () => this.#engine?.close());
    if (this.isBroken) return { name: this.name, error: this.#error?.message ?? String(this.#error), log: this.#engine?.log?.slice(-20) };
    // The first one is dropped: it builds pipelines.
    const measured = this.#rounds.slice(1);
    const decode = DECODE_AFTER.map((after, at) => {
      const [speed, own] = [({ decode }) => decode[at].decode, ({ decode }) => decode[at].own?.decode].map((of) =>
        spread(measured.map(of)),
      );
      return { after, new_tokens: this.newTokens, tokens_per_s: speed.median, range: speed.range, own_tokens_per_s: own.median };
    });
    const speed = spread(measured.map(({ prefill }) => (PREFILL_TOKENS * 1000) / prefill.firstMs));
    const prefill = {
      prompt_tokens: PREFILL_TOKENS,
      first_token_ms: spread(measured.map(({ prefill }) => prefill.firstMs)).median,
      tokens_per_s: speed.median,
      range: speed.range,
      own_tokens_per_s: spread(measured.map(({ prefill }) => prefill.own?.prefill)).median,
    };
    return { ...this.#report, decode, prefill };
  }

  /** Each request of an engine begins otherwise, so that nothing is found in a cache. */
  #request(promptTokens, newTokens) {
    return request(this.#engine, promptTokens, newTokens, this.#prompts++);
  }

  async #attempt(work) {
    if (this.isBroken) return;
    try {
      await work();
    } catch (error) {
      this.#error = error;
      // What it holds is another engine's from now on, whatever it says to that.
      await (async () => this.#engine?.close())().catch(() => {});
    }
  }
}

/**
 * Measures engines one after the other, or `inTurns`: all are loaded, and then each has a run of everything before the next run, so that what else the
 * machine does falls on all. `onReport` hears each report; resolves to all of them.
 */
export async function measureEngines(
  names,
  model,
  { newTokens = 128, repetitions = 3, inTurns, onProgress = () => {}, onReport = () => {} },
) {
  const reports = [];
  for (const group of inTurns ? [names] : names.map((name) => [name])) {
    const engines = group.map((name) => new Measured(name, { newTokens, inTurns, onProgress }));
    for (const engine of engines) await engine.open(model);
    for (let i = 0; i <= repetitions; i++) {
      for (const engine of engines) await engine.round(i === 0 ? 'warming up' : `${i} of ${repetitions}`);
    }
    for (const engine of engines) {
      reports.push(await engine.close());
      await onReport(reports);
    }
  }
  return reports;
}
