// The state of the page and what a person can do with it: connects conversations, the model and the figures. How it looks is view/'s.

import { EXAMPLE_SCHEMA, FORMS, readSchema, responseFormat } from './chat/format.js';
import { Chat } from './chat/chat.js';
import { Sentences } from './chat/sentences.js';
import { DEFAULTS, FIELDS, readSettings } from './chat/settings.js';
import { definitionsOf, isBuiltIn } from './chat/tools.js';
import { openStore } from './conversations/store.js';
import { fromJson, ImportProblem, toJson, toMarkdown } from './conversations/transfer.js';
import { titleOf } from './conversations/tree.js';
import { faultOfContext } from './loading/fit.js';
import { ModelLoader } from './loading/loader.js';
import { isAtHand, servedHere, Shelf } from './loading/shelf.js';
import { askToPersist } from './persistence.js';
import { Preferences, tabGet, tabSet } from './preferences.js';
import { adviceOf } from './view/advice.js';
import { Figures } from './view/figures.js';
import { LogWindow } from './view/log_window.js';
import { adviceFor, browserOf } from './webgpu_advice.js';

/** The GPU's counters are looked at this often while an answer is written. */
const LOOK_MS = 1000;
/** An import that is larger is a mistake. */
const MOST_IMPORT_BYTES = 200e6;

