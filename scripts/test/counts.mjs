// How each runner tells its numbers of tests that passed, failed and were skipped; it may tell them several times.

// biome-ignore lint/suspicious/noControlCharactersInRegex: colours begin with the control character ESC
export const stripColours = (text) => text.replace(/\x1b\[[0-9;]*m/g, '').trimEnd();

/** The harness of Rust, natively and in wasm. */
export function rustCounts(line) {
  const match = line.match(/^test result: \S+ (\d+) passed; (\d+) failed; (\d+) ignored/);
  return match === null ? undefined : { passed: Number(match[1]), failed: Number(match[2]), skipped: Number(match[3]) };
}

/** Node's reporter "spec". */
export function nodeCounts(line) {
  const match = line.match(/^ℹ (pass|fail|cancelled|skipped|todo) (\d+)$/);
  if (match === null) return undefined;
  const kind = { pass: 'passed', fail: 'failed', cancelled: 'failed', skipped: 'skipped', todo: 'skipped' }[match[1]];
  return { [kind]: Number(match[2]) };
}

export const NOTHING = { passed: 0, failed: 0, skipped: 0 };

/** Adds up counts; other fields are left out. */
export function sum(rows) {
  const total = { ...NOTHING };
  for (const row of rows) for (const kind of Object.keys(total)) total[kind] += row[kind] ?? 0;
  return total;
}

/** The most that is repeated of a file's failures, in characters. */
const MOST = 3000;

/** What a runner's output says of the tests that failed, to be repeated where it is not overlooked; undefined if it says nothing. */
export function failuresIn(text) {
  const plain = stripColours(text);
  // Node's reporter lists them again at the end, Rust's harness what each of them printed.
  const at = [plain.lastIndexOf('failing tests:'), plain.indexOf('\nfailures:\n')].find((place) => place >= 0);
  const told = (at === undefined ? plain.slice(-MOST) : plain.slice(at)).trim();
  if (told === '') return undefined;
  return told.length > MOST ? `${told.slice(0, MOST)}\n…` : told;
}
