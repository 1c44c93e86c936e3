// The side panel: explains what was selected last. `npm run build` puts the package into the folder rillm, since extensions load no code from elsewhere.

import { Engine } from './rillm/index.js';

const MODEL = new URLSearchParams(location.search).get('model') ?? 'hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M';

const element = (id) => document.getElementById(id);
const say = (text) => (element('status').textContent = text);
let engine;
let abort;

async function explain(text, { signal }) {
  engine ??= Engine.load(MODEL, {
    onProgress: ({ loaded, total }) =>
      say(loaded < total ? `Loading the model: ${(loaded / 1e6).toFixed()} of ${(total / 1e6).toFixed()} MB` : ''),
  }).catch((error) => {
    engine = undefined;
    throw error;
  });
  const { chat } = await engine;
  const messages = [{ role: 'user', content: `Explain in simple words: ${text}` }];
  const stream = await chat.completions.create({ messages, temperature: 0, max_tokens: 400, stream: true }, { signal });
  for await (const { choices } of stream) if (!signal.aborted) element('answer').append(choices[0].delta.content ?? '');
}

/** Another selection ends the answer to the one before. */
async function take({ text }) {
  abort?.abort();
  const own = new AbortController();
  abort = own;
  element('selection').textContent = text;
  element('answer').textContent = '';
  element('alert').hidden = true;
  element('stop').hidden = false;
  await explain(text, own).catch((error) => {
    if (own.signal.aborted) return;
    element('alert').textContent = error.message;
    element('alert').hidden = false;
  });
  if (own === abort) element('stop').hidden = true;
}

element('stop').addEventListener('click', () => abort.abort());
chrome.storage.session.onChanged.addListener(({ selection }) => selection?.newValue && take(selection.newValue));
const { selection } = await chrome.storage.session.get('selection');
if (selection) take(selection);
