// What `npm test` ends with: the seconds of steps and of files, what failed, and the line that sums up.

import { sum } from './counts.mjs';

const COLUMNS = ['passed', 'failed', 'skipped'];

function print(title, rows) {
  const width = Math.max(title.length, ...rows.map(({ name }) => name.length)) + 2;
  const line = (name, cells) => console.log(name.padEnd(width) + cells.map((cell) => String(cell).padStart(9)).join(''));
  console.log('');
  line(title, [...COLUMNS, 'seconds']);
  for (const row of rows) line(row.name, [...COLUMNS.map((column) => row[column]), row.seconds.toFixed(1)]);
}

/** Steps in their order, files by their seconds; native files run beside each other, so they sum up to more than their step. */
export function printTables(steps, files, seconds) {
  if (files.length > 0)
    print(
      'file',
      [...files].sort((a, b) => b.seconds - a.seconds),
    );
  print('step', [...steps, { name: 'all', ...sum(steps), seconds }]);
  const repeated = files.filter(({ isRepeated }) => isRepeated).map(({ name }) => name);
  if (repeated.length > 0) console.log(`\nhung, and were run once more: ${repeated.join(', ')}`);
  // Output of an hour ago is overlooked, and of a run elsewhere often the end is all that there is.
  for (const { name, told } of [...steps, ...files]) if (told !== undefined) console.log(`\n── ${name} failed\n${told}`);
  const { passed, failed } = sum(steps);
  console.log(`\n${passed} passed, ${failed} failed`);
}
