// The page: draws the state into its parts once a frame, and does what needs the document: focus, keys, files that are dropped, the clipboard.

import { html, render } from 'lit-html';

import { openApp } from './app.js';
import { readExamples } from './examples.js';
import { tabSet } from './preferences.js';
import { composerTemplate } from './view/composer.js';
import { figuresTemplate } from './view/figures.js';
import { ICONS } from './view/icons.js';
import { isComposing } from './view/keys.js';
import { logTemplate } from './view/log.js';
import { modelDialogTemplate, modelTemplate } from './view/models.js';
import { noticeTemplate } from './view/notice.js';
import { formatTemplate, settingsTemplate, systemTemplate, toolsTemplate } from './view/settings.js';
import { sidebarTemplate } from './view/sidebar.js';
import { acceptDrops } from './view/drop.js';

/** How the panel looks in which the model is taught; fetched when it is first opened. */
let teachTemplate;

const byId = (id) => document.getElementById(id);
const NARROW = matchMedia('(max-width: 56rem)');
const MEDIUM = matchMedia('(max-width: 76rem)');
/** A reader this near to the end is carried along. */
const NEAR_END = 60;
/** How long a button says that it has copied. */
const TOLD_MS = 1500;
/** Sentences that the part for screen readers keeps. */
const MOST_SPOKEN = 20;
/** Drawing takes at most this part of the time, so that a very long answer leaves room for clicks. */
const DRAWING_SHARE = 0.3;
/** And the page is never older than this, which a machine that is busy with other things would make it. */
const LONGEST_WAIT_MS = 300;
/** Nothing moves under a button that is pressed, for this long at most. */
const LONGEST_PRESS_MS = 700;
/** A click comes at most this long after the finger or the mouse is up. */
const CLICK_MS = 100;
/** More of a long conversation is drawn when the reader is this near to the first message that is drawn. */
const NEAR_BEGINNING = 400;

let app;
let isDue = false;
let notBefore = 0;
let isFollowing = true;
let keepsPlace = false;
let focusNext;
/** Whether something is pressed, and whether the page waits for that before it is drawn. */
let isPressed = false;
let isHeld = false;
let pressTimer;

function changed() {
  if (isDue || app === undefined) return;
  isDue = true;
  byId('log').ariaBusy = 'true';
  const wait = notBefore - performance.now();
  if (wait > 0) setTimeout(() => requestAnimationFrame(draw), wait);
  else requestAnimationFrame(draw);
}

function draw() {
  if (isPressed) {
    isHeld = true;
    return;
  }
  isDue = false;
  const begin = performance.now();
  const log = byId('log');
  const below = log.scrollHeight - log.scrollTop;
  render(logTemplate(app), log);
  // A welcome is read from its beginning.
  if (keepsPlace) log.scrollTop = log.scrollHeight - below;
  else if (isFollowing && app.chat.shown.messages.size > 0) log.scrollTop = log.scrollHeight;
  keepsPlace = false;
  log.ariaBusy = String(app.chat.run !== undefined);
  render(composerTemplate(app), byId('composer'));
  render(sidebarTemplate(app), byId('side'));
  render(panelTemplate(), byId('panel'));
  const notice = byId('notice');
  notice.hidden = app.notice === undefined;
  // What is merely good to know interrupts nobody.
  const isCalm = app.notice?.more !== undefined;
  notice.role = isCalm ? 'status' : 'alert';
  notice.classList.toggle('calm', isCalm);
  render(noticeTemplate(app), notice);
  if (byId('models').open) render(modelDialogTemplate(app), byId('models'));
  byId('model-line').textContent = modelLine();
  document.title = app.chat.shown.messages.size > 0 ? `${app.chat.shown.meta.title} – rillm` : 'rillm – language models in this page';
  tabSet('shown', app.chat.shown.meta.id);
  if (focusNext !== undefined) moveFocus(focusNext);
  focusNext = undefined;
  const took = performance.now() - begin;
  notBefore = performance.now() + Math.min(LONGEST_WAIT_MS, took / DRAWING_SHARE - took);
}

