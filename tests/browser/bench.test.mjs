// The benchmark: its page runs, shows and copies; unattended it posts; `npm run bench` gives figures that fit together. No test
// here looks at how fast anything is.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { after, before, test } from 'node:test';

import { parseCommand } from '../../scripts/rill/arguments.mjs';
import { golden, openStage, root } from './browser.mjs';
import { faultsOf, picture, screenshot } from './page/stage.mjs';

const LIMIT = { timeout: 240_000 };
const MODEL = join(golden, 'untied-q8_0.gguf');
const FEW = 'new-tokens=16&repetitions=1&prompt-tokens=16';

let stage;
before(async () => (stage = await openStage()));
after(() => stage.close());

/** What a report has to be, whatever the machine. */
function checkReport(report) {
  const { adapter, model, bandwidth, load, decode, prefill, first_token, gaps, sampling, memory, per_warm_token, dispatches, kernels } =
    report;
  assert.equal(typeof adapter.vendor, 'string');
  assert.equal(model.layers, 2);
  assert.ok(bandwidth.bytes_per_s > 0 && bandwidth.buffer_bytes >= 2 ** 20);
  assert.ok(load.ms > 0 && load.bytes > model.weight_bytes);

  // The embedding table of this model is not its output's, and only rows of it are read.
  assert.ok(model.weight_bytes_per_token < model.weight_bytes);
  const [after16] = decode;
  const cachePerToken = model.kv_cache_bytes / model.context_length;
  assert.equal(after16.prompt_tokens, 16);
  assert.equal(after16.bytes_per_token, model.weight_bytes_per_token + cachePerToken * (16 + 8 + after16.new_tokens / 2));
  near(after16.percent_of_bandwidth, (100 * after16.bytes_per_token * after16.tokens_per_s) / bandwidth.bytes_per_s);
  near(after16.ms_per_token * after16.tokens_per_s, 1000);
  assert.equal(prefill[0].prompt_tokens, 16);
  near(prefill[0].prompt_ms * prefill[0].tokens_per_s, 16_000);
  assert.ok(first_token.ms > 0);
  assert.ok(gaps.longest_ms > 0 && gaps.chunks > 1);
  assert.deepEqual(
    sampling.map(({ settings }) => Object.keys(settings).length),
    [1, 2, 3],
  );
  for (const row of sampling) assert.ok(row.refused !== undefined || row.tokens_per_s > 0);
  assert.equal(sampling[0].refused, undefined);

  assert.equal(memory.live_bytes, memory.weight_bytes + memory.kv_cache_bytes + memory.rest_bytes);
  assert.ok(memory.rest_bytes >= 0 && memory.peak_bytes >= memory.live_bytes);
  assert.ok(memory.wasm_memory_bytes_after_loading > 2 ** 20 && memory.wasm_memory_bytes_after_loading <= 64e6);

  assert.equal(dispatches.per_token, per_warm_token.dispatches);
  assert.equal(dispatches.per_layer * model.layers + dispatches.around, dispatches.per_token);
  for (const name of ['buffers_created', 'bind_groups_created', 'pipelines_created', 'uniform_writes'])
    assert.equal(per_warm_token[name], 0, name);
  if (kernels === null) return assert.ok(!adapter.features.includes('timestamp-query'));
  const { decode: step } = kernels;
  assert.ok(step.steps >= 8);
  // As many dispatches are timed as the counters count.
  assert.equal(sum(step.kernels, 'dispatches'), per_warm_token.dispatches);
  near(sum(step.kernels, 'us_in_all'), step.us_in_all);
  for (const kernel of [...step.kernels, ...kernels.prefill.kernels]) {
    assert.ok(Number.isInteger(kernel.dispatches) && kernel.read_bytes > 0, JSON.stringify(kernel));
    near(kernel.us_in_all, kernel.us * kernel.dispatches);
  }
  // Everything that a token reads is bound to a kernel.
  assert.ok(
    step.kernels.reduce((bytes, { read_bytes, dispatches: times }) => bytes + read_bytes * times, 0) >= model.weight_bytes_per_token,
  );
}

const sum = (rows, field) => rows.reduce((total, row) => total + row[field], 0);

function near(a, b) {
  assert.ok(Math.abs(a - b) <= 1e-3 * Math.abs(b), `${a} is not about ${b}`);
}

function bench(...args) {
  return new Promise((resolve) => {
    execFile(
      process.execPath,
      [join(root, 'scripts/rill.mjs'), 'bench', '--adapter', 'swiftshader', ...args],
      { maxBuffer: 2 ** 26 },
      (error, stdout, stderr) => resolve({ status: error?.code ?? 0, stdout, stderr }),
    );
  });
}

