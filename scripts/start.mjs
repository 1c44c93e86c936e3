// `npm start`: sets up what is missing, builds the package and serves the demo page. It says what it does; what the tools say goes to a log
// file, of which only a failure shows something. It installs no browser.

import { closeSync, mkdirSync, openSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';

import { build, unpackPackage } from './build.mjs';
import { main, Problem, root } from './command.mjs';
import { setup } from './setup.mjs';

const LOG = join(root, '.cache/start.log');
/** Lines of the log that a failure shows: the end of what the compiler or npm said. */
const SHOWN = 40;

/** What is done, and how long that usually takes where it was not done before; where nothing changed, it takes a moment. */
const STEPS = {
  tools: 'the Rust target, wasm-bindgen and the npm packages (2 to 5 minutes the first time)',
  tensor: 'what `rillm/gpu` runs on, from Rust to WebAssembly (1 to 2 minutes after a change)',
  grammar: 'the grammar engine, the same way (1 to 2 minutes after a change)',
  cpu: 'the engine for the CPU, the same way (3 to 6 minutes after a change)',
  train: 'the engine with what trains, the same way (3 to 6 minutes after a change)',
  engine: 'the engine, the same way (3 to 6 minutes after a change)',
  team: 'what threads of the CPU run, the same way (half a minute after a change)',
  package: 'the package, from TypeScript to JavaScript (5 seconds)',
};

const names = Object.keys(STEPS);
let current;
let begin;

/** Says that a step begins, and how long the one before it took. */
function enter(name) {
  leave();
  current = name;
  begin = performance.now();
  process.stdout.write(`${names.indexOf(name) + 1} of ${names.length}  ${STEPS[name]} …`);
}

function leave() {
  if (current !== undefined) process.stdout.write(` ${((performance.now() - begin) / 1000).toFixed(1)} s\n`);
  current = undefined;
}

/** The package, unpacked. */
async function prepared(log) {
  enter('tools');
  await setup({ test: false, browser: false, log });
  const tarball = await build({ log, onStage: enter });
  const packed = await unpackPackage(tarball);
  leave();
  return packed;
}

await main(async () => {
  mkdirSync(join(root, '.cache'), { recursive: true });
  const log = openSync(LOG, 'w');
  let packed;
  try {
    packed = await prepared(log);
  } catch (error) {
    if (current !== undefined) process.stdout.write(' failed\n');
    const lines = readFileSync(LOG, 'utf8').trimEnd().split('\n');
    const told = lines.length > SHOWN ? [`(${lines.length - SHOWN} lines more in ${relative(root, LOG)})`, ...lines.slice(-SHOWN)] : lines;
    if (error instanceof Problem) throw new Problem(`${told.join('\n')}\n\n${error.message}`);
    throw error;
  } finally {
    closeSync(log);
  }
  const { demoMounts, serve } = await import('./serve.mjs');
  const port = process.env.PORT;
  const { origin } = await serve(await demoMounts(root, packed), { port: Number(port ?? 8080), nextFree: port === undefined });
  console.log(`\n  rillm is at ${origin}/\n\n  Open it in a browser with WebGPU. Ctrl+C ends it.\n`);
});
