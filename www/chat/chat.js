// The conversations of this tab: what is shown, which of them are being answered, and what is kept of them. Knows the store and the engine, and nothing
// of how anything looks.

import { newestLeaf, newId, pathTo, titleOf } from '../conversations/tree.js';
import { writeAnswer } from './answer.js';
import { requestOf } from './request.js';
import { isBuiltIn, runTool, wellFormed } from './tools.js';

/** How often an answer that is being written is kept, in milliseconds: what a reload loses of it. */
const SAVE_MS = 400;
/** Answers in a row that call tools, before the person has to ask again. */
const MOST_ROUNDS = 8;
const NEW_TITLE = 'New conversation';
const lockOf = (message) => `rillm-answer-${message.id}`;

/**
 * `events`: engine() → {engine, name, use() → release} or undefined; settings() → {fields, faults, tools, format}; onChange(); onPart(conversation, message, part);
 * onAnswer(figures); onProblem(error); onKept(); onStoreProblem(error).
 */
export class Chat {
  list = [];
  shown;
  #store;
  #events;
  /** Conversations that are being answered here, by id: they go on when another one is shown. */
  #running = new Map();

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

  isRunning(id) {
    return this.#running.has(id);
  }

  /** Ends the answers of conversations; of all without an id. */
  stop(id) {
    for (const { meta, run } of this.#running.values()) if (id === undefined || meta.id === id) run.abort.abort();
  }

  async refresh() {
    this.list = await this.#store.list();
    this.#events.onChange();
  }

  /** Shows an empty conversation. It is kept when something is said in it. */
  startNew() {
    this.shown = freshConversation();
    this.#events.onChange();
    return this.shown;
  }

  /** Shows a conversation; false if it is gone. */
  async open(id) {
    const running = this.#running.get(id);
    if (running !== undefined) this.shown = running;
    else {
      const read = await this.#store.read(id);
      if (read === undefined) return false;
      await markInterrupted(read.messages);
      this.shown = { meta: read.conversation, messages: read.messages, isKept: true };
    }
    this.#events.onChange();
    return true;
  }

  /** Asks in the conversation that is shown. */
  async send(text, { system, tools, overrides } = {}) {
    const conversation = this.shown;
    if (this.isRunning(conversation.meta.id)) return;
    const { meta, messages } = conversation;
    if (messages.size === 0)
      Object.assign(
        meta,
        { title: titleOf(wellFormed(text)) || NEW_TITLE },
        system === undefined ? {} : { system },
        tools === undefined ? {} : { tools },
      );
    const question = newMessage(meta, meta.leaf, 'user', wellFormed(text));
    add(conversation, question);
    await this.#keep(conversation, [question]);
    await this.#answer(conversation, question.id, { overrides });
  }

  /** Asks the same otherwise; what was there stays as another version. */
  async edit(id, text) {
    const conversation = this.shown;
    const original = conversation.messages.get(id);
    if (original === undefined || this.isRunning(conversation.meta.id)) return;
    const question = newMessage(conversation.meta, original.parent, 'user', wellFormed(text));
    add(conversation, question);
    await this.#keep(conversation, [question]);
    await this.#answer(conversation, question.id);
  }

  /** Writes an answer again, as another version; one that came to nothing is written in its own place. */
  async regenerate(id) {
    const conversation = this.shown;
    const message = conversation.messages.get(id);
    if (message === undefined || this.isRunning(conversation.meta.id)) return;
    await this.#answer(conversation, message.parent, isEmpty(message) ? { message } : {});
  }

  /** Goes on with an answer that was cut. */
  async resume(id) {
    const conversation = this.shown;
    const message = conversation.messages.get(id);
    if (message === undefined || this.isRunning(conversation.meta.id)) return;
    await this.#answer(conversation, message.parent, message.content === '' ? { message } : { message, goesOn: true });
  }

  /** The result of a call that the page does not know; the model goes on when all calls have theirs. */
  async answerCall(id, call, text) {
    const conversation = this.shown;
    if (this.isRunning(conversation.meta.id)) return;
    const message = conversation.messages.get(id);
    const known = this.path.filter(({ role }) => role === 'tool').map((result) => result.call);
    if (known.includes(call)) return;
    const result = { ...newMessage(conversation.meta, conversation.meta.leaf, 'tool', wellFormed(text)), call };
    add(conversation, result);
    await this.#keep(conversation, [result]);
    const isOpen = message.calls.some((one) => one.id !== call && !known.includes(one.id));
    if (!isOpen) await this.#answer(conversation, result.id);
    else this.#events.onChange();
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

  async setSystem(text) {
    this.shown.meta.system = wellFormed(text);
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
    if (this.shown.meta.id === id) this.startNew();
    await this.refresh();
  }

  search(words) {
    return this.#store.search(words);
  }

  /** [{conversation, messages}] of these ids. */
  async export(ids) {
    const read = await Promise.all(ids.map((id) => this.#store.read(id)));
    return read.filter((one) => one !== undefined);
  }

  async import(all) {
    for (const { conversation, messages } of all) await this.#store.write(conversation, [...messages.values()]);
    await this.refresh();
    if (all.length > 0) await this.open(all[0].conversation.id);
  }

  /** Another tab has changed or deleted a conversation. */
  async heard({ id, deleted }) {
    if (deleted) {
      this.stop(id);
      if (this.shown.meta.id === id) this.startNew();
    } else if (this.shown.meta.id === id) {
      const read = await this.#store.read(id).catch(() => undefined);
      const own = this.#running.get(id)?.run.message.id;
      if (read !== undefined && this.shown.meta.id === id) {
        for (const message of read.messages.values()) if (message.id !== own) this.shown.messages.set(message.id, message);
        if (own === undefined) this.shown.meta = read.conversation;
      }
    }
    await this.refresh();
  }

  async #conversation(id) {
    if (this.shown.meta.id === id) return this.shown;
    const running = this.#running.get(id);
    if (running !== undefined) return running;
    const read = await this.#store.read(id);
    return read && { meta: read.conversation, messages: read.messages, isKept: true };
  }

  /** Answers after `parent`. `message`: what is written again or goes on. */
  async #answer(conversation, parent, { message: given, goesOn = false, overrides = {} } = {}) {
    const { meta } = conversation;
    const host = this.#events.engine();
    const { fields, faults, tools, format } = this.#events.settings();
    const refused = host === undefined ? 'There is no model yet. Load one, and ask again.' : faults[0];
    let message = given ?? { ...newMessage(meta, parent, 'assistant', ''), state: 'failed' };
    if (refused !== undefined) {
      Object.assign(message, { state: 'failed', error: { code: 'page', message: refused } });
      add(conversation, message);
      await this.#keep(conversation, [message]);
      return;
    }
    const abort = new AbortController();
    const { signal } = abort;
    const run = (conversation.run = { abort, message, tokens: 0, lastSaved: 0 });
    this.#running.set(meta.id, conversation);
    const release = host.use();
    try {
      for (let round = 0; ; round++) {
        run.message = message;
        run.tokens = 0;
        if (goesOn) Object.assign(message, { state: 'writing', error: undefined });
        else
          Object.assign(message, {
            state: 'writing',
            content: '',
            reasoning: undefined,
            calls: undefined,
            error: undefined,
            finish: undefined,
          });
        message.model = host.name;
        add(conversation, message);
        await this.#keep(conversation, [message]);
        const path = pathTo(conversation.messages, goesOn ? message.id : message.parent);
        const request = requestOf({
          path,
          system: meta.system,
          fields: { ...fields, ...overrides },
          tools: [...tools, ...(meta.tools ?? [])],
          format,
          goesOn,
        });
        await this.#write(host, request, conversation, run);
        message.state = message.finish === 'cancelled' ? 'interrupted' : 'done';
        await this.#keep(conversation, [message]);
        const calls = message.calls ?? [];
        if (signal.aborted || message.finish !== 'tool_calls' || calls.length === 0 || round + 1 >= MOST_ROUNDS) break;
        if (!calls.every(({ name }) => isBuiltIn(name))) break;
        for (const call of calls) {
          const content = await runTool(call, { signal, consent: (url) => this.#consent(run, url, signal) });
          const result = { ...newMessage(meta, meta.leaf, 'tool', content), call: call.id };
          add(conversation, result);
          await this.#keep(conversation, [result]);
        }
        message = newMessage(meta, meta.leaf, 'assistant', '');
        goesOn = false;
      }
    } catch (error) {
      if (message.state === 'writing') {
        const { code = 'internal', message: words } = error;
        Object.assign(message, { state: 'failed', error: { code, message: words } });
      }
      await this.#keep(conversation, [message]);
      if (!signal.aborted) this.#events.onProblem(error);
    } finally {
      release();
      conversation.run = undefined;
      this.#running.delete(meta.id);
      this.#events.onChange();
    }
  }

  /** One answer of the engine, kept while it comes. */
  async #write(host, request, conversation, run) {
    const { message, abort } = run;
    const write = async () => {
      const { engine } = host;
      const before = await engine.stats();
      const onPart = (part) => {
        run.tokens += part.tokens;
        this.#events.onPart(conversation, message, part);
        if (performance.now() - run.lastSaved > SAVE_MS) {
          run.lastSaved = performance.now();
          void this.#keep(conversation, [message], false);
        }
      };
      const { firstMs, ms } = await writeAnswer(engine, request, message, { signal: abort.signal, onPart });
      // An engine that was disposed of in between has no figures.
      const after = await engine.stats().catch(() => undefined);
      if (after !== undefined && message.usage !== undefined) this.#events.onAnswer({ before, after, message, firstMs, ms });
    };
    // The lock tells other tabs, and this one after a reload, that somebody writes this answer.
    return navigator.locks === undefined ? write() : navigator.locks.request(lockOf(message), write);
  }

  /** Asks the person whether an address may be fetched. */
  #consent(run, url, signal) {
    return new Promise((resolve, reject) => {
      const answer = (allowed) => {
        run.consent = undefined;
        signal.removeEventListener('abort', abort);
        this.#events.onChange();
        resolve(allowed);
      };
      const abort = () => {
        run.consent = undefined;
        reject(signal.reason);
      };
      run.consent = { url, answer };
      signal.addEventListener('abort', abort, { once: true });
      this.#events.onChange();
    });
  }

  /** Keeps what changed. A conversation that another tab has deleted does not come back; one that was never kept, for want of room, is tried whole. */
  async #keep(conversation, messages, tell = true) {
    const { meta, isKept } = conversation;
    meta.updated = Date.now();
    try {
      if (!isKept) {
        await this.#store.write(meta, [...conversation.messages.values()]);
        conversation.isKept = true;
      } else if (!(await this.#store.update(meta, messages))) this.stop(meta.id);
      this.#events.onKept();
      if (tell) await this.refresh();
    } catch (error) {
      // What can't be kept is shown all the same.
      this.#events.onStoreProblem(error);
      this.#events.onChange();
    }
  }
}

function freshConversation() {
  const now = Date.now();
  return { meta: { id: newId(), title: NEW_TITLE, system: '', created: now, updated: now, leaf: null }, messages: new Map() };
}

let lastCreated = 0;

function newMessage({ id: conversation }, parent, role, content) {
  // Two messages of one millisecond keep their order.
  lastCreated = Math.max(Date.now(), lastCreated + 1);
  return { id: newId(), conversation, parent, role, content, created: lastCreated, state: 'done' };
}

function add({ meta, messages }, message) {
  messages.set(message.id, message);
  meta.leaf = message.id;
}

const isEmpty = ({ content, reasoning, calls = [] }) => content === '' && !reasoning && calls.length === 0;

/** What is still "being written" though nobody writes it was interrupted, by a reload or a crash. */
async function markInterrupted(messages) {
  const writing = [...messages.values()].filter(({ state }) => state === 'writing');
  if (writing.length === 0) return;
  const held = (await navigator.locks?.query())?.held?.map(({ name }) => name) ?? [];
  for (const message of writing) if (!held.includes(lockOf(message))) message.state = 'interrupted';
}
