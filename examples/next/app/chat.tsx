'use client';

// The chat. Effects run on the client alone, so the model is never loaded on the server.

import { type FormEvent, useState } from 'react';
import { useChat, useEngine } from 'rillm/react';

const MODEL = process.env.NEXT_PUBLIC_MODEL ?? 'hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M';

export function Chat() {
  /** The download begins when somebody wants to write. */
  const [isWanted, setIsWanted] = useState(false);
  const { engine, progress, error: loadError, reload } = useEngine(isWanted ? MODEL : undefined);
  const { messages, status, error: chatError, send, stop } = useChat(engine, { temperature: 0 });
  const isBusy = status === 'submitted' || status === 'streaming';
  const isLoading = isWanted && !engine && !loadError;
  const error = loadError ?? chatError;

  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const text = new FormData(event.currentTarget).get('text');
    if (!engine || isBusy || typeof text !== 'string') return;
    event.currentTarget.reset();
    send(text);
  };

  return (
    <>
      <ol aria-live="polite" aria-busy={isBusy}>
        {messages.map(({ role, content }, at) => (
          <li key={at} className={role}>
            {String(content)}
          </li>
        ))}
      </ol>
      {isLoading && (
        <p role="status">
          Loading the model: {((progress?.loaded ?? 0) / 1e6).toFixed()} of {((progress?.total ?? 0) / 1e6).toFixed()} MB
        </p>
      )}
      {error && (
        <p role="alert">
          {error.message}{' '}
          {loadError && (
            <button type="button" onClick={reload}>
              Try again
            </button>
          )}
        </p>
      )}
      <form onSubmit={submit}>
        <input name="text" aria-label="Your message" autoComplete="off" required onFocus={() => setIsWanted(true)} />
        <button type="submit" disabled={!engine || isBusy}>
          Send
        </button>
        {isBusy && (
          <button type="button" onClick={stop}>
            Stop
          </button>
        )}
      </form>
    </>
  );
}
