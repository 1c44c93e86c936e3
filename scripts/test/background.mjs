// Runs a program beside others; what it writes is kept until somebody waits for it.

import { spawn } from 'node:child_process';

import { Problem, root } from '../command.mjs';

/** How long the last output of a program may take after its end. */
const PIPES_MS = 5_000;

export function inBackground(program, args, env = process.env) {
  let text = '';
  // Once somebody waits, it is printed as it comes.
  let write = (piece) => (text += piece);
  const child = spawn(program, args, { cwd: root, env, stdio: ['ignore', 'pipe', 'pipe'] });
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
