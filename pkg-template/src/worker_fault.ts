// Why a worker's script did not start. Browsers say nothing but that it did not, so its address is asked once more, and policies are
// listened to. It knows nothing of messages.

import { EngineError } from './errors.js';
import { isBundled, ownAddress, workerAddress } from './start_worker.js';

/** A server that says nothing must not keep a failed load open. */
const ASKS_FOR_MS = 3000;

const OWN_WORKER = 'build rillm/worker as an entry of its own, to that address or another that the option worker names';
const OTHERWISE = 'or pass {worker: false} to run on this thread';

type Violation = Pick<SecurityPolicyViolationEvent, 'effectiveDirective' | 'blockedURI'>;

/** Watches the start of one worker. */
export class WorkerStart {
  #isMade: boolean;
  #violation: Violation | undefined;
  #target = globalThis.document ?? globalThis;
  #listener = (event: Event) => {
    const { effectiveDirective, blockedURI } = event as SecurityPolicyViolationEvent;
    if (/^(worker|child|script)-src/.test(effectiveDirective)) this.#violation ??= { effectiveDirective, blockedURI };
  };

  /** `isMade` by the application. To be made before the worker is. */
  constructor(isMade: boolean) {
    this.#isMade = isMade;
    this.#target.addEventListener?.('securitypolicyviolation', this.#listener);
  }

  /** To be called when it has started, or does not matter any more. */
  end(): void {
    this.#target.removeEventListener?.('securitypolicyviolation', this.#listener);
  }

  /** The error of a script that did not start. Never rejects. */
  async fault(): Promise<EngineError> {
    const asked = this.#isMade ? undefined : await ask();
    this.end();
    const [what, remedy] = this.#cause(asked);
    return new EngineError('worker_unavailable', `the worker script did not start: ${what}; ${remedy}, ${OTHERWISE}`);
  }

  /** What was found, and what to do. */
  #cause(asked: Asked | undefined): [string, string] {
    if (this.#violation !== undefined) {
      const { effectiveDirective, blockedURI } = this.#violation;
      const wanted = blockedURI === 'blob' || blockedURI.startsWith('blob:') ? 'blob:' : 'its address';
      return [`the content security policy forbids it (${effectiveDirective}, ${blockedURI})`, `allow ${wanted} in worker-src`];
    }
    if (asked === undefined) {
      return [
        "it is the one that the option worker made, and browsers don't say why",
        'check that its address is served as JavaScript and runs rillm/worker',
      ];
    }
    const { address, status, type, policy, error } = asked;
    if (globalThis.location?.protocol === 'file:') return ['the page was opened from a file', 'serve it over http'];
    const isForeign = isOfOtherOrigin(address);
    if (error !== undefined) {
      return isForeign
        ? [`${address} is of another origin and could not be fetched (${error})`, 'let its server send Access-Control-Allow-Origin']
        : [`${address} could not be fetched (${error})`, 'check the network and connect-src of the content security policy'];
    }
    if (status !== 200) return [`the server answered with status ${status} for ${address}`, howToServe()];
    if (type === 'text/html') {
      return [`the server answered with a page of HTML for ${address}, as many do for files that are not there`, howToServe()];
    }
    if (!/^(text|application)\/((x-)?javascript|ecmascript)$/.test(type)) {
      return [`${address} is served as "${type}"`, 'serve files that end in .js as text/javascript'];
    }
    if (globalThis.crossOriginIsolated && !isForeign && !/^(require-corp|credentialless)/.test(policy)) {
      const header = 'Cross-Origin-Embedder-Policy';
      return [`the page is cross-origin isolated and ${address} is served without ${header}`, `serve it with ${header}: require-corp`];
    }
    return [
      `${address} is served, so a file that it imports is missing or refused`,
      `see the network panel of the browser's tools, serve the package's folder dist as a whole`,
    ];
  }
}

function isOfOtherOrigin(address: string): boolean {
  try {
    return new URL(address).origin !== globalThis.location?.origin;
  } catch {
    return false;
  }
}

interface Asked {
  address: string;
  status: number;
  /** Its media type, and its Cross-Origin-Embedder-Policy. */
  type: string;
  policy: string;
  /** Why there is no answer. */
  error?: string;
}

/** What the address of the worker's script answers. Never rejects. */
async function ask(): Promise<Asked> {
  const found = { address: 'worker.js', status: 0, type: '', policy: '' };
  try {
    const address = workerAddress();
    found.address = address;
    const { status, headers, body } = await fetch(address, { signal: AbortSignal.timeout(ASKS_FOR_MS), cache: 'no-store' });
    void body?.cancel();
    const type = headers.get('content-type')?.split(';')[0]?.trim().toLowerCase() ?? '';
    return { ...found, status, type, policy: headers.get('cross-origin-embedder-policy') ?? '' };
  } catch (thrown) {
    return { ...found, error: thrown instanceof Error ? thrown.message : String(thrown) };
  }
}

/** What to do about a file that is not there, by what made the page. */
function howToServe(): string {
  const own = ownAddress();
  if (own.includes('/.vite/deps'))
    return "Vite's development server bundles packages without their workers: set optimizeDeps: {exclude: ['rillm']}";
  if (own.includes('/_next/')) return `Next found no worker in the package: ${OWN_WORKER}`;
  if (isBundled()) return `bundlers such as esbuild and Rollup leave the worker out: ${OWN_WORKER}`;
  return "serve the package's folder dist as a whole, with worker.js";
}
