// Responses that are kept in memory, with the conversations that they end. Items that several conversations share are there once. It
// knows nothing of how responses come about.

import { EngineError } from '../errors.js';
import type { ModelResponse, ResponseItem } from './types.js';

export const MOST_RESPONSES = 256;
export const MOST_BYTES = 32 * 1024 * 1024;

interface Kept {
  response: ModelResponse;
  bytes: number;
  /** What the model was given. */
  input: ResponseItem[];
  /** What a further response goes on from: the input and the output. */
  conversation: ResponseItem[];
}

export class ResponseStore {
  /** The oldest first. */
  #kept = new Map<string, Kept>();
  /** How many conversations have an item, and its bytes. */
  #items = new Map<ResponseItem, { users: number; bytes: number }>();
  #bytes = 0;
  #mostResponses: number;
  #mostBytes: number;

  constructor(mostResponses = MOST_RESPONSES, mostBytes = MOST_BYTES) {
    this.#mostResponses = mostResponses;
    this.#mostBytes = mostBytes;
  }

  /** Keeps a response. What is too much goes, the oldest responses first; a response that is too much by itself is not kept. */
  put(response: ModelResponse, input: ResponseItem[], output: ResponseItem[]): void {
    const kept: Kept = { response: structuredClone(response), bytes: bytesOf(response), input, conversation: [...input, ...output] };
    const sizes = new Map(kept.conversation.map((item) => [item, this.#items.get(item)?.bytes ?? bytesOf(item)]));
    if ([...sizes.values()].reduce((sum, bytes) => sum + bytes, kept.bytes) > this.#mostBytes) return;
    this.#kept.set(response.id, kept);
    this.#bytes += kept.bytes;
    for (const item of kept.conversation) {
      const entry = this.#items.get(item);
      if (entry !== undefined) entry.users += 1;
      else {
        const bytes = sizes.get(item)!;
        this.#items.set(item, { users: 1, bytes });
        this.#bytes += bytes;
      }
    }
    for (const id of this.#kept.keys()) {
      if (this.#kept.size <= this.#mostResponses && this.#bytes <= this.#mostBytes) break;
      this.delete(id);
    }
  }

  has(id: string): boolean {
    return this.#kept.has(id);
  }

  response(id: string): ModelResponse {
    return structuredClone(this.#get(id).response);
  }

  input(id: string): ResponseItem[] {
    return structuredClone(this.#get(id).input);
  }

  conversation(id: string): ResponseItem[] {
    return this.#get(id).conversation;
  }

  /** What `put` was called with. */
  kept(id: string): { response: ModelResponse; input: ResponseItem[]; output: ResponseItem[] } {
    const { response, input, conversation } = this.#get(id);
    return structuredClone({ response, input, output: conversation.slice(input.length) });
  }

  /** The newest item of this id. */
  item(id: string): ResponseItem | undefined {
    let found: ResponseItem | undefined;
    for (const item of this.#items.keys()) if (item.id === id) found = item;
    return found;
  }

  delete(id: string): void {
    const kept = this.#get(id);
    this.#kept.delete(id);
    this.#bytes -= kept.bytes;
    for (const item of kept.conversation) {
      const entry = this.#items.get(item)!;
      entry.users -= 1;
      if (entry.users > 0) continue;
      this.#items.delete(item);
      this.#bytes -= entry.bytes;
    }
  }

  clear(): void {
    this.#kept.clear();
    this.#items.clear();
    this.#bytes = 0;
  }

  #get(id: string): Kept {
    const kept = this.#kept.get(id);
    if (kept !== undefined) return kept;
    const hint = `the newest ${this.#mostResponses} responses are kept, unless store is false, while the engine is loaded`;
    throw new EngineError('not_found', `there is no response ${JSON.stringify(id)}: ${hint}`);
  }
}

/** As text in memory, two bytes a character. */
function bytesOf(value: object): number {
  return 2 * JSON.stringify(value).length;
}
