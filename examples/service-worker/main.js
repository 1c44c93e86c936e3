// The page: knows OpenAI's API and nothing of models.

const element = (id) => document.getElementById(id);
const say = (text) => (element('status').textContent = text);
let abort;

function complain(error) {
  say('');
  element('alert').textContent = error.message;
  element('alert').hidden = error.name === 'AbortError';
}

/** The pieces of an answer as they come. A client of OpenAI's API does the same. */
async function* answerTo(content, signal) {
  const body = JSON.stringify({ messages: [{ role: 'user', content }], temperature: 0, stream: true });
  const response = await fetch('/v1/chat/completions', { method: 'POST', body, signal });
  if (!response.ok) throw new Error((await response.json()).error.message);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const events = (rest + part.value).split('\n\n');
    rest = events.pop();
    for (const event of events) {
      const data = event.replace(/^data: /, '');
      if (data === '[DONE]') return;
      const { choices, error } = JSON.parse(data);
      if (error) throw new Error(error.message);
      yield choices[0].delta.content ?? '';
    }
  }
}

element('form').addEventListener('submit', async (event) => {
  event.preventDefault();
  const answer = document.createElement('li');
  element('log').append(answer);
  element('alert').hidden = true;
  element('send').disabled = true;
  element('stop').hidden = false;
  say('The first answer waits for the model.');
  abort = new AbortController();
  try {
    for await (const text of answerTo(element('question').value, abort.signal)) {
      say('');
      answer.append(text);
    }
  } catch (error) {
    complain(error);
  } finally {
    say('');
    if (answer.textContent === '') answer.remove();
    element('send').disabled = false;
    element('stop').hidden = true;
  }
});
element('stop').addEventListener('click', () => abort.abort());

try {
  const controlled = new Promise((resolve) => navigator.serviceWorker.addEventListener('controllerchange', resolve, { once: true }));
  const { active } = await navigator.serviceWorker.register(`service_worker.js${location.search}`, { type: 'module' });
  // It takes over this page the first time by itself, and after a reload that left it out (with Shift) when it is asked.
  if (!navigator.serviceWorker.controller) {
    active?.postMessage('take over');
    await controlled;
  }
  element('send').disabled = false;
  say('');
} catch (error) {
  complain(error);
}
