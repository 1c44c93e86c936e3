// The examples of examples/ in which a model runs, each as it is meant to be used: pages as they are, projects of Vite, React and Next built, the
// extension installed. The model is the demo model, encoders are tiny. What tensors alone need is in examples.test.mjs.

import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { build } from 'vite';

import { launchWithExtension } from '../../scripts/chromium.mjs';
import { serve } from '../../scripts/serve.mjs';
import { golden, openStage, packedPackage, root } from './browser.mjs';
import { faultsOf } from './page/stage.mjs';

const LIMIT = { timeout: 120_000 };
const MODEL = '/models/demo/rillm-demo-q4_0.gguf';
const ENCODER = '/encoders/bert/';
const SUM = 'What is 12 plus 30?';
const STORY = 'Tell me a story about a fox in a lighthouse.';
/** What the model makes of it is longer. */
const SHORT = 200;
/** Of files that a model may have, and of those that tests name wrongly. */
const ABSENT = { allowed: [/status of 404/] };

let stage;
before(async () => (stage = await openStage()), LIMIT);
after(() => stage?.close());

/** A page, which is waited for as long as the test may take. */
async function openPage(url, options = {}) {
  const opened = await stage.openPage({ url, ...options });
  opened.page.setDefaultTimeout(LIMIT.timeout);
  return opened;
}

const open = (name, query = {}, options = {}) => openPage(`${stage.origin}/examples/${name}/?${new URLSearchParams(query)}`, options);

/** Whether the page is as wide as its window, on a phone and on a desktop, and axe finds nothing. */
async function fits(page) {
  for (const width of [390, 1280]) {
    await page.setViewportSize({ width, height: 800 });
    assert.equal(
      await page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth),
      false,
      `${width} pixels`,
    );
  }
  assert.deepEqual(await faultsOf(page), []);
}

/** Has the page click Stop as soon as an answer, the last of these elements, has begun: over a connection it might be whole by then. */
const stopWhenBegun = (page, answers, scope = 'body') =>
  page.evaluate(
    ([answers, scope]) => {
      globalThis.begun = new Promise((resolve) => {
        const observer = new MutationObserver(() => {
          const text = [...document.querySelectorAll(answers)].at(-1)?.textContent ?? '';
          const stop = [...document.querySelectorAll(`${scope} button`)].find(
            ({ textContent, hidden }) => textContent === 'Stop' && !hidden,
          );
          if (text === '' || stop === undefined) return;
          observer.disconnect();
          stop.click();
          resolve(text);
        });
        observer.observe(document.body, { subtree: true, childList: true, characterData: true });
      });
    },
    [answers, scope],
  );

/** It ends where it was stopped, and the page can be asked again. */
async function isStopped(page, answer, again) {
  const begun = await page.evaluate(() => begun);
  await again.and(page.locator(':enabled')).waitFor();
  const text = await answer.textContent();
  assert.ok(text.startsWith(begun) && text.length < SHORT, text);
  await new Promise((resolve) => setTimeout(resolve, 100));
  assert.equal(await answer.textContent(), text, 'it goes on');
}

/** Waits until an element holds a text, and gives all of it. */
async function holds(locator, text = /\S/) {
  await locator.filter({ hasText: text }).waitFor();
  return locator.textContent();
}

test('html: an answer, one that is stopped, and a model that there is not', LIMIT, async () => {
  const { page, close } = await open('html', { model: MODEL });
  const ask = async (text) => {
    await page.getByLabel('Your question').fill(text);
    await page.getByRole('button', { name: 'Send' }).click();
  };
  await ask(SUM);
  await holds(page.locator('li.assistant'), '42');
  await page.getByRole('button', { name: 'Send' }).and(page.locator(':enabled')).waitFor();
  await stopWhenBegun(page, 'li.assistant:nth-of-type(4)');
  await ask(STORY);
  await isStopped(page, page.locator('li.assistant').nth(1), page.getByRole('button', { name: 'Send' }));
  assert.equal(await page.locator('li.user').nth(1).textContent(), STORY);
  await fits(page);
  assert.equal(await page.getByRole('alert').count(), 0);
  await close();

  const wrong = await open('html', { model: '/nothing.gguf' }, ABSENT);
  await wrong.page.getByLabel('Your question').fill(SUM);
  await wrong.page.getByRole('button', { name: 'Send' }).click();
  await holds(wrong.page.getByRole('alert'), 'no such file');
  assert.equal(await wrong.page.getByLabel('Your question').inputValue(), SUM, 'the question is kept');
  await wrong.close();
});

