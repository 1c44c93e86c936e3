// Node's tests in browsers: each file in a process of its own, two at once and one more as soon as nothing else runs, each with a browser, which
// is started again should a file have brought it down. A browser compiles all its kernels on one core. Files that want other flags start a browser of their own.
// What is about kernels runs on SwiftShader, which is what Chromium has for people without a GPU; the rest on lavapipe where that is to be
// had, since it is three times as fast.

import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

import { unpackPackage } from '../build.mjs';
import { serveChromium } from '../chromium.mjs';
import { Problem, root } from '../command.mjs';
import { lavapipeOptions } from '../lavapipe.mjs';
import { inBackground } from './background.mjs';
import { failuresIn, nodeCounts, NOTHING, stripColours } from './counts.mjs';
import { longestFirst } from './times.mjs';
import { runWorkers } from './workers.mjs';

export const AT_ONCE = 2;
/** A file that takes this long hangs; the longest takes half of it on a busy machine. */
const LIMIT_MS = 8 * 60_000;
const CLOSING_MS = 30_000;

/**
 * Files that run on SwiftShader: what is about the kernels of models and the loss of a GPU; and `arguments` and `tensor`, which compile thousands of kernels and run
 * each once.
 */
const ON_SWIFTSHADER = ['gpu', 'gpu_crash', 'model', 'arguments', 'tensor'].map((name) => `browser/${name}.test.mjs`);

/** Files in which the demo model says or learns much: it pays to optimise its kernels. The others compile more than they run. */
const OPTIMISED = ['demo_model', 'page', 'page_teach'].map((name) => `browser/${name}.test.mjs`);
const SOONER = { GALLIVM_PERF: 'nopt', LP_NATIVE_VECTOR_WIDTH: '128' };

/** Files whose subject is neither a GPU nor a kernel run their models on the CPU; with `RILLM_DEVICE=gpu` on a driver as well. */
const ON_CPU = [
  ...['adapters', 'bad_input', 'clients', 'embeddings', 'example_chats', 'folders', 'hostile', 'logits', 'models', 'page_chat'],
  ...['page_models', 'requests', 'responses', 'retries', 'serve', 'shared', 'sources', 'structured', 'tool_calls', 'worker_lost'],
].map((name) => `browser/${name}.test.mjs`);

/** How to start the browser for a file, as options of playwright-core; undefined for SwiftShader. */
function optionsFor(name) {
  const lavapipe = ON_SWIFTSHADER.includes(name) ? undefined : lavapipeOptions();
  if (lavapipe === undefined || OPTIMISED.includes(name)) return lavapipe;
  return { ...lavapipe, env: { ...lavapipe.env, ...SOONER } };
}

/**
 * Runs the files `*.test.mjs` of a folder of tests whose names hold `part`; resolves to a row for each. Without `chromium` they start what they
 * need themselves. `atOnce` files run at once, and one more as soon as one of the promises `coresAreFree` resolves: other lanes of `npm test` and steps
 * beside this one keep cores busy until then.
 */
export async function nodeTests(folder, part = '', { chromium = true, atOnce = AT_ONCE, coresAreFree = [Promise.resolve()] } = {}) {
  const all = readdirSync(join(root, 'tests', folder))
    .filter((name) => name.endsWith('.test.mjs'))
    .sort();
  const files = all.map((name) => ({ name: `${folder}/${name}` })).filter(({ name }) => name.includes(part));
  if (files.length === 0) throw new Problem(`there is no file ${part} in tests/${folder}`);
  // Once, before several files want it at the same time.
  await packedPackage();
  // Those that want the same browser follow each other.
  const kind = ({ name }) => (ON_SWIFTSHADER.includes(name) ? 0 : OPTIMISED.includes(name) ? 1 : 2);
  const waiting = longestFirst(files).sort((a, b) => kind(a) - kind(b));
  const rows = [];
  const worker = async () => {
    let browser;
    let kindOfBrowser;
    const attempt = async ({ name }) => {
      if (!chromium) return runFile(name, process.env);
      if (browser?.isRunning() && kindOfBrowser !== kind({ name })) {
        await closed(browser);
        browser = undefined;
      }
      kindOfBrowser = kind({ name });
      if (!browser?.isRunning()) browser = await serveChromium(optionsFor(name));
      const device = ON_CPU.includes(name) ? { RILLM_DEVICE: process.env.RILLM_DEVICE ?? 'cpu' } : {};
      const row = await runFile(name, { ...process.env, ...device, RILLM_TEST_BROWSER: browser.endpoint });
      if (row.failed > 0) {
        // Whatever became of it must not fail the next file too.
        await closed(browser);
        browser = undefined;
      }
      return row;
    };
    try {
      for (let file = waiting.shift(); file !== undefined; file = waiting.shift()) {
        const row = await attempt(file);
        // What hangs may be the browser: it gets one more chance, and the tables tell. What fails gets none.
        rows.push(row.hangs ? { ...(await attempt(file)), isRepeated: true } : row);
      }
    } finally {
      await closed(browser);
    }
  };
  // Files wait for pages and clocks as long as they compute.
  await runWorkers(Math.min(atOnce, files.length), worker, coresAreFree, () => waiting.length > 0);
  return rows;
}

/** Closes a browser, or ends one that does not close. */
async function closed(browser) {
  if (browser === undefined) return;
  const late = setTimeout(() => browser.kill(), CLOSING_MS);
  await browser.close();
  clearTimeout(late);
}

let unpacking = Promise.resolve();

/** Unpacks the package, if there is one; for steps that run at the same time one after the other. */
function packedPackage() {
  unpacking = unpacking.catch(() => {}).then(unpack);
  return unpacking;
}

async function unpack() {
  const pkg = join(root, 'pkg');
  const tarball = existsSync(pkg) ? readdirSync(pkg).find((name) => name.endsWith('.tgz')) : undefined;
  if (tarball === undefined) throw new Problem('there is no packed package: run `npm run build` first');
  await unpackPackage(join(pkg, tarball));
}

/** Runs a file's tests; their output is printed in one piece. */
async function runFile(name, env) {
  const begin = performance.now();
  const counts = { ...NOTHING };
  // To exit by force: a program that a test started and that hangs would keep the file from ending.
  const limits = [`--test-timeout=${LIMIT_MS}`, '--test-force-exit'];
  const tests = inBackground(process.execPath, ['--test', '--test-reporter=spec', ...limits, join('tests', name)], { env });
  const failure = await tests.ended;
  const seconds = (performance.now() - begin) / 1000;
  console.log(`\n── ${name}, ${seconds.toFixed(1)} s\n${tests.text().trim()}`);
  for (const line of tests.text().split('\n')) {
    for (const [kind, number] of Object.entries(nodeCounts(stripColours(line)) ?? {})) counts[kind] += number;
  }
  // A file that fails without counting did not get as far as its tests, and one that counts none tests nothing.
  if (counts.failed === 0 && (failure !== undefined || counts.passed + counts.skipped === 0)) counts.failed = 1;
  const told = counts.failed > 0 ? failuresIn(tests.text()) : undefined;
  return { name, ...counts, seconds, told, hangs: seconds * 1000 >= LIMIT_MS };
}
