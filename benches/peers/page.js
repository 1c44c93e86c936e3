// The side-by-side page: runs the engines in turn and shows figures and ratios. Unattended:
// index.html?model=models/llama-3.2-1b&run=1&post=PATH posts each engine's report as JSON to PATH/log and all to PATH/done.
// Further parameters: engines=rillm,wllama,transformers.js · new-tokens=128 · repetitions=3

import { ENGINES } from './engines.js';
import { measureEngine } from './measure.js';
import { ratiosOf, tableOf, textOf } from './tables.js';

const byId = (id) => document.getElementById(id);
const parameters = new URLSearchParams(location.search);

async function run({ post = async () => {} } = {}) {
  byId('run').disabled = true;
  try {
    const model = parameters.get('model') ?? byId('model').value;
    const versions = await (await fetch('versions.json')).json();
    const adapter = await navigator.gpu?.requestAdapter({ powerPreference: 'high-performance' });
    const shaderF16 = adapter?.features.has('shader-f16') ?? false;
    const { vendor, architecture, device, description } = adapter?.info ?? {};
    const machine = {
      browser: navigator.userAgent,
      adapter: { vendor, architecture, device, description },
      shader_f16: shaderF16,
      cross_origin_isolated: crossOriginIsolated,
      model,
      date: new Date().toISOString(),
    };
    await post('log', machine);
    byId('machine').textContent =
      `${description || [vendor, architecture, device].filter(Boolean).join(' ') || 'no WebGPU adapter'}, shader-f16 ${shaderF16 ? 'on' : 'off'}; ${navigator.userAgent}`;
    const webGpu = adapter?.info.isFallbackAdapter ? 'WebGPU in software' : 'WebGPU';
    const source = { gguf: new URL(`${model}.gguf`, document.baseURI).href, folder: model, versions, shaderF16, webGpu };
    const options = {
      newTokens: Number(parameters.get('new-tokens') ?? 128),
      repetitions: Number(parameters.get('repetitions') ?? 3),
      onProgress: (text) => (byId('status').textContent = `${text}…`),
    };
    const reports = [];
    for (const name of (parameters.get('engines') ?? Object.keys(ENGINES).join()).split(',')) {
      if (!(name in ENGINES)) throw new Error(`there is no engine ${name}: there are ${Object.keys(ENGINES).join(', ')}`);
      reports.push(await measureEngine(name, source, options));
      await post('log', reports.at(-1));
      show(tableOf(reports));
    }
    byId('status').textContent = 'Done.';
    await post('done', { ...machine, engines: reports, ratios: ratiosOf(reports) });
  } catch (error) {
    byId('status').textContent = `It did not end: ${error.message}`;
    await post('done', { error: { message: error.message } });
  } finally {
    byId('run').disabled = false;
  }
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
