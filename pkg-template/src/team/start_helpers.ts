// Starts the threads of a team: workers in a browser, and threads of Node's kind on a server.

import { isServer, startServerThread } from '../node.js';
import type { ToWorker } from '../protocol.js';
import { startWorker } from '../start_worker.js';
import { type HelperData, SERVER_HELPER, type SharedMemory } from './helper.js';

interface Thread {
  /** Gives it a memory more, with the end of its stack there. */
  give(memory: WebAssembly.Memory, stack: number): void;
  stop(): void;
}

export class Helpers {
  #all: Thread[] = [];
  /** Those of the team that was started last. */
  #team: Thread[] = [];

  /** Starts as many as can be; how many these are. */
  start(helpers: HelperData[], make?: (() => Worker) | undefined): number {
    this.#team = [];
    for (const data of helpers) {
      try {
        this.#team.push(isServer() ? serverThread(data) : workerThread(data, make));
      } catch {
        break;
      }
    }
    this.#all.push(...this.#team);
    return this.#team.length;
  }

  /** Gives those of the last team a memory more. */
  share({ memory, stacks }: SharedMemory): void {
    for (const [number, thread] of this.#team.entries()) {
      const stack = stacks[number];
      if (stack !== undefined) thread.give(memory, stack);
    }
  }

  /** Ends them at once, whatever they do. Those of a team that has ended are gone by themselves. */
  stop(): void {
    for (const { stop } of this.#all.splice(0)) stop();
    this.#team = [];
  }
}

function serverThread(data: HelperData): Thread {
  const { post, stop } = startServerThread(SERVER_HELPER, data);
  return { give: (memory, stack) => post({ memory, stack }), stop };
}

function workerThread(data: HelperData, make: (() => Worker) | undefined): Thread {
  const worker = startWorker(make);
  const post = (message: ToWorker) => worker.postMessage(message);
  worker.addEventListener('error', (event) => event.preventDefault());
  try {
    post({ type: 'help', ...data });
  } catch (thrown) {
    worker.terminate();
    throw thrown;
  }
  return { give: (memory, stack) => post({ type: 'help-more', memory, stack }), stop: () => worker.terminate() };
}
