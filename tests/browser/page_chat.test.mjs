// Conversations on the page, with a stub of the package: they are kept, branch, come back after a reload, and nothing that goes wrong loses a word. One page serves
// all tests; each begins a conversation of its own.

import assert from 'node:assert/strict';
import { text as streamedText } from 'node:stream/consumers';
import { after, before, test } from 'node:test';

import { openStage } from './browser.mjs';
import { answers, ask, checkLayout, eventually, loadStub, openStubbed, PHONE, picture, plan, settled, WIDE } from './page/stage.mjs';

const LIMIT = { timeout: 60_000 };

let stage;
let opened;
let page;
before(async () => {
  stage = await openStage();
  opened = await openStubbed(stage, { permissions: ['clipboard-read', 'clipboard-write'] });
  ({ page } = opened);
  await loadStub(page);
});
after(async () => {
  await opened?.close();
  await stage?.close();
});

/** An empty conversation, with settings as they are at first. */
async function begin() {
  await page.locator('#new-chat').click();
  await page.locator('#welcome').waitFor();
  await page.evaluate(() => {
    stub.plans.length = stub.requests.length = 0;
  });
}

/** What changed has been drawn: the page is never older than 300 ms. */
const drawn = () =>
  page.evaluate(() => new Promise((resolve) => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(resolve)), 320)));
const requests = () => page.evaluate(() => stub.requests);
const titles = () => page.locator('#conversations .title').allTextContents();

test('a question is answered, streamed and kept; the field keeps the focus', LIMIT, async () => {
  await begin();
  await page.evaluate(() => document.getElementById('prompt').focus());
  await ask(page, 'Hello there');
  await eventually(async () => assert.equal(await answers(page).locator('.prose').innerText(), 'You said: Hello there'));
  await eventually(async () => assert.equal(await page.evaluate(() => document.activeElement.id), 'prompt'));
  await eventually(async () => assert.equal((await titles())[0], 'Hello there'));
  assert.deepEqual((await requests())[0], {
    messages: [{ role: 'user', content: 'Hello there' }],
    max_tokens: 1024,
    temperature: 0,
    stream: true,
  });
  await eventually(async () => assert.match(await page.locator('.context small').textContent(), /^12 \/ 4,096$/));
  await eventually(async () => assert.equal(await page.locator('#spoken').innerText(), 'You said: Hello there'));
});

test('Markdown with code, tables and maths; what is hostile stays text', LIMIT, async () => {
  await begin();
  await page.evaluate(() => (globalThis.hacked = 0));
  const text = [
    '# Title\n\nSome **bold** text and a [link](https://a.example/x) and [bad](javascript:hacked=1) and $x^2 + 1$ for $5.',
    '\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n```js\nconst a = "<b>";\n```\n\n- [x] done\n- open\n\n$$\\frac{1}{2}$$\n',
    '\n<img src=x onerror="hacked=1"><script>hacked=1</script>\n\n![pic](https://evil.example/?leak=1) <a href="javascript:hacked=1">x</a> <svg onload="hacked=1">\n\n[ref]: javascript:hacked=1\n',
  ];
  const asked = [];
  page.on('request', (request) => asked.push(request.url()));
  await plan(page, { deltas: text.flatMap((part) => part.match(/[\s\S]{1,7}/g)).map((content) => ({ content })) });
  await ask(page, 'Show me');
  const prose = answers(page).locator('.prose');
  await prose.locator('math').first().waitFor();
  const found = await prose.evaluate((element) => ({
    bold: element.querySelector('strong').textContent,
    cells: [...element.querySelectorAll('td')].map((cell) => cell.textContent),
    code: element.querySelector('figure.code pre').textContent,
    maths: element.querySelectorAll('math').length,
    links: [...element.querySelectorAll('a')].map((link) => link.getAttribute('href')),
    colours: [...element.querySelectorAll('a')].slice(0, 2).map((link) => getComputedStyle(link).color !== getComputedStyle(element).color),
    forbidden: element.querySelectorAll('img, script, svg, iframe, style, form, [onerror], [onload]').length,
    text: element.textContent,
  }));
  assert.equal(found.bold, 'bold');
  assert.deepEqual(found.cells, ['1', '2']);
  assert.equal(found.code, 'const a = "<b>";\n');
  assert.equal(found.maths, 2);
  assert.deepEqual(found.links.filter(Boolean), ['https://a.example/x', 'https://evil.example/?leak=1']);
  assert.deepEqual(found.links.indexOf(null), 1);
  assert.deepEqual(found.colours, [true, false], 'what leads nowhere does not look like a link');
  assert.equal(found.forbidden, 0);
  assert.match(found.text, /for \$5\./);
  assert.match(found.text, /<img src=x onerror/);
  assert.match(found.text, /☑ done/);
  await eventually(async () => assert.equal(await page.evaluate(() => globalThis.hacked), 0));
  assert.deepEqual(
    asked.filter((url) => url.includes('evil')),
    [],
  );
  await prose.locator('[data-copy]').click();
  await eventually(async () => assert.equal(await page.evaluate(() => navigator.clipboard.readText()), 'const a = "<b>";\n'));
  await checkLayout(page, 'with an answer of every kind and what was hostile in it');
});

/** What a person might keep, for pictures. */
const GROWTH = `A sum that grows by the rate $r$ each year is, after $n$ years,

$$S_n = S_0 \\cdot (1 + r)^n$$

For 1,000 at 4 % that makes:

| after | sum |
|---|--:|
| 1 year | 1,040.00 |
| 5 years | 1,216.65 |
| 10 years | 1,480.24 |

In Python:

\`\`\`python
def grown(sum, rate, years):
    return sum * (1 + rate) ** years

print(round(grown(1000, 0.04, 10), 2))
\`\`\`
`;

