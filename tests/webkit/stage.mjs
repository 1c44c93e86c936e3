// The stage of the tests in WebKit: the site of the browser tests, and pages that WebDriver drives. What a page's console calls an error fails its test,
// as in the other browsers; WebDriver has no word for that, so the page keeps it.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { launchWebkit } from '../../scripts/webkit.mjs';
import { openSite, preparePage } from '../browser/browser.mjs';

/** Before all else of a page: keeps its errors, and imports modules for scripts that are not of the page. */
const PAGE = `<!doctype html><title>test</title><link rel="icon" href="data:,"><script>
globalThis.faults = [];
const { error } = console;
console.error = (...parts) => { faults.push(parts.map(String).join(' ')); error.apply(console, parts); };
addEventListener('error', ({ message }) => faults.push('uncaught: ' + message));
addEventListener('unhandledrejection', ({ reason }) => faults.push('unhandled: ' + reason));
</script><script type="module">globalThis.imported = await import('/rillm/dist/index.js');</script>`;

/** Runs a function in the page with an argument as JSON, and calls `done`, the last, with the result. The function is a part of the script: pages forbid to evaluate. */
const call = (fn) => `const [argument, done] = arguments;
(async () => JSON.stringify(await (${fn})(JSON.parse(argument))) ?? 'null')()
  .then((value) => done({ value }), (error) => done({ error: String(error) + '\\n' + (error?.stack ?? '') }));`;

/** Starts site and driver. */
export async function openWebkit() {
  const site = await openSite();
  writeFileSync(join(site.made, 'webkit.html'), PAGE);
  const webkit = await launchWebkit();
  /** The driver has one at a time: one that a failed test left would make all others fail. */
  let left;
  return {
    made: site.made,
    origin: site.origin,
    /** A page of a browser of its own with the package as globalThis.rillm, or what is at `url`. */
    async openPage({ features, url } = {}) {
      await left?.close().catch(() => {});
      const session = await webkit.open(features);
      left = session;
      const run = async (fn, argument) => {
        const { value, error } = await session.execute(call(fn), [JSON.stringify(argument ?? null)]);
        if (error !== undefined) throw new Error(`in the page: ${error}`);
        return JSON.parse(value);
      };
      await session.goto(url ?? `${site.origin}/made/webkit.html`);
      if (url === undefined) {
        await run(async () => {
          while (globalThis.imported === undefined && faults.length === 0) await new Promise((resolve) => setTimeout(resolve, 10));
        });
        await run(`async () => { ${preparePage.toString().replace('await import(address)', 'imported')} await preparePage(); }`);
      }
      return {
        session,
        run,
        async close() {
          try {
            // Unhandled rejections are reported a moment later.
            await new Promise((resolve) => setTimeout(resolve, 50));
            assert.deepEqual(await run(() => globalThis.faults ?? []), [], 'the console of the page holds errors');
          } finally {
            left = undefined;
            await session.close();
          }
        },
      };
    },
    async close() {
      await webkit.close();
      await site.close();
    },
  };
}
