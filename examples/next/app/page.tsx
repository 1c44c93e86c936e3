// Rendered on the server like any page; the chat comes to life on the client.

import { Chat } from './chat';

export default function Page() {
  return (
    <main>
      <h1>A chat</h1>
      <Chat />
    </main>
  );
}
