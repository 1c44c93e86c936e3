// A benchmark's report on the page: headline figures, plots, tables. Knows nothing of how they were measured.

import { barChart } from './plots.js';
import { bytes, has, number, reachedBandwidth, tablesOf } from './report.js';

/** Kernels in a plot; the table has them all. */
const MOST_BARS = 10;
/** A table with a longer text takes the whole width. */
const WIDE_TEXT = 60;

/** [value, unit, words] of each main figure that is known. */
export function headlinesOf(report) {
  const { decode, prefill, load, first_token, bandwidth, memory, model } = report;
  const all = [
    [['decode'], () => [number(decode[0].tokens_per_s), 'tokens/s', `decoding after ${decode[0].prompt_tokens} tokens`]],
    [
      ['decode', 'bandwidth'],
      () => [decode[0].percent_of_bandwidth.toFixed(1), '%', `of the memory's ${bytes(bandwidth.bytes_per_s)}/s while decoding`],
    ],
    [['prefill'], () => [number(prefill.at(-1).tokens_per_s), 'tokens/s', `reading ${prefill.at(-1).prompt_tokens} tokens`]],
    [['first_token'], () => [number(first_token.ms), 'ms', `to the first token after ${first_token.prompt_tokens}`]],
    [['load'], () => [number(load.ms / 1000), 's', 'to load']],
    [['memory'], () => [...bytes(memory.live_bytes).split(' '), model?.device === 'cpu' ? 'of memory' : 'on the GPU']],
  ];
  return all
    .filter(([needs]) => has(report, ...needs) && !(needs.includes('bandwidth') && bandwidth === null))
    .map(([, figure]) => figure());
}

export function headlineOf(report) {
  return headlinesOf(report).map(([value, unit, words]) => {
    const item = document.createElement('li');
    const strong = document.createElement('strong');
    const small = document.createElement('span');
    small.textContent = ` ${unit}`;
    strong.append(value, small);
    const text = document.createElement('small');
    text.textContent = words;
    item.append(strong, text);
    return item;
  });
}

/** Plots of what is known. */
export function plotsOf(report) {
  const { decode, prefill, sampling = [], kernels = null, bandwidth } = report;
  const plots = [];
  if (has(report, 'decode')) {
    plots.push(
      barChart({
        title: 'Decode, tokens per second',
        ...(bandwidth === null ? {} : { remark: 'and the part of the memory’s speed that this takes' }),
        rows: decode.map((row) => ({
          name: `after ${row.prompt_tokens} tokens`,
          value: row.tokens_per_s,
          text: `${number(row.tokens_per_s)}${row.percent_of_bandwidth === null ? '' : ` · ${row.percent_of_bandwidth.toFixed(1)}%`}`,
        })),
      }),
    );
  }
  if (has(report, 'prefill')) {
    plots.push(
      barChart({
        title: 'Prefill, tokens per second',
        rows: prefill.map((row) => ({ name: `${row.prompt_tokens} tokens`, value: row.tokens_per_s, text: number(row.tokens_per_s) })),
      }),
    );
  }
  const sampled = sampling.filter((row) => row.refused === undefined);
  if (sampled.length > 0) {
    const greedy = { name: 'greedy', value: sampled[0].greedy_tokens_per_s, text: number(sampled[0].greedy_tokens_per_s) };
    const rows = sampled.map((row) => ({
      name: Object.entries(row.settings)
        .map((pair) => pair.join(' '))
        .join(', '),
      value: row.tokens_per_s,
      text: number(row.tokens_per_s),
    }));
    plots.push(barChart({ title: 'Sampling, tokens per second', rows: [greedy, ...rows] }));
  }
  if (kernels !== null) {
    const name = (row) => `${row.label}, ${bytes(row.read_bytes)}${row.dispatches === 1 ? '' : ` × ${number(row.dispatches)}`}`;
    plots.push(
      barChart({
        title: 'Time of a token by kernel, µs',
        remark: 'each in a pass of its own, so the sum is more than a token takes',
        rows: kernels.decode.kernels
          .slice(0, MOST_BARS)
          .map((row) => ({ name: name(row), value: row.us_in_all, text: number(row.us_in_all) })),
      }),
    );
    const reading = kernels.rounded
      ? []
      : kernels.decode.kernels
          .slice(0, MOST_BARS)
          .map((row) => ({ row, reached: reachedBandwidth(row, bandwidth.bytes_per_s) }))
          .filter(({ reached }) => reached !== undefined);
    if (reading.length > 0) {
      plots.push(
        barChart({
          title: 'Memory bandwidth that a kernel reaches',
          remark: `a full bar is ${bytes(bandwidth.bytes_per_s)}/s, which a plain read reaches`,
          most: 1,
          rows: reading.map(({ row, reached }) => ({
            name: name(row),
            value: reached,
            text: `${bytes(row.bytes_per_s)}/s · ${(reached * 100).toFixed(1)}%`,
          })),
        }),
      );
    }
  }
  return plots;
}

export function tableElementsOf(report) {
  return tablesOf(report).map(({ title, columns, rows, note }) => {
    const wide = columns.length > 5 || rows.some((row) => row.some((text) => text.length > WIDE_TEXT));
    const words = columns.length === 2 && columns.every((column) => column === '');
    const box = document.createElement('section');
    box.className = `table${wide ? ' wide' : ''}${words ? ' words' : ''}`;
    const scroll = document.createElement('div');
    scroll.className = 'scroll';
    // Wide tables scroll, by the keyboard too.
    scroll.tabIndex = 0;
    scroll.role = 'region';
    scroll.ariaLabel = title;
    const table = document.createElement('table');
    table.createCaption().textContent = title;
    if (!words) table.createTHead().append(lineOf(columns, () => 'col'));
    const body = table.createTBody();
    for (const row of rows) body.append(lineOf(row, (column) => (column === 0 ? 'row' : undefined)));
    scroll.append(table);
    box.append(scroll);
    if (note !== undefined) {
      const paragraph = document.createElement('p');
      paragraph.className = 'small';
      paragraph.textContent = note;
      box.append(paragraph);
    }
    return box;
  });
}

function lineOf(cells, scopeOf) {
  const line = document.createElement('tr');
  cells.forEach((text, column) => {
    const scope = scopeOf(column);
    const cell = document.createElement(scope === undefined || text === '' ? 'td' : 'th');
    if (cell.tagName === 'TH') cell.scope = scope;
    cell.textContent = text;
    line.append(cell);
  });
  return line;
}
