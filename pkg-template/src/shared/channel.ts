// A BroadcastChannel on which rillm speaks with itself. What others say there, or another version, is not heard.

import { PROTOCOL } from './messages.js';

interface Envelope<Message> {
  rillm: number;
  /** Of which leader it is, or to which one it goes; empty where there is none. */
  leader: string;
  message: Message;
}

export class SharedChannel<In extends { type: string }, Out extends { type: string }> {
  #channel: BroadcastChannel;

  constructor(name: string, receive: (message: In, leader: string) => void) {
    this.#channel = new BroadcastChannel(name);
    this.#channel.onmessage = ({ data }: MessageEvent<unknown>) => {
      if (isEnvelope<In>(data)) receive(data.message, data.leader);
    };
  }

  /** Throws what the browser throws at things that can't be copied. */
  post(message: Out, leader: string): void {
    const envelope: Envelope<Out> = { rillm: PROTOCOL, leader, message };
    this.#channel.postMessage(envelope);
  }

  close(): void {
    this.#channel.onmessage = null;
    this.#channel.close();
  }
}

function isEnvelope<Message>(data: unknown): data is Envelope<Message> {
  if (typeof data !== 'object' || data === null) return false;
  const { rillm, leader, message } = data as Partial<Envelope<{ type?: unknown } | null>>;
  return rillm === PROTOCOL && typeof leader === 'string' && typeof message?.type === 'string';
}