// The object is that of the pages below.
test('bench prints tables, or with --json one object', LIMIT, async () => {
  const isJson = (...words) => parseCommand(words).json;
  assert.deepEqual([isJson('bench'), isJson('bench', '--json'), isJson('bench', 'decode', '--model', MODEL)], [false, true, true]);
  const { status, stdout, stderr } = await bench(
    '--model',
    MODEL,
    '--new-tokens',
    '16',
    '--repetitions',
    '1',
    '--prompt-tokens',
    '16',
    '--context-length',
    '64',
  );
  assert.equal(status, 0, stdout + stderr);
  for (const title of [
    'What was measured',
    'Decode',
    'Prefill and load',
    'Stream',
    'Sampling against greedy',
    'Memory',
    'Counters of a warm token',
    'Kernels',
  ]) {
    assert.match(stdout, new RegExp(`^${title}`, 'm'));
  }
  assert.match(stdout, /context +64 tokens/);
});

test('the page runs, shows plots and tables, and copies them as text', LIMIT, async () => {
  const { page, close } = await stage.openPage({
    url: `${stage.origin}/bench.html?${FEW}`,
    permissions: ['clipboard-read', 'clipboard-write'],
  });
  assert.equal(await page.locator('#copy-text').isVisible(), false);
  await page.locator('#model').selectOption('file');
  await page.locator('#file').setInputFiles(MODEL);
  await page.locator('#run').click();
  await page.locator('#cancel').waitFor();
  await page.locator('#copy-text').waitFor({ timeout: 120_000 });
  const titles = await page.locator('caption').allTextContents();
  assert.ok(titles.includes('Decode') && titles.includes('Memory') && titles.some((title) => title.startsWith('Kernels')), titles.join());
  assert.ok((await page.locator('.plot svg[role=img]').count()) >= 3);
  for (const label of await page.locator('.plot svg').evaluateAll((all) => all.map((svg) => svg.getAttribute('aria-label'))))
    assert.match(label, /\d/);
  assert.equal(await page.locator('.headline li').count(), 6);
  assert.doesNotMatch(await page.locator('#results').innerText(), /NaN|undefined|Infinity/);
  await page.locator('#copy-text').click();
  const text = await page.evaluate(() => navigator.clipboard.readText());
  assert.match(text, /^What was measured\n/);
  assert.match(text, /^Decode\n {2}after/m);
  await page.locator('#copy-json').click();
  await page.locator('#copy-json').filter({ hasText: 'Copied' }).waitFor();
  checkReport(JSON.parse(await page.evaluate(() => navigator.clipboard.readText())));
  const [image] = await Promise.all([page.waitForEvent('download'), page.locator('#save-image').click()]);
  const bytes = await buffer(await image.createReadStream());
  assert.deepEqual([bytes.toString('latin1', 1, 4), bytes.readUInt32BE(16), bytes.readUInt32BE(20)], ['PNG', 1200, 630]);
  await picture(page, 'benchmark');
  writeFileSync(screenshot('benchmark-image.png'), bytes);
  assert.deepEqual(await faultsOf(page), [], 'axe, wide');
  // It fits a phone, and every field has a name.
  await page.setViewportSize({ width: 360, height: 740 });
  assert.deepEqual(await faultsOf(page), [], 'axe, on a phone');
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth), false);
  const nameless = await page.evaluate(() =>
    [...document.querySelectorAll('button, input, select')]
      .filter((element) => !(element.labels?.length > 0 || element.textContent.trim() !== '' || element.getAttribute('aria-label')))
      .map((element) => element.outerHTML),
  );
  assert.deepEqual(nameless, []);
  await close();
});

test('a run can be cancelled, and what does not load is told in words', LIMIT, async () => {
  const { page, close } = await stage.openPage({
    url: `${stage.origin}/bench.html?prompt-tokens=16&new-tokens=200&repetitions=200&model=golden/untied-q8_0.gguf`,
    allowed: [/Failed to load resource/],
    permissions: ['clipboard-read', 'clipboard-write'],
  });
  await page.locator('#run').click();
  await page.locator('#status').filter({ hasText: 'Decoding' }).waitFor({ timeout: 120_000 });
  // What is known by then is shown.
  assert.match(await page.locator('#headline').innerText(), /to load/);
  assert.equal(await page.locator('#empty').isVisible(), false);
  await page.locator('#cancel').click();
  await page.locator('#status').filter({ hasText: 'Cancelled.' }).waitFor();
  assert.equal(await page.locator('#notice').isVisible(), false);
  // And is what is copied.
  await page.locator('#copy-json').click();
  await page.locator('#copy-json').filter({ hasText: 'Copied' }).waitFor();
  const partial = JSON.parse(await page.evaluate(() => navigator.clipboard.readText()));
  assert.ok(partial.load.ms > 0 && partial.memory === undefined);
  await page.locator('#copy-text').click();
  await page.locator('#copy-text').filter({ hasText: 'Copied' }).waitFor();
  assert.match(await page.evaluate(() => navigator.clipboard.readText()), /ended +before all was measured: it was cancelled/);
  const [image] = await Promise.all([page.waitForEvent('download'), page.locator('#save-image').click()]);
  assert.match(image.suggestedFilename(), /\.png$/);
  await page.locator('#url').fill(`${stage.origin}/status/404/nothing.gguf`);
  await page.locator('#run').click();
  await page.getByRole('alert').filter({ hasText: '404' }).waitFor({ timeout: 120_000 });
  await page.locator('#run:visible').waitFor();
  assert.equal(await page.locator('#copy-text').isVisible(), false, 'of this run there are no figures');
  assert.equal(await page.locator('#empty').isVisible(), true);
  await close();
});

