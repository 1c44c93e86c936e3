// The conversations of this tab: what is shown, which of them are being answered, and what is kept of them. Knows the store and the engine, and nothing
// of how anything looks.

import { byTime, matcher } from '../conversations/store.js';
import { wellFormed } from '../conversations/text.js';
import { newestLeaf, newId, openCalls, pathTo, titleOf } from '../conversations/tree.js';
import { add, lockOf, newMessage, writeRounds } from './rounds.js';
import { isBuiltIn } from './tools.js';

const NEW_TITLE = 'New conversation';

/**
 * `events`: engine() → {engine, name, use() → release} or undefined; settings() → {fields, faults, tools, format}; onChange(); onPart(conversation, message, part);
 * onAnswer(figures); onEnd(conversation); onProblem(error); onKept(); onStoreProblem(error).
 */
export class Chat {
  shown;
  #store;
  #events;
  /** What the store lists. */
  #listed = [];
  /** Conversations of which something could not be kept, by id: they stay here, and are tried again with what is said next. */
  #unkept = new Map();
  /** Messages that another tab writes, whose end is waited for, by id. */
  #watched = new Set();
  /** Conversations that are being answered here, by id: they go on when another one is shown. */
  #running = new Map();
  /** The conversation that was chosen last, {id, read: promise}, while it is being read. */
  #opening;
  /** Settles when what was heard of other tabs is shown. */
  #hearing = Promise.resolve();

  constructor(store, events) {
    this.#store = store;
    this.#events = events;
    this.shown = freshConversation();
  }

  get run() {
    return this.#running.get(this.shown.meta.id)?.run;
  }

  get path() {
    return pathTo(this.shown.messages, this.shown.meta.leaf);
  }