function panelTemplate() {
  const section = (id, title, content, isOpen, opened) => html`<details class="panel" id=${id} ?open=${isOpen} @toggle=${opened}>
    <summary>${title}</summary>
    <div class="panel-body">${content}</div>
  </details>`;
  const isEmpty = app.chat.shown.messages.size === 0;
  return html`<button type="button" class="quiet medium-only close-side" popovertarget="panel" popovertargetaction="hide" aria-label="Close">${ICONS.close}</button>
    ${section('model-panel', 'Model', modelTemplate(app), true)} ${section('figures-panel', 'Figures', figuresTemplate(app), true)}
    ${section('system-panel', 'System prompt', systemTemplate(app), false)} ${section('settings-panel', 'Sampling', settingsTemplate(app), false)}
    ${section('teach-panel', 'Teach it', app.teach === undefined ? html`<p class="small">${app.teachFault ?? 'One moment…'}</p>` : teachTemplate(app), false, openTeach)}
    ${section('tools-panel', 'Tools', toolsTemplate(app), false)} ${section('format-panel', 'Form of the answer', formatTemplate(app), false)}
    ${section(
      'export-panel',
      'This conversation',
      html`<div class="row">
        <button type="button" id="export-markdown" ?disabled=${isEmpty} @click=${() => app.actions.exportShown('markdown')}>As Markdown</button>
        <button type="button" id="export-json" ?disabled=${isEmpty} @click=${() => app.actions.exportShown('json')}>As JSON</button>
      </div>`,
      false,
    )}`;
}

async function openTeach({ currentTarget }) {
  if (!currentTarget.open || app.teach !== undefined) return;
  try {
    const [{ Teach }, view] = await Promise.all([import('./teach/teach.js'), import('./teach/view.js')]);
    ({ teachTemplate } = view);
    app.actions.openTeach(Teach);
  } catch {
    app.teachFault = 'This part of the page could not be fetched. Close it, and open it again.';
    changed();
  }
}

function modelLine() {
  const { current, loading } = app.loader;
  if (loading !== undefined) {
    const { progress, phase, name } = loading;
    const part = progress?.total > 0 ? ` ${Math.floor((progress.loaded / progress.total) * 100)} %` : '';
    return `${phase === 'paused' ? 'Paused:' : 'Loading'} ${name}${part}`;
  }
  return current === undefined ? 'No model' : current.name;
}

/** Where a person goes on, by the name of a place or the id of an element; "rename ID" and "delete ID" are the buttons of an entry of a list. */
function placeOf(name) {
  const [, kind, id] = name.match(/^(rename|delete) (.*)$/) ?? [];
  if (kind !== undefined)
    return [...document.querySelectorAll(`[data-${kind}]`)].find(({ dataset }) => dataset[kind] === id) ?? byId('search');
  if (name === 'editor') return document.querySelector('.editor textarea');
  if (name === 'rename') return document.querySelector('.rename input');
  if (name === 'confirm') return document.querySelector('[data-confirm]');
  return byId(name);
}

/** Puts the focus where a person goes on; what they clicked may be gone by now. */
function moveFocus(name) {
  const isLost = document.activeElement === document.body || document.activeElement === null;
  // A button that is still there keeps the focus.
  const instead = { 'if-lost': 'prompt', 'log-if-lost': 'log' }[name];
  if (instead !== undefined && !isLost) return;
  const target = placeOf(instead ?? name);
  if (target === null) return;
  // On a touch screen the focus would open the keyboard over the page.
  if (target.id === 'prompt' && !matchMedia('(hover: hover)').matches && !isLost) return;
  target.focus({ preventScroll: target.id === 'prompt' });
  if (name === 'editor' || name === 'rename') target.select();
}

function say(text) {
  if (text === '') return;
  const line = document.createElement('p');
  line.textContent = text;
  byId('spoken').append(line);
  while (byId('spoken').childElementCount > MOST_SPOKEN) byId('spoken').firstElementChild.remove();
}

async function copy(text, button) {
  const label = button.getAttribute('aria-label');
  let words = 'Copied';
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    words = 'Not allowed';
  }
  // The text of the button belongs to its template; what is shown in its place is CSS.
  button.dataset.told = words;
  button.setAttribute('aria-label', words);
  setTimeout(() => {
    delete button.dataset.told;
    button.setAttribute('aria-label', label);
  }, TOLD_MS);
}

function save(name, text, type) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** On narrow screens the sides are popovers over the conversation: they close by themselves and by Escape. */
function fitSides() {
  byId('side').popover = NARROW.matches ? 'auto' : null;
  byId('panel').popover = MEDIUM.matches ? 'auto' : null;
}

function closeSide() {
  if (byId('side').matches(':popover-open')) byId('side').hidePopover();
}

