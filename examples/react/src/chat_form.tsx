// The line to write in, the same for both chats.

import type { FormEvent } from 'react';

export interface ChatFormProps {
  status: string;
  error: Error | undefined;
  onSend: (text: string) => void;
  onStop: () => void;
  onRegenerate: () => void;
}

export function ChatForm({ status, error, onSend, onStop, onRegenerate }: ChatFormProps) {
  const isBusy = status === 'submitted' || status === 'streaming';
  const send = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = event.currentTarget;
    const text = new FormData(form).get('text');
    if (isBusy || typeof text !== 'string') return;
    form.reset();
    onSend(text);
  };
  return (
    <>
      {error && <p role="alert">{error.message}</p>}
      <form onSubmit={send}>
        <input name="text" aria-label="Your message" autoComplete="off" required />
        <button type="submit" disabled={isBusy}>
          Send
        </button>
        {isBusy ? (
          <button type="button" onClick={onStop}>
            Stop
          </button>
        ) : (
          <button type="button" onClick={onRegenerate}>
            Again
          </button>
        )}
      </form>
    </>
  );
}
