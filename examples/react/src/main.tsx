// One engine, and two chats with it: by rillm/react, and by the AI SDK.

import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { useEngine } from 'rillm/react';

import { AiSdkChat } from './ai_sdk_chat.js';
import { RillmChat } from './rillm_chat.js';
import './style.css';

const MODEL: string = import.meta.env.VITE_MODEL ?? 'hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M';

function App() {
  const { engine, progress, error, reload } = useEngine(MODEL);
  if (error) {
    return (
      <p role="alert">
        {error.message}{' '}
        <button type="button" onClick={reload}>
          Try again
        </button>
      </p>
    );
  }
  if (!engine) {
    const { loaded = 0, total = 0 } = progress ?? {};
    return (
      <p role="status">
        Loading the model: {(loaded / 1e6).toFixed()} of {(total / 1e6).toFixed()} MB
      </p>
    );
  }
  return (
    <main>
      <h1>Two chats, one engine</h1>
      <RillmChat engine={engine} />
      <AiSdkChat engine={engine} />
    </main>
  );
}

createRoot(document.getElementById('root')!).render(
  <StrictMode>
    <App />
  </StrictMode>,
);
