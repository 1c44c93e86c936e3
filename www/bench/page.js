// The benchmark page: fields, progress and buttons around suite.js. Also runs unattended, for machines without node:
// bench.html?model=URL&run=1&post=PATH posts every result as JSON to PATH/log and the report, or the error, to PATH/done.
// Further parameters: prompt-tokens, new-tokens, repetitions, context-length.

import { Engine } from 'rillm';

import { hideNotice, noticeOfCpu, noticeOfError } from '../notices.js';
import { SourceChoice } from '../source.js';
import { imageOf, summaryOf } from './image.js';
import { has, tablesOf, textOf } from './report.js';
import { runSuite } from './suite.js';
import { headlineOf, plotsOf, tableElementsOf } from './view.js';

const byId = (id) => document.getElementById(id);
const parameters = new URLSearchParams(location.search);
const choice = new SourceChoice(() => {});
const IMAGE_NAME = 'rillm-benchmark.png';
let abort;
/** What is shown, and what is copied: the figures of the last run as far as it came. */
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
  report = undefined;
  show({ running: true });
  try {
    report = await runSuite(Engine, source, {
      settings: settings(),
      signal,
      onProgress: ({ done, total, text, report: soFar }) => {
        byId('progress').value = done / total;
        byId('status').textContent = `${text}…`;
        report = soFar;
        showReport(report);
      },
      onResult: (result) => void post('log', result),
    });
    showReport(report);
    byId('status').textContent = 'Done.';
    await post('done', report);
  } catch (error) {
    byId('status').textContent = signal.aborted ? 'Cancelled.' : 'It did not end.';
    if (report !== undefined) {
      report.ended = signal.aborted ? 'it was cancelled' : error.message;
      showReport(report);
    }
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
  byId('copies').hidden = running || report === undefined || !has(report, 'model');
}

/** What is known by now. Figures that were there stay where they are. */
function showReport(known) {
  for (const [id, parts] of [
    ['headline', headlineOf(known)],
    ['plots', plotsOf(known)],
    ['tables', tableElementsOf(known)],
  ]) {
    byId(id).replaceChildren(...parts);
    byId(id).hidden = parts.length === 0;
  }
  byId('empty').hidden = ['headline', 'plots', 'tables'].some((id) => !byId(id).hidden);
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
byId('save-image').addEventListener('click', async () => {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(await imageOf(report));
  link.download = IMAGE_NAME;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
});
byId('share').addEventListener('click', async () => {
  const files = [new File([await imageOf(report)], IMAGE_NAME, { type: 'image/png' })];
  // Whoever closes the sheet of the system has shared nothing, which is no error.
  await navigator
    .share({ title: 'rillm benchmark', text: summaryOf(report), files })
    .catch((error) => error.name !== 'AbortError' && noticeOfError(error));
});
byId('share').hidden = !navigator.canShare?.({ files: [new File([], IMAGE_NAME, { type: 'image/png' })] });
byId('copy-json').addEventListener('click', ({ currentTarget }) => void copy(JSON.stringify(report, null, 2), currentTarget));

for (const name of ['new-tokens', 'repetitions']) if (parameters.has(name)) byId(name).value = parameters.get(name);
if (parameters.has('model')) choice.setUrl(parameters.get('model'));

if (navigator.gpu === undefined) noticeOfCpu();
if (parameters.get('run') === '1') {
  const path = parameters.get('post');
  // One after the other, so that they arrive in order.
  let posting = Promise.resolve();
  const post = (name, value) => (posting = posting.then(() => fetch(`${path}/${name}`, { method: 'POST', body: JSON.stringify(value) })));
  void run(choice.get(), path === null ? {} : { post });
}
