// Where the engines of a run compute: on the GPU, or on the CPU with so many threads. For the page and for the command.

/** Threads that more would not help, as engines choose by themselves. */
const MOST_THREADS = 8;

export const DEVICES = ['gpu', 'cpu'];

/**
 * → {device, threads}. `threads` is a number, or `all`: one fewer than cores, at most 8. It throws what to say to a person.
 */
export function placeOf({ device = 'gpu', threads }, cores) {
  if (!DEVICES.includes(device)) throw new Error(`the device is ${DEVICES.join(' or ')}, and not ${device}`);
  if (device === 'gpu' && threads !== undefined) throw new Error('threads are of the CPU: pass the device cpu too');
  if (threads === 'all') return { device, threads: Math.min(MOST_THREADS, Math.max(1, cores - 1)) };
  if (!/^[1-9]\d?$/.test(threads ?? '1')) throw new Error(`threads are a number from 1 to 99, or all, and not ${threads}`);
  return { device, threads: Number(threads ?? '1') };
}

/** What a table says of it. */
export const cpuOf = (threads) => `CPU, ${threads === 1 ? 'one thread' : `${threads} threads`}`;
