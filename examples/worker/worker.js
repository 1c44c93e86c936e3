// The worker: holds the engine, and the work that goes on whatever the page does. Import maps don't reach workers, hence the path.

import { Engine } from '/node_modules/rillm/dist/index.js';

const MODEL = new URL(location.href).searchParams.get('model');
let engine;
let abort;

async function sumUp(texts, { signal }) {
  engine ??= await Engine.load(MODEL, {
    worker: false, // On this thread: it is a worker already.
    signal,
    onProgress: ({ loaded, total }) => postMessage({ loaded, total }),
  });
  for (const [index, text] of texts.entries()) {
    postMessage({ index, text: '' });
    const messages = [{ role: 'user', content: `Sum this up in at most five words: ${text}` }];
    const request = { messages, max_tokens: 40, temperature: 0, stream: true };
    const stream = await engine.chat.completions.create(request, { signal });
    for await (const { choices } of stream) postMessage({ index, text: choices[0].delta.content ?? '' });
    signal.throwIfAborted();
  }
}

addEventListener('message', async ({ data: { texts, stop } }) => {
  if (stop) return abort?.abort();
  abort = new AbortController();
  try {
    await sumUp(texts, abort);
  } catch (error) {
    if (!abort.signal.aborted) postMessage({ error: error.message });
  }
  postMessage({ done: true });
});
