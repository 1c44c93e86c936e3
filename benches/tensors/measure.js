// Measures one engine at one row: whether the result is right, then how long a step takes. Knows engines by their common face only.

import { countGpuCalls } from './counts.js';
import { errorOf } from './reference.js';

/** The largest error of a right result, in parts of the largest value. */
const TOLERANCE = 1e-4;
/** The fewest groups of a repetition. */
const FEWEST = 2;

/** Runs so many groups of a row (rows.js) and resolves to the milliseconds until all was called and handed over, and until the GPU was done. */
async function runGroups(engine, { chain, fresh, op, options }, inputs, groups) {
  const operation = engine.operations[op];
  let results = [];
  const begin = performance.now();
  for (let group = 0; group < groups; group++) {
    for (const result of results) engine.free(result);
    if (chain === undefined) {
      results = Array.from({ length: fresh }, () => operation(inputs, options));
    } else {
      let { x } = inputs;
      for (let step = 0; step < chain; step++) {
        const next = operation({ ...inputs, x }, options);
        if (step > 0) engine.free(x);
        x = next;
      }
      results = [x];
    }
    engine.handOver?.(results);
  }
  const called = performance.now();
  await engine.wait(results);
  const done = performance.now();
  for (const result of results) engine.free(result);
  return { callMs: called - begin, ms: done - begin };
}

/** How many groups take about as long as wished. */
async function groupsFor(engine, row, inputs, targetMs) {
  const each = row.chain ?? row.fresh;
  if (row.steps !== undefined) return row.steps / each;
  // The first group makes what later ones reuse.
  await runGroups(engine, row, inputs, 1);
  let groups = FEWEST;
  for (;;) {
    const { ms } = await runGroups(engine, row, inputs, groups);
    if (ms >= targetMs / 2) return Math.max(FEWEST, Math.round((groups * targetMs) / ms));
    // A short run is mostly the wait at its end, so its time tells little.
    groups = Math.min(groups * 8, Math.ceil((groups * targetMs) / ms));
  }
}

function spreadOf(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const median = sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  return { median, least: sorted[0], most: sorted.at(-1) };
}

/** The first result, as numbers. */
async function firstResult(engine, { op, options, output }, inputs) {
  const result = engine.operations[op](inputs, options);
  const values = await engine.read(result, output);
  engine.free(result);
  return values;
}

/**
 * → {error, kernels, submits, steps, ms, call_ms, gflops, gb_per_s}, per step; ms and call_ms are {median, least, most}. A wrong result has an error
 * and is `wrong`, and is not timed; what the engine can't do is `failed`, with the reason.
 */
export async function measureRow(engine, row, given, settings) {
  const inputs = {};
  const lost = engine.device.lost.then(({ message }) => {
    throw new Error(`its device was lost: ${message}`);
  });
  lost.catch(() => {});
  try {
    try {
      engine.setFusion?.(row.fusion);
      for (const [name, { shape, layout }] of Object.entries(row.inputs)) inputs[name] = engine.tensor(given.data[name], shape, layout);
      return await Promise.race([measured(engine, row, inputs, given, settings), lost]);
    } finally {
      for (const tensor of Object.values(inputs)) engine.free(tensor);
      engine.setFusion?.(true);
    }
  } catch (error) {
    return { failed: error?.message ?? String(error) };
  }
}

async function measured(engine, row, inputs, { data, expected }, { repetitions, targetMs, onProgress }) {
  onProgress('checking');
  const error = errorOf(await firstResult(engine, row, inputs), expected, data.x.length);
  if (!(error <= TOLERANCE)) return { error, wrong: true };
  onProgress('warming up');
  const groups = await groupsFor(engine, row, inputs, targetMs);
  const steps = groups * (row.chain ?? row.fresh);
  const { dispatches, submits } = await countGpuCalls(() => runGroups(engine, row, inputs, groups));
  const runs = [];
  const count = row.repetitions ?? repetitions;
  for (let i = 1; i <= count; i++) {
    onProgress(`${i} of ${count}`);
    runs.push(await runGroups(engine, row, inputs, groups));
  }
  const ms = spreadOf(runs.map((run) => run.ms / steps));
  return {
    error,
    steps,
    // With those of the wait, of which there is one in all steps.
    kernels: dispatches / steps,
    submits: submits / steps,
    ms,
    call_ms: spreadOf(runs.map((run) => run.callMs / steps)),
    ...(row.flops === undefined ? {} : { gflops: row.flops / ms.median / 1e6 }),
    ...(row.bytes === undefined ? {} : { gb_per_s: row.bytes / ms.median / 1e6 }),
  };
}