test('worker: each text is summed up, and the work is stopped', LIMIT, async () => {
  const { page, close } = await open('worker', { model: MODEL });
  await page.getByRole('button', { name: 'Sum up' }).click();
  for (const at of [0, 1, 2]) await holds(page.getByRole('listitem').nth(at));
  await page.getByRole('button', { name: 'Sum up' }).and(page.locator(':enabled')).waitFor();
  await page.getByRole('textbox').fill(`${STORY}\n`.repeat(20));
  await stopWhenBegun(page, 'li:first-child');
  await page.getByRole('button', { name: 'Sum up' }).click();
  await isStopped(page, page.locator('#results'), page.getByRole('button', { name: 'Sum up' }));
  assert.equal(await page.getByRole('alert').count(), 0);
  assert.equal(await holds(page.getByRole('listitem').last(), ''), '');
  await fits(page);
  await close();
});

test('service worker: it answers fetch, also after a reload; a stopped answer, and what it says of a bad model', LIMIT, async () => {
  const { page, close } = await open('service-worker', { model: MODEL });
  const ask = async (text) => {
    await page.getByLabel('Your question').fill(text);
    await page.getByRole('button', { name: 'Send' }).click();
  };
  await ask(SUM);
  await holds(page.getByRole('listitem'), '42');
  await page.reload();
  await stopWhenBegun(page, 'li');
  await ask(STORY);
  await isStopped(page, page.getByRole('listitem'), page.getByRole('button', { name: 'Send' }));
  assert.equal(await page.getByRole('alert').count(), 0);
  await fits(page);
  await close();

  const wrong = await open('service-worker', { model: '/nothing.gguf' }, { allowed: [/status of (404|503)/] });
  await wrong.page.getByLabel('Your question').fill(SUM);
  await wrong.page.getByRole('button', { name: 'Send' }).click();
  await holds(wrong.page.getByRole('alert'), 'no such file');
  await wrong.close();
});

test('shared tabs: one runs the model, and when it is closed in mid-answer the other goes on', LIMIT, async () => {
  const first = await open('shared-tabs', { model: MODEL });
  await holds(first.page.locator('#role'), 'This tab runs');
  await first.page.getByRole('button', { name: 'Send' }).and(first.page.locator(':enabled')).waitFor();
  const second = await first.page.context().newPage();
  second.setDefaultTimeout(LIMIT.timeout);
  await second.goto(first.page.url());
  await holds(second.locator('#role'), 'Another tab runs');
  await second.getByRole('button', { name: 'Send' }).click();
  await holds(second.getByRole('listitem'));
  await first.page.close();
  await holds(second.locator('#role'), 'This tab runs');
  await second.getByRole('button', { name: 'Send' }).and(second.locator(':enabled')).waitFor();
  assert.ok((await second.getByRole('listitem').textContent()).length > SHORT, 'the whole story');
  await fits(second);
  await first.close();
});

/** Texts of words that the tests' tiny encoder, whose weights are random, tells apart. */
const WORDS = ['on', 'dog', 'is'].map((word) => Array(6).fill(word).join(' '));

test('search: the passage of the same words is the first', LIMIT, async () => {
  const { page, close } = await open('search', { model: ENCODER }, ABSENT);
  await page.getByLabel('The text').fill(WORDS.join('\n\n'));
  for (const words of WORDS) {
    await page.getByLabel('Query').fill(words);
    await page.getByRole('button', { name: 'Find' }).click();
    await holds(page.getByRole('listitem').first(), new RegExp(`1\\.00 +${words}`));
  }
  assert.equal(await page.getByRole('listitem').count(), 3);
  await page.getByLabel('The text').fill('\n\n');
  await page.getByRole('button', { name: 'Find' }).click();
  await page.getByRole('listitem').first().waitFor({ state: 'detached' });
  await fits(page);
  await close();
});

/** Answers of random weights, of which the reference has the beginning. */
const wantedOf = (model) => JSON.parse(readFileSync(join(root, 'tests/golden/encoder_decoders', model, 'golden.json'), 'utf8')).cases;