test('a conversation fits a wide screen and a phone, light and dark, with its list and all panels', LIMIT, async () => {
  await begin();
  const pieces = GROWTH.match(/\s*\S{1,12}/g);
  await plan(page, { deltas: pieces.map((content) => ({ content })), pauseMs: 20 });
  await ask(page, 'How does compound interest grow? Show it in Python too.');
  await answers(page).locator('math').nth(1).waitFor();
  await page.locator('#log').evaluate((log) => (log.scrollTop = 0));
  await picture(page, 'conversation');
  await checkLayout(page, 'with an answer of every kind, wide');
  await page.emulateMedia({ colorScheme: 'dark' });
  await picture(page, 'conversation-dark');
  await checkLayout(page, 'dark');
  await page.setViewportSize(PHONE);
  await picture(page, 'conversation-phone-dark');
  await page.emulateMedia({ colorScheme: 'light' });
  await picture(page, 'conversation-phone');
  await checkLayout(page, 'on a phone');
  const { bottom } = await page.locator('#composer').evaluate((form) => form.getBoundingClientRect());
  assert.ok(Math.abs(bottom - PHONE.height) < 1, `the composer ends at ${bottom}`);
  await page.locator('#open-side').click();
  await picture(page, 'conversations-phone');
  await checkLayout(page, 'with the list of conversations on a phone');
  await page.keyboard.press('Escape');
  await page.locator('#open-panel').click();
  for (const panel of await page.locator('#panel details').all()) await panel.evaluate((element) => (element.open = true));
  await checkLayout(page, 'with all panels on a phone');
  await page.locator('#panel').evaluate((panel) => (panel.scrollTop = 0));
  await picture(page, 'figures-phone');
  await page.keyboard.press('Escape');
  await page.setViewportSize(WIDE);
  await checkLayout(page, 'with all panels, wide');
  for (const id of ['system-panel', 'settings-panel', 'teach-panel', 'tools-panel', 'format-panel', 'export-panel'])
    await page.locator(`#${id}`).evaluate((element) => (element.open = false));
});

test('text from right to left, and formulas that are wider than a phone', LIMIT, async () => {
  await begin();
  await page.setViewportSize(PHONE);
  const sum = (letter) => Array.from({ length: 16 }, (_, i) => `${letter}_{${i}}`).join('+');
  await plan(page, {
    deltas: [
      { content: 'مرحبا `code`\n\n- واحد\n- اثنان\n\n> اقتباس\n\nEnglish ' },
      { content: `$x^2$ and $${sum('a')}$\n\n$$${sum('b')} = 1234567890$$\n` },
    ],
  });
  await ask(page, 'اكتب قصة! (123)');
  const prose = answers(page).locator('.prose');
  await prose.locator('.maths.wide').nth(1).waitFor();
  const directions = await page.evaluate(() =>
    ['.bubble', '.prose p', '.prose code', '.prose ul', '.prose blockquote', '.prose > p:nth-of-type(2)', '#conversations .title'].map(
      (selector) => getComputedStyle(document.querySelector(selector)).direction,
    ),
  );
  assert.deepEqual(directions, ['rtl', 'rtl', 'ltr', 'rtl', 'rtl', 'ltr', 'rtl']);
  assert.equal(
    await page.locator('#log').evaluate((log) => log.scrollWidth - log.clientWidth),
    0,
    'the conversation does not scroll sideways',
  );
  assert.equal(await prose.locator('.maths.wide').count(), 2, 'a short formula is not wide');
  await checkLayout(page, 'with wide formulas on a phone');
  await page.setViewportSize(WIDE);
});

test('a long conversation opens at its end; earlier ones come when they are wanted; all of it is printed', LIMIT, async (t) => {
  await begin();
  const messages = Array.from({ length: 200 }, (_, i) => ({
    id: `m${i}`,
    parent: i === 0 ? null : `m${i - 1}`,
    role: i % 2 === 0 ? 'user' : 'assistant',
    created: i,
    content: i % 2 === 0 ? `Question ${i}` : `Answer ${i}\n\n- **one**\n- two\n\n\`\`\`js\nconst x = ${i};\n\`\`\`\n`,
  }));
  const file = JSON.stringify({ format: 'rillm-conversations', version: 1, conversations: [{ title: 'Two hundred', messages }] });
  await page.locator('#import-file').setInputFiles({ name: 'long.json', mimeType: 'application/json', buffer: Buffer.from(file) });
  const earlier = page.locator('#earlier');
  await earlier.filter({ hasText: '(140)' }).waitFor();
  const log = page.locator('#log');
  const left = () => log.evaluate(({ scrollHeight, scrollTop, clientHeight }) => Math.round(scrollHeight - scrollTop - clientHeight));
  const count = () => page.locator('.message').count();
  assert.deepEqual([await count(), await left()], [60, 0]);
  // A reader who gets near to the beginning finds more, and stays where they were.
  await log.evaluate((element) => (element.scrollTop = 2000));
  await eventually(async () => assert.ok((await left()) > 2000));
  await log.evaluate((element) => (element.scrollTop = 300));
  const place = await left();
  await eventually(async () => assert.equal(await count(), 120));
  await eventually(async () => assert.ok(Math.abs((await left()) - place) < 5));
  // One who pulls the text down a little while an answer comes is not carried back.
  await page.locator('#prompt').fill('Go on');
  await plan(page, { deltas: Array.from({ length: 30 }, (_, i) => ({ content: `Line ${i}\n\n` })), hold: true });
  await page.locator('#prompt').press('Enter');
  await answers(page).last().locator('p', { hasText: 'Line 28' }).waitFor();
  await eventually(async () => assert.equal(await left(), 0));
  await log.evaluate((element) => (element.scrollTop -= 20));
  await page.waitForTimeout(50);
  await page.evaluate(() => stub.go());
  await settled(page);
  await eventually(async () => assert.ok((await left()) >= 20));
  // By the keyboard, up to the first message.
  await earlier.focus();
  for (let drawn = await count(); drawn < 202; drawn = Math.min(202, drawn + 60)) {
    await page.keyboard.press('Enter');
    await eventually(async () => assert.ok((await count()) > drawn));
  }
  await eventually(async () => assert.equal(await page.evaluate(() => document.activeElement.id), 'log'));
  // Another conversation and back: at the end again.
  await begin();
  await page.locator('#conversations .open', { hasText: 'Two hundred' }).click();
  await earlier.filter({ hasText: '(142)' }).waitFor();
  await eventually(async () => assert.equal(await left(), 0));
  await page.emulateMedia({ media: 'print' });
  await page.evaluate(() => dispatchEvent(new Event('beforeprint')));
  assert.equal(await count(), 202);
  const height = await page.evaluate(() => document.documentElement.scrollHeight);
  assert.ok(height > 10_000, `printed are ${height} pixels`);
  await page.emulateMedia({ media: 'screen' });
  t.diagnostic(`typed with 202 messages drawn: ${await timeOfKeys()} ms a letter`);
});

