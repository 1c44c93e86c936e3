// The demo page from end to end, with the package and real models: it answers, stops while it reads a prompt, keeps its model when another one can't be
// loaded, and opens without a network. One page and the engine of the demo model serve most tests. How long the first paint and the first token take is told.

import assert from 'node:assert/strict';
import { appendFileSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { shellFiles, shellOf, writePage } from '../../scripts/page.mjs';
import { serve } from '../../scripts/serve.mjs';
import { golden, openStage, packedPackage, root, watchConsole } from './browser.mjs';
import { answers, checkLayout, eventually, picture, settled, WIDE } from './page/stage.mjs';

const DEMO_MODEL = join(root, 'models/demo/rillm-demo-q8_0.gguf');
const NO_DEMO_MODEL = existsSync(DEMO_MODEL) ? false : 'models/demo/rillm-demo-q8_0.gguf is not there';
/** Without the demo model, the page finds neither it nor its prompts. */
const allowed = [/Failed to load resource/];
const LIMIT = { timeout: 180_000 };

let stage;
let opened;
let page;
let begin;
before(async () => {
  stage = await openStage();
  begin = performance.now();
  opened = await stage.openPage({ url: `${stage.origin}/`, allowed, viewport: WIDE });
  ({ page } = opened);
});
after(async () => {
  await opened?.close();
  await stage?.close();
});

const loaded = () => page.locator('#model-summary').filter({ hasText: /Loaded in/ });

test('the demo model answers "What is 12 plus 30?" with 42, streamed', { ...LIMIT, skip: NO_DEMO_MODEL }, async (t) => {
  await picture(page, 'welcome');
  await loaded().waitFor({ timeout: 120_000 });
  const loadMs = performance.now() - begin;
  await page.evaluate(() => {
    globalThis.lengths = new Set();
    new MutationObserver(() => {
      const answer = document.querySelector('.message.assistant');
      if (answer !== null) lengths.add(answer.textContent.length);
    }).observe(document.getElementById('log'), { childList: true, subtree: true, characterData: true });
  });
  await page.locator('#prompt').fill('What is 12 plus 30?');
  await page.locator('#prompt').press('Enter');
  await settled(page);
  assert.match(await answers(page).locator('.prose').innerText(), /\b42\b/);
  assert.ok((await page.evaluate(() => lengths.size)) > 2, 'the answer came in pieces');
  assert.match(await page.locator('#speed').textContent(), /^\d+\.\d$/);
  assert.match(await page.locator('#gpu-memory').textContent(), /MB$/);
  assert.match(await page.locator('#waits').textContent(), /^\d+\.\d\d$/);
  assert.ok((await page.locator('#counters tr').count()) >= 8);
  const paint = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime);
  t.diagnostic(
    `first paint ${Math.round(paint)} ms, model loaded ${Math.round(loadMs)} ms after the page was opened, first token ${await page.locator('#first-token').textContent()} ms after the question`,
  );
  await checkLayout(page, 'with an answer of the demo model');
});

test('a second question finds the first one in the cache', { ...LIMIT, skip: NO_DEMO_MODEL }, async () => {
  await page.locator('#prompt').fill('And 3 plus 4?');
  await page.locator('#prompt').press('Enter');
  await settled(page);
  assert.match(await page.locator('.counts').last().textContent(), /\d+ of \d+ from the cache/);
});

test('Stop ends the reading of a long prompt at once', { ...LIMIT, skip: NO_DEMO_MODEL }, async () => {
  await page.locator('#new-chat').click();
  await page.locator('#prompt').fill('one two three four five six seven '.repeat(40));
  await page.locator('#prompt').press('Enter');
  await page.locator('.waiting').waitFor();
  const start = performance.now();
  await page.locator('#send').click();
  await settled(page);
  assert.ok(performance.now() - start < 5000);
  assert.match(await page.locator('.remark').textContent(), /Stopped/);
});

test('an address without a model leaves the demo model running', { ...LIMIT, skip: NO_DEMO_MODEL }, async () => {
  await page.locator('#choose-model').click();
  await page.locator('#model-query').fill(`${stage.origin}/status/404/nothing.gguf`);
  await page.locator('#load').click();
  const notice = page.getByRole('alert');
  await notice.filter({ hasText: 'Check the address' }).waitFor();
  assert.doesNotMatch(await notice.textContent(), /404 or 410/);
  assert.match(await page.locator('#model-summary').textContent(), /^rillm demo/);
  await page.locator('#new-chat').click();
  await page.locator('#examples button').first().click();
  await settled(page);
  assert.ok((await answers(page).locator('.prose').innerText()).length > 0);
});

test('an example with a tool calls it, and takes its result', { ...LIMIT, skip: NO_DEMO_MODEL }, async () => {
  await page.locator('#new-chat').click();
  await page.locator('#examples button', { hasText: 'Call a tool' }).click();
  await settled(page);
  assert.match(await page.locator('.call h2').first().textContent(), /get_weather/);
  await page.locator('.call textarea').fill('{"temperature": 4, "sky": "rain"}');
  await page.getByRole('button', { name: 'Give the result' }).click();
  await settled(page);
  assert.ok((await answers(page).last().locator('.prose').innerText()).length > 0);
});

