// Starts the dedicated worker, whatever serves the package: a bundler, a CDN, or files as they are. It knows nothing of messages.

import { EngineError, noWebGpu, toEngineError } from './errors.js';

/** With a name that no bundler looks for: what they find, they copy or rewrite. */
const FILE = './worker.js';

/** `make` makes the worker, in place of the package's own way. */
export function startWorker(make: (() => Worker) | undefined): Worker {
  if (typeof Worker === 'undefined') {
    throw globalThis.navigator?.gpu === undefined
      ? noWebGpu()
      : new EngineError('worker_unavailable', 'there are no workers here: pass {worker: false} to run on this thread');
  }
  if (make !== undefined) return madeBy(make);
  const policy = isBundled() ? undefined : trustedTypesPolicy();
  try {
    if (policy !== undefined) return new Worker(policy.createScriptURL(scriptUrl()) as string, { type: 'module' });
    // Bundlers look for exactly this expression.
    return new Worker(new URL('./worker.js', import.meta.url), { type: 'module' });
  } catch (thrown) {
    if (!(thrown instanceof DOMException && thrown.name === 'SecurityError')) throw toEngineError(thrown);
    // The package comes from another origin, such as a CDN. A worker must be of the page's origin, its imports need not.
    const code = `import ${JSON.stringify(scriptUrl())};`;
    const url = URL.createObjectURL(new Blob([code], { type: 'text/javascript' }));
    const worker = new Worker((policy?.createScriptURL(url) ?? url) as string, { type: 'module' });
    // The worker has read the code when it first speaks or fails.
    const revoke = () => URL.revokeObjectURL(url);
    worker.addEventListener('message', revoke, { once: true });
    worker.addEventListener('error', revoke, { once: true });
    return worker;
  }
}

function madeBy(make: () => Worker): Worker {
  let made: unknown;
  try {
    made = make();
  } catch (thrown) {
    throw new EngineError('worker_unavailable', `the option worker failed: ${String(thrown)}`, { cause: thrown });
  }
  if (made instanceof Worker) return made;
  throw new EngineError(
    'invalid_request',
    `the option worker returned ${made === null ? 'null' : typeof made}, wanted a Worker that runs rillm/worker`,
  );
}

function scriptUrl(): string {
  return new URL(FILE, import.meta.url).href;
}

/** A bundler gives this module another name. */
function isBundled(): boolean {
  return !new URL(import.meta.url).pathname.endsWith('/start_worker.js');
}

interface TrustedTypesPolicy {
  createScriptURL(url: string): unknown;
}

let policy: TrustedTypesPolicy | undefined;

/** The policy `rillm`, with which a page that requires Trusted Types lets the package start its own worker and nothing else. */
function trustedTypesPolicy(): TrustedTypesPolicy | undefined {
  const { trustedTypes } = globalThis as { trustedTypes?: { createPolicy(name: string, rules: TrustedTypesPolicy): TrustedTypesPolicy } };
  const createScriptURL = (url: string) => {
    if (url === scriptUrl() || url.startsWith('blob:')) return url;
    throw new TypeError(`rillm starts no other script than its worker, got ${url}`);
  };
  try {
    policy ??= trustedTypes?.createPolicy('rillm', { createScriptURL });
  } catch {
    // The page allows no such policy. It may not require Trusted Types either.
  }
  return policy;
}