/** Milliseconds that the page takes to draw a letter. */
async function timeOfKeys() {
  return page.evaluate(async () => {
    const field = document.getElementById('prompt');
    const begin = performance.now();
    for (let i = 0; i < 5; i++) {
      field.value += 'a';
      field.dispatchEvent(new Event('input', { bubbles: true }));
      await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
    }
    const ms = Math.round((performance.now() - begin) / 5);
    field.value = '';
    field.dispatchEvent(new Event('input', { bubbles: true }));
    return ms;
  });
}

test('an answer of 100 kB keeps the page alive, in blocks and in one', LIMIT, async (t) => {
  await begin();
  for (const [name, piece] of [
    ['in paragraphs', `${'word **bold** and `code` '.repeat(20).trim()}\n\n`],
    ['in one line', 'word * _ [ ` < $ '],
    ['as code', null],
  ]) {
    const parts =
      piece === null
        ? ['```\n', ...Array.from({ length: 100 }, () => 'x = 1;\n'.repeat(143)), '```\n']
        : Array.from({ length: 100 }, () => piece.repeat(Math.ceil(1000 / piece.length)));
    let longest;
    // What else the machine does may keep the page from running for seconds: it counts if it happens each time.
    for (let attempt = 0; attempt < 3 && !(longest < 1500); attempt++) {
      await plan(page, { deltas: parts.map((content) => ({ content })) });
      await page.evaluate(() => {
        globalThis.longest = 0;
        let last = performance.now();
        globalThis.beat = setInterval(() => {
          const now = performance.now();
          globalThis.longest = Math.max(globalThis.longest, now - last);
          last = now;
        }, 10);
      });
      const start = performance.now();
      await ask(page, name);
      longest = await page.evaluate(() => (clearInterval(beat), globalThis.longest));
      const seconds = ((performance.now() - start) / 1000).toFixed(1);
      t.diagnostic(`100 kB ${name}: ${seconds} s, the page stood still for ${Math.round(longest)} ms at most`);
    }
    assert.ok(longest < 1500, `${name}: the page stood still for ${longest} ms`);
    await eventually(async () => assert.ok((await answers(page).last().locator('.prose').textContent()).length > 70_000, name));
  }
});

test('a question that fails keeps its text, and can be asked again or changed', LIMIT, async () => {
  await begin();
  await plan(page, { error: { code: 'context_length_exceeded', message: 'the prompt has 5000 tokens' } });
  await ask(page, 'Too long');
  await eventually(async () =>
    assert.match(await page.locator('.failure').textContent(), /too long for this model’s context.*5000 tokens/s),
  );
  await eventually(async () => assert.equal(await page.locator('.bubble').textContent(), 'Too long'));
  await page.getByRole('button', { name: 'Try again' }).click();
  await settled(page);
  await eventually(async () => assert.equal(await answers(page).locator('.prose').innerText(), 'You said: Too long'));
  await eventually(async () => assert.equal(await page.locator('.versions').count(), 0, 'what came to nothing is no version'));
  // What follows a failure is one question for the model.
  await plan(page, { deltas: [{ content: 'Half' }], error: { code: 'device_lost', message: 'the GPU is gone' } });
  await ask(page, 'Second');
  await eventually(async () => assert.equal(await answers(page).last().locator('.prose').innerText(), 'Half'));
  await eventually(async () => assert.match(await page.locator('.failure').textContent(), /GPU was reset/));
  await eventually(async () => assert.match(await page.locator('#spoken').innerText(), /Half\s+No answer\. The GPU was reset/));
  await page.getByRole('button', { name: 'Continue' }).click();
  await settled(page);
  const asked = (await requests()).at(-1);
  assert.equal(asked.continue_final_message, true);
  assert.equal(asked.messages.at(-1).content, 'Half');
  await eventually(async () => assert.equal(await answers(page).last().locator('.prose').innerText(), 'HalfYou said: Half'));
});

test('a setting that is wrong is named in words, where it stands and where it is asked with', LIMIT, async () => {
  await begin();
  await page.locator('#settings-panel > summary').click();
  await page.locator('#set-temperature').fill('warm');
  await eventually(async () =>
    assert.match(await page.locator('#set-temperature-fault').textContent(), /Temperature has to be a number from 0 to 2/),
  );
  await ask(page, 'Hi');
  await eventually(async () =>
    assert.match(await page.locator('.failure').textContent(), /No answer\. Temperature has to be a number from 0 to 2\./),
  );
  assert.deepEqual(await requests(), []);
  await page.getByRole('button', { name: 'Reset Temperature' }).click();
  await eventually(async () => assert.equal(await page.locator('#set-temperature').inputValue(), '0'));
  await page.locator('#set-temperature').press('ArrowUp');
  await eventually(async () => assert.equal(await page.locator('#set-temperature').inputValue(), '0.05'));
  await page.getByRole('button', { name: 'Try again' }).click();
  await settled(page);
  assert.equal((await requests())[0].temperature, 0.05);
  await picture(page, 'settings');
  const group = page.locator('#settings-panel details', { hasText: 'Mirostat' });
  await group.evaluate((details) => (details.open = true));
  await page.locator('#set-mirostat').check();
  await page.getByRole('button', { name: 'Reset Mirostat 2' }).click();
  await eventually(async () => assert.equal(await page.locator('#set-mirostat').isChecked(), false));
  await group.evaluate((details) => (details.open = false));
  await page.locator('#reset-settings').click();
  await eventually(async () => assert.equal(await page.locator('#set-temperature').inputValue(), '0'));
  await page.locator('#settings-panel > summary').click();
});

