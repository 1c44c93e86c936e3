// A story in Vite and TypeScript: a model that loads when it is first asked, an answer as it streams, and how both are stopped.

import { Engine, EngineError } from 'rillm';

import './style.css';

const MODEL: string = import.meta.env.VITE_MODEL ?? 'hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M';

const element = <T extends HTMLElement>(id: string) => document.getElementById(id) as T;
const hero = element<HTMLInputElement>('hero');
const tell = element<HTMLButtonElement>('tell');
const [stop, status, alert, story] = ['stop', 'status', 'alert', 'story'].map(element) as [
  HTMLElement,
  HTMLElement,
  HTMLElement,
  HTMLElement,
];
let engine: Engine | undefined;
let abort = new AbortController();

async function write(content: string, signal: AbortSignal): Promise<void> {
  engine ??= await Engine.load(MODEL, {
    signal,
    onProgress: ({ loaded, total }) => {
      status.textContent = `Loading the model: ${(loaded / 1e6).toFixed()} of ${(total / 1e6).toFixed()} MB`;
    },
  });
  status.textContent = '';
  const messages = [{ role: 'user', content } as const];
  const stream = await engine.chat.completions.create({ messages, temperature: 0.7, max_tokens: 400, stream: true }, { signal });
  story.textContent = '';
  for await (const { choices } of stream) story.append(choices[0]?.delta.content ?? '');
}

element('form').addEventListener('submit', async (event) => {
  event.preventDefault();
  abort = new AbortController();
  alert.hidden = true;
  tell.disabled = true;
  stop.hidden = false;
  try {
    await write(`Tell me a story about ${hero.value}.`, abort.signal);
  } catch (error) {
    const isStopped = error instanceof EngineError && error.code === 'aborted';
    alert.textContent = String((error as Error).message);
    alert.hidden = isStopped;
  }
  status.textContent = '';
  tell.disabled = false;
  stop.hidden = true;
});
stop.addEventListener('click', () => abort.abort());
