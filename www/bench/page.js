// The benchmark page: fields, progress and buttons around suite.js. Also runs unattended, for machines without node:
// bench.html?model=URL&run=1&post=PATH posts every result as JSON to PATH/log and the report, or the error, to PATH/done.
// Further parameters: prompt-tokens, new-tokens, repetitions, context-length.

import { Engine } from 'rillm';

import { hideNotice, noticeOfError, noticeOfMissingWebGpu } from '../notices.js';
import { SourceChoice } from '../source.js';
import { tablesOf, textOf } from './report.js';
import { runSuite } from './suite.js';
import { headlineOf, plotsOf, tableElementsOf } from './view.js';

const byId = (id) => document.getElementById(id);
const parameters = new URLSearchParams(location.search);
const choice = new SourceChoice(() => {});
let abort;
let report;

function settings() {
  const parameter = (name) => (parameters.has(name) ? Number(parameters.get(name)) : NaN);
  const given = {
    promptTokens: parameter('prompt-tokens'),
    contextLength: parameter('context-length'),
    newTokens: byId('new-tokens').valueAsNumber,
    repetitions: byId('repetitions').valueAsNumber,
  };
  // What is left empty is up to the suite.
  return Object.fromEntries(Object.entries(given).filter(([, value]) => !Number.isNaN(value)));
}

async function run(source, { post = async () => {} } = {}) {
  abort = new AbortController();
  const { signal } = abort;
  hideNotice();
  show({ running: true });
  try {
    report = await runSuite(Engine, source, {
      settings: settings(),
      signal,
      onProgress: ({ done, total, text }) => {
        byId('progress').value = done / total;
        byId('status').textContent = `${text}…`;
      },
      onResult: (result) => void post('log', result),
    });
    showReport();
    byId('status').textContent = 'Done.';
    await post('done', report);
  } catch (error) {
    byId('status').textContent = signal.aborted ? 'Cancelled.' : 'It did not end.';
    if (!signal.aborted) noticeOfError(error);
    await post('done', { error: { code: error.code ?? 'internal', message: error.message } });
  } finally {
    show({ running: false });
  }
}

function show({ running }) {
  byId('run').hidden = running;
  byId('cancel').hidden = !running;
  byId('running').hidden = !running;
  for (const field of byId('bench-form').querySelectorAll('select, input')) field.disabled = running;
  byId('copies').hidden = running || report === undefined;
}

function showReport() {
  byId('empty').hidden = true;
  for (const [id, parts] of [
    ['headline', headlineOf(report)],
    ['plots', plotsOf(report)],
    ['tables', tableElementsOf(report)],
  ]) {
    byId(id).replaceChildren(...parts);
    byId(id).hidden = false;
  }
}

async function copy(text, button) {
  const words = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = 'Copied';
  } catch (error) {
    noticeOfError(error);
    return;
  }
  setTimeout(() => {
    button.textContent = words;
  }, 1500);
}

byId('bench-form').addEventListener('submit', (event) => {
  event.preventDefault();
  const source = choice.get();
  if (source !== undefined) void run(source);
});
byId('cancel').addEventListener('click', () => abort?.abort());
byId('copy-text').addEventListener('click', ({ currentTarget }) => void copy(`${textOf(tablesOf(report))}\n`, currentTarget));
byId('copy-json').addEventListener('click', ({ currentTarget }) => void copy(JSON.stringify(report, null, 2), currentTarget));

for (const name of ['new-tokens', 'repetitions']) if (parameters.has(name)) byId(name).value = parameters.get(name);
if (parameters.has('model')) choice.setUrl(parameters.get('model'));

if (navigator.gpu === undefined) noticeOfMissingWebGpu();
if (parameters.get('run') === '1') {
  const path = parameters.get('post');
  // One after the other, so that they arrive in order.
  let posting = Promise.resolve();
  const post = (name, value) => (posting = posting.then(() => fetch(`${path}/${name}`, { method: 'POST', body: JSON.stringify(value) })));
  void run(choice.get(), path === null ? {} : { post });
}
