// The side-by-side figures as rows of words, and the ratios between rillm and each other engine.

const FIGURES = {
  'decode after 16, tokens/s': (report) => report.decode[0].tokens_per_s,
  'decode after 512, tokens/s': (report) => report.decode[1].tokens_per_s,
  'prefill 512, tokens/s': (report) => report.prefill.tokens_per_s,
  'load, s': (report) => report.load_ms / 1000,
  'load and first answer, s': (report) => report.first_answer_ms / 1000,
};
const OWN_COUNTS = {
  'its own count: decode after 16': (report) => report.decode[0].own_tokens_per_s,
  'its own count: decode after 512': (report) => report.decode[1].own_tokens_per_s,
  'its own count: prefill 512': (report) => report.prefill.own_tokens_per_s,
};

const number = (value) => (value === undefined ? '–' : value >= 100 ? Math.round(value).toLocaleString('en') : value.toPrecision(3));

/** What the runs were apart, where the report says it. */
const RANGES = {
  'decode after 16, tokens/s': (report) => report.decode[0].range,
  'decode after 512, tokens/s': (report) => report.decode[1].range,
  'prefill 512, tokens/s': (report) => report.prefill.range,
};

function figure(report, name) {
  const median = number(FIGURES[name](report));
  const range = RANGES[name]?.(report);
  return range === undefined ? median : `${median} (${range.map(number).join('–')})`;
}

/** How many times as fast rillm is: by tokens per second, or by time. */
export function ratiosOf(reports) {
  const ours = reports.find(({ name, error }) => name === 'rillm' && error === undefined);
  if (ours === undefined) return [];
  return reports
    .filter((report) => report !== ours && report.error === undefined)
    .map((report) => ({
      to: report.name,
      ...Object.fromEntries(
        Object.entries(FIGURES).map(([name, of]) => [name, name.endsWith(', s') ? of(report) / of(ours) : of(ours) / of(report)]),
      ),
    }));
}

/** → {columns, rows}: figures by engine, then the ratios. */
export function tableOf(reports) {
  const cell = (report, of) => (report.error === undefined ? of(report) : '–');
  const words = (report, field) => (report.error === undefined ? report[field] : `did not run: ${report.error}`);
  const ratios = ratiosOf(reports);
  return {
    columns: ['', ...reports.map(({ name }) => name)],
    rows: [
      ...['version', 'backend', 'dtype'].map((field) => [field, ...reports.map((report) => words(report, field))]),
      ...Object.keys(FIGURES).map((name) => [name, ...reports.map((report) => cell(report, () => figure(report, name)))]),
      ...Object.entries(OWN_COUNTS).map(([name, of]) => [name, ...reports.map((report) => cell(report, () => number(of(report))))]),
      ...Object.keys(FIGURES).map((name) => [
        `rillm, times as fast: ${name.replace(/, [^,]*$/, '')}`,
        ...reports.map((report) => {
          const ratio = ratios.find(({ to }) => to === report.name);
          return ratio === undefined ? '' : `${ratio[name].toPrecision(3)} ×`;
        }),
      ]),
    ],
  };
}

export function textOf({ columns, rows }) {
  const lines = [columns, ...rows];
  const widths = columns.map((_, column) => Math.max(...lines.map((line) => line[column].length)));
  return lines
    .map((line) =>
      line
        .map((text, column) => text.padEnd(widths[column]))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}
