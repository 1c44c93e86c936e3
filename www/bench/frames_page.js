// Measures the frames of this page while a model works, unattended: frames.html?model=URL&post=PATH posts each row as JSON to PATH/log and
// the report, or the error, to PATH/done. Further parameters: prompt-tokens, new-tokens, seconds, repetitions, context-length, smoothness
// (`frames`, `throughput` or both with a comma). Without a model, the demo model.

import { Engine } from 'rillm';

import { framesTable, measureFrames } from './frames.js';
import { textOf } from './report.js';

const parameters = new URLSearchParams(location.search);
const out = document.getElementById('figures');
const path = parameters.get('post');
let posting = Promise.resolve();

/** One after the other, so that they arrive in order. */
function post(name, value) {
  if (path === null) return;
  posting = posting.then(() => fetch(`${path}/${name}`, { method: 'POST', body: JSON.stringify(value) }));
}

function settings() {
  const names = { 'prompt-tokens': 'promptTokens', 'new-tokens': 'newTokens', 'context-length': 'contextLength' };
  const given = {};
  for (const name of ['prompt-tokens', 'new-tokens', 'context-length', 'seconds', 'repetitions']) {
    if (parameters.has(name)) given[names[name] ?? name] = Number(parameters.get(name));
  }
  if (parameters.has('smoothness')) given.smoothness = parameters.get('smoothness').split(',');
  return given;
}

try {
  const rows = [];
  const onRow = (row) => {
    rows.push(row);
    out.textContent = textOf([framesTable({ rows })]);
    post('log', row);
  };
  const model = parameters.get('model') ?? 'models/demo/rillm-demo-q8_0.gguf';
  const report = await measureFrames(Engine, new URL(model, location.href).href, { ...settings(), onRow });
  post('done', report);
} catch (error) {
  out.textContent = `It did not end: ${error.message}`;
  post('done', { error: { code: error.code ?? 'internal', message: error.message } });
}