test('what is typed beside an answer that comes is not lost, and Escape ends what it is pressed in', LIMIT, async () => {
  await begin();
  await ask(page, 'One');
  await page.getByRole('button', { name: 'Edit this message' }).click();
  const editor = page.locator('.editor textarea');
  await fitsPhone('a message that is edited', '.editor textarea');
  await editor.fill('Two');
  await plan(page, { deltas: [{ content: 'Slowly' }, { content: ' done' }], hold: true });
  await page.locator('#prompt').fill('Other');
  await page.locator('#prompt').press('Enter');
  await answers(page).last().locator('.prose', { hasText: 'Slowly' }).waitFor();
  // What shows that it goes on stands behind the last letter.
  const carets = await answers(page)
    .last()
    .locator('.prose')
    .evaluate((prose) =>
      [prose, ...prose.querySelectorAll('*')]
        .filter((element) => getComputedStyle(element, '::after').content === '""')
        .map((element) => element.tagName),
    );
  assert.deepEqual(carets, ['P']);
  await editor.press('Enter');
  await page.locator('#system-panel > summary').click();
  await page.locator('#system').fill('Talk like');
  await page.getByRole('button', { name: 'Rename One' }).click();
  await page.locator('.rename input').press('Escape');
  await page.waitForFunction(() => document.activeElement.dataset.rename !== undefined);
  await page.locator('#search').fill('one');
  await page.locator('#search').press('Escape');
  await eventually(async () => assert.equal(await page.locator('#search').inputValue(), ''));
  assert.equal(await page.locator('#send').getAttribute('aria-label'), 'Stop', 'the answer goes on');
  assert.equal(await page.locator('#system').inputValue(), 'Talk like');
  assert.equal(await editor.inputValue(), 'Two');
  await page.evaluate(() => stub.go());
  await settled(page);
  await eventually(async () => assert.equal(await answers(page).last().locator('.prose').innerText(), 'Slowly done'));
  await editor.press('Enter');
  await settled(page);
  await eventually(async () => assert.deepEqual(await page.locator('.bubble').allTextContents(), ['Two']));
  assert.equal((await requests()).at(-1).messages[0].content, 'Talk like');
  // A prompt of one letter after the other, each drawn.
  await page.locator('#system').focus();
  await page.evaluate(() => {
    const field = document.getElementById('system');
    field.setRangeText(' a pirate', field.value.length, field.value.length, 'end');
    field.dispatchEvent(new Event('input', { bubbles: true }));
  });
  await drawn();
  assert.equal(await page.locator('#system').inputValue(), 'Talk like a pirate');
  await page.locator('#system-panel > summary').click();
});

/**
 * The page as it is on a phone, where a side of it lies behind a button: it fits, nothing of it is too small for a finger, and what is `wanted` lies on
 * the screen.
 */
async function fitsPhone(when, wanted, opener) {
  await page.setViewportSize(PHONE);
  if (opener !== undefined) await page.locator(opener).click();
  const part = page.locator(wanted);
  await part.scrollIntoViewIfNeeded();
  await checkLayout(page, `${when} on a phone`);
  const { x, y, width, height } = await part.boundingBox();
  assert.ok(x >= 0 && y >= 0 && x + width <= PHONE.width && y + height <= PHONE.height, `${wanted}: ${[x, y, width, height]}`);
  if (opener !== undefined) await page.keyboard.press('Escape');
  await page.setViewportSize(WIDE);
}

test('edit, write again, and change between the versions; tokens of the cache are told', LIMIT, async () => {
  await begin();
  await ask(page, 'One');
  await page.locator('#prompt').press('ArrowUp');
  const editor = page.locator('.editor textarea');
  await editor.waitFor();
  await eventually(async () => assert.equal(await page.evaluate(() => document.activeElement.value), 'One'));
  await page.keyboard.press('Escape');
  await eventually(async () => assert.equal(await editor.count(), 0));
  await eventually(async () => assert.equal(await page.evaluate(() => document.activeElement.id), 'prompt'));
  await page.getByRole('button', { name: 'Edit this message' }).click();
  await plan(page, { deltas: [{ content: 'Second branch' }], cached: 7 });
  await editor.fill('Two');
  await editor.press('Enter');
  await settled(page);
  await eventually(async () => assert.equal(await page.locator('.bubble').textContent(), 'Two'));
  await eventually(async () => assert.match(await page.locator('.counts').textContent(), /7 of 10 from the cache/));
  await page.getByRole('button', { name: 'Earlier version' }).click();
  await page.locator('.bubble', { hasText: 'One' }).waitFor();
  await eventually(async () => assert.equal(await answers(page).locator('.prose').innerText(), 'You said: One'));
  await plan(page, { deltas: [{ content: 'Another answer' }] });
  await page.getByRole('button', { name: 'Write this answer again' }).click();
  await settled(page);
  await eventually(async () => assert.equal(await answers(page).locator('.prose').innerText(), 'Another answer'));
  await eventually(async () => assert.equal(await page.locator('.versions').count(), 2));
  await answers(page).getByRole('button', { name: 'Copy this answer' }).click();
  await eventually(async () => assert.equal(await page.evaluate(() => navigator.clipboard.readText()), 'Another answer'));
});

test('Stop ends the reading of the prompt, and an answer; Escape does too', LIMIT, async () => {
  await begin();
  await plan(page, { holdPrompt: true }, { deltas: [{ content: 'Begun' }, { content: ' never' }], hold: true });
  await page.locator('#prompt').fill('Long prompt');
  await page.locator('#prompt').press('Enter');
  await page.locator('.waiting').waitFor();
  await page.locator('#send').click();
  await settled(page);
  await eventually(async () => assert.match(await page.locator('.remark').textContent(), /Stopped/));
  await page.locator('#prompt').fill('Draft while it answers');
  await page.getByRole('button', { name: 'Write this answer again' }).click();
  await answers(page).locator('.prose', { hasText: 'Begun' }).waitFor();
  await page.locator('#prompt').press('Escape');
  await settled(page);
  await eventually(async () => assert.equal(await answers(page).locator('.prose').innerText(), 'Begun'));
  await eventually(async () => assert.equal(await page.locator('#prompt').inputValue(), 'Draft while it answers'));
  await page.locator('#prompt').fill('');
});

