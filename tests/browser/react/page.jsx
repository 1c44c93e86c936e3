// What the tests of rillm/react use in the page: React, the hooks in components that keep what they return, and engines that say what a test wants.
// Bundled by `react.test.mjs`.

import { StrictMode, useEffect } from 'react';
import { flushSync } from 'react-dom';
import { createRoot } from 'react-dom/client';
import { useChat, useEngine } from 'rillm/react';

import { assert } from '../clients/assert.js';

/**
 * Renders a component that calls `useIt(props)`. `current` is what it returned last, `seen` all that it returned. With `useChild`, a component inside has
 * it as an effect, which runs before those of its parent.
 */
function renderHook(useIt, { props, isStrict = false, childEffect } = {}) {
  const seen = [];
  const root = createRoot(document.createElement('div'));
  function Child({ value }) {
    useEffect(() => childEffect?.(value), []);
    return null;
  }
  function Probe({ given }) {
    const value = useIt(given);
    seen.push(value);
    return <Child value={value} />;
  }
  const render = (given) => {
    const probe = <Probe given={given} />;
    // With its effects, so that what a test does next finds them.
    flushSync(() => root.render(isStrict ? <StrictMode>{probe}</StrictMode> : probe));
  };
  render(props);
  const hook = {
    seen,
    get current() {
      return seen.at(-1);
    },
    render,
    unmount: () => flushSync(() => root.unmount()),
    /** Resolves to what is returned when `wanted` says that it is that. */
    until: async (wanted) => {
      for (let turn = 0; turn < 2000; turn++) {
        if (seen.length > 0 && wanted(hook.current)) return hook.current;
        await new Promise((resolve) => setTimeout(resolve, turn < 100 ? 1 : 10));
      }
      const { messages, status, error } = hook.current ?? {};
      throw new Error(`it does not come to ${wanted}: ${JSON.stringify({ messages, status, error: error?.message })}`);
    },
  };
  return hook;
}

/**
 * An engine whose answers a test writes. `asked` has the requests; each has `begin()`, `say(delta)`, `end()`, `fail(error)` and, like an engine's, an answer
 * that ends when its signal aborts.
 */
function scriptedEngine() {
  const asked = [];
  const create = (request, { signal }) => {
    signal.throwIfAborted();
    const queue = [];
    let wake = () => {};
    const push = (item) => (queue.push(item), wake());
    const choice = (delta, more) => ({ choices: [{ index: 0, delta, finish_reason: null, token_ids: [], logprobs: null, ...more }] });
    async function* stream() {
      yield choice({ role: 'assistant', content: '' });
      for (;;) {
        while (queue.length === 0) await new Promise((resolve) => (wake = resolve));
        const { chunk, done, error } = queue.shift();
        if (error) throw error;
        if (done) return;
        if (chunk) yield chunk;
      }
    }
    return new Promise((resolve, reject) => {
      const entry = {
        request: structuredClone(request),
        signal,
        begin: () => (signal.addEventListener('abort', () => push({ done: true })), resolve(stream())),
        say: (delta, more) => push({ chunk: choice(typeof delta === 'string' ? { content: delta } : delta, more) }),
        end: (reason = 'stop') => (
          push({ chunk: { ...choice({}, { finish_reason: reason }), usage: { total_tokens: 7 } } }), push({ done: true })
        ),
        fail: (error) => (push({ error }), reject(error)),
      };
      asked.push(entry);
      signal.addEventListener('abort', () => reject(Object.assign(new Error('it was aborted'), { code: 'aborted' })));
    });
  };
  return { asked, chat: { completions: { create } } };
}

Object.assign(globalThis, { assert, renderHook, scriptedEngine, useChat, useEngine });
