// A page for tests of several models behind one `fetch`, with small models and what such tests ask.

import { openStage } from '../browser.mjs';

/** Opens the page: there are `rillm`, `quiet`, `gated`, `ask`, `states`, `until` and `small` in it. */
export async function openServing() {
  const stage = await openStage();
  // Chromium writes every status of an error to the console.
  const { page, close } = await stage.openPage({ allowed: [/Failed to load resource/] });
  await page.evaluate(async () => {
    const rillm = await import('/rillm/dist/index.js');
    const quiet = { onWarning: () => {}, contextLength: 256 };
    /** A source that reads when its gate is open; `reads` counts. */
    const gated = async (url) => {
      const blob = await (await fetch(url)).blob();
      let open;
      const gate = new Promise((resolve) => (open = resolve));
      const source = {
        size: blob.size,
        name: 'model.gguf',
        reads: 0,
        open,
        async read(offset, length) {
          source.reads += 1;
          await gate;
          return blob.slice(offset, offset + length).arrayBuffer();
        },
      };
      return source;
    };
    /** Sends a request; → status, code of the error, backend, and the body. */
    const ask = async (server, more, init = {}, path = 'chat/completions') => {
      const body = { messages: [{ role: 'user', content: 'The small boat' }], max_tokens: 2, temperature: 0, ignore_eos: true, ...more };
      const response = await server.fetch(`http://x/v1/${path}`, { method: 'POST', body: JSON.stringify(body), ...init });
      if (body.stream && response.ok) return response;
      const json = await response.json();
      return { status: response.status, code: json.error?.code, backend: response.headers.get('x-rillm-backend'), json };
    };
    const states = (server) => Object.fromEntries(server.list().map(({ id, state }) => [id, state]));
    const until = async (done) => {
      for (let tries = 0; !done() && tries < 1000; tries++) await new Promise((resolve) => setTimeout(resolve, 10));
      if (!done()) throw new Error(`never: ${done}`);
    };
    const small = (name = 'tied-q8_0') => ({ source: `/golden/${name}.gguf`, options: quiet });
    Object.assign(globalThis, { rillm, quiet, gated, ask, states, until, small });
  });
  return {
    stage,
    run: (fn, argument) => page.evaluate(fn, argument),
    async close() {
      await close();
      await stage.close();
    },
  };
}