test('reasoning is folded, and tools are called, with consent where they leave the page', LIMIT, async () => {
  await begin();
  await page.locator('#tools-panel > summary').click();
  for (const name of ['calculator', 'fetch_address']) await page.locator(`#tool-${name}`).check();
  await page.context().route('https://a.example/page', (route) =>
    route.fulfill({
      contentType: 'text/html',
      headers: { 'access-control-allow-origin': '*' },
      body: '<title>t</title><p>Page words</p><script>hacked = 1</script>',
    }),
  );
  const call = (index, name, given) => ({
    tool_calls: [{ index, id: `call_${index}`, type: 'function', function: { name, arguments: JSON.stringify(given) } }],
  });
  await plan(
    page,
    { deltas: [{ reasoning_content: 'Let me compute.' }, call(0, 'calculator', { expression: '6*7' })], finish: 'tool_calls', pauseMs: 20 },
    { deltas: [call(0, 'fetch_address', { url: 'https://a.example/page' })], finish: 'tool_calls', pauseMs: 20 },
    { deltas: [{ content: 'It is 42.' }] },
  );
  await page.locator('#prompt').fill('Compute');
  await page.locator('#prompt').press('Enter');
  const allow = page.locator('#allow');
  await allow.waitFor();
  await eventually(async () => assert.equal(await page.locator('#consent-url').textContent(), 'https://a.example/page'));
  await fitsPhone('a tool that asks', '#allow');
  await fitsPhone('the tools', '#tool-calculator', '#open-panel');
  assert.equal(await page.locator('.call').last().locator('.label').count(), 0, 'this call has no result yet, though its id has one');
  await picture(page, 'tools');
  await checkLayout(page, 'with a question of a tool');
  await allow.click();
  await settled(page);
  const [first, second, third] = await requests();
  assert.deepEqual(
    first.tools.map(({ function: { name } }) => name),
    ['calculator', 'fetch_address'],
  );
  assert.deepEqual(second.messages.at(-1), { role: 'tool', tool_call_id: 'call_0', content: '42' });
  assert.match(third.messages.at(-1).content, /^Page words/);
  await eventually(async () => assert.equal(await page.locator('.reasoning').evaluate((details) => details.open), false));
  await eventually(async () =>
    assert.match(await page.locator('.call').first().textContent(), /calculator.*"expression": "6\*7".*Result.*42/s),
  );
  await eventually(async () => assert.equal(await answers(page).last().locator('.prose').innerText(), 'It is 42.'));
  // A call is refused, and Stop ends a call that waits for a person.
  await plan(
    page,
    { deltas: [call(0, 'fetch_address', { url: 'https://a.example/page' })], finish: 'tool_calls' },
    { deltas: [{ content: 'Then not.' }] },
  );
  await page.locator('#prompt').fill('Again');
  await page.locator('#prompt').press('Enter');
  await page.locator('#deny').click();
  await settled(page);
  assert.match((await requests()).at(-1).messages.at(-1).content, /did not allow/);
  await plan(page, { deltas: [call(0, 'fetch_address', { url: 'https://a.example/page' })], finish: 'tool_calls' });
  await page.locator('#prompt').fill('Once more');
  await page.locator('#prompt').press('Enter');
  await allow.waitFor();
  await page.keyboard.press('Escape');
  await settled(page);
  await eventually(async () => assert.equal(await allow.count(), 0));
  // It was stopped, and goes on.
  await page.locator('.remark', { hasText: 'stopped at this call' }).waitFor();
  await page.getByRole('button', { name: 'Continue' }).click();
  await allow.click();
  await settled(page);
  await eventually(async () => assert.match(await answers(page).last().locator('.prose').innerText(), /^You said: Page words/));
  const rounds = Array.from({ length: 8 }, () => ({ deltas: [call(0, 'calculator', { expression: '6*7' })], finish: 'tool_calls' }));
  await plan(page, ...rounds);
  await ask(page, 'For ever');
  await page.locator('.remark', { hasText: 'called tools 8 times in a row' }).waitFor();
  for (const name of ['calculator', 'fetch_address']) await page.locator(`#tool-${name}`).uncheck();
  await page.locator('#tools-panel > summary').click();
});

test('a button that is pressed does not move away, whatever grows above it', LIMIT, async () => {
  await begin();
  await page.locator('#settings-panel > summary').click();
  await page.locator('#set-temperature').fill('0.7');
  const reset = page.locator('#reset-settings');
  await reset.scrollIntoViewIfNeeded();
  // Not every browser keeps what is seen in its place.
  await page.locator('#panel').evaluate((panel) => (panel.style.overflowAnchor = 'none'));
  const middle = async () => {
    const { x, y, width, height } = await reset.boundingBox();
    return [x + width / 2, y + height / 2];
  };
  const before = await middle();
  await page.mouse.move(...before);
  await page.mouse.down();
  // A load shows its progress above.
  await page.evaluate(() => {
    stub.holdLoad = true;
    const transfer = new DataTransfer();
    transfer.items.add(new File(['x'], 'dropped.gguf'));
    document.body.dispatchEvent(new DragEvent('drop', { dataTransfer: transfer, bubbles: true, cancelable: true }));
  });
  await page.waitForTimeout(150);
  assert.deepEqual(await middle(), before);
  await page.mouse.up();
  await eventually(async () => assert.equal(await page.locator('#set-temperature').inputValue(), '0'));
  await page.locator('#loading').waitFor();
  await page.locator('#cancel-load').click();
  await page.evaluate(() => (stub.holdLoad = false));
  // What is pressed and never let go, such as a finger that leaves the window, does not stop the page.
  await page.locator('#prompt').evaluate((field) => field.focus());
  await page.evaluate(() => document.getElementById('unload').dispatchEvent(new PointerEvent('pointerdown', { bubbles: true })));
  await ask(page, 'Still drawn');
  await eventually(async () => assert.equal(await answers(page).locator('.prose').innerText(), 'You said: Still drawn'));
  await page.locator('#settings-panel > summary').click();
});

