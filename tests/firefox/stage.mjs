// The stage of the tests in Firefox: the site of the browser tests, and pages that puppeteer-core drives. What a page leaves in its
// console fails its test, as in Chromium.

import { launchFirefox } from '../../scripts/firefox.mjs';
import { openSite, preparePage, watchConsole } from '../browser/browser.mjs';
import { passForGpu } from '../browser/device.mjs';

/** Starts site and browser. */
export async function openFirefox() {
  const site = await openSite();
  const browser = await launchFirefox();
  return {
    made: site.made,
    origin: site.origin,
    openPage: (options) => openPage(browser, site.origin, options),
    async close() {
      await browser.close();
      await site.close();
    },
  };
}

/**
 * A page with the package as globalThis.rillm, if `address` is given; else what is at `url`. Its engines run on the software adapter, or with
 * `isOnCpu` where the package puts them.
 */
async function openPage(browser, origin, { url = `${origin}/blank/`, address, isOnCpu = false } = {}) {
  const page = await browser.newPage();
  if (!isOnCpu) await page.evaluateOnNewDocument(passForGpu);
  const watch = watchConsole(page);
  await page.goto(url);
  if (address !== undefined) await page.evaluate(preparePage, address);
  return {
    page,
    /** Runs a function in the page. What it takes and gives travels as JSON, and the function as its text. */
    async run(fn, argument) {
      const call = async (source, argument) => JSON.stringify(await (0, eval)(`(${source})`)(JSON.parse(argument))) ?? 'null';
      return JSON.parse(await page.evaluate(call, String(fn), JSON.stringify(argument ?? null)));
    },
    async close() {
      try {
        await watch.check();
      } finally {
        await page.close();
      }
    },
  };
}
