// The figures panel: speed, memory, and what the GPU did for the last answer. Knows the shapes of info, stats and timings.

import { megabytes } from './model.js';

const byId = (id) => document.getElementById(id);

/** Counters worth a line, with the words for them. */
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

let adapterLine = [];

function showLines(lines) {
  byId('figures').replaceChildren(
    ...[...adapterLine, ...lines].flatMap(([name, value]) => {
      const term = document.createElement('dt');
      term.textContent = name;
      const description = document.createElement('dd');
      description.textContent = value;
      return [term, description];
    }),
  );
}

function adapterName({ vendor, architecture, device, description, is_fallback }) {
  const name = description || [vendor, architecture, device].filter(Boolean).join(' ') || 'unnamed';
  return is_fallback && !/software|swiftshader/i.test(name) ? `${name} (software)` : name;
}

export function showModelFigures({ adapter, weight_bytes, kv_cache_bytes }) {
  adapterLine = [['Adapter', adapterName(adapter)]];
  showLines([
    ['Weights', megabytes(weight_bytes)],
    ['KV cache', megabytes(kv_cache_bytes)],
  ]);
  byId('counters').replaceChildren();
  byId('speed').textContent = '–';
}

export function showAnswerFigures({ before, after, usage, timings }) {
  showLines([
    ['Prompt', `${usage.prompt_tokens} tokens, ${timings.prompt_ms.toFixed(0)} ms`],
    ['From KV cache', `${timings.cached_prompt_tokens} tokens`],
    ['Answer', `${usage.completion_tokens} tokens, ${timings.decode_ms.toFixed(0)} ms`],
    ['GPU memory', `${megabytes(after.live_bytes)}, peak ${megabytes(after.peak_bytes)}`],
    ['WebAssembly heap', megabytes(after.wasm_memory_bytes)],
  ]);
  const tokens = Math.max(1, usage.completion_tokens);
  byId('counters').replaceChildren(
    ...COUNTERS.map(([key, words]) => {
      const count = after[key] - before[key];
      const row = document.createElement('tr');
      const name = document.createElement('th');
      name.scope = 'row';
      name.textContent = words;
      row.append(name);
      for (const text of [count.toLocaleString(), (count / tokens).toFixed(1)]) row.insertCell().textContent = text;
      return row;
    }),
  );
}