/** `page`: what needs the document: changed(), focus(name), save(name, text, type), say(text). */
export async function openApp(page) {
  const preferences = new Preferences();
  // Before another conversation is shown.
  const lastShown = tabGet('shown');
  const app = {
    notice: undefined,
    examples: [],
    editing: undefined,
    renaming: undefined,
    confirming: undefined,
    /** `since`: what is begun later is shown too. */
    search: { text: '', found: undefined, since: 0 },
    draft: tabGet('draft') ?? '',
    texts: { ...DEFAULTS, ...knownTexts(preferences.get('settings', {})) },
    tools: preferences.get('tools', []).filter(isBuiltIn),
    format: formatOf(preferences.get('format', { kind: 'text', schema: EXAMPLE_SCHEMA })),
    prompts: preferences.get('prompts', []).filter(isPrompt),
    loadOptions: preferences.get('loadOptions', {}),
    figures: new Figures(),
    logWindow: new LogWindow(),
    isKept: true,
  };
  const changed = () => page.changed();
  const sentences = new Sentences();

  const showError = (error, action) => {
    const { code, message } = error;
    if (code === undefined) app.notice = { title: 'That did not work.', words: message };
    else app.notice = { title: 'That did not work.', words: adviceOf(code), detail: `${message} (${code})`, action };
    changed();
  };
  /** Nothing is wrong: what a person can do about it stands behind a click. */
  const tellOfCpu = () => {
    if (app.notice !== undefined) return;
    const where = browserOf(navigator);
    const hasGpu = navigator.gpu !== undefined;
    app.notice = {
      title: `${nameOfBrowser(where)} gives this page no GPU, so the CPU runs the models: choose small ones.`,
      more: 'How to use the GPU',
      words: adviceFor(where, { isSecure: isSecureContext, hasGpu }),
    };
    changed();
  };
  const storeProblem = (error) => {
    // Once: an answer is kept several times while it comes.
    if (!app.isKept) return;
    const isFull = error.name === 'QuotaExceededError' || error.inner?.name === 'QuotaExceededError';
    app.isKept = false;
    app.notice = {
      title: isFull ? 'The browser has no room for this conversation.' : 'This conversation is not kept.',
      words: isFull
        ? 'Delete models or conversations that you no longer need. Until then what is said here is gone with the page: export it.'
        : 'What is said here is gone with the page, so export what you want to keep.',
      detail: error.message,
    };
    changed();
  };

  const store = await openStore({
    onChange: async (what) => {
      await app.chat?.heard(what).catch(storeProblem);
      if (what.deleted) leave(what.id);
    },
    onProblem: storeProblem,
  });
  app.isKept = store.isKept;

  app.loader = new ModelLoader({
    onChange: () => {
      app.teach?.look();
      changed();
    },
    onLoaded: (host) => {
      // What else was told still holds.
      if (app.notice?.isOfLoad) app.notice = undefined;
      app.figures.clear();
      if (typeof host.source === 'string') preferences.set('model', { source: host.source, name: host.name });
      void host.engine.stats().then(
        (stats) => app.figures.look(stats),
        () => {},
      );
      page.loaded();
    },
    onError: (error, { source, name, options, hasOld }) => {
      // Two models at once may be more than the GPU holds.
      const canMakeRoom = error.code === 'out_of_memory' && hasOld;
      const again = {
        label: canMakeRoom ? 'Unload the running model and try again' : 'Try again',
        run: () => void app.loader.load(source, { name, options, replaces: canMakeRoom }),
      };
      showError(error, again);
      app.notice.isOfLoad = true;
    },
  });
  app.shelf = new Shelf(changed, () => loadOptions());

  let isWatching = false;
  const lookAtGpu = async () => {
    isWatching = false;
    const stats = await app.loader.current?.engine.stats().catch(() => undefined);
    if (stats !== undefined) app.figures.look(stats);
    changed();
  };
  app.chat = new Chat(store, {
    engine: () => app.loader.current,
    settings: () => {
      const { fields, faults } = readSettings(app.texts);
      const { format, fault } = responseFormat(app.format);
      return { fields, faults: fault === undefined ? faults : [...faults, fault], tools: definitionsOf(app.tools), format };
    },
    onChange: changed,
    onPart: (conversation, _message, { content, tokens, firstMs }) => {
      if (tokens > 0) app.figures.tokens(tokens, firstMs);
      if (conversation === app.chat.shown) page.say(sentences.push(content));
      if (!isWatching) {
        isWatching = true;
        setTimeout(lookAtGpu, LOOK_MS);
      }
      changed();
    },
    onAnswer: (figures) => app.figures.answer(figures),
    onEnd: (conversation) => {
      if (conversation.isKept && store.isKept) void askToPersist(preferences);
      if (conversation !== app.chat.shown) return;
      page.say(sentences.end());
      page.say(endOf(app.chat.path.at(-1)));
    },
    onProblem: (error) => {
      if (error.code === 'webgpu_unavailable' || error.code === 'adapter_unavailable') showError(error);
    },
    onKept: () => {
      app.isKept = store.isKept;
    },
    onStoreProblem: storeProblem,
  });

  const loadOptions = () => {
    const { contextLength = '', kvCache = '' } = app.loadOptions;
    if (faultOfContext(contextLength) !== undefined) return kvCache === '' ? {} : { kvCache };
    return { ...(contextLength === '' ? {} : { contextLength: Number(contextLength) }), ...(kvCache === '' ? {} : { kvCache }) };
  };
  /** Loads a model as the person wants it; what they want has to be possible. */
  const load = async (source, name) => {
    const fault = faultOfContext(app.loadOptions.contextLength);
    page.closeModels();
    app.notice = fault === undefined ? undefined : { title: 'That can’t be loaded.', words: fault };
    changed();
    if (fault !== undefined) return;
    await app.loader.load(source, { name, options: loadOptions() });
    if (typeof source === 'string' && app.loader.current?.source === source) await askToPersist(preferences);
  };

  const setDraft = (text) => {
    app.draft = text;
    tabSet('draft', text);
    changed();
  };

  /** What a person was doing with a conversation that another tab has deleted ends; the text of a message that was being changed is not lost. */
  const leave = (id) => {
    const isChanged = app.editing !== undefined && !app.chat.shown.messages.has(app.editing.id);
    if (!isChanged && app.renaming?.id !== id && app.confirming !== id) return;
    if (isChanged) {
      if (app.draft === '') setDraft(app.editing.text);
      app.editing = undefined;
    } else app.renaming = app.confirming = undefined;
    page.focus('if-lost');
  };

  app.actions = {
    hideNotice() {
      app.notice = undefined;
      changed();
      page.focus('prompt');
    },
    setDraft,
    /** Sends what is written, or stops what is being answered. */
    async submit() {
      if (app.chat.run !== undefined) return this.stop();
      const text = app.draft.trim();
      if (text === '' || app.loader.current === undefined) return;
      setDraft('');
      // What was not asked is not lost.
      if (!(await this.ask(text)) && app.draft === '') setDraft(text);
    },
    ask(text, options) {
      app.notice = undefined;
      page.follow();
      return app.chat.send(text, options);
    },
    stop() {
      app.chat.stop(app.chat.shown.meta.id);
      page.focus('prompt');
    },
    async example({ prompt, system, tools, temperature }) {
      page.focus('prompt');
      await this.ask(prompt, { system, tools, overrides: temperature === undefined ? {} : { temperature } });
    },
    edit(id) {
      app.editing = { id, text: app.chat.shown.messages.get(id).content };
      changed();
      page.focus('editor');
    },
    editLast() {
      const last = app.chat.path.findLast(({ role }) => role === 'user');
      if (last === undefined || app.chat.run !== undefined) return false;
      this.edit(last.id);
      return true;
    },
    cancelEdit() {
      app.editing = undefined;
      changed();
      page.focus('prompt');
    },
    async saveEdit(text) {
      const { id } = app.editing;
      // The text stays in its field.
      if (text.trim() === '' || app.chat.run !== undefined) return;
      app.editing = undefined;
      page.focus('prompt');
      page.follow();
      await app.chat.edit(id, text.trim());
    },
    async again(id) {
      page.focus('prompt');
      page.follow();
      await app.chat.regenerate(id);
    },
    async resume(id) {
      page.focus('prompt');
      await app.chat.resume(id);
    },
    async choose(id) {
      await app.chat.choose(id);
      page.focus('if-lost');
    },
    answerCall: (id, call, text) => (page.focus('prompt'), app.chat.answerCall(id, call, text)),
    copy: (id, button) => page.copy(app.chat.shown.messages.get(id).content, button),

    startNew() {
      app.editing = undefined;
      app.chat.startNew();
      sentences.end();
      page.closeSide();
      page.focus('prompt');
    },
    async open(id) {
      app.editing = undefined;
      try {
        if (!(await app.chat.open(id))) await app.chat.refresh();
      } catch (error) {
        app.notice = { title: 'The conversation could not be opened.', words: 'Reload the page, and try again.', detail: error.message };
        changed();
      }
      sentences.end();
      page.follow();
      page.closeSide();
      page.focus('prompt');
    },
    /** A button that was clicked may be gone with what it did. */
    keepFocus: (place) => page.focus(`${place}-if-lost`),
    showEarlier() {
      if (!app.logWindow.grow()) return;
      page.keepPlace();
      changed();
    },
    async search(text) {
      Object.assign(app.search, { text, since: Date.now() });
      const found = text.trim() === '' ? undefined : await app.chat.search(text).catch(() => new Set());
      // A later search may have ended before this one.
      if (app.search.text === text) app.search.found = found;
      changed();
    },
    startRename(meta) {
      const before = app.renaming;
      app.renaming = meta === undefined ? undefined : { id: meta.id, title: meta.title };
      changed();
      page.focus(meta === undefined ? `rename ${before?.id}` : 'rename');
    },
    async rename(id, title) {
      await app.chat.rename(id, title);
      this.startRename(undefined);
    },
    confirmDelete(what) {
      const before = app.confirming;
      app.confirming = what;
      changed();
      page.focus(what === undefined ? `delete ${before}` : 'confirm');
    },
    async delete(id) {
      app.confirming = undefined;
      await app.chat.delete(id);
      page.focus('new-chat');
    },
    async exportAll() {
      try {
        const all = await app.chat.export(app.chat.list.map(({ id }) => id));
        page.save('rillm-conversations.json', toJson(all), 'application/json');
      } catch (error) {
        showError(error);
      }
    },
    exportShown(kind) {
      const { meta, messages } = app.chat.shown;
      const shown = { conversation: meta, messages };
      if (kind === 'markdown') page.save(`${fileName(meta.title)}.md`, toMarkdown(shown), 'text/markdown');
      else page.save(`${fileName(meta.title)}.json`, toJson([shown]), 'application/json');
    },
    async importFile(input) {
      const [file] = input.files;
      input.value = '';
      if (file === undefined) return;
      // Now and not after it: what goes wrong with the next file may be told before this one is in.
      app.notice = undefined;
      try {
        if (file.size > MOST_IMPORT_BYTES) throw new ImportProblem('The file is too large to be an export of this page.');
        await app.chat.import(fromJson(await file.text()));
      } catch (error) {
        app.notice = {
          title: 'Nothing was imported.',
          words: error instanceof ImportProblem ? error.message : 'The file could not be read.',
          detail: error instanceof ImportProblem ? undefined : error.message,
        };
      }
      changed();
    },

    typeSystem(text) {
      app.chat.typeSystem(text);
      changed();
    },
    setSystem: (text) => app.chat.setSystem(text).then(changed),
    savePrompt(text) {
      app.prompts = [...app.prompts, [titleOf(text, 30), text]];
      preferences.set('prompts', app.prompts);
      changed();
    },
    forgetPrompt(text) {
      app.prompts = app.prompts.filter(([, kept]) => kept !== text);
      preferences.set('prompts', app.prompts);
      changed();
    },
    setSetting(name, text) {
      app.texts = { ...app.texts, [name]: text };
      preferences.set('settings', app.texts);
      changed();
    },
    resetSetting(name) {
      this.setSetting(name, DEFAULTS[name] ?? '');
      page.focus(`set-${name}`);
    },
    resetSettings() {
      app.texts = Object.fromEntries(FIELDS.map(({ name }) => [name, DEFAULTS[name] ?? '']));
      preferences.set('settings', app.texts);
      changed();
    },
    setTool(name, isOn) {
      app.tools = isOn ? [...app.tools, name] : app.tools.filter((one) => one !== name);
      preferences.set('tools', app.tools);
      changed();
    },
    setFormat(what) {
      app.format = formatOf({ ...app.format, ...what });
      preferences.set('format', { kind: app.format.kind, schema: app.format.schema });
      changed();
    },
    setLoadOption(name, text) {
      app.loadOptions = { ...app.loadOptions, [name]: text };
      preferences.set('loadOptions', app.loadOptions);
      app.shelf.judgeAgain();
    },

    openModels() {
      page.openModels();
      void app.shelf.refresh();
    },
    closeModels: () => page.closeModels(),
    modelsClosed() {
      app.confirming = undefined;
      changed();
    },
    findModels: (text) => app.shelf.find(text),
    submitModel() {
      const text = app.shelf.query.trim();
      if (text === '') return;
      if (app.shelf.isAddress) this.loadModel(addressOf(text));
      else void app.shelf.searchNow();
    },
    loadModel: load,
    loadFiles(input) {
      const files = [...input.files];
      input.value = '';
      if (files.length > 0) this.takeFiles(files);
    },
    takeFiles: (files) => load(files.length === 1 ? files[0] : files),
    checkModel: (entry) => app.shelf.check(entry),
    async deleteModel(source) {
      app.confirming = undefined;
      // The dialog lies over the page's notices.
      await app.shelf.delete(source).catch(({ code, message }) => app.shelf.tell(`${adviceOf(code)} ${message}`));
      page.focus('model-query');
    },
    /** `Teach` is fetched when somebody wants to teach. */
    openTeach(Teach) {
      app.teach ??= new Teach({
        loader: app.loader,
        changed,
        load: async ({ source, name, options }) => {
          await app.loader.load(source, { name, options: { ...options, training: true } });
          const { current } = app.loader;
          return current?.source === source && current.options.training === true ? current : undefined;
        },
      });
      changed();
    },
    cancelLoad() {
      app.loader.cancel();
      page.focus('choose-model');
    },
    unload() {
      app.loader.unload();
      page.focus('choose-model');
    },
  };

  app.start = async () => {
    await app.chat.refresh().catch(storeProblem);
    // The conversation that was open before a reload; an answer that it interrupted can go on there.
    if (lastShown !== null) await app.chat.open(lastShown).catch(() => false);
    changed();
    void app.shelf.device().then(({ is_on_cpu }) => is_on_cpu && tellOfCpu());
    const { source, name } = preferences.get('model', {});
    const first = typeof source === 'string' && (await isAtHand(source)) ? { source, name } : (await servedHere())[0];
    const isIdle = app.loader.loading === undefined && app.loader.current === undefined;
    if (first !== undefined && isIdle) void app.loader.load(first.source, { name: first.name, options: loadOptions() });
  };
  return app;
}

