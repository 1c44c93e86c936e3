// Runs a program beside others; what it writes is kept until somebody waits for it.

import { spawn } from 'node:child_process';

import { Problem, root } from '../command.mjs';

/** How long the last output of a program may take after its end. */
const PIPES_MS = 5_000;

/** With `hasInput` its standard input stays open until `endInput` is called; otherwise there is none. */
export function inBackground(program, args, { env = process.env, hasInput = false } = {}) {
  let text = '';
  // Once somebody waits, it is printed as it comes.
  let write = (piece) => (text += piece);
  const child = spawn(program, args, { cwd: root, env, stdio: [hasInput ? 'pipe' : 'ignore', 'pipe', 'pipe'] });
  // It may have ended before.
  child.stdin?.on('error', () => {});
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (piece) => write(piece));
  const ended = new Promise((resolve) => {
    child.on('error', (error) => resolve(`did not start: ${error.message}`));
    // What it started and left behind may hold its pipes open.
    const letGo = () => {
      for (const stream of [child.stdout, child.stderr]) stream.destroy();
    };
    child.on('exit', () => setTimeout(letGo, PIPES_MS).unref());
    child.on('close', (code, signal) => resolve(code === 0 ? undefined : `exit status ${signal ?? code}`));
  });
  return {
    /** Resolves when it has ended, however. */
    ended,
    endInput: () => child.stdin?.end(),
    /** What it has written and nobody has printed. */
    text: () => text,
    /** Prints what it writes, and rejects when it fails. */
    async finished() {
      process.stdout.write(text);
      text = '';
      write = (piece) => process.stdout.write(piece);
      const failure = await ended;
      if (failure !== undefined) throw new Problem(`${program} ${args.join(' ')}: ${failure}`);
    },
  };
}
