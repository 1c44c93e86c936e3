// A digester at the other end of a port, and that end itself. The bytes are moved, not copied.

import { EngineError } from '../errors.js';
import type { Digester } from './digester.js';

type ToDigester = { type: 'update'; bytes: Uint8Array<ArrayBuffer> } | { type: 'digest' } | { type: 'free' };
type FromDigester = { type: 'ready' } | { type: 'digest'; digest: string } | { type: 'failed'; message: string };

/** How many updates may be under way, so that the worker is never without work. */
const AHEAD = 2;

/** What computes: `WasmSha256`. */
export interface Hasher {
  update(bytes: Uint8Array): void;
  digest(): string;
  free(): void;
}

export class PortDigester implements Digester {
  #port: MessagePort;
  #open = 0;
  #error: EngineError | undefined;
  #changed: () => void = () => {};
  #digest: string | undefined;

  constructor(port: MessagePort) {
    this.#port = port;
    port.onmessage = ({ data }: MessageEvent<FromDigester>) => {
      if (data.type === 'ready') this.#open -= 1;
      else if (data.type === 'digest') this.#digest = data.digest;
      else this.#error = new EngineError('internal', `the worker that computes digests failed: ${data.message}`);
      this.#changed();
    };
  }

  async update(bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    this.#open += 1;
    this.#port.postMessage({ type: 'update', bytes } satisfies ToDigester, [bytes.buffer]);
    await this.#until(() => this.#open < AHEAD);
  }

  async digest(): Promise<string> {
    this.#port.postMessage({ type: 'digest' } satisfies ToDigester);
    await this.#until(() => this.#digest !== undefined);
    return this.#digest!;
  }

  free(): void {
    this.#port.postMessage({ type: 'free' } satisfies ToDigester);
    this.#port.close();
    this.#error ??= new EngineError('aborted', 'the digest is not wanted any more');
    this.#changed();
  }

  async #until(isSo: () => boolean): Promise<void> {
    while (!isSo()) {
      if (this.#error !== undefined) throw this.#error;
      await new Promise<void>((resolve) => (this.#changed = resolve));
    }
  }
}

/** Computes on this thread. */
export class InlineDigester implements Digester {
  #hasher: Hasher;
  #isFreed = false;

  constructor(hasher: Hasher) {
    this.#hasher = hasher;
  }

  async update(bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    if (!this.#isFreed) this.#hasher.update(bytes);
  }

  async digest(): Promise<string> {
    if (this.#isFreed) throw new EngineError('aborted', 'the digest is not wanted any more');
    return this.#hasher.digest();
  }

  free(): void {
    if (!this.#isFreed) this.#hasher.free();
    this.#isFreed = true;
  }
}

/** Answers a PortDigester. */
export function serveDigester(port: MessagePort, makeHasher: () => Promise<Hasher>): void {
  const hasher = makeHasher();
  const answer = (message: FromDigester) => port.postMessage(message);
  const failed = (thrown: unknown) => answer({ type: 'failed', message: String(thrown) });
  hasher.catch(failed);
  // One after the other, also while the hasher is being made.
  let turn: Promise<void> = hasher.then(
    () => {},
    () => {},
  );
  port.onmessage = ({ data }: MessageEvent<ToDigester>) => {
    turn = turn.then(async () => {
      try {
        const made = await hasher;
        if (data.type === 'update') {
          made.update(data.bytes);
          answer({ type: 'ready' });
        } else if (data.type === 'digest') answer({ type: 'digest', digest: made.digest() });
        else {
          made.free();
          port.close();
        }
      } catch (thrown) {
        failed(thrown);
      }
    });
  };
}