test('calls that nothing answers take their results from the person', LIMIT, async () => {
  await begin();
  const call = (index, id, name) => ({
    tool_calls: [{ index, id, type: 'function', function: { name, arguments: '{"city": "Oslo"}' } }],
  });
  await plan(
    page,
    { deltas: [call(0, 'w', 'get_weather'), call(1, 'n', 'get_news')], finish: 'tool_calls' },
    { deltas: [{ content: 'It rains.' }] },
  );
  await ask(page, 'Weather?');
  const fields = page.locator('.call textarea');
  await fields.nth(1).fill('none');
  await fields.nth(0).fill('rain, 4 °C');
  await page.getByRole('button', { name: 'Give the result' }).nth(0).click();
  await settled(page);
  await eventually(async () => assert.equal(await fields.count(), 1));
  assert.equal(await fields.inputValue(), 'none', 'what was written for the other call');
  await page.getByRole('button', { name: 'Give the result' }).click();
  await settled(page);
  assert.deepEqual((await requests()).at(-1).messages.slice(-2), [
    { role: 'tool', tool_call_id: 'w', content: 'rain, 4 °C' },
    { role: 'tool', tool_call_id: 'n', content: 'none' },
  ]);
  await eventually(async () => assert.equal(await answers(page).last().locator('.prose').innerText(), 'It rains.'));
});

test('JSON by a schema: the schema is checked as it is written, the answer when it is there', LIMIT, async () => {
  await begin();
  await page.locator('#format-panel > summary').click();
  await page.getByLabel('JSON by a schema').check();
  const state = page.locator('#schema-state');
  await page.locator('#schema').fill('{"type": "objekt"}');
  await state.filter({ hasText: 'has the type "objekt"' }).waitFor();
  await page.locator('#schema').fill('{"type": ');
  await state.filter({ hasText: 'no JSON' }).waitFor();
  await ask(page, 'Too early');
  await eventually(async () => assert.match(await page.locator('.failure').textContent(), /The schema is no JSON/));
  await page.getByRole('button', { name: 'An example' }).click();
  await state.filter({ hasText: 'A schema.' }).waitFor();
  await plan(page, { deltas: [{ content: '{"name": "Mira", ' }, { content: '"age": 31}' }] }, { deltas: [{ content: '{"name": 1}' }] });
  await page.getByRole('button', { name: 'Try again' }).click();
  await settled(page);
  assert.equal((await requests())[0].response_format.type, 'json_schema');
  await eventually(async () => assert.match(await page.locator('.message .verdict').textContent(), /Valid by the schema/));
  await picture(page, 'json');
  await checkLayout(page, 'with a schema');
  await fitsPhone('a schema', '#schema', '#open-panel');
  await fitsPhone('an answer by a schema', '.message .verdict');
  await ask(page, 'Another');
  await eventually(async () => assert.match(await page.locator('.message .verdict').textContent(), /Not valid by the schema/));
  // It is judged by what it was asked for, and not by what the next one will be.
  await page.locator('#schema').fill('{"type": "string"}');
  await drawn();
  assert.match(await page.locator('.message .verdict').textContent(), /"number" is invalid/);
  await page.getByLabel('Any text').check();
  await drawn();
  assert.match(await page.locator('.message .verdict').textContent(), /"number" is invalid/);
  await ask(page, 'Words');
  await eventually(async () => assert.equal(await page.locator('.message .verdict').count(), 0));
  await page.locator('#format-panel > summary').click();
});

test('the system prompt belongs to its conversation, and prompts can be kept', LIMIT, async () => {
  await begin();
  await page.locator('#system-panel > summary').click();
  await page.locator('#system').fill('Talk like a pirate.');
  await page.locator('#system').blur();
  await page.locator('#save-prompt').click();
  await ask(page, 'Hi');
  assert.deepEqual((await requests())[0].messages[0], { role: 'system', content: 'Talk like a pirate.' });
  await begin();
  await eventually(async () => assert.equal(await page.locator('#system').inputValue(), ''));
  await page.locator('#system-prompts').selectOption({ label: 'Talk like a pirate.' });
  await eventually(async () => assert.equal(await page.locator('#system').inputValue(), 'Talk like a pirate.'));
  await page.getByRole('button', { name: 'Forget it' }).click();
  await page.locator('#system-panel > summary').click();
});

test('rename, search and delete; the focus is never lost', LIMIT, async () => {
  await begin();
  await ask(page, 'Find the walrus');
  await page.getByRole('button', { name: 'Rename Find the walrus' }).click();
  await page.locator('.rename input').fill('Sea <b>animals</b>');
  await page.locator('.rename input').press('Enter');
  await page.locator('.title', { hasText: 'Sea <b>animals</b>' }).waitFor();
  assert.notEqual(await page.evaluate(() => document.activeElement.tagName), 'BODY');
  await page.locator('#search').fill('WALRUS');
  await page.waitForFunction(() => document.querySelectorAll('#conversations li').length === 1);
  await fitsPhone('a search', '#search', '#open-side');
  await page.locator('#search').fill('nothing like it');
  await page.locator('#no-conversations', { hasText: 'Nothing was found' }).waitFor();
  await page.locator('#search').fill('');
  await page.getByRole('button', { name: /^Delete Sea/ }).click();
  await eventually(async () => assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Delete'));
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: /^Delete Sea/ }).click();
  await page.locator('[data-confirm]').click();
  await page.locator('#welcome').waitFor();
  await eventually(async () => assert.ok(!(await titles()).some((title) => title.startsWith('Sea'))));
  await page.waitForFunction(() => document.activeElement.id === 'new-chat');
  await page.locator('#search').fill('nothing like it');
  await page.locator('#no-conversations', { hasText: 'Nothing was found' }).waitFor();
  await begin();
  await ask(page, 'Begun meanwhile');
  await eventually(async () => assert.deepEqual(await titles(), ['Begun meanwhile']));
  await page.locator('#search').fill('');
});