  /** All conversations, the one that was changed last first. */
  get list() {
    if (this.#unkept.size === 0) return this.#listed;
    const kept = this.#listed.filter(({ id }) => !this.#unkept.has(id));
    return byTime([...kept, ...[...this.#unkept.values()].map(({ meta }) => meta)]);
  }

  isRunning(id) {
    return this.#running.has(id);
  }

  /** Ends the answers of conversations; of all without an id. */
  stop(id) {
    for (const { meta, run } of this.#running.values()) if (id === undefined || meta.id === id) run.abort.abort();
  }

  async refresh() {
    this.#listed = await this.#store.list();
    this.#events.onChange();
  }

  /** Shows an empty conversation. It is kept when something is said in it. */
  startNew() {
    this.#opening = undefined;
    this.#leave();
    return this.shown;
  }

  /** Shows an empty conversation in place of the one that is shown, and later the one that is being opened. */
  #leave() {
    this.shown = freshConversation();
    this.#events.onChange();
  }

  /** Shows a conversation, unless another one is chosen while it is being read; false if it is gone. Rejects if it can't be read. */
  async open(id) {
    const opening = { id, read: this.#conversation(id) };
    this.#opening = opening;
    try {
      const conversation = await opening.read;
      if (conversation !== undefined && this.#opening === opening) {
        this.shown = conversation;
        this.#watch(conversation);
        this.#events.onChange();
      }
      return conversation !== undefined;
    } finally {
      if (this.#opening === opening) this.#opening = undefined;
    }
  }

  /** Asks in the conversation that was chosen last; false if it can't be opened, or is being answered. */
  async send(text, { system, tools, overrides } = {}) {
    const conversation = this.#opening === undefined ? this.shown : await this.#opening.read.catch(() => undefined);
    if (conversation === undefined || this.isRunning(conversation.meta.id)) return false;
    const { meta, messages } = conversation;
    if (messages.size === 0)
      Object.assign(
        meta,
        { title: titleOf(wellFormed(text)) || NEW_TITLE, created: Date.now() },
        system === undefined ? {} : { system },
        tools === undefined ? {} : { tools },
      );
    await this.#ask(conversation, meta.leaf, text, { overrides });
    return true;
  }

  /** Asks the same otherwise; what was there stays as another version. */
  async edit(id, text) {
    const conversation = this.shown;
    const original = conversation.messages.get(id);
    if (original === undefined || this.isRunning(conversation.meta.id)) return;
    await this.#ask(conversation, original.parent, text);
  }

  /** Writes an answer again, as another version; one that came to nothing is written in its own place. */
  async regenerate(id) {
    const conversation = this.shown;
    const message = conversation.messages.get(id);
    if (message === undefined || this.isRunning(conversation.meta.id)) return;
    const given = isEmpty(message) ? { message } : {};
    await this.#inRun(conversation, (run) => this.#answer(conversation, run, message.parent, given));
  }

  /** Goes on with an answer that was cut, or with calls of tools that were not run. */
  async resume(id) {
    const conversation = this.shown;
    const message = conversation.messages.get(id);
    if (message === undefined || this.isRunning(conversation.meta.id)) return;
    const isWritten = message.finish === 'tool_calls' && openCalls(this.path, message) !== undefined;
    const given = isWritten ? { message, isWritten } : { message, goesOn: message.content !== '' };
    await this.#inRun(conversation, (run) => this.#answer(conversation, run, message.parent, given));
  }

  /** The result of a call that the page does not know; the model goes on when all calls have theirs. */
  async answerCall(id, call, text) {
    const conversation = this.shown;
    if (this.isRunning(conversation.meta.id)) return;
    const message = conversation.messages.get(id);
    const open = (message && openCalls(this.path, message)) ?? [];
    if (!open.some((one) => one.id === call)) return;
    await this.#inRun(conversation, async (run) => {
      const result = { ...newMessage(conversation.meta, conversation.meta.leaf, 'tool', wellFormed(text)), call };
      add(conversation, result);
      await this.#keep(conversation, [result]);
      const isOpen = open.some((one) => one.id !== call && !isBuiltIn(one.name));
      if (!isOpen) await this.#answer(conversation, run, message.parent, { message, isWritten: true });
    });
  }

  /** Shows the branch of another version. */
  async choose(id) {
    const { meta, messages } = this.shown;
    if (this.isRunning(meta.id)) return;
    meta.leaf = newestLeaf(messages, id);
    this.#events.onChange();
    await this.#keep(this.shown, []);
  }

  async rename(id, title) {
    const conversation = await this.#conversation(id);
    if (conversation === undefined) return;
    conversation.meta.title = titleOf(wellFormed(title)) || NEW_TITLE;
    await this.#keep(conversation, []);
  }

  /** A system prompt that is still being typed: it holds, and is kept with `setSystem`. */
  typeSystem(text) {
    this.shown.meta.system = text;
    this.shown.isTyped = true;
  }

  async setSystem(text) {
    this.shown.meta.system = wellFormed(text);
    this.shown.isTyped = false;
    if (this.shown.messages.size > 0) await this.#keep(this.shown, []);
  }

  /** Deletes a conversation. One that is being answered is stopped first. */
  async delete(id) {
    this.stop(id);
    try {
      await this.#store.delete(id);
    } catch (error) {
      this.#events.onStoreProblem(error);
      return;
    }
    this.#forget(id);
    if (this.shown.meta.id === id) this.#leave();
    await this.refresh();
  }

  /** The ids of conversations with these words. */
  async search(words) {
    const found = await this.#store.search(words);
    const fits = matcher(words);
    for (const [id, { meta, messages }] of this.#unkept)
      if (fits(meta.title) || [...messages.values()].some(({ content }) => fits(content))) found.add(id);
    return found;
  }

  /** [{conversation, messages}] of these ids, as they are now: what could not be kept is what has to be exported. */
  async export(ids) {
    const all = await Promise.all(ids.map((id) => this.#conversation(id)));
    return all.filter((one) => one !== undefined).map(({ meta, messages }) => ({ conversation: meta, messages }));
  }

  /** All of them or, if that fails, none. */
  async import(all) {
    await this.#store.writeAll(all.map(({ conversation, messages }) => ({ conversation, messages: [...messages.values()] })));
    await this.refresh();
    if (all.length > 0) await this.open(all[0].conversation.id);
  }

  /** Another tab has changed or deleted a conversation. What is heard first is read first, or an older state would stay. */
  heard(change) {
    const hearing = this.#hearing.then(() => this.#hear(change));
    this.#hearing = hearing.catch(() => {});
    return hearing;
  }

  async #hear({ id, deleted }) {
    if (deleted) {
      this.stop(id);
      this.#forget(id);
      if (this.shown.meta.id === id) this.#leave();
    } else if (this.shown.meta.id === id) {
      const read = await this.#read(id, globalThis.navigator?.locks !== undefined).catch(() => undefined);
      const run = this.#running.get(id)?.run;
      if (read !== undefined && this.shown.meta.id === id) {
        const { meta, isTyped } = this.shown;
        for (const message of read.messages.values()) if (message.id !== run?.message?.id) this.shown.messages.set(message.id, message);
        if (run === undefined && !this.#unkept.has(id))
          this.shown.meta = isTyped ? { ...read.conversation, system: meta.system } : read.conversation;
        this.#watch(this.shown);
      }
    }
    await this.refresh();
  }

  async #conversation(id) {
    const held = () => (this.shown.meta.id === id ? this.shown : (this.#running.get(id) ?? this.#unkept.get(id)));
    const before = held();
    if (before !== undefined) return before;
    const read = await this.#read(id);
    if (read === undefined) return undefined;
    // It may have been asked something since the read began.
    return held() ?? { meta: read.conversation, messages: read.messages, isKept: true };
  }

  /** A conversation as it is kept. What is still "being written" though nobody writes it was interrupted, by a reload or a crash. */
  async #read(id, marks = true) {
    const read = await this.#store.read(id);
    const unheld = marks && read !== undefined ? await unheldMessages(read.messages) : [];
    if (unheld.length === 0) return read;
    // Its writer may have ended it since it was read.
    const again = await this.#store.read(id);
    for (const message of again?.messages.values() ?? [])
      if (message.state === 'writing' && unheld.includes(message.id)) message.state = 'interrupted';
    return again;
  }

  /** A conversation that was deleted: what is still on its way does not bring it back. */
  #forget(id) {
    for (const conversation of [this.shown, this.#running.get(id), this.#unkept.get(id)])
      if (conversation?.meta.id === id) conversation.isDeleted = true;
    this.#unkept.delete(id);
    if (this.#opening?.id === id) this.#opening = undefined;
  }

  /** What another tab writes ends with that tab, which may go without a word: then its lock is free. */
  #watch({ meta, messages, run }) {
    if (globalThis.navigator?.locks === undefined) return;
    for (const message of messages.values()) {
      if (message.state !== 'writing' || message.id === run?.message?.id || this.#watched.has(message.id)) continue;
      this.#watched.add(message.id);
      void navigator.locks
        .request(lockOf(message), { mode: 'shared' }, () => this.#watched.delete(message.id))
        .then(() => this.heard({ id: meta.id }))
        .catch(this.#events.onStoreProblem);
    }
  }

  /** A question after `parent`, and its answer. */
  async #ask(conversation, parent, text, given) {
    await this.#inRun(conversation, async (run) => {
      const question = newMessage(conversation.meta, parent, 'user', wellFormed(text));
      add(conversation, question);
      await this.#keep(conversation, [question]);
      await this.#answer(conversation, run, question.id, given);
    });
  }

  /** What happens in a conversation while nothing else may be asked there. It begins at once, so that a second click finds it. */
  async #inRun(conversation, work) {
    const { id } = conversation.meta;
    conversation.run = { abort: new AbortController(), message: undefined, tokens: 0, consent: undefined };
    this.#running.set(id, conversation);
    this.#events.onChange();
    try {
      await work(conversation.run);
    } finally {
      conversation.run = undefined;
      this.#running.delete(id);
      this.#events.onEnd(conversation);
      this.#events.onChange();
    }
  }

  /** Answers after `parent`. `message`: what is written again, goes on, or is written but for its calls. */
  async #answer(conversation, run, parent, { message: given, goesOn = false, isWritten = false, overrides = {} } = {}) {
    const { meta } = conversation;
    const message = given ?? newMessage(meta, parent, 'assistant', '');
    if (isWritten) message.error = undefined;
    const host = this.#events.engine();
    const { fields, faults, tools, format } = this.#events.settings();
    const fault = host === undefined ? 'There is no model yet. Load one, and ask again.' : faults[0];
    if (fault !== undefined) {
      if (!isWritten) add(conversation, message);
      Object.assign(message, { state: isWritten ? 'done' : 'failed', error: { code: 'page', message: fault } });
      await this.#keep(conversation, [message]);
      return;
    }
    const asked = { system: meta.system, fields: { ...fields, ...overrides }, tools: [...tools, ...(meta.tools ?? [])], format };
    const release = host.use();
    try {
      await writeRounds(conversation, run, message, {
        host,
        goesOn,
        isWritten,
        asked,
        keep: (messages, tell) => this.#keep(conversation, messages, tell),
        onChange: this.#events.onChange,
        onPart: (writing, part) => this.#events.onPart(conversation, writing, part),
        onAnswer: this.#events.onAnswer,
        onProblem: this.#events.onProblem,
      });
    } finally {
      release();
    }
  }

  /** Keeps what changed. A conversation that was deleted does not come back; one of which something was not kept, for want of room, is tried whole. */
  async #keep(conversation, messages, tell = true) {
    const { meta, isKept, isDeleted } = conversation;
    if (isDeleted) return;
    meta.updated = Date.now();
    const isWhole = isKept && !this.#unkept.has(meta.id);
    const changed = isWhole ? messages : [...conversation.messages.values()];
    try {
      if (!isKept) {
        await this.#store.write(meta, changed);
        conversation.isKept = true;
      } else if (!(await this.#store.update(meta, changed))) this.stop(meta.id);
      this.#unkept.delete(meta.id);
      if (this.#unkept.size === 0) this.#events.onKept();
      if (tell) await this.refresh();
    } catch (error) {
      // What can't be kept is shown all the same, and stays in the list.
      if (!conversation.isDeleted) this.#unkept.set(meta.id, conversation);
      this.#events.onStoreProblem(error);
      this.#events.onChange();
    }
  }
}

function freshConversation() {
  const now = Date.now();
  return { meta: { id: newId(), title: NEW_TITLE, system: '', created: now, updated: now, leaf: null }, messages: new Map() };
}

const isEmpty = ({ content, reasoning, calls = [] }) => content === '' && !reasoning && calls.length === 0;

/** The ids of messages that are "being written" and that no tab writes. */
async function unheldMessages(messages) {
  const writing = [...messages.values()].filter(({ state }) => state === 'writing');
  if (writing.length === 0) return [];
  const { held } = (await globalThis.navigator?.locks?.query().catch(() => undefined)) ?? {};
  const names = held?.map(({ name }) => name) ?? [];
  return writing.filter((message) => !names.includes(lockOf(message))).map(({ id }) => id);
}
