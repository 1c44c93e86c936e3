// A chat by the AI SDK: its useChat, with an agent in the page whose model is the engine. The engine's fetch stands for a server of OpenAI's API.

import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { useChat } from '@ai-sdk/react';
import { DirectChatTransport, ToolLoopAgent } from 'ai';
import { useMemo } from 'react';
import type { Engine } from 'rillm';

import { ChatForm } from './chat_form.js';

function transportOf({ fetch }: Engine) {
  const provider = createOpenAICompatible({ name: 'rillm', baseURL: 'http://rillm/v1', fetch, supportsStructuredOutputs: true });
  return new DirectChatTransport({
    agent: new ToolLoopAgent({ model: provider('rillm'), instructions: 'Answer briefly.', temperature: 0, maxRetries: 0 }),
  });
}

export function AiSdkChat({ engine }: { engine: Engine }) {
  const transport = useMemo(() => transportOf(engine), [engine]);
  const { messages, status, error, sendMessage, stop, regenerate } = useChat({ transport });
  return (
    <section aria-label="AI SDK">
      <h2>AI SDK</h2>
      <ol aria-live="polite" aria-busy={status === 'streaming'}>
        {messages.map(({ id, role, parts }) => (
          <li key={id} className={role}>
            {parts.map((part) => (part.type === 'text' ? part.text : ''))}
          </li>
        ))}
      </ol>
      <ChatForm status={status} error={error} onSend={(text) => sendMessage({ text })} onStop={stop} onRegenerate={() => regenerate()} />
    </section>
  );
}
