// Measures engines on a task, by the wall clock. Knows engines and tasks by their common faces only.
//
// A task has `engines`, the names of those that run `byDefault` on each device, `first(engine, number)`, the milliseconds until an engine's first answer, and
// `round(engine, {…})`, one run of everything: {"name of a figure, unit": {value, own}}, where `own` is what the engine counts itself, if it tells.

import { spread } from './spread.js';

/** One engine while it is measured. */
class Measured {
  #task;
  #options;
  #engine;
  #report;
  #rounds = [];
  #error;
  #requests = 0;

  constructor(name, task, options) {
    this.name = name;
    this.#task = task;
    this.#options = options;
  }

  get isBroken() {
    return this.#error !== undefined;
  }

  async open(model) {
    await this.#attempt(async () => {
      this.#options.onProgress(`${this.name}: loading`);
      const begin = performance.now();
      this.#engine = await this.#task.engines[this.name](model);
      const load_ms = performance.now() - begin;
      const first_answer_ms = load_ms + (await this.#task.first(this.#engine, this.#requests++));
      this.#report = { name: this.name, ...this.#engine.facts, load_ms, first_answer_ms };
    });
  }

  /** One run of everything. */
  async round(what) {
    await this.#attempt(async () => {
      const say = (figure) => this.#options.onProgress(`${this.name}: ${figure}, ${what}`);
      // Each request of an engine has a number, so that it begins otherwise and nothing is found in a cache.
      this.#rounds.push(await this.#task.round(this.#engine, { ...this.#options, say, next: () => this.#requests++ }));
    });
  }

  /** → {name, facts, load_ms, first_answer_ms, figures}, or {name, error}. */
  async close() {
    await this.#attempt(async () => this.#engine?.close());
    if (this.isBroken) return { name: this.name, error: this.#error?.message ?? String(this.#error), log: this.#engine?.log?.slice(-20) };
    // The first one is dropped: it builds pipelines.
    const measured = this.#rounds.slice(1);
    const figures = {};
    for (const figure of Object.keys(measured[0])) {
      const of = (field) => spread(measured.map((round) => round[figure][field]));
      figures[figure] = { ...of('value'), own: of('own').median };
    }
    return { ...this.#report, figures };
  }

  async #attempt(work) {
    if (this.isBroken) return;
    try {
      await work();
    } catch (error) {
      this.#error = error ?? new Error('it gave no reason');
      // What it holds is another engine's from now on, whatever it says to that.
      await (async () => this.#engine?.close())().catch(() => {});
    }
  }
}

/**
 * Measures engines one after the other, or `inTurns`: all are loaded, and then each has a run of everything before the next run, so that what else the
 * machine does falls on all. `onReport` hears each report; resolves to all of them.
 */
export async function measureEngines(task, names, model, { repetitions = 3, onReport = () => {}, onProgress = () => {}, ...options } = {}) {
  const reports = [];
  for (const group of options.inTurns ? [names] : names.map((name) => [name])) {
    const engines = group.map((name) => new Measured(name, task, { ...options, onProgress }));
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
