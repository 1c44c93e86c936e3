// Runs other programs: streamed to the terminal or captured. Knows nothing of what is run. Built-in modules only, since it
// runs before the packages are installed.

import { spawn, spawnSync } from 'node:child_process';
import { realpathSync, writeSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** The root of the repository. */
export const root = fileURLToPath(new URL('..', import.meta.url)).replace(/[\\/]$/, '');

/** A failure that a person can act on: printed without a stack. */
export class Problem extends Error {}

/** Runs a program to its end, its output on ours (on stderr if `quietStdout`) or in `log`, an open file. Rejects when it fails. */
export async function run(program, args, { env, cwd = root, quietStdout = false, log } = {}) {
  const code = await exitCode(program, args, { env, cwd, stdio: ['ignore', log ?? (quietStdout ? 2 : 'inherit'), log ?? 'inherit'] });
  if (code !== 0) throw new Problem(`${program} ${args.join(' ')}: exit status ${code}`);
}

/** What tells people what goes on, in the place where `run` leaves the output of programs. */
export function sayTo(who, { quietStdout = false, log } = {}) {
  if (log !== undefined) return (text) => writeSync(log, `${who}: ${text}\n`);
  return (text) => (quietStdout ? console.error : console.log)(`${who}: ${text}`);
}

/** Runs a program, hands every line of its output to `onLine` and prints it; resolves to the exit status. */
export function runLines(program, args, { env, cwd = root, onLine }) {
  return exitCode(program, args, { env, cwd, stdio: ['ignore', 'pipe', 'pipe'] }, (child) => {
    for (const [stream, out] of [
      [child.stdout, process.stdout],
      [child.stderr, process.stderr],
    ]) {
      let rest = '';
      stream.setEncoding('utf8');
      stream.on('data', (text) => {
        out.write(text);
        const lines = (rest + text).split('\n');
        rest = lines.pop();
        lines.forEach(onLine);
      });
      stream.on('end', () => rest !== '' && onLine(rest));
    }
  });
}

/** Runs a program to its end; resolves to its exit status and what it wrote to stdout. Its stderr is ours. */
export async function captured(program, args, { env, cwd = root } = {}) {
  let text = '';
  const code = await exitCode(program, args, { env, cwd, stdio: ['ignore', 'pipe', 'inherit'] }, (child) => {
    child.stdout.setEncoding('utf8').on('data', (piece) => (text += piece));
  });
  return { code, text };
}

function exitCode(program, args, options, started = () => {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { ...options, env: options.env ?? process.env });
    child.on('error', (error) => reject(new Problem(`${program} did not start: ${error.message}`)));
    child.on('close', (code, signal) => resolve(signal === null ? code : 128));
    started(child);
  });
}

/** What a program prints, trimmed; undefined when it is not there or fails. */
export function output(program, args, { env, cwd = root } = {}) {
  const { status, stdout } = spawnSync(program, args, {
    env: env ?? process.env,
    cwd,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  return status === 0 ? stdout.trim() : undefined;
}

/** npm with these arguments, as a program and its arguments. Prefers the npm that started us. */
export function npm(...args) {
  const script = process.env.npm_execpath;
  return script?.endsWith('.js') ? [process.execPath, [script, ...args]] : ['npm', args];
}

/** Whether the module with this import.meta.url is the script that node was started with. */
export function isMain(url) {
  return process.argv[1] !== undefined && realpathSync(process.argv[1]) === fileURLToPath(url);
}

/** Runs the body of a script: a Problem is printed as one line, everything else with its stack. */
export async function main(body) {
  try {
    await body();
  } catch (error) {
    console.error(error instanceof Problem ? `\n${error.message}` : error);
    process.exitCode = 1;
  }
}
