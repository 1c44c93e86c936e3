// The demo page: connects the form fields with the model, the chat and the figures. What each of them does is their own file's.

import { Chat } from './chat.js';
import { showExamples } from './examples.js';
import { showAnswerFigures, showModelFigures } from './figures.js';
import { hideNotice, noticeOfError, noticeOfMissingWebGpu } from './notices.js';
import { ModelPicker } from './model.js';

const byId = (id) => document.getElementById(id);

// The welcome leaves the document while a conversation is shown, so its parts are looked up once.
const examples = byId('examples');
const welcomeText = byId('welcome-text');

const chat = new Chat({
  log: byId('log'),
  welcome: byId('welcome'),
  settings: () => ({
    system: byId('system').value.trim(),
    temperature: byId('temperature').valueAsNumber,
    max_tokens: byId('max-tokens').valueAsNumber,
  }),
  onSpeed: (tokensPerSecond) => {
    byId('speed').textContent = tokensPerSecond.toFixed(1);
  },
  onAnswer: showAnswerFigures,
  onError: noticeOfError,
  onState: update,
});

const picker = new ModelPicker({
  onLoaded: (engine) => {
    chat.use(engine);
    showModelFigures(engine.info);
    if (matchMedia('(max-width: 52rem)').matches) byId('model-panel').open = false;
    // On a touch screen focus would open the keyboard over the page.
    if (matchMedia('(hover: hover)').matches) byId('prompt').focus({ preventScroll: true });
  },
  onUnload: () => chat.use(undefined),
  onError: noticeOfError,
  onState: update,
});

function update() {
  const ready = chat.ready && !picker.loading;
  byId('prompt').disabled = !ready;
  byId('send').disabled = !ready || chat.busy;
  byId('send').hidden = chat.busy;
  byId('stop').hidden = !chat.busy;
  byId('new-chat').disabled = !ready || chat.empty;
  for (const button of examples.querySelectorAll('button')) button.disabled = !ready || chat.busy;
  welcomeText.textContent = ready ? 'Or begin with one of these.' : picker.loading ? 'The model is loading.' : 'Load a model to begin.';
}

function ask(text, options) {
  hideNotice();
  return chat.ask(text, options);
}

byId('composer').addEventListener('submit', (event) => {
  event.preventDefault();
  const text = byId('prompt').value.trim();
  if (text === '' || !chat.ready || chat.busy) return;
  byId('prompt').value = '';
  void ask(text);
});

byId('prompt').addEventListener('keydown', (event) => {
  // While an input method composes a character, Enter belongs to it.
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  byId('composer').requestSubmit();
});

byId('stop').addEventListener('click', () => {
  chat.stop();
  byId('prompt').focus();
});

byId('new-chat').addEventListener('click', () => {
  hideNotice();
  chat.clear();
  byId('prompt').focus();
});

// Phones have little room: the figures are one tap away there.
if (matchMedia('(max-width: 52rem)').matches) byId('figures-panel').open = false;

update();
void showExamples(examples, ask).then(update);
if (navigator.gpu === undefined) noticeOfMissingWebGpu();
else void picker.loadDemo();
