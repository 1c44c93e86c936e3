// The side-by-side page: runs the engines in turn and shows figures and ratios. Unattended:
// index.html?model=models/llama-3.2-1b&run=1&post=PATH posts each engine's report as JSON to PATH/log and all to PATH/done.
// Further parameters: task=generation|embedding · engines=rillm,wllama,transformers.js · new-tokens=128 · repetitions=3 · device=gpu|cpu · threads=1|all on the
// CPU · runtime=asyncify|plain, which of ONNX Runtime's files transformers.js takes

import { embedding } from './embedding.js';
import { generation } from './generation.js';
import { measureEngines } from './measure.js';
import { placeOf } from './place.js';
import { ratiosOf, tableOf, textOf } from './tables.js';

const byId = (id) => document.getElementById(id);
const parameters = new URLSearchParams(location.search);

const TASKS = { generation, embedding };

function named(all, name, what) {
  if (!Object.hasOwn(all, name)) throw new Error(`there is no ${what} ${name}: there are ${Object.keys(all).join(', ')}`);
  return all[name];
}

function countOf(given, name, { least, usual }) {
  const count = Number(given[name] ?? usual);
  if (!(Number.isInteger(count) && count >= least)) throw new Error(`${name} is a whole number from ${least} on, and not ${given[name]}`);
  return count;
}

async function run({ post = async () => {} } = {}) {
  byId('run').disabled = true;
  try {
    const given = Object.fromEntries(parameters);
    const place = placeOf(given, navigator.hardwareConcurrency);
    if (place.threads > 1 && !crossOriginIsolated) throw new Error('threads need a page that is served cross-origin isolated');
    const task = named(TASKS, given.task ?? 'generation', 'task');
    const names = given.engines?.split(',') ?? task.byDefault[place.device];
    for (const name of names) named(task.engines, name, 'engine');
    const model = given.model ?? byId('model').value;
    const versions = await (await fetch('versions.json')).json();
    const machine = { ...(await machineOf(place)), ...place, model };
    await post('log', machine);
    byId('machine').textContent = `${machine.processor}; ${navigator.userAgent}`;
    const { shader_f16: shaderF16, webGpu } = machine;
    const gguf = new URL(`${model}.gguf`, document.baseURI).href;
    const source = { ...place, gguf, folder: model, versions, shaderF16, webGpu, runtime: given.runtime };
    const reports = await measureEngines(task, names, source, {
      newTokens: countOf(given, 'new-tokens', { least: 2, usual: 128 }),
      repetitions: countOf(given, 'repetitions', { least: 1, usual: 3 }),
      inTurns: place.device === 'cpu',
      onProgress: (text) => (byId('status').textContent = `${text}…`),
      async onReport(found) {
        await post('log', found.at(-1));
        show(tableOf(found));
      },
    });
    byId('status').textContent = 'Done.';
    await post('done', { ...machine, engines: reports, ratios: ratiosOf(reports) });
  } catch (error) {
    byId('status').textContent = `It did not end: ${error.message}`;
    await post('done', { error: { message: error.message } });
  } finally {
    byId('run').disabled = false;
  }
}

/** What computes, in words and as the browser names it. */
async function machineOf({ device }) {
  const adapter = device === 'gpu' ? await navigator.gpu?.requestAdapter({ powerPreference: 'high-performance' }) : undefined;
  const { vendor, architecture, device: chip, description } = adapter?.info ?? {};
  const shader_f16 = adapter?.features.has('shader-f16') ?? false;
  const name = description || [vendor, architecture, chip].filter(Boolean).join(' ') || 'no WebGPU adapter';
  return {
    browser: navigator.userAgent,
    adapter: { vendor, architecture, device: chip, description },
    shader_f16,
    processor: device === 'cpu' ? `the CPU, of ${navigator.hardwareConcurrency} cores` : `${name}, shader-f16 ${shader_f16 ? 'on' : 'off'}`,
    webGpu: adapter?.info.isFallbackAdapter ? 'WebGPU in software' : 'WebGPU',
    cross_origin_isolated: crossOriginIsolated,
    date: new Date().toISOString(),
  };
}

let text = '';

function show(table) {
  text = textOf(table);
  const element = byId('table');
  element.replaceChildren();
  const line = (parent, cells, head) => {
    const row = parent.insertRow();
    cells.forEach((words, column) => {
      const cell = document.createElement(head || column === 0 ? 'th' : 'td');
      if (cell.tagName === 'TH') cell.scope = head ? 'col' : 'row';
      cell.textContent = words;
      row.append(cell);
    });
  };
  line(element.createTHead(), table.columns, true);
  const body = element.createTBody();
  for (const row of table.rows) line(body, row, false);
  byId('results').hidden = false;
}

byId('form').addEventListener('submit', (event) => {
  event.preventDefault();
  void run();
});
byId('copy').addEventListener('click', () => void navigator.clipboard.writeText(`${byId('machine').textContent}\n\n${text}\n`));
if (parameters.has('model')) byId('model').value = parameters.get('model');
if (parameters.get('run') === '1') {
  const path = parameters.get('post');
  const post = async (name, value) => void (await fetch(`${path}/${name}`, { method: 'POST', body: JSON.stringify(value) }));
  void run(path === null ? {} : { post });
}