test('a local file takes the place of the demo model', LIMIT, async () => {
  await page.locator('#choose-model').click();
  await page.locator('#file').setInputFiles(join(golden, 'tied-q8_0.gguf'));
  await loaded().filter({ hasNotText: 'rillm demo' }).waitFor();
  await page.locator('#new-chat').click();
  await page.locator('#settings-panel > summary').click();
  await page.locator('#set-max_tokens').fill('12');
  await page.locator('#prompt').fill('Hello');
  await page.locator('#prompt').press('Enter');
  await settled(page);
  assert.match(await page.locator('.counts').textContent(), /^\d+ tokens/);
});

test('the page as files of its own opens without a network, and after an update with all of one version', LIMIT, async () => {
  const parent = mkdtempSync(join(tmpdir(), 'rillm-page-'));
  // Below a path that is named as models are.
  const folder = join(parent, 'models/v1');
  const packed = await packedPackage();
  await writePage(folder, packed);
  // To load one is another test's subject.
  rmSync(join(folder, 'models'), { recursive: true });
  let isDown = false;
  let lists = 0;
  // The server goes: harder than a flag of the browser, which service workers don't always heed.
  const handle = (request, _response, pathname) => {
    if (pathname.endsWith('/shell.json')) lists += 1;
    if (isDown) request.socket.destroy();
    return isDown;
  };
  const site = await serve({ '/': `${parent}/` }, { handle });
  const address = `${site.origin}/models/v1/`;
  const context = await stage.browser.newContext();
  const visitor = await context.newPage();
  const watch = watchConsole(visitor, [...allowed, /ERR_/]);
  const caches = () => visitor.evaluate(async () => (await globalThis.caches.keys()).filter((name) => name.startsWith('rillm-page')));
  const visit = async () => {
    await visitor.reload();
    await visitor.locator('#choose-model').waitFor();
  };
  try {
    await visitor.goto(address);
    await visitor.locator('#choose-model').waitFor();
    await visitor.evaluate(() => navigator.serviceWorker.ready);
    const first = JSON.parse(readFileSync(join(folder, 'shell.json'), 'utf8'));
    const names = await caches();
    assert.deepEqual(names, [`rillm-page /models/v1/ ${first.digest}`]);
    const kept = await visitor.evaluate(
      async ([name]) => (await (await globalThis.caches.open(name)).keys()).map(({ url }) => new URL(url).href),
      names,
    );
    const wanted = Object.keys(await shellFiles(packed)).map((path) => new URL(path, address).href);
    assert.deepEqual(
      wanted.filter((url) => !kept.includes(url)),
      [],
    );
    assert.ok(!kept.some((path) => /rillm_tensor|\.gguf/.test(path)), 'neither models nor what the page does not use');
    const manifest = await visitor.evaluate(async () => (await fetch(document.querySelector('link[rel=manifest]').href)).json());
    for (const { src } of manifest.icons) assert.ok(kept.includes(`${address}${src}`), src);
    isDown = true;
    await visit();
    await visitor.locator('#choose-model').click();
    await visitor.locator('#shelf-known').waitFor();
    await visitor.keyboard.press('Escape');

    // Another version, which has not arrived whole: it is served, and is not kept.
    isDown = false;
    const paths = Object.keys(first.files).map((path) => [path, join(folder, path === './' ? 'index.html' : path)]);
    writeFileSync(join(folder, 'added.js'), 'document.documentElement.dataset.version = "two";\n');
    appendFileSync(join(folder, 'page.js'), "import './added.js';\n");
    const second = await shellOf({ ...Object.fromEntries(paths), 'added.js': join(folder, 'added.js') });
    const broken = { ...second, files: { ...second.files, 'style.css': second.digest } };
    writeFileSync(join(folder, 'shell.json'), JSON.stringify(broken));
    lists = 0;
    const version = () => visitor.evaluate(() => document.documentElement.dataset.version);
    await visit();
    assert.equal(await version(), 'two');
    await eventually(async () => {
      const { held, pending } = await visitor.evaluate(() => navigator.locks.query());
      const isAtWork = [...held, ...pending].some(({ name }) => name.startsWith('rillm-page'));
      assert.ok(lists > 0 && !isAtWork && (await caches()).length === 2);
    });
    isDown = true;
    await visit();
    assert.equal(await version(), undefined, 'the first version, which is whole');

    // And when it is there.
    isDown = false;
    writeFileSync(join(folder, 'shell.json'), JSON.stringify(second));
    await visit();
    await eventually(async () => assert.deepEqual(await caches(), [`rillm-page /models/v1/ ${second.digest}`]));
    isDown = true;
    await visit();
    assert.equal(await version(), 'two');
    await visitor.goto(`${address}bench.html?model=x`);
    await visitor.locator('#run').waitFor();
    await watch.check();
  } finally {
    await context.close();
    await site.close();
    rmSync(parent, { recursive: true, force: true });
  }
});