const promptKey = (event) => {
  if (isComposing(event)) return;
  const isEmpty = event.currentTarget.value === '';
  if (event.key === 'Enter' && !event.shiftKey) {
    event.preventDefault();
    if (app.chat.run === undefined) void app.actions.submit();
  } else if (event.key === 'ArrowUp' && isEmpty && app.actions.editLast()) event.preventDefault();
};

function listen() {
  byId('open-side').replaceChildren();
  render(ICONS.menu, byId('open-side'));
  render(ICONS.panel, byId('open-panel'));
  fitSides();
  for (const query of [NARROW, MEDIUM]) query.addEventListener('change', fitSides);
  byId('composer').addEventListener('submit', (event) => {
    event.preventDefault();
    void app.actions.submit();
  });
  let lastTop = 0;
  byId('log').addEventListener('scroll', ({ currentTarget: log }) => {
    const left = log.scrollHeight - log.scrollTop - log.clientHeight;
    // A finger that pulls the text down moves it a little at a time. Text that became shorter moves up too, and then nothing is left below.
    const isUp = log.scrollTop < lastTop && left > 1;
    lastTop = log.scrollTop;
    isFollowing = !isUp && left < NEAR_END;
    if (isUp && log.scrollTop < NEAR_BEGINNING) app.actions.showEarlier();
  });
  // Who scrolls up to read is not pulled down again, also by the frame that comes before the event.
  byId('log').addEventListener('wheel', ({ deltaY }) => deltaY < 0 && (isFollowing = false), { passive: true });
  byId('log').addEventListener('click', ({ target }) => {
    const button = target.closest('[data-copy]');
    if (button !== null) void copy(button.closest('figure').querySelector('pre').textContent, button);
  });
  addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' || event.defaultPrevented || isComposing(event)) return;
    if (document.querySelector(':popover-open, dialog[open]') !== null) return;
    if (app.editing !== undefined) app.actions.cancelEdit();
    else if (app.confirming !== undefined) app.actions.confirmDelete(undefined);
    else if (app.chat.run !== undefined) app.actions.stop();
  });
  byId('models').addEventListener('close', () => {
    app.actions.modelsClosed();
    (byId('choose-model').checkVisibility() ? byId('choose-model') : byId('open-panel')).focus();
  });
  // A click beside the dialog closes it.
  byId('models').addEventListener('click', ({ target, currentTarget }) => target === currentTarget && currentTarget.close());
  addEventListener('beforeprint', () => {
    while (app.logWindow.grow());
    draw();
  });
  acceptDrops((files) => app.actions.takeFiles(files));
  holdWhilePressed();
}

/** What grows above a button that is pressed would move it away from under the finger: nothing is drawn until it is up. */
function holdWhilePressed() {
  const letGo = () => {
    clearTimeout(pressTimer);
    isPressed = false;
    if (isHeld) requestAnimationFrame(draw);
    isHeld = false;
  };
  addEventListener(
    'pointerdown',
    ({ target }) => {
      if (!target.closest?.('button, summary, label, select, a')) return;
      isPressed = true;
      clearTimeout(pressTimer);
      pressTimer = setTimeout(letGo, LONGEST_PRESS_MS);
    },
    true,
  );
  addEventListener('click', letGo, true);
  addEventListener('pointercancel', letGo, true);
  addEventListener(
    'pointerup',
    () => {
      clearTimeout(pressTimer);
      pressTimer = setTimeout(letGo, CLICK_MS);
    },
    true,
  );
}

/** Keeps the page for visits without a network. */
function workOffline() {
  if (navigator.serviceWorker === undefined || !isSecureContext) return;
  navigator.serviceWorker.register('offline.js').catch(() => {
    // A private window, or a browser that was told not to: the page works as long as there is a network.
  });
}

app = await openApp({
  changed,
  focus: (name) => {
    focusNext = name;
    changed();
  },
  follow: () => (isFollowing = true),
  keepPlace: () => (keepsPlace = true),
  say,
  copy,
  save,
  closeSide,
  openModels() {
    if (!byId('models').open) byId('models').showModal();
    focusNext = 'model-query';
    changed();
  },
  closeModels: () => byId('models').close(),
  loaded() {
    if (document.activeElement === document.body) focusNext = 'prompt';
    changed();
  },
});
app.actions.promptKey = promptKey;
listen();
draw();
performance.mark('rillm-drawn');
void readExamples().then((examples) => {
  app.examples = examples;
  changed();
});
await app.start();
workOffline();
