// The figures of answers as small live plots: speed, first token, GPU memory, what a token costs the GPU. Collects them too; knows the shapes of info, stats
// and timings.

import { html } from 'lit-html';

import { sizeText } from '../loading/fit.js';
import { plot, push } from './plot.js';

/** The speed is that of the last while, so that the plot shows what happens now. */
const WINDOW_MS = 1000;
/** A point of the plots, at most so often. */
const POINT_MS = 150;
/** What stands where no figure is known. */
const NONE = '–';

export const tokensText = (count) => `${count.toLocaleString('en')} ${count === 1 ? 'token' : 'tokens'}`;

export class Figures {
  series = { speed: [], first: [], memory: [], dispatches: [], waits: [] };
  speed;
  first;
  last;
  #arrivals = [];
  #drawn = 0;
  /** Tokens in all, and what the counters said when they were last looked at. */
  #tokens = 0;
  #seen;

  /** Tokens that came now; `firstMs` of the first of an answer, which waits for the whole prompt: the time of the others is counted from it on. */
  tokens(count, firstMs) {
    const now = performance.now();
    const isFirst = firstMs !== undefined;
    this.#tokens += count;
    if (isFirst) {
      this.#arrivals = [];
      this.first = firstMs;
      push(this.series.first, firstMs);
    }
    this.#arrivals.push([now, isFirst ? 0 : count]);
    while (this.#arrivals.length > 2 && now - this.#arrivals[0][0] > WINDOW_MS) this.#arrivals.shift();
    const ms = now - this.#arrivals[0][0];
    const tokens = this.#arrivals.slice(1).reduce((sum, [, more]) => sum + more, 0);
    if (ms <= 0 || tokens === 0) return;
    this.speed = (tokens / ms) * 1000;
    if (now - this.#drawn < POINT_MS) return;
    this.#drawn = now;
    push(this.series.speed, this.speed);
  }

  /** Counters in the middle of an answer, or between answers. */
  look(stats) {
    push(this.series.memory, stats.live_bytes);
    const seen = this.#seen;
    this.#seen = { stats, tokens: this.#tokens };
    if (seen === undefined || this.#tokens === seen.tokens) return;
    const per = (name) => (stats[name] - seen.stats[name]) / (this.#tokens - seen.tokens);
    push(this.series.dispatches, per('dispatches'));
    push(this.series.waits, per('maps') + per('syncs'));
  }

  /** The end of an answer. */
  answer({ before, after, message: { usage, timings } }) {
    const tokens = Math.max(1, usage.completion_tokens);
    if (timings?.tokens_per_s > 0) this.speed = timings.tokens_per_s;
    push(this.series.memory, after.live_bytes);
    this.#seen = { stats: after, tokens: this.#tokens };
    const per = (name) => (after[name] - before[name]) / tokens;
    this.last = { usage, timings, dispatches: per('dispatches'), waits: per('maps') + per('syncs') };
    push(this.series.dispatches, this.last.dispatches);
    push(this.series.waits, this.last.waits);
    this.last.counters = COUNTERS.map(([name, words]) => [words, after[name] - before[name], per(name)]);
    this.last.peak = after.peak_bytes;
    this.last.heap = after.wasm_memory_bytes;
  }

  /** Another model: its speed is not that of the one before. */
  clear() {
    for (const series of Object.values(this.series)) series.length = 0;
    this.speed = this.first = this.last = this.#seen = undefined;
  }
}

const COUNTERS = [
  ['dispatches', 'Dispatches'],
  ['passes', 'Compute passes'],
  ['submits', 'Submits'],
  ['maps', 'Read-backs'],
  ['uniform_writes', 'Uniform writes'],
  ['buffers_created', 'Buffers created'],
  ['bind_groups_created', 'Bind groups created'],
  ['pipelines_created', 'Pipelines created'],
];

const number = (value) => (value === undefined ? NONE : value >= 100 ? Math.round(value).toLocaleString('en') : value.toFixed(1));

export function figuresTemplate({ figures, loader, shelf }) {
  const { series, speed, first, last } = figures;
  const info = loader.current?.engine.info;
  const isOnCpu = info === undefined ? shelf.isOnCpu : info.device === 'cpu';
  const memory = isOnCpu ? 'Memory' : 'GPU memory';
  return html`<div class="live-plots">
      ${plot({ id: 'speed', label: 'Tokens per second', text: number(speed), series: series.speed })}
      ${plot({ id: 'first-token', label: 'First token, ms', text: first === undefined ? NONE : Math.round(first).toLocaleString('en'), series: series.first })}
      ${plot({ id: 'gpu-memory', label: memory, text: series.memory.length > 0 ? sizeText(series.memory.at(-1)) : NONE, series: series.memory })}
      ${plot({ id: 'dispatches', label: 'Dispatches per token', text: number(series.dispatches.at(-1)), series: series.dispatches })}
      ${plot({ id: 'waits', label: 'Waits per token', text: series.waits.at(-1)?.toFixed(2) ?? NONE, series: series.waits })}
    </div>
    ${lines([
      ['Adapter', info === undefined ? NONE : adapterName(info.adapter)],
      ['Weights', info === undefined ? NONE : sizeText(info.weight_bytes)],
      ['KV cache', info === undefined ? NONE : sizeText(info.kv_cache_bytes)],
    ])}
    ${details(last, memory, isOnCpu ? 'Work of the last answer' : 'GPU work of the last answer')}`;
}

/** Before the first answer the lines are there without figures: what stands below them would move when they come. */
function details({ usage, timings, counters, peak, heap } = {}, memory, work) {
  const known = usage !== undefined;
  return html`${lines([
    ['Prompt', known ? `${tokensText(usage.prompt_tokens)}, ${Math.round(timings.prompt_ms)} ms` : NONE],
    ['From the cache', known ? tokensText(timings.cached_prompt_tokens) : NONE],
    ['Answer', known ? `${tokensText(usage.completion_tokens)}, ${Math.round(timings.decode_ms)} ms` : NONE],
    [`${memory}, peak`, known ? sizeText(peak) : NONE],
    ['WebAssembly heap', known ? sizeText(heap) : NONE],
  ])}
    <details class="group">
      <summary>${work}</summary>
      <table class="counters">
        <thead>
          <tr><th scope="col">Counter</th><th scope="col">All</th><th scope="col">Per token</th></tr>
        </thead>
        <tbody id="counters">
          ${(counters ?? COUNTERS.map(([, words]) => [words])).map(
            ([words, all, each]) =>
              html`<tr><th scope="row">${words}</th><td>${all?.toLocaleString('en') ?? NONE}</td><td>${each?.toFixed(1) ?? NONE}</td></tr>`,
          )}
        </tbody>
      </table>
    </details>`;
}

const lines = (pairs) => html`<dl class="figures">${pairs.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;

function adapterName({ vendor, architecture, device, description, is_fallback }) {
  const name = description || [vendor, architecture, device].filter(Boolean).join(' ') || 'unnamed';
  return is_fallback && !/software|swiftshader|^CPU$/i.test(name) ? `${name} (software)` : name;
}
