// An answer of a conversation with the calls of tools in it: writes, runs what the model calls, and writes on. Keeps what comes while it comes. Knows one
// conversation and nothing of the others.

import { newId, openCalls, pathTo } from '../conversations/tree.js';
import { writeAnswer } from './answer.js';
import { requestOf } from './request.js';
import { isBuiltIn, runTool } from './tools.js';

/** How often an answer that is being written is kept, in milliseconds: what a reload loses of it. */
const SAVE_MS = 400;
/** Answers in a row that call tools, before the person has to ask again. */
export const MOST_ROUNDS = 8;

/** The lock that is held while somebody writes a message: it tells other tabs, and this one after a reload. */
export const lockOf = ({ id }) => `rillm-answer-${id}`;

let lastCreated = 0;

export function newMessage({ id: conversation }, parent, role, content) {
  // Two messages of one millisecond keep their order.
  lastCreated = Math.max(Date.now(), lastCreated + 1);
  return { id: newId(), conversation, parent, role, content, created: lastCreated, state: 'done' };
}

/** Puts a message into a conversation, as the end of the branch that is shown. */
export function add({ meta, messages }, message) {
  messages.set(message.id, message);
  meta.leaf = message.id;
}

/**
 * Writes `first`, which is in the conversation, and what follows calls of tools. `run`: {abort, message, tokens, consent}. `context`: host; goesOn; isWritten, for a
 * message whose calls are what is left to do; asked, what each request has besides its messages; keep(messages, tell); onChange, onPart, onAnswer, onProblem. What fails
 * ends in the message and does not reject.
 */
export async function writeRounds(conversation, run, first, context) {
  const { meta } = conversation;
  const { signal } = run.abort;
  let { goesOn, isWritten } = context;
  let message = first;
  try {
    for (let round = 1; ; round++) {
      if (!isWritten) await writeOne(conversation, run, message, { ...context, goesOn });
      const hasCalls = (isWritten || message.finish === 'tool_calls') && (message.calls ?? []).length > 0;
      if (signal.aborted || !hasCalls || round >= MOST_ROUNDS || !(await runCalls(conversation, run, message, context))) return;
      message = newMessage(meta, meta.leaf, 'assistant', '');
      goesOn = isWritten = false;
    }
  } catch (error) {
    if (!signal.aborted) context.onProblem(error);
  }
}

/** Writes one message, and keeps how it ended. The lock is held as long as what is kept says that it is being written. */
async function writeOne(conversation, run, message, context) {
  const { keep, goesOn, host, asked } = context;
  // Before the lock, which may take a moment: an empty answer that nobody writes is never shown.
  prepare(message, goesOn);
  Object.assign(message, { model: host.name, format: asked.format });
  Object.assign(run, { message, tokens: 0 });
  add(conversation, message);
  const work = async () => {
    await keep([message]);
    try {
      await write(conversation, run, goesOn, context);
      message.state = message.finish === 'cancelled' ? 'interrupted' : 'done';
    } catch (error) {
      const { code = 'internal', message: words } = error;
      Object.assign(message, { state: 'failed', error: { code, message: words } });
      throw error;
    } finally {
      await keep([message]);
    }
  };
  await underLock(lockOf(message), work);
}

/** Works under a lock, and without one where the browser has none for this page, as in a frame that is in a sandbox. */
async function underLock(name, work) {
  const { locks } = globalThis.navigator ?? {};
  let hasBegun = false;
  const begin = () => {
    hasBegun = true;
    return work();
  };
  try {
    await (locks === undefined ? begin() : locks.request(name, begin));
  } catch (error) {
    if (hasBegun) throw error;
    await begin();
  }
}

/** Runs the calls that have no result and that this page answers; false if others are left, whose results a person gives. */
async function runCalls(conversation, run, message, { keep, onChange }) {
  const { meta, messages } = conversation;
  const { signal } = run.abort;
  const open = openCalls(pathTo(messages, meta.leaf), message) ?? [];
  for (const call of open.filter(({ name }) => isBuiltIn(name))) {
    const content = await runTool(call, { signal, consent: (url) => consent(run, url, onChange) });
    const result = { ...newMessage(meta, meta.leaf, 'tool', content), call: call.id };
    add(conversation, result);
    await keep([result]);
  }
  return open.every(({ name }) => isBuiltIn(name));
}

/** A message that is written again begins empty; one that goes on keeps what it has. */
function prepare(message, goesOn) {
  Object.assign(message, { state: 'writing', error: undefined, finish: undefined });
  if (!goesOn) Object.assign(message, { content: '', reasoning: undefined, calls: undefined });
}

/** One answer of the engine. */
async function write(conversation, run, goesOn, { host, asked, keep, onPart, onAnswer }) {
  const { engine } = host;
  const { message, abort } = run;
  const path = pathTo(conversation.messages, goesOn ? message.id : message.parent);
  const request = requestOf({ path, goesOn, ...asked });
  let keeping;
  try {
    const before = await engine.stats();
    await writeAnswer(engine, request, message, {
      signal: abort.signal,
      onPart: (part) => {
        run.tokens += part.tokens;
        onPart(message, part);
        keeping ??= setTimeout(() => {
          keeping = undefined;
          void keep([message], false);
        }, SAVE_MS);
      },
    });
    // An engine that was disposed of in between has no figures.
    const after = await engine.stats().catch(() => undefined);
    if (after !== undefined && message.usage !== undefined) onAnswer({ before, after, message });
  } finally {
    clearTimeout(keeping);
  }
}

/** Asks the person whether an address may be fetched; rejects if the run is stopped. */
function consent(run, url, onChange) {
  const { signal } = run.abort;
  return new Promise((resolve, reject) => {
    const end = () => {
      run.consent = undefined;
      signal.removeEventListener('abort', abort);
      onChange();
    };
    const abort = () => {
      end();
      reject(signal.reason);
    };
    run.consent = { url, answer: (isAllowed) => (end(), resolve(isAllowed)) };
    signal.addEventListener('abort', abort, { once: true });
    onChange();
  });
}
