// The figures as rows of words: times, and what was seen beside them. Knows the report's shape and nothing of engines.
//
// A report is {engines: [{name, version, error, …}], rows: [{id, name, unit, results: {engine: what measureRow gives}}]}.

import { textOf } from '../peers/tables.js';

export const OURS = 'rillm';

const UNITS = { ms: 1, µs: 1000 };

/** Three digits that count, and whole numbers from a hundred on. */
function figure(value) {
  if (value === undefined) return '–';
  return value >= 100 ? Math.round(value).toLocaleString('en') : value.toPrecision(3);
}

const isTimed = (result) => result?.ms !== undefined;

function timeOf(result, unit) {
  if (result === undefined) return '–';
  if (result.failed !== undefined) return `did not run: ${result.failed.split('\n')[0].slice(0, 80)}`;
  if (result.wrong) return `wrong: error ${result.error.toExponential(1)}`;
  const span = ({ median, least, most }) => {
    const [middle, low, high] = [median, least, most].map((ms) => figure(ms * UNITS[unit]));
    return `${middle} (${low}–${high}) ${unit}`;
  };
  const rate =
    result.gflops === undefined
      ? result.gb_per_s === undefined
        ? ''
        : `, ${figure(result.gb_per_s)} GB/s`
      : `, ${figure(result.gflops)} GFLOP/s`;
  return span(result.ms) + rate;
}

/** How many times as fast rillm is as each other engine, by row: [{row, to, ratio}]. */
export function ratiosOf(rows) {
  return rows.flatMap(({ id, results }) =>
    Object.entries(results)
      .filter(([name, result]) => name !== OURS && isTimed(result) && isTimed(results[OURS]))
      .map(([to, result]) => ({ row: id, to, ratio: result.ms.median / results[OURS].ms.median })),
  );
}

/** → {columns, rows}: the time of a step by engine, then the ratios. */
export function timesOf({ engines, rows }) {
  const ratios = ratiosOf(rows);
  const names = engines.map(({ name }) => name);
  const others = names.includes(OURS) ? names.filter((name) => name !== OURS) : [];
  const ratioOf = (id, name) => {
    const found = ratios.find(({ row, to }) => row === id && to === name);
    return found === undefined ? '' : `${found.ratio.toPrecision(3)} ×`;
  };
  return {
    columns: ['', ...engines.map(({ name, version }) => `${name} ${version}`), ...others.map((name) => `${OURS} to ${name}`)],
    rows: rows.flatMap(({ id, name, unit = 'ms', results }) => [
      [name, ...names.map((engine) => timeOf(results[engine], unit)), ...others.map((engine) => ratioOf(id, engine))],
      // Where the GPU has next to nothing to do, it counts how long the page's thread is busy.
      ...(unit === 'µs'
        ? [
            [
              '… of which until all was called and handed over',
              ...names.map((engine) => (isTimed(results[engine]) ? timeOf({ ms: results[engine].call_ms }, unit) : '–')),
              ...others.map(() => ''),
            ],
          ]
        : []),
    ]),
  };
}

/** → {columns, rows}: what each engine was seen to do, and its largest error and its kernels by row. */
export function checksOf({ engines, rows }) {
  const cell = (result) => {
    if (result?.error === undefined) return '–';
    const error = result.error.toExponential(1);
    return isTimed(result) ? `${error}; ${figure(result.kernels)}, ${figure(result.submits)}` : error;
  };
  const field = (title, of) => [title, ...engines.map((engine) => of(engine) ?? '–')];
  return {
    columns: ['error; kernels and submits a step', ...engines.map(({ name }) => name)],
    rows: [
      field('did not start', ({ error }) => error),
      field('joins operations by', ({ facts }) => facts?.fusion),
      field('waits by', ({ facts }) => facts?.waits),
      field('has no function of its own for', ({ notes = {} }) =>
        Object.keys(notes).length === 0
          ? undefined
          : Object.entries(notes)
              .map(([op, instead]) => `${op} (${instead})`)
              .join('; '),
      ),
      field('errors of its GPUDevice', ({ gpu_errors: errors }) => (errors?.length > 0 ? `${errors.length}: ${errors[0]}` : undefined)),
      ...rows.map(({ name, results }) => [name, ...engines.map((engine) => cell(results[engine.name]))]),
    ].filter((row) => row.slice(1).some((words) => words !== '–')),
  };
}

/** Both tables. */
export function reportText(report) {
  return `${textOf(timesOf(report))}\n\n${textOf(checksOf(report))}`;
}
