// The side-by-side page: runs each row by all engines in turn and shows the figures. Unattended:
// index.html?run=1&post=PATH posts each figure as JSON to PATH/log and all to PATH/done; without anything after post= to /log and /done.
// Further parameters: engines=rillm,jax and rows=matmul,mlp (beginnings of names) · sizes=full|small · repetitions=5 · target-ms=250

import { ENGINES, openEngine } from './engines/index.js';
import { measureRow } from './measure.js';
import { expectedOf } from './reference.js';
import { dataOf, rowsOf, SIZES } from './rows.js';
import { checksOf, ratiosOf, reportText, timesOf } from './tables.js';

const byId = (id) => document.getElementById(id);
const parameters = new URLSearchParams(location.search);

/** Those of `names` that begin with one of the words of a parameter; all without one. */
function chosen(parameter, names) {
  const beginnings = parameters.get(parameter)?.split(',') ?? [''];
  const unknown = beginnings.find((beginning) => !names.some((name) => name.startsWith(beginning)));
  if (unknown !== undefined) throw new Error(`there is no ${unknown} among ${parameter}: there are ${names.join(', ')}`);
  return names.filter((name) => beginnings.some((beginning) => name.startsWith(beginning)));
}

/** What a page may tell one GPU from another by. */
const identityOf = ({ vendor, architecture, device, description }) => ({ vendor, architecture, device, description });

/** Opens an engine and holds it to the adapter that all run on. → {report, engine}; without `engine` if it did not start. */
async function start(name, adapterInfo, versions) {
  const report = { name, version: versions[name], gpu_errors: [] };
  try {
    const engine = await openEngine(name);
    const { device, facts, notes } = engine;
    device.addEventListener('uncapturederror', ({ error }) => report.gpu_errors.push(error.message.split('\n')[0]));
    const [found, wanted] = [device.adapterInfo, adapterInfo].map((info) => JSON.stringify(identityOf(info)));
    if (found !== wanted) throw new Error(`it runs on another adapter: ${found}`);
    return { report: { ...report, facts, notes }, engine };
  } catch (error) {
    return { report: { ...report, error: error?.message ?? String(error) } };
  }
}

async function run({ post = async () => {} } = {}) {
  byId('run').disabled = true;
  const status = (text) => (byId('status').textContent = text);
  const started = [];
  try {
    const names = chosen('engines', ENGINES);
    const versions = await (await fetch('versions.json')).json();
    const adapter = await navigator.gpu?.requestAdapter({ powerPreference: 'high-performance' });
    if (!adapter) throw new Error('this browser gives no WebGPU adapter');
    const isSoftware = adapter.info.isFallbackAdapter ?? false;
    const sizes = parameters.get('sizes') ?? (byId('sizes').value || (isSoftware ? 'small' : 'full'));
    if (!SIZES.includes(sizes)) throw new Error(`there are no sizes ${sizes}: there are ${SIZES.join(', ')}`);
    const all = rowsOf(sizes);
    const ids = chosen(
      'rows',
      all.map(({ id }) => id),
    );
    const machine = {
      browser: navigator.userAgent,
      adapter: identityOf(adapter.info),
      is_software: isSoftware,
      cross_origin_isolated: crossOriginIsolated,
      sizes,
      date: new Date().toISOString(),
    };
    await post('log', machine);
    const { vendor, architecture, description } = machine.adapter;
    byId('machine').textContent = `${description || `${vendor} ${architecture}`}; sizes ${sizes}; ${navigator.userAgent}`;
    for (const name of names) {
      status(`${name}: starting…`);
      started.push(await start(name, adapter.info, versions));
    }
    const report = { ...machine, engines: started.map(({ report: engine }) => engine), rows: [] };
    await post('log', { engines: report.engines });
    const settings = {
      repetitions: Number(parameters.get('repetitions') ?? 5),
      targetMs: Number(parameters.get('target-ms') ?? (isSoftware ? 100 : 250)),
    };
    for (const row of all.filter(({ id }) => ids.includes(id))) {
      const { id, name, unit, flops, bytes } = row;
      const shown = { id, name, unit, flops, bytes, results: {} };
      report.rows.push(shown);
      status(`${name}: numbers…`);
      const data = dataOf(row);
      const given = { data, expected: expectedOf(row, data) };
      for (const {
        report: { name: engineName },
        engine,
      } of started) {
        if (engine === undefined) continue;
        const onProgress = (text) => status(`${name}, ${engineName}: ${text}…`);
        shown.results[engineName] = await measureRow(engine, row, given, { ...settings, onProgress });
        await post('log', { row: id, engine: engineName, ...shown.results[engineName] });
        show(report);
      }
    }
    status('Done.');
    await post('done', { ...report, ratios: ratiosOf(report.rows) });
  } catch (error) {
    status(`It did not end: ${error.message}`);
    await post('done', { error: { message: error.message } });
  } finally {
    for (const { engine } of started) engine?.close();
    byId('run').disabled = false;
  }
}

let text = '';

function show(report) {
  text = reportText(report);
  fill(byId('times'), timesOf(report));
  fill(byId('checks'), checksOf(report));
  byId('results').hidden = false;
}

function fill(element, { columns, rows }) {
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
  line(element.createTHead(), columns, true);
  const body = element.createTBody();
  for (const row of rows) line(body, row, false);
}

byId('form').addEventListener('submit', (event) => {
  event.preventDefault();
  void run();
});
byId('copy').addEventListener('click', () => void navigator.clipboard.writeText(`${byId('machine').textContent}\n\n${text}\n`));
if (parameters.get('run') === '1') {
  const path = parameters.get('post');
  const post = async (name, value) => void (await fetch(`${path}/${name}`, { method: 'POST', body: JSON.stringify(value) }));
  void run(path === null ? {} : { post });
}