function formatOf({ kind, schema }) {
  const text = typeof schema === 'string' ? schema : EXAMPLE_SCHEMA;
  return { kind: FORMS.includes(kind) ? kind : 'text', schema: text, read: readSchema(text) };
}

/** What is kept may be of another version of this page: only what this one can read. */
const knownTexts = (texts) =>
  Object.fromEntries(FIELDS.map(({ name }) => [name, texts[name]]).filter(([, text]) => typeof text === 'string' || text === true));
const isPrompt = (prompt) => Array.isArray(prompt) && prompt.length === 2 && prompt.every((text) => typeof text === 'string');

/** The end of an answer in words, if it is not as usual: who does not see the page has to hear it. */
function endOf({ state, error, calls = [] } = {}) {
  if (state === 'failed') return `No answer. ${error.code === 'page' ? error.message : adviceOf(error.code)}`;
  if (state === 'done' && calls.length > 0) return 'The model waits for the result of a call.';
  return state === 'interrupted' ? 'Stopped.' : '';
}

const nameOfBrowser = ({ browser, system }) =>
  browser === 'unknown' ? 'This browser' : `${browser}${system === 'unknown' ? '' : ` on ${system}`}`;

const fileName = (title) =>
  title
    .replace(/[^\p{L}\p{N} -]+/gu, '')
    .trim()
    .slice(0, 60) || 'conversation';

/** One address for all tabs, however it was written. */
function addressOf(text) {
  return /^(hf|opfs):/.test(text) ? text : new URL(text, document.baseURI).href;
}
