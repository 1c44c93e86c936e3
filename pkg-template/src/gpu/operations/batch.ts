// The operations of tensors as methods of a batch.

import { OPERATIONS, type BufferId, type BufferOperations, type OperationName } from './noted.js';

/** What a batch has methods of its own for. */
type Own = 'max' | 'min' | 'dot' | 'matmul' | 'gelu';
const OWN: readonly OperationName[] = ['max', 'min', 'dot', 'matmul', 'gelu'] satisfies Own[];

/** Notes operations. */
abstract class Noting {
  /** @internal */
  protected abstract noted<K extends OperationName>(name: K, x: BufferId, args: readonly unknown[]): never;
}

for (const name of OPERATIONS.filter((name) => !OWN.includes(name))) {
  Object.defineProperty(Noting.prototype, name, {
    configurable: true,
    writable: true,
    value(this: Noting & { noted: Noting['noted'] }, x: BufferId, ...args: unknown[]) {
      return this.noted(name, x, args);
    },
  });
}

/** A batch's operations: those of tensors, whose first argument is a buffer. */
export const BatchOperations = Noting as unknown as abstract new () => Noting & BufferOperations<Exclude<OperationName, Own>>;