test('without WebGPU the CPU is measured, and held against no memory of a GPU', LIMIT, async () => {
  const { page, close } = await stage.openPage({ url: 'about:blank', permissions: ['clipboard-read', 'clipboard-write'] });
  await page.addInitScript(() => Object.defineProperty(Navigator.prototype, 'gpu', { get: () => undefined }));
  await page.goto(`${stage.origin}/bench.html?${FEW}&model=golden/untied-q8_0.gguf`);
  await page.locator('#notice', { hasText: 'the CPU is measured' }).waitFor();
  await page.locator('#run').click();
  await page
    .locator('#status')
    .filter({ hasText: /^(?:Done|It did)/ })
    .waitFor({ timeout: 120_000 });
  assert.equal(await page.locator('#status').textContent(), 'Done.', await page.locator('#notice').textContent());
  const words = await page.locator('#results').innerText();
  assert.doesNotMatch(words, /NaN|undefined|Infinity|null/);
  assert.match(words, /not measured: the CPU ran the model/);
  assert.doesNotMatch(words, /on the GPU|GPU in all/);
  await page.locator('#copy-json').click();
  await page.locator('#copy-json').filter({ hasText: 'Copied' }).waitFor();
  const { bandwidth, model, decode, kernels } = JSON.parse(await page.evaluate(() => navigator.clipboard.readText()));
  assert.deepEqual([bandwidth, model.device, decode[0].percent_of_bandwidth, kernels], [null, 'cpu', null, null]);
  assert.ok(decode[0].tokens_per_s > 0);
  await close();
});

test('unattended, it posts every result and then the report, or the error', LIMIT, async () => {
  for (const [model, check] of [
    ['golden/untied-q8_0.gguf', checkReport],
    ['golden/no-such.gguf', ({ error }) => assert.equal(error.code, 'http')],
  ]) {
    const { page, close } = await stage.openPage({ url: `${stage.origin}/blank/`, allowed: [/Failed to load resource/] });
    const posts = [];
    const done = new Promise((resolve) => {
      void page.route('**/posted/*', (route) => {
        const name = new URL(route.request().url()).pathname.split('/').at(-1);
        posts.push([name, route.request().postDataJSON()]);
        if (name === 'done') resolve();
        return route.fulfill({ status: 204 });
      });
    });
    await page.goto(`${stage.origin}/bench.html?${FEW}&model=${model}&run=1&post=/posted`);
    await done;
    assert.equal(posts.filter(([name]) => name === 'done').length, 1);
    assert.equal(posts.at(-1)[0], 'done');
    assert.ok(posts.every(([name, value]) => name === 'done' || typeof value.text === 'string'));
    check(posts.at(-1)[1]);
    await close();
  }
});

test('frames.html tells the frames of a page that draws, for each phase', LIMIT, async () => {
  const { page, close } = await stage.openPage({ url: `${stage.origin}/blank/` });
  const posts = [];
  const done = new Promise((resolve) => {
    void page.route('**/posted/*', (route) => {
      const name = new URL(route.request().url()).pathname.split('/').at(-1);
      posts.push(route.request().postDataJSON());
      if (name === 'done') resolve();
      return route.fulfill({ status: 204 });
    });
  });
  const settings = 'seconds=0.5&repetitions=1&prompt-tokens=48&new-tokens=16';
  await page.goto(`${stage.origin}/frames.html?model=golden/untied-q8_0.gguf&post=/posted&${settings}`);
  await done;
  const report = posts.pop();
  assert.equal(report.error, undefined);
  assert.deepEqual(posts, report.rows);
  const phases = ['loading', 'tuning', 'decoding', 'prompts of 48'];
  const expected = [
    [null, 'idle'],
    ['frames', 'first load'],
    ...['throughput', 'frames'].flatMap((kind) => phases.map((phase) => [kind, phase])),
  ];
  assert.deepEqual(
    report.rows.map(({ smoothness, phase }) => [smoothness, phase]),
    expected,
  );
  for (const { phase, frames, median_ms, p99_ms, longest_ms, tokens_per_s } of report.rows) {
    if (phase === 'tuning') continue;
    assert.ok(frames > 0 && median_ms > 0 && median_ms <= p99_ms && p99_ms <= longest_ms, `${phase}: ${frames} frames`);
    assert.equal(tokens_per_s > 0, phase === 'decoding' || phase.startsWith('prompts'), phase);
  }
  await close();
});