test('translate: T5, NLLB and Marian write what the reference does, line by line', LIMIT, async () => {
  const inT5 = (text) => text.replace('translate English to German: ', '');
  for (const [model, file, textOf] of [
    ['marian', '', (text) => text],
    ['nllb', '', (text) => text],
    ['flan_t5', 'model.gguf', inT5],
  ]) {
    const { page, close } = await open('translate', { model: `/encoder_decoders/${model}/${file}` }, ABSENT);
    const [long, short] = wantedOf(model);
    const lines = model === 'flan_t5' ? [long] : [short, long];
    await page.getByLabel('The text').fill(lines.map(({ text }) => textOf(text)).join('\n'));
    await page.getByRole('button', { name: 'Translate' }).click();
    await page.getByRole('button', { name: 'Translate' }).and(page.locator(':enabled')).waitFor();
    assert.equal(await page.getByRole('alert').count(), 0);
    const written = (await page.getByLabel('The translation').textContent()).split('\n');
    assert.equal(written.length, lines.length, model);
    for (const [at, { answer }] of lines.entries()) assert.ok(written[at].startsWith(answer), `${model}: ${written[at]}, wanted ${answer}`);
    if (model === 'nllb') {
      // A language that the small model does not have; then one that it has, and another text.
      await page.getByLabel('From').selectOption('Spanish');
      await page.getByRole('button', { name: 'Translate' }).click();
      await page.getByRole('alert').filter({ hasText: 'src_lang: "spa_Latn"' }).waitFor();
      await page.getByLabel('From').selectOption('French');
      await page.getByLabel('The text').fill('the mat. a dog\n\nthe sea');
      await page.getByRole('button', { name: 'Translate' }).click();
      await page.getByRole('button', { name: 'Translate' }).and(page.locator(':enabled')).waitFor();
      assert.equal(await page.getByRole('alert').count(), 0);
      assert.match(await page.getByLabel('The translation').textContent(), /^[^\n]+\n\n[^\n]+$/);
      await fits(page);
    }
    await close();
  }
  const { page, close } = await open('translate', { model: MODEL }, ABSENT);
  await page.getByRole('button', { name: 'Translate' }).click();
  await page.getByRole('alert').filter({ hasText: 'T5, NLLB and Marian' }).waitFor();
  await close();
});

/** A PDF with a line of text on each page. */
function pdfOf(lines) {
  const pages = lines.map((_, at) => 4 + 2 * at);
  const objects = [
    '<</Type/Catalog/Pages 2 0 R>>',
    `<</Type/Pages/Count ${lines.length}/Kids[${pages.map((number) => `${number} 0 R`).join(' ')}]>>`,
    '<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>',
  ];
  for (const line of lines) {
    const content = `BT /F 12 Tf 20 100 Td (${line}) Tj ET`;
    objects.push(`<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 200]/Resources<</Font<</F 3 0 R>>>>/Contents ${objects.length + 2} 0 R>>`);
    objects.push(`<</Length ${content.length}>>stream\n${content}\nendstream`);
  }
  let pdf = '%PDF-1.4\n';
  const offsets = objects.map((object, at) => {
    const offset = pdf.length;
    pdf += `${at + 1} 0 obj${object}endobj\n`;
    return `${String(offset).padStart(10, '0')} 00000 n \n`;
  });
  const table = pdf.length;
  return `${pdf}xref\n0 ${objects.length + 1}\n0000000000 65535 f \n${offsets.join('')}trailer<</Size ${objects.length + 1}/Root 1 0 R>>\nstartxref\n${table}\n%%EOF`;
}

const pdfFile = (text, name = 'words.pdf') => ({ name, mimeType: 'application/pdf', buffer: Buffer.from(text, 'latin1') });

test('a PDF: dropped, asked, its pages named; one without text and one that is none', LIMIT, async () => {
  const { page, close } = await open('rag-pdf', { model: MODEL, encoder: ENCODER }, { allowed: [/status of 404/] });
  await page.locator('#file').setInputFiles(pdfFile(pdfOf([''])));
  await holds(page.getByRole('alert'), 'no text in this PDF');
  await page.locator('#file').setInputFiles(pdfFile('no PDF at all', 'wrong.pdf'));
  await holds(page.getByRole('alert'), 'PDF');
  assert.ok(await page.getByRole('button', { name: 'Ask' }).isDisabled());
  await page.evaluate((text) => {
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File([text], 'words.pdf', { type: 'application/pdf' }));
    document.body.dispatchEvent(new DragEvent('drop', { dataTransfer, bubbles: true, cancelable: true }));
  }, pdfOf(WORDS));
  await holds(page.getByRole('status'), 'words.pdf: 3 pages, 3 passages');
  await page.getByLabel('Your question').fill(WORDS[1]);
  await page.getByRole('button', { name: 'Ask' }).click();
  await holds(page.locator('#answer'));
  assert.match(await page.getByRole('listitem').first().textContent(), new RegExp(`Page 2 +${WORDS[1]}`));
  await page.getByRole('button', { name: 'Ask' }).and(page.locator(':enabled')).waitFor();
  assert.equal(await page.getByRole('alert').count(), 0);
  await fits(page);
  // Texts are cut at sentences, and where there are none.
  const cuts = await page.evaluate(async () => {
    const { cut } = await import('/examples/rag-pdf/pdf.js');
    return [cut('One. Two. Three. Four.', 11), cut('x'.repeat(25), 10), cut('', 10), cut('\u{1F98A}'.repeat(9), 4)];
  });
  assert.deepEqual(cuts.slice(0, 3), [['One. Two.', 'Three.', 'Four.'], ['x'.repeat(10), 'x'.repeat(10), 'x'.repeat(5)], []]);
  assert.ok(cuts[3].every((part) => part.isWellFormed()));
  await close();
});

