// Runs the page of a benchmark without anybody there: serves it, opens it in headless Chromium and waits for what it posts.

import { launchChromium } from '../scripts/chromium.mjs';
import { Problem } from '../scripts/command.mjs';
import { serve } from '../scripts/serve.mjs';

/**
 * Opens index.html of `mounts` with these parameters and those that let it run and post. Resolves to what it posts at the end; `onLog` hears what it
 * posts before. Throws a Problem for an `{error}`.
 */
export async function runUnattended(mounts, parameters, { adapter, onLog = () => {} } = {}) {
  let finish;
  let fail;
  const done = new Promise((resolve, reject) => {
    finish = resolve;
    fail = reject;
  });
  const handle = (request, response, pathname) => {
    if (request.method !== 'POST') return false;
    const parts = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', () => {
      response.end();
      const hear = { '/posted/log': onLog, '/posted/done': finish }[pathname];
      hear?.(JSON.parse(Buffer.concat(parts)));
    });
    return true;
  };
  const site = await serve(mounts, { handle });
  const browser = await launchChromium(adapter === undefined ? {} : { adapter });
  browser.on('disconnected', () => fail(new Problem('the browser ended')));
  // Which may happen while nobody waits for it yet.
  done.catch(() => {});
  try {
    const page = await browser.newPage();
    page.on('console', (message) => console.error(`page: ${message.text()}`));
    page.on('pageerror', (error) => console.error(`page: ${error.message}`));
    page.on('crash', () => fail(new Problem('the page crashed')));
    const query = new URLSearchParams({ ...parameters, run: '1', post: '/posted' });
    await page.goto(`${site.origin}/index.html?${query}`);
    const result = await done;
    if (result.error !== undefined) throw new Problem(result.error.message);
    return result;
  } finally {
    await browser.close();
    await site.close();
  }
}
