// How each runner tells its numbers of tests that passed, failed and were skipped; it may tell them several times.

// biome-ignore lint/suspicious/noControlCharactersInRegex: colours begin with the control character ESC
export const stripColours = (line) => line.replace(/\x1b\[[0-9;]*m/g, '').trimEnd();

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