test('a conversation that is deleted in mid-answer ends and does not come back', LIMIT, async () => {
  await begin();
  await plan(page, { deltas: [{ content: 'Half an' }, { content: ' answer' }], hold: true });
  await page.locator('#prompt').fill('Doomed');
  await page.locator('#prompt').press('Enter');
  await answers(page).locator('.prose', { hasText: 'Half an' }).waitFor();
  await page.getByRole('button', { name: 'Delete Doomed' }).click();
  await page.locator('[data-confirm]').click();
  await page.locator('#welcome').waitFor();
  await page.evaluate(() => stub.go());
  await page.waitForTimeout(100);
  await eventually(async () => assert.ok(!(await titles()).includes('Doomed')));
});

test('a reload in mid-answer keeps what there was, and the answer goes on', LIMIT, async () => {
  await begin();
  await plan(page, { deltas: [{ content: 'The first half' }, { content: '.' }, { content: ' lost' }], hold: true });
  await page.locator('#prompt').fill('Tell me');
  await page.locator('#prompt').press('Enter');
  await answers(page).locator('.prose', { hasText: 'The first half.' }).waitFor();
  // Kept a moment after it came.
  await page.waitForTimeout(500);
  await page.locator('#prompt').fill('a draft');
  // What is kept may be of another version of the page.
  await page.evaluate(() => {
    const kept = JSON.parse(localStorage.getItem('rillm-preferences'));
    const odd = {
      settings: { temperature: 5, top_k: null },
      prompts: [1, ['a']],
      format: { kind: 7, schema: {} },
      tools: [3],
      loadOptions: { kvCache: '' },
    };
    localStorage.setItem('rillm-preferences', JSON.stringify({ ...kept, ...odd }));
  });
  await opened.start();
  await answers(page).locator('.prose', { hasText: 'The first half' }).waitFor();
  await eventually(async () => assert.equal(await page.locator('#prompt').inputValue(), 'a draft'));
  await eventually(async () => assert.match(await page.locator('.remark').textContent(), /Interrupted/));
  // The model that was there is loaded again by itself.
  await page.locator('#model-summary').filter({ hasText: 'Loaded in' }).waitFor();
  await plan(page, { deltas: [{ content: ' And the second.' }] });
  await page.getByRole('button', { name: 'Continue' }).click();
  await settled(page);
  await eventually(async () => assert.match(await answers(page).locator('.prose').innerText(), /^The first half.* And the second\.$/));
  await page.locator('#prompt').fill('');
});

test('two tabs: each hears of the other, both write, and nothing is overwritten', LIMIT, async () => {
  await begin();
  await ask(page, 'From the first tab');
  const other = await opened.context.newPage();
  try {
    await opened.start(other);
    await other.locator('#model-summary').filter({ hasText: 'Loaded in' }).waitFor();
    await other.locator('#conversations .open', { hasText: 'From the first tab' }).click();
    await plan(other, { deltas: [{ content: 'In the making' }, { content: ', done.' }], hold: true });
    await other.locator('#prompt').fill('From the second');
    await other.locator('#prompt').press('Enter');
    await page.locator('.bubble', { hasText: 'From the second' }).waitFor();
    await answers(page).nth(1).waitFor();
    await eventually(async () =>
      assert.equal(await answers(page).nth(1).getAttribute('aria-busy'), 'true', 'the first tab sees that it is being written'),
    );
    await other.evaluate(() => stub.go());
    await settled(other);
    await answers(page).locator('.prose', { hasText: 'In the making, done.' }).waitFor();
    await ask(page, 'Third');
    await other.locator('.bubble', { hasText: 'Third' }).waitFor();
    await eventually(async () => assert.equal(await other.locator('.bubble').count(), 3));
    // What is deleted in one tab while it is being changed in the other leaves the text and the focus.
    await page.getByRole('button', { name: 'Edit this message' }).last().click();
    await page.locator('.editor textarea').fill('Not to be lost');
    await other.getByRole('button', { name: 'Delete From the first tab' }).click();
    await other.locator('[data-confirm]').click();
    await page.locator('#welcome').waitFor();
    await eventually(async () => assert.equal(await page.locator('#prompt').inputValue(), 'Not to be lost'));
    await page.waitForFunction(() => document.activeElement.id === 'prompt');
    await page.locator('#prompt').fill('');
    // A tab that goes in the middle of its answer says nothing of it.
    await plan(other, { deltas: [{ content: 'Half' }, { content: ' lost' }], hold: true });
    await other.locator('#prompt').fill('Left alone');
    await other.locator('#prompt').press('Enter');
    await page.locator('#conversations .open', { hasText: 'Left alone' }).click();
    await answers(page).locator('.prose', { hasText: 'Half' }).waitFor();
    assert.equal(await answers(page).getAttribute('aria-busy'), 'true');
    await other.close();
    await page.locator('.remark', { hasText: 'Interrupted' }).waitFor();
  } finally {
    await other.close();
  }
});

