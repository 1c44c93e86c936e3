// The side-by-side figures as rows of words, and the ratios between rillm and each other engine.

const TIMES = {
  'load, s': (report) => report.load_ms / 1000,
  'load and first answer, s': (report) => report.first_answer_ms / 1000,
};

const number = (value) => (value === undefined ? '–' : value >= 100 ? Math.round(value).toLocaleString('en') : value.toPrecision(3));

const figuresOf = (reports) => Object.keys(reports.find(({ error }) => error === undefined)?.figures ?? {});

/** The name of a figure or a time without its unit. */
const bare = (name) => name.replace(/, [^,]*$/, '');

/** How many times as fast rillm is: by what it does in a second, or by time. */
export function ratiosOf(reports) {
  const ours = reports.find(({ name, error }) => name === 'rillm' && error === undefined);
  if (ours === undefined) return [];
  return reports
    .filter((report) => report !== ours && report.error === undefined)
    .map((report) => ({
      to: report.name,
      ...Object.fromEntries(figuresOf(reports).map((name) => [name, ours.figures[name].median / report.figures[name].median])),
      ...Object.fromEntries(Object.entries(TIMES).map(([name, of]) => [name, of(report) / of(ours)])),
    }));
}

function cellOf({ median, range }) {
  return range === undefined ? number(median) : `${number(median)} (${range.map(number).join('–')})`;
}

/** → {columns, rows}: figures by engine, with the range of the runs, then the ratios. */
export function tableOf(reports) {
  const figures = figuresOf(reports);
  const cell = (report, of) => (report.error === undefined ? of(report) : '–');
  const version = (report) => (report.error === undefined ? report.version : `did not run: ${report.error}`);
  const ratios = ratiosOf(reports);
  const counted = figures.filter((name) => reports.some((report) => report.figures?.[name]?.own !== undefined));
  const row = (title, of) => [title, ...reports.map((report) => cell(report, of))];
  return {
    columns: ['', ...reports.map(({ name }) => name)],
    rows: [
      ['version', ...reports.map(version)],
      ...['backend', 'dtype'].map((field) => row(field, (report) => report[field])),
      ...figures.map((name) => row(name, (report) => cellOf(report.figures[name]))),
      ...Object.entries(TIMES).map(([name, of]) => row(name, (report) => number(of(report)))),
      ...counted.map((name) => row(`its own count: ${bare(name)}`, (report) => number(report.figures[name].own))),
      ...[...figures, ...Object.keys(TIMES)].map((name) => [
        `rillm, times as fast: ${bare(name)}`,
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
