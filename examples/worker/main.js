// The page: hands texts to worker.js and shows what comes back.

const MODEL = new URLSearchParams(location.search).get('model') ?? 'hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M';

const element = (id) => document.getElementById(id);
const say = (text) => (element('status').textContent = text);
const worker = new Worker(`worker.js?${new URLSearchParams({ model: MODEL })}`, { type: 'module' });
let items;

function setBusy(isBusy) {
  element('start').disabled = isBusy;
  element('stop').hidden = !isBusy;
}

function complain(message) {
  element('alert').textContent = message;
  element('alert').hidden = false;
}

worker.addEventListener('message', ({ data: { loaded, total, index, text, error, done } }) => {
  if (total !== undefined) say(`Loading the model: ${(loaded / 1e6).toFixed()} of ${(total / 1e6).toFixed()} MB`);
  if (index !== undefined) {
    say(`${index + 1} of ${items.length}`);
    items[index].append(text);
  }
  if (error !== undefined) complain(error);
  if (done) {
    say('');
    setBusy(false);
  }
});
worker.addEventListener('error', ({ message }) => {
  complain(`The worker did not start: ${message}`);
  setBusy(false);
});

element('start').addEventListener('click', () => {
  const texts = element('lines')
    .value.split('\n')
    .filter((line) => line.trim() !== '');
  items = texts.map(() => document.createElement('li'));
  element('results').replaceChildren(...items);
  element('alert').hidden = true;
  setBusy(true);
  worker.postMessage({ texts });
});
element('stop').addEventListener('click', () => worker.postMessage({ stop: true }));
