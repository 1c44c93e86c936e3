// A benchmark's figures as tables of words, for a terminal, a page and the clipboard. Knows the shape of suite.js's report.

/** The tables, each with the parts of a report that it is made of. */
const TABLES = [
  [machine, ['model', 'adapter', 'bandwidth', 'settings']],
  [decode, ['decode']],
  [prefill, ['prefill', 'load']],
  [stream, ['first_token', 'gaps']],
  [sampling, ['sampling']],
  [memory, ['memory', 'model']],
  [counters, ['per_warm_token', 'dispatches', 'model']],
  [decodeKernels, ['kernels']],
  [prefillKernels, ['kernels']],
];

/** Whether a report, which may still be growing, has these parts. */
export function has(report, ...names) {
  return names.every((name) => report[name] !== undefined && !(Array.isArray(report[name]) && report[name].length === 0));
}

/** → [{title, columns, rows, note}] of what is known; the first column of a row names it, the others are figures. */
export function tablesOf(report) {
  return TABLES.filter(([, needs]) => has(report, ...needs))
    .map(([table]) => table(report))
    .filter((table) => table !== undefined);
}

function machine({ date, browser, cross_origin_isolated, adapter, model, bandwidth, settings, ended }) {
  return {
    title: 'What was measured',
    columns: ['', ''],
    rows: [
      [
        'model',
        `${model.name ?? model.architecture}: ${(model.parameters / 1e6).toFixed(1)} M parameters, ${model.layers} layers, ${model.quantization}, ${bytes(model.weight_bytes)}`,
      ],
      ['context', `${model.context_length} tokens`],
      ['adapter', `${adapterName(adapter)}${adapter.is_fallback ? ' (software)' : ''}`],
      ['features', adapter.features.join(' ') || 'none'],
      [
        'subgroup matrices',
        adapter.subgroup_matrices.map(({ component, result, m, n, k }) => `${component}→${result} ${m}×${n}×${k}`).join(', ') || 'none',
      ],
      ['tuned kernels', tuned(model.autotune)],
      [
        'read bandwidth',
        bandwidth === null
          ? 'not measured: the CPU ran the model'
          : `${bytes(bandwidth.bytes_per_s)}/s, over ${bytes(bandwidth.buffer_bytes)}`,
      ],
      ['browser', browser],
      ['clock', cross_origin_isolated ? 'precise (cross-origin isolated)' : 'rounded to 0.1 ms (not cross-origin isolated)'],
      ['date', date],
      ...(ended === undefined ? [] : [['ended', `before all was measured: ${ended}`]]),
      ['how', `greedy; ${settings.repetitions === 1 ? 'one run' : `medians of ${settings.repetitions} runs`} after one that is dropped`],
    ],
  };
}

function tuned({ state, kernels, left }) {
  if (state === 'off' || state === 'software') return state === 'off' ? 'none (off)' : 'none (a software adapter)';
  const changed = kernels.filter(({ variant }) => variant !== null);
  const gains = changed.map(({ op, variant, default_us, us }) => `${op}: ${variant} (${number(default_us)} → ${number(us)} µs)`);
  return `${changed.length} of ${kernels.length + left}${gains.length > 0 ? `; ${gains.join('; ')}` : ''}`;
}

function decode({ decode: rows }) {
  return {
    title: 'Decode',
    columns: ['after', 'new tokens', 'tokens/s', 'ms/token', 'bytes/token', 'of the bandwidth'],
    rows: rows.map((row) => [
      `${row.prompt_tokens} tokens`,
      String(row.new_tokens),
      number(row.tokens_per_s),
      number(row.ms_per_token),
      bytes(row.bytes_per_token),
      percent(row.percent_of_bandwidth),
    ]),
    note: `Bytes: the weights that a token reads and the KV cache so far.${rows[0].percent_of_bandwidth === null ? '' : ' A model that fits the caches of the GPU can pass 100%.'}`,
  };
}

function prefill({ prefill: rows, load }) {
  return {
    title: 'Prefill and load',
    columns: ['', 'tokens/s', 'ms', 'speed'],
    rows: [
      ...rows.map((row) => [`prefill, ${row.prompt_tokens} tokens`, number(row.tokens_per_s), number(row.prompt_ms), '']),
      ['load', '', number(load.ms), `${bytes(load.bytes_per_s)}/s`],
    ],
  };
}

function stream({ first_token, gaps }) {
  return {
    title: 'Stream',
    columns: ['', 'ms'],
    rows: [
      [`first token after a prompt of ${first_token.prompt_tokens}`, number(first_token.ms)],
      [`longest gap between ${gaps.chunks} chunks`, number(gaps.longest_ms)],
    ],
    note: 'Wall clock on the page, the messages of the worker included.',
  };
}

function sampling({ sampling: rows }) {
  const words = (settings) =>
    Object.entries(settings)
      .map(([name, value]) => `${name} ${value}`)
      .join(', ');
  const refused = rows.filter((row) => row.refused !== undefined);
  return {
    title: 'Sampling against greedy',
    columns: ['', 'tokens/s', 'greedy', 'cost'],
    rows: rows.map((row) =>
      row.refused === undefined
        ? [words(row.settings), number(row.tokens_per_s), number(row.greedy_tokens_per_s), percent(row.cost_percent)]
        : [words(row.settings), 'refused', '', ''],
    ),
    ...(refused.length > 0 ? { note: `Refused by this version: ${refused[0].refused}` } : {}),
  };
}