/** open-meteo.com for one question; later it fails. */
async function answerWeather(page) {
  const asked = [];
  const cors = { 'access-control-allow-origin': '*', 'cross-origin-resource-policy': 'cross-origin' };
  await page.route(/^https:\/\/(geocoding-)?api\.open-meteo\.com\//, (route) => {
    const url = new URL(route.request().url());
    asked.push(`${url.hostname}${url.search}`);
    const name = url.searchParams.get('name');
    // After the first question.
    if (asked.length > 2) return route.fulfill({ status: 500, headers: cors });
    const found = { results: [{ name, latitude: 59.91, longitude: 10.75 }] };
    return route.fulfill({ json: name === null ? { current: { temperature_2m: 6.6, weather_code: 63 } } : found, headers: cors });
  });
  return asked;
}

test('tools: the weather is asked for and told; a service that fails is told too', LIMIT, async () => {
  const { page, close } = await open('tools', { model: MODEL }, { allowed: [/status of 500/] });
  const asked = await answerWeather(page);
  await page.getByRole('button', { name: 'Send' }).click();
  const [, name, given, result] = /^(\w+) (.*)\n(.*)$/.exec(await holds(page.locator('li.tool'), 'temperature'));
  assert.deepEqual([name, JSON.parse(given)], ['get_weather', { city: 'Oslo' }]);
  assert.deepEqual(JSON.parse(result), { city: 'Oslo', weather: 'rain', temperature: 7 });
  await holds(page.locator('li.assistant'), '7');
  assert.deepEqual(asked, [
    'geocoding-api.open-meteo.com?name=Oslo&count=1',
    'api.open-meteo.com?latitude=59.91&longitude=10.75&current=temperature_2m%2Cweather_code',
  ]);
  await page.getByRole('button', { name: 'Send' }).and(page.locator(':enabled')).waitFor();
  await page.getByLabel('Your question').fill('What is the weather in Bern?');
  await page.getByRole('button', { name: 'Send' }).click();
  await holds(page.locator('li.tool').nth(1), 'geocoding-api.open-meteo.com answered with status 500');
  await page.getByRole('button', { name: 'Send' }).and(page.locator(':enabled')).waitFor();
  await fits(page);
  await close();
});

test('a form: its fields are the schema, and the answer fills them', LIMIT, async () => {
  const { page, close } = await open('json-form', { model: MODEL });
  await page.getByRole('button', { name: 'Fill in' }).click();
  await page.waitForFunction(() => document.querySelector('[name=city]').value !== '');
  const values = await page.evaluate(() => Object.fromEntries(new FormData(document.querySelector('form'))));
  assert.deepEqual([values.name, values.age, values.city], ['Mira', '31', 'Oslo']);
  const schema = await page.evaluate(async () => {
    const { schemaOf } = await import('/examples/json-form/main.js');
    return schemaOf(document.querySelector('form'));
  });
  assert.deepEqual(schema.properties.age, { type: 'integer', minimum: 0, maximum: 130 });
  assert.ok(schema.properties.contact.enum.includes(values.contact));
  assert.equal(await page.getByRole('alert').count(), 0);
  await fits(page);
  await close();
});

/** Builds a project with Vite by its own settings, with the packed package, into a folder that is served. */
async function built(folder, name) {
  const packed = join(await packedPackage(), 'dist');
  const outDir = join(stage.made, name);
  await build({
    root: folder,
    base: './',
    logLevel: 'error',
    resolve: {
      alias: [
        { find: /^rillm$/, replacement: join(packed, 'index.js') },
        { find: /^rillm\/react$/, replacement: join(packed, 'react/index.js') },
      ],
    },
    define: Object.fromEntries(
      ['import.meta.env.VITE_MODEL', 'process.env.NEXT_PUBLIC_MODEL'].map((name) => [name, JSON.stringify(MODEL)]),
    ),
    build: { outDir, emptyOutDir: true, minify: false },
  });
  return `${stage.origin}/made/${name}/index.html`;
}

