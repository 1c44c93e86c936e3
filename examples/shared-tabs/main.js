// A tab of several that share an engine.

import { Engine } from 'rillm';

const MODEL = new URLSearchParams(location.search).get('model') ?? 'hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M';

const ROLES = {
  leader: 'This tab runs the model.',
  follower: 'Another tab runs the model.',
  unshared: 'Tabs can’t find each other here: this one has a model of its own.',
};
const element = (id) => document.getElementById(id);
const say = (text) => (element('status').textContent = text);
let abort;

function complain(error) {
  element('alert').textContent = error.message;
  element('alert').hidden = error.code === 'aborted';
}

async function ask(engine, content, { signal }) {
  const answer = document.createElement('li');
  element('log').append(answer);
  const stream = await engine.chat.completions.create({ messages: [{ role: 'user', content }], temperature: 0, stream: true }, { signal });
  for await (const { choices } of stream) answer.append(choices[0].delta.content ?? '');
}

try {
  const engine = await Engine.shared(MODEL, {
    onEvent: ({ type }) => {
      if (type in ROLES) element('role').textContent = ROLES[type];
    },
    onProgress: ({ loaded, total }) => {
      say(loaded < total ? `Loading the model: ${(loaded / 1e6).toFixed()} of ${(total / 1e6).toFixed()} MB` : '');
    },
  });
  element('send').disabled = false;
  element('form').addEventListener('submit', async (event) => {
    event.preventDefault();
    element('alert').hidden = true;
    element('send').disabled = true;
    element('stop').hidden = false;
    abort = new AbortController();
    await ask(engine, element('question').value, abort).catch(complain);
    element('send').disabled = false;
    element('stop').hidden = true;
  });
  element('stop').addEventListener('click', () => abort.abort());
} catch (error) {
  complain(error);
}
