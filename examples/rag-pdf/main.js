// The page: a PDF comes in, questions are answered from its passages.

import { Engine } from 'rillm';

import { passagesOf } from './pdf.js';
import { embedAll, nearest } from './retrieval.js';

const query = new URLSearchParams(location.search);
const ENCODER = query.get('encoder') ?? 'hf:sentence-transformers/all-MiniLM-L6-v2';
const MODEL = query.get('model') ?? 'hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M';
/** Passages that the model is shown. */
const SHOWN = 3;

const element = (id) => document.getElementById(id);
const say = (text) => (element('status').textContent = text);
const engines = new Map();
let passages;
let abort;

async function engineOf(source, what, signal) {
  if (!engines.has(source)) {
    const onProgress = ({ loaded, total }) => say(`Loading ${what}: ${(loaded / 1e6).toFixed()} of ${(total / 1e6).toFixed()} MB`);
    engines.set(source, await Engine.load(source, { signal, onProgress }));
  }
  return engines.get(source);
}

async function take(file, signal) {
  const found = await passagesOf(file, (page, of) => say(`Page ${page} of ${of}`), signal);
  const encoder = await engineOf(ENCODER, 'the encoder', signal);
  await embedAll(encoder, found, (done, of) => say(`Passage ${done} of ${of}`), signal);
  signal.throwIfAborted();
  passages = found;
  return `${file.name}: ${found.at(-1).page} pages, ${found.length} passages`;
}

async function answer(question, signal) {
  const sources = await nearest(await engineOf(ENCODER, 'the encoder', signal), passages, question, SHOWN, signal);
  const engine = await engineOf(MODEL, 'the model', signal);
  say('');
  const found = sources.map(({ page, text }) => `[page ${page}] ${text}`).join('\n\n');
  const messages = [
    { role: 'system', content: 'Answer from the passages alone, in a few sentences. If they don’t tell, say so.' },
    { role: 'user', content: `${found}\n\n${question}` },
  ];
  element('answer').textContent = '';
  element('sources').replaceChildren(...sources.map(({ page, text }) => source(page, text)));
  const stream = await engine.chat.completions.create({ messages, temperature: 0, max_tokens: 300, stream: true }, { signal });
  for await (const { choices } of stream) element('answer').append(choices[0].delta.content ?? '');
}

function source(page, text) {
  const item = document.createElement('li');
  item.append(Object.assign(document.createElement('small'), { textContent: `Page ${page}  ` }), text);
  return item;
}

/** One thing at a time, which can be stopped. What it resolves to is said at its end. */
async function run(work) {
  abort?.abort();
  const own = new AbortController();
  abort = own;
  element('alert').hidden = true;
  element('ask').disabled = true;
  element('stop').hidden = false;
  let ending = '';
  try {
    ending = (await work(own.signal)) ?? '';
  } catch (error) {
    if (own !== abort) return;
    element('alert').textContent = error.message;
    element('alert').hidden = own.signal.aborted;
  }
  if (own !== abort) return;
  say(ending);
  element('ask').disabled = passages === undefined;
  element('stop').hidden = true;
}

element('file').addEventListener('change', ({ target }) => target.files[0] && run((signal) => take(target.files[0], signal)));
element('form').addEventListener('submit', (event) => {
  event.preventDefault();
  run((signal) => answer(element('question').value, signal));
});
element('stop').addEventListener('click', () => abort.abort());
addEventListener('dragover', (event) => event.preventDefault());
addEventListener('drop', (event) => {
  event.preventDefault();
  const [file] = event.dataTransfer.files;
  if (file) run((signal) => take(file, signal));
});