test('Vite, built: a story, and one that is stopped', LIMIT, async () => {
  const url = await built(join(root, 'examples/vite'), 'vite');
  const { page, close } = await openPage(url);
  await stopWhenBegun(page, '#story');
  await page.getByRole('button', { name: 'Tell' }).click();
  await isStopped(page, page.locator('#story'), page.getByRole('button', { name: 'Tell' }));
  await page.getByRole('button', { name: 'Tell' }).click();
  await page.getByRole('button', { name: 'Tell' }).and(page.locator(':enabled')).waitFor();
  assert.match(await page.locator('#story').textContent(), /fox/);
  assert.equal(await page.getByRole('alert').count(), 0);
  await fits(page);
  await close();
});

test('React, built: the chat of rillm/react and that of the AI SDK, on one engine', LIMIT, async () => {
  const url = await built(join(root, 'examples/react'), 'react');
  const { page, close } = await openPage(url);
  const answers = [];
  for (const name of ['rillm/react', 'AI SDK']) {
    const chat = page.getByRole('region', { name });
    const ask = async (text) => {
      await chat.getByLabel('Your message').fill(text);
      await chat.getByRole('button', { name: 'Send' }).click();
    };
    const again = chat.getByRole('button', { name: 'Again' });
    const answer = async () => {
      await holds(chat.locator('li.assistant'), '42');
      await again.waitFor();
      return chat.locator('li.assistant').textContent();
    };
    await ask(SUM);
    answers.push(await answer());
    await again.click();
    assert.equal(await answer(), answers[0]);
    await stopWhenBegun(page, `[aria-label="${name}"] li.assistant:nth-of-type(4)`, `[aria-label="${name}"]`);
    await ask(STORY);
    await isStopped(page, chat.locator('li.assistant').nth(1), again);
    assert.deepEqual([await chat.getByRole('listitem').count(), await chat.getByRole('alert').count()], [4, 0]);
  }
  assert.equal(answers[0], answers[1]);
  await fits(page);
  await close();
});

test('Next, its page: the model loads when somebody wants to write', LIMIT, async () => {
  // `npm run test:bundlers` builds it with Next.
  const url = await built(join(root, 'tests/browser/next_page'), 'next');
  const { page, close } = await openPage(url);
  assert.ok(await page.getByRole('button', { name: 'Send' }).isDisabled());
  await page.getByLabel('Your message').fill(SUM);
  await page.getByRole('button', { name: 'Send' }).click();
  await holds(page.locator('li.assistant'), '42');
  await page.getByRole('button', { name: 'Stop' }).waitFor({ state: 'detached' });
  assert.equal(await page.getByRole('alert').count(), 0);
  await close();
});

test('the extension: its panel explains what was selected, and another selection ends the answer', LIMIT, async () => {
  const folder = mkdtempSync(join(tmpdir(), 'rillm-extension-'));
  const profile = mkdtempSync(join(tmpdir(), 'rillm-profile-'));
  cpSync(join(root, 'examples/extension'), folder, { recursive: true });
  // What `npm run build` does.
  cpSync(join(await packedPackage(), 'dist'), join(folder, 'rillm'), { recursive: true });
  const handle = (_, response) => {
    response.setHeader('Access-Control-Allow-Origin', '*');
    response.setHeader('Access-Control-Expose-Headers', 'Content-Range, ETag');
    return false;
  };
  const models = await serve({ '/': golden }, { handle });
  const context = await launchWithExtension(folder, profile);
  try {
    const worker = context.serviceWorkers()[0] ?? (await context.waitForEvent('serviceworker', { timeout: 30_000 }));
    const select = (text) => worker.evaluate((text) => chrome.storage.session.set({ selection: { text, time: Date.now() } }), text);
    await select('The small boat');
    const page = await context.newPage();
    page.setDefaultTimeout(LIMIT.timeout);
    // URLs of extensions have no origin in Node.
    const home = new URL('.', worker.url()).href;
    await page.goto(`${home}panel.html?${new URLSearchParams({ model: `${models.origin}/tied-q8_0.gguf` })}`);
    await holds(page.locator('#answer'));
    assert.equal(await page.locator('#selection').textContent(), 'The small boat');
    await select('on');
    await holds(page.locator('#selection'), /^on$/);
    await holds(page.locator('#answer'));
    await page.getByRole('button', { name: 'Stop' }).waitFor({ state: 'detached' });
    assert.equal(await page.getByRole('alert').count(), 0);
  } finally {
    await context.close();
    await models.close();
    for (const made of [folder, profile]) rmSync(made, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  }
});