function memory({ memory: figures, model }) {
  const isOnCpu = model.device === 'cpu';
  return {
    title: 'Memory',
    columns: ['', ''],
    rows: [
      ['weights', bytes(figures.weight_bytes)],
      ['KV cache', bytes(figures.kv_cache_bytes)],
      [
        isOnCpu ? 'rest' : 'rest on the GPU',
        `${bytes(figures.rest_bytes)}, ${percent((figures.rest_bytes / (figures.weight_bytes + figures.kv_cache_bytes)) * 100)} of weights and cache`,
      ],
      [isOnCpu ? 'in all' : 'GPU in all', `${bytes(figures.live_bytes)}, peak ${bytes(figures.peak_bytes)}`],
      ['WebAssembly heap after loading', bytes(figures.wasm_memory_bytes_after_loading)],
      ['WebAssembly heap at the end', bytes(figures.wasm_memory_bytes)],
    ],
  };
}

function counters({ per_warm_token, dispatches, model }) {
  return {
    title: 'Counters of a warm token',
    columns: ['', 'per token'],
    rows: Object.entries(per_warm_token).map(([name, value]) => [name.replaceAll('_', ' '), number(value)]),
    note: `Dispatches: ${dispatches.per_layer} · ${model.layers} layers + ${dispatches.around}.`,
  };
}

function decodeKernels(report) {
  if (report.kernels === null) {
    return {
      title: 'Kernels',
      columns: ['', ''],
      rows: [['not timed', report.model?.device === 'cpu' ? 'the CPU ran the model' : 'this adapter has no timestamp-query']],
    };
  }
  const { decode: part } = report.kernels;
  return kernelTable(report, part, `Kernels of a decoded token, ${number(part.us_in_all)} µs in all`);
}

function prefillKernels(report) {
  if (report.kernels === null) return undefined;
  const { prefill: part } = report.kernels;
  return kernelTable(report, part, `Kernels of a prompt of ${part.prompt_tokens} tokens, ${number(part.us_in_all / 1000)} ms in all`);
}

function kernelTable({ kernels, bandwidth }, { kernels: rows, us_in_all }, title) {
  const limit = bandwidth.bytes_per_s;
  return {
    title,
    columns: ['kernel', 'times', 'bytes', 'µs', 'share', 'bytes/s', 'of the bandwidth'],
    rows: rows.map((row) => {
      const reached = kernels.rounded ? undefined : reachedBandwidth(row, limit);
      return [
        row.label,
        number(row.dispatches),
        bytes(row.read_bytes),
        number(row.us),
        percent((row.us_in_all / us_in_all) * 100),
        reached === undefined ? '–' : `${bytes(row.bytes_per_s)}/s`,
        reached === undefined ? '–' : percent(reached * 100),
      ];
    }),
    note: [
      'Times: dispatches. Bytes: of the inputs bound to one dispatch. µs: of one dispatch, in a compute pass of its own, so all together take longer than a token.',
      '–: more than the memory gives, so the kernel reads only a part of its inputs, as a gather does, or a cache holds them.',
      ...(kernels.rounded
        ? [
            'This browser rounds GPU times to about 0.1 ms, so they say little about one kernel: start Chromium with --enable-webgpu-developer-features.',
          ]
        : []),
    ].join(' '),
  };
}

/** Part of the bandwidth that a kernel reaches, if it read all that was bound; undefined where it can't have. */
export function reachedBandwidth({ bytes_per_s }, limit) {
  if (bytes_per_s === null || bytes_per_s > 1.1 * limit) return undefined;
  return bytes_per_s / limit;
}

export function adapterName({ vendor, architecture, device, description }) {
  return description || [vendor, architecture, device].filter(Boolean).join(' ') || 'unnamed';
}

/** Three digits that count; more where they stand before the point. */
export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  if (Number.isInteger(value) || Math.abs(value) >= 100) return Math.round(value).toLocaleString('en');
  return value.toFixed(Math.abs(value) >= 10 ? 1 : Math.abs(value) >= 1 ? 2 : 3);
}

function percent(value) {
  if (value === null) return '–';
  return `${Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(1)}%`;
}

export function bytes(value) {
  for (const [unit, size] of [
    ['TB', 1e12],
    ['GB', 1e9],
    ['MB', 1e6],
    ['kB', 1e3],
  ]) {
    if (Math.abs(value) >= size) return `${(value / size).toPrecision(3)} ${unit}`;
  }
  return `${Math.round(value)} B`;
}

/** The tables as text in columns, for a terminal or a mail. */
export function textOf(tables) {
  return tables
    .map(({ title, columns, rows, note }) => {
      const lines = columns.some((column) => column !== '') ? [columns, ...rows] : rows;
      const widths = columns.map((_, column) => Math.max(...lines.map((line) => line[column].length)));
      // Figures stand to the right; a table of two columns without heads is words.
      const words = columns.length === 2 && columns.every((column) => column === '');
      const text = lines.map((line) =>
        line
          .map((cell, column) => (column === 0 || words ? cell.padEnd(widths[column]) : cell.padStart(widths[column])))
          .join('  ')
          .trimEnd(),
      );
      return [title, ...text.map((line) => `  ${line}`), ...(note === undefined ? [] : wrapped(note, 116).map((line) => `  ${line}`))].join(
        '\n',
      );
    })
    .join('\n\n');
}

function wrapped(text, width) {
  const lines = [];
  for (const word of text.split(' ')) {
    if (lines.length > 0 && lines.at(-1).length + 1 + word.length <= width) lines.push(`${lines.pop()} ${word}`);
    else lines.push(word);
  }
  return lines;
}
