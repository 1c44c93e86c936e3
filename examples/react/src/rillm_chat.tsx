// A chat by the hook of rillm/react.

import type { Engine } from 'rillm';
import { useChat } from 'rillm/react';

import { ChatForm } from './chat_form.js';

const SYSTEM = { role: 'system', content: 'Answer briefly.' } as const;

export function RillmChat({ engine }: { engine: Engine }) {
  const { messages, status, error, send, stop, regenerate } = useChat(engine, { initialMessages: [SYSTEM], temperature: 0 });
  return (
    <section aria-label="rillm/react">
      <h2>rillm/react</h2>
      <ol aria-live="polite" aria-busy={status === 'streaming'}>
        {messages.map(
          ({ role, content }, at) =>
            role !== 'system' && (
              // Messages have no ids; they are only added and cut at the end.
              <li key={at} className={role}>
                {String(content)}
              </li>
            ),
        )}
      </ol>
      <ChatForm status={status} error={error} onSend={send} onStop={stop} onRegenerate={regenerate} />
    </section>
  );
}