test('export and import: JSON comes back, Markdown reads, a broken file is refused in words', LIMIT, async () => {
  await begin();
  await ask(page, 'Keep me');
  await page.locator('#export-panel > summary').click();
  const download = async (button) => {
    const [file] = await Promise.all([page.waitForEvent('download'), page.locator(button).click()]);
    return streamedText(await file.createReadStream());
  };
  await eventually(async () =>
    assert.match(await download('#export-markdown'), /^# Keep me\n\n## You\n\nKeep me\n\n## stub\n\nYou said: Keep me\n$/),
  );
  const text = await download('#export');
  assert.ok(JSON.parse(text).conversations.length >= 1);
  const one = await download('#export-json');
  await page.locator('#import-file').setInputFiles({ name: 'chats.json', mimeType: 'application/json', buffer: Buffer.from(one) });
  await page.waitForFunction(
    () => [...document.querySelectorAll('#conversations .title')].filter((title) => title.textContent === 'Keep me').length === 2,
  );
  await eventually(async () => assert.equal(await answers(page).locator('.prose').innerText(), 'You said: Keep me'));
  // While a file is still being read in, another one that is broken is told, and stays told.
  await page.evaluate(() => {
    globalThis.text = File.prototype.text;
    File.prototype.text = async function () {
      const read = await text.call(this);
      if (this.name === 'chats.json') await new Promise((resolve) => setTimeout(resolve, 300));
      return read;
    };
  });
  await page.locator('#import-file').setInputFiles({ name: 'chats.json', mimeType: 'application/json', buffer: Buffer.from(one) });
  await page
    .locator('#import-file')
    .setInputFiles({ name: 'broken.json', mimeType: 'application/json', buffer: Buffer.from(one.slice(0, 99)) });
  await page.getByRole('alert').filter({ hasText: 'Nothing was imported' }).waitFor();
  await page.waitForFunction(
    () => [...document.querySelectorAll('#conversations .title')].filter((title) => title.textContent === 'Keep me').length === 3,
  );
  assert.ok(await page.getByRole('alert').filter({ hasText: 'Nothing was imported' }).isVisible());
  await page.evaluate(() => (File.prototype.text = text));
  await page.getByRole('button', { name: 'Close this notice' }).click();
  await page.getByRole('alert').filter({ hasText: 'Nothing was imported' }).waitFor({ state: 'hidden' });
  // Where there is room for a part of a file only, nothing of it is kept.
  const before = await titles();
  await page.evaluate(() => {
    globalThis.put = IDBObjectStore.prototype.put;
    let left = 3;
    IDBObjectStore.prototype.put = function (...args) {
      if (left-- > 0) return put.apply(this, args);
      throw new DOMException('no room', 'QuotaExceededError');
    };
  });
  const { conversations, ...about } = JSON.parse(one);
  const two = JSON.stringify({ ...about, conversations: [...conversations, ...conversations] });
  await page.locator('#import-file').setInputFiles({ name: 'two.json', mimeType: 'application/json', buffer: Buffer.from(two) });
  await page.getByRole('alert').filter({ hasText: 'Nothing was imported' }).waitFor();
  await page.evaluate(() => (IDBObjectStore.prototype.put = put));
  await ask(page, 'Go on');
  await eventually(async () => assert.deepEqual((await titles()).sort(), before.sort()));
  await page.locator('#export-panel > summary').click();
});

test('half an emoji and a title of one are no harm', LIMIT, async () => {
  await begin();
  await page.evaluate(() => {
    const field = document.getElementById('prompt');
    field.value = 'broken \ud83d';
    field.dispatchEvent(new Event('input', { bubbles: true }));
  });
  await page.locator('#prompt').press('Enter');
  await settled(page);
  assert.equal((await requests())[0].messages[0].content, 'broken \ufffd');
});

test('the model is changed in mid-answer: the answer ends on the old one, the next is of the new one', LIMIT, async () => {
  await begin();
  await plan(page, { deltas: [{ content: 'Of the old' }, { content: ' one' }], hold: true });
  await page.locator('#prompt').fill('Which?');
  await page.locator('#prompt').press('Enter');
  await answers(page).locator('.prose', { hasText: 'Of the old' }).waitFor();
  await loadStub(page, 'newer');
  await eventually(async () => assert.deepEqual(await page.evaluate(() => stub.disposed), []));
  await page.evaluate(() => stub.go());
  await settled(page);
  await eventually(async () => assert.equal(await answers(page).locator('.prose').innerText(), 'Of the old one'));
  await page.waitForFunction(() => stub.disposed.includes('stub'));
  await ask(page, 'And now?');
  await eventually(async () => assert.match(await answers(page).last().getAttribute('aria-label'), /newer/));
});

test('what the browser refuses to keep is shown all the same, and told', LIMIT, async () => {
  await begin();
  await page.evaluate(() => {
    globalThis.put = IDBObjectStore.prototype.put;
    IDBObjectStore.prototype.put = () => {
      throw new DOMException('no room', 'QuotaExceededError');
    };
  });
  try {
    await ask(page, 'Full');
    await page.getByRole('alert').filter({ hasText: 'no room for this conversation' }).waitFor();
    await eventually(async () => assert.equal(await answers(page).locator('.prose').innerText(), 'You said: Full'));
    await page.locator('#new-chat').click();
    await page.locator('#welcome').waitFor();
    const [file] = await Promise.all([page.waitForEvent('download'), page.locator('#export').click()]);
    const { conversations } = JSON.parse(await streamedText(await file.createReadStream()));
    assert.deepEqual(
      conversations.find(({ title }) => title === 'Full').messages.map(({ content }) => content),
      ['Full', 'You said: Full'],
    );
    await page.locator('#conversations .open', { hasText: 'Full' }).click();
    await answers(page).locator('.prose', { hasText: 'You said: Full' }).waitFor();
  } finally {
    await page.evaluate(() => (IDBObjectStore.prototype.put = put));
  }
  await page.getByRole('button', { name: 'Close this notice' }).click();
});

test('without a database, as in some private windows, the page works and says so', LIMIT, async () => {
  const other = await opened.context.newPage();
  try {
    await other.addInitScript(() => {
      IDBFactory.prototype.open = () => {
        throw new DOMException('not here', 'SecurityError');
      };
      Object.defineProperty(globalThis, 'localStorage', {
        get: () => {
          throw new DOMException('not here', 'SecurityError');
        },
      });
    });
    await opened.start(other);
    await other.getByRole('alert').filter({ hasText: 'This conversation is not kept' }).waitFor();
    await loadStub(other);
    await ask(other, 'Still here');
    await eventually(async () => assert.equal(await answers(other).locator('.prose').innerText(), 'You said: Still here'));
    await other.locator('.title', { hasText: 'Still here' }).waitFor();
  } finally {
    await other.close();
  }
});
