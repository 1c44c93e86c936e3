// Starts the dedicated worker, whatever serves the package: a bundler, a CDN, or files as they are. It knows nothing of messages.

import { describe, reading } from './arguments.js';
import { EngineError, noWebGpu, textOf, toEngineError } from './errors.js';

/** With a name that no bundler looks for: what they find, they copy or rewrite. */
const FILE = './worker.js';

/** Those that callers made. Each does one thing, and is ended after that. */
const IN_USE = new WeakSet<Worker>();

/** `make` makes the worker, in place of the package's own way. */
export function startWorker(make: (() => Worker) | undefined): Worker {
  if (typeof Worker === 'undefined') {
    throw globalThis.navigator?.gpu === undefined
      ? noWebGpu()
      : new EngineError('worker_unavailable', 'there are no workers here: leave the option worker out to run on this thread');
  }
  if (make !== undefined) return madeBy(make);
  const policy = isBundled() ? undefined : trustedTypesPolicy();
  // No script is of the same origin, and Firefox says so only later.
  if (hasNoOrigin()) return ofAnotherOrigin(policy);
  try {
    if (policy !== undefined) return new Worker(policy.createScriptURL(scriptUrl()) as string, { type: 'module' });
    return withBundler();
  } catch (thrown) {
    if (!(thrown instanceof DOMException && thrown.name === 'SecurityError')) throw toEngineError(thrown);
    return ofAnotherOrigin(policy);
  }
}

/** A frame in a sandbox, or a page of a file. */
const hasNoOrigin = () => globalThis.origin === 'null';

/** Where the package comes from another origin, such as a CDN: a worker must be of the page's origin, its imports need not. */
function ofAnotherOrigin(policy: TrustedTypesPolicy | undefined): Worker {
  const code = `import ${JSON.stringify(workerAddress())};`;
  // Where there is no origin, Chromium (156) starts no module of a Blob, and WebKit none where the page asks for cross-origin isolation.
  const isBlob = !hasNoOrigin();
  const url = isBlob ? URL.createObjectURL(new Blob([code], { type: 'text/javascript' })) : DATA + encodeURIComponent(code);
  const worker = new Worker((policy?.createScriptURL(url) ?? url) as string, { type: 'module' });
  if (isBlob) {
    // The worker has read the code when it first speaks or fails.
    const revoke = () => URL.revokeObjectURL(url);
    worker.addEventListener('message', revoke, { once: true });
    worker.addEventListener('error', revoke, { once: true });
  }
  return worker;
}

/** What an address begins with that is a script itself. */
const DATA = 'data:text/javascript,';

function withBundler(): Worker {
  // Bundlers look for exactly this expression.
  return new Worker(new URL('./worker.js', import.meta.url), { type: 'module' });
}

/** Where the worker's script is, wherever a bundler put it. */
export function workerAddress(): string {
  if (!isBundled()) return scriptUrl();
  const place = globalThis as { Worker: unknown };
  const own = place.Worker;
  let address: unknown;
  // What a bundler made of the expression is known to nobody but the Worker that is called; this one starts nothing.
  place.Worker = (url: unknown) => {
    address = url;
  };
  try {
    withBundler();
  } catch {
    // What a bundler made of it fails by itself, and the address is what it would be without one.
  } finally {
    place.Worker = own;
  }
  return new URL(String(address ?? scriptUrl()), globalThis.location?.href).href;
}

/** This module's own address, by which bundlers and servers are known. */
export function ownAddress(): string {
  return import.meta.url;
}

function madeBy(make: () => Worker): Worker {
  let made: unknown;
  try {
    made = make();
  } catch (thrown) {
    throw new EngineError('worker_unavailable', `the option worker failed: ${textOf(thrown)}`, { cause: thrown });
  }
  if (reading('what the option worker returned', () => made instanceof Worker)) {
    const worker = made as Worker;
    if (IN_USE.has(worker)) {
      throw new EngineError('invalid_request', 'the option worker returned a Worker that it had returned before: make a new one each time');
    }
    IN_USE.add(worker);
    return worker;
  }
  throw new EngineError('invalid_request', `the option worker returned ${describe(made)}, wanted a Worker that runs rillm/worker`);
}

function scriptUrl(): string {
  // Not in one expression: bundlers take `new URL(…, import.meta.url)` for a file that they should find.
  const own = ownAddress();
  return new URL(FILE, own).href;
}

/** What the package's build calls the file that this module is in; the other is the module by itself. */
const OWN_NAME = /\/(?:rillm\.part-[0-9A-Z]{8}|start_worker)\.js$/;

/** A bundler gives that file another name, or lets it keep the one that it had on the disk. */
export function isBundled(): boolean {
  const { protocol, pathname } = new URL(ownAddress());
  return !OWN_NAME.test(pathname) || (protocol === 'file:' && globalThis.location?.protocol !== 'file:');
}

interface TrustedTypesPolicy {
  createScriptURL(url: string): unknown;
}

let policy: TrustedTypesPolicy | undefined;

/** The policy `rillm`, with which a page that requires Trusted Types lets the package start its own worker and nothing else. */
function trustedTypesPolicy(): TrustedTypesPolicy | undefined {
  const { trustedTypes } = globalThis as { trustedTypes?: { createPolicy(name: string, rules: TrustedTypesPolicy): TrustedTypesPolicy } };
  const createScriptURL = (url: string) => {
    if (url === scriptUrl() || url.startsWith('blob:') || (hasNoOrigin() && url.startsWith(DATA))) return url;
    throw new TypeError(`rillm starts no other script than its worker, got ${url}`);
  };
  try {
    policy ??= trustedTypes?.createPolicy('rillm', { createScriptURL });
  } catch {
    // The page allows no such policy. It may not require Trusted Types either.
  }
  return policy;
}
