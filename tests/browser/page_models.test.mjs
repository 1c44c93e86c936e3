// Models on the page, with a stub of the package: chosen, searched, loaded, paused and deleted; the old one stays until the new one is ready; and what the page says
// where there is no WebGPU.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { openStage } from './browser.mjs';
import { answers, ask, checkLayout, eventually, loadStub, openStubbed, PHONE, picture, settled, WIDE } from './page/stage.mjs';

const LIMIT = { timeout: 60_000 };
const HUB = 'https://huggingface.co/api/models**';

let stage;
let opened;
let page;
before(async () => {
  stage = await openStage();
  opened = await openStubbed(stage);
  ({ page } = opened);
  await loadStub(page);
});
after(async () => {
  await opened?.close();
  await stage?.close();
});

const openModels = async () => {
  await page.locator('#choose-model').click();
  await page.locator('#shelf-known').waitFor();
};
const closeModels = () => page.keyboard.press('Escape');
const notice = () => page.getByRole('alert');

test('the list says name, size, context and what fits; a check asks the headers', LIMIT, async () => {
  await page.evaluate(() => {
    stub.inspection = {
      format: 'gguf',
      architecture: 'qwen3',
      parameters: 8e9,
      quantization: 'Q4_K',
      tensor_types: {},
      files: 1,
      file_bytes: 5e9,
      trained_context_length: 40_960,
      weight_bytes: 5e9,
      kv_cache_bytes: 6e8,
      problem: { code: 'adapter_limits', message: 'a buffer of 5 GB is wanted' },
      warnings: [],
    };
    stub.kept = [
      {
        name: 'hf:Qwen/Qwen3-0.6B-GGUF:Q8_0',
        complete: false,
        bytes: 1e8,
        size: 6.39e8,
        created: new Date(),
        lastUsed: new Date(),
        files: [],
      },
      {
        name: 'https://models.example/own.gguf',
        complete: true,
        bytes: 2e8,
        size: 2e8,
        created: new Date(),
        lastUsed: new Date(),
        files: [],
      },
    ];
  });
  await openModels();
  const kept = page.locator('section[aria-labelledby=shelf-kept] li');
  await kept.nth(1).waitFor();
  await eventually(async () => assert.match(await kept.nth(0).textContent(), /Qwen3 0\.6B.*100\.0 MB of 639\.0 MB downloaded/s));
  await eventually(async () => assert.match(await kept.nth(1).textContent(), /own\.gguf.*200\.0 MB/s));
  const known = page.locator('section[aria-labelledby=shelf-known] li');
  await eventually(async () => assert.match(await known.filter({ hasText: 'Llama 3.2 1B' }).textContent(), /808\.0 MB, context 131,072/));
  await eventually(async () =>
    assert.ok((await known.locator('.fit').allTextContents()).every((verdict) => ['fits', 'tight', 'too large'].includes(verdict))),
  );
  await eventually(async () => assert.equal(await known.filter({ hasText: 'Qwen3 0.6B' }).count(), 0, 'what is kept is named once'));
  await page.getByRole('button', { name: 'Check Qwen3 8B' }).click();
  await known.filter({ hasText: 'Qwen3 8B' }).locator('.fit', { hasText: 'too large' }).waitFor();
  await eventually(async () =>
    assert.match(await known.filter({ hasText: 'Qwen3 8B' }).textContent(), /5\.00 GB, Q4_K, context 40,960.*a buffer of 5 GB is wanted/s),
  );
  // A model is checked as it would be loaded, once at a time.
  await page.evaluate(() => {
    stub.inspected.length = 0;
    stub.holdInspection = true;
  });
  const gemma = page.getByRole('button', { name: 'Check Gemma 3 4B' });
  await gemma.click();
  await gemma.filter({ hasText: 'Checking…' }).waitFor();
  assert.equal(await gemma.isDisabled(), true);
  await page.locator('dialog summary').click();
  await page.locator('#context-length').fill('131072');
  await page.locator('#kv-cache').selectOption('q8_0');
  // What was found before, and what is on its way, is of another load.
  const wanted = { contextLength: 131_072, kvCache: 'q8_0' };
  await page.evaluate(() => {
    stub.holdInspection = false;
    stub.go();
  });
  await page.getByRole('button', { name: 'Check Qwen3 8B' }).click();
  await known.filter({ hasText: 'Qwen3 8B' }).filter({ hasText: 'a buffer of 5 GB is wanted' }).waitFor();
  await gemma.filter({ hasText: /^Check$/ }).waitFor();
  assert.deepEqual(await page.evaluate(() => stub.inspected.map(({ options }) => options)), [{}, wanted]);
  await eventually(async () =>
    assert.match(await known.filter({ hasText: 'Qwen3 4B' }).locator('.fit').getAttribute('title'), /needs 12\.77 GB/),
  );
  await page.locator('#context-length').fill('');
  await page.locator('#kv-cache').selectOption('');
  await page.locator('dialog summary').click();
  await page.getByRole('button', { name: 'Check Qwen3 8B' }).click();
  await known.filter({ hasText: 'Qwen3 8B' }).filter({ hasText: 'a buffer of 5 GB is wanted' }).waitFor();
  await page.locator('#models').evaluate((dialog) => (dialog.scrollTop = 0));
  await picture(page, 'models');
  await checkLayout(page, 'the dialog of models, wide');
  await page.setViewportSize(PHONE);
  await page.locator('#models').evaluate((dialog) => (dialog.scrollTop = 0));
  await picture(page, 'models-phone');
  await checkLayout(page, 'the dialog of models on a phone');
  await page.setViewportSize(WIDE);
  await page
    .getByRole('button', { name: 'Delete the files of https' })
    .or(page.getByRole('button', { name: 'Delete the files of own.gguf' }))
    .click();
  // What goes wrong is told in the dialog, which lies over the page's notices.
  await page.evaluate(() => (stub.deleteError = { code: 'cache_in_use', message: 'another tab reads it' }));
  await page.locator('dialog [data-confirm]').click();
  await page
    .locator('#shelf-state', { hasText: 'Another tab is using these files. Close it, and try again. another tab reads it' })
    .waitFor();
  assert.equal(await notice().isVisible(), false);
  await page.getByRole('button', { name: 'Delete the files of own.gguf' }).click();
  await page.locator('dialog [data-confirm]').click();
  await page.waitForFunction(() => document.querySelectorAll('section[aria-labelledby=shelf-kept] li').length === 1);
  await closeModels();
});

test('the hub is searched; without it what is known here is found', LIMIT, async () => {
  const { context } = opened;
  const asked = [];
  const LISTS = {
    gguf: [{ id: 'someone/llama-tiny-GGUF', downloads: 1234 }, { id: 'bad id"><img>', downloads: 1 }, {}],
    safetensors: [
      { id: 'someone/llama-tiny-GGUF', downloads: 1234 },
      { id: 'someone/llama-folder', downloads: 99 },
      { id: 'someone/llama-no-architecture', downloads: 98 },
      { id: 'someone/llama-gated', downloads: 97 },
    ],
  };
  await context.route(HUB, (route) => {
    const { searchParams } = new URL(route.request().url());
    asked.push([searchParams.get('search'), searchParams.get('filter'), searchParams.get('pipeline_tag')]);
    return route.fulfill({ headers: { 'access-control-allow-origin': '*' }, json: LISTS[searchParams.get('filter')] });
  });
  await page.evaluate(() => {
    stub.inspectionOf = (source) => {
      if (source.endsWith('gated')) throw Object.assign(new Error('the hub answered with status 401'), { code: 'http' });
      const problem = { code: 'unsupported_architecture', message: 'no such architecture' };
      return { file_bytes: 5e8, weight_bytes: 5e8, quantization: 'BF16', ...(source.endsWith('architecture') && { problem }) };
    };
  });
  await openModels();
  await page.locator('#model-query').evaluate((field) => {
    for (const letters of ['l', 'll', 'llama']) {
      field.value = letters;
      field.dispatchEvent(new Event('input', { bubbles: true }));
    }
  });
  const found = page.locator('section[aria-labelledby=shelf-found] li');
  await found.first().waitFor();
  await page.locator('#shelf-state', { hasText: '2 repositories were found on the hub.' }).waitFor();
  await eventually(async () => assert.equal(await found.count(), 2));
  await eventually(async () => assert.match(await found.nth(0).textContent(), /someone\/llama-tiny-GGUF.*1,234 downloads/s));
  // Of folders with safetensors those that run here, once each.
  await eventually(async () => assert.match(await found.nth(1).textContent(), /someone\/llama-folder.*500\.0 MB, BF16/s));
  const texts = [
    ['llama', 'gguf', null],
    ['llama', 'safetensors', 'text-generation'],
  ];
  assert.deepEqual(asked.sort(), texts, 'typing does not ask at each letter');
  await page.evaluate(() => (stub.inspectionOf = undefined));
  await page.setViewportSize(PHONE);
  await found.nth(1).scrollIntoViewIfNeeded();
  await checkLayout(page, 'what the hub has, on a phone');
  await page.setViewportSize(WIDE);
  await eventually(async () => assert.ok((await page.locator('section[aria-labelledby=shelf-known] li').count()) < 4));
  await context.unroute(HUB);
  await context.route(HUB, (route) => route.abort());
  await page.locator('#model-query').fill('gemma');
  await page.locator('#shelf-state', { hasText: 'can’t be reached' }).waitFor();
  await eventually(async () => assert.ok((await page.locator('section[aria-labelledby=shelf-known] li').count()) >= 3));
  await page.locator('#model-query').fill('zzz nothing');
  await page.locator('#load').click();
  await page.locator('#shelf-state', { hasText: 'still loads' }).waitFor();
  await page.locator('#model-query').fill('');
  await closeModels();
  await page.waitForFunction(() => document.activeElement.id === 'choose-model');
  await context.unroute(HUB);
});

test('a load that fails costs nothing: the old model answers, its figures stay, and the words say what to do', LIMIT, async () => {
  await ask(page, 'Before');
  const speed = await page.locator('#speed').textContent();
  for (const [code, words] of [
    ['not_gguf', /is no model\. A model is a GGUF file, or a folder/],
    ['http', /Check the address/],
    ['not_found', /no such model\. Check the name/],
    ['network', /CORS/],
    ['unsupported_architecture', /cannot be run yet/],
    ['internal', /fault of rillm/],
  ]) {
    await page.evaluate((code) => (stub.loadError = { code, message: 'what was found' }), code);
    await openModels();
    await page.locator('#model-query').fill('https://models.example/wrong.gguf');
    await page.locator('#model-query').press('Enter');
    await notice()
      .filter({ hasText: `(${code})` })
      .waitFor();
    await eventually(async () => assert.match(await notice().textContent(), words));
    assert.doesNotMatch(await notice().textContent(), /Only GGUF|404 or 410/);
  }
  await eventually(async () => assert.match(await page.locator('#model-summary').textContent(), /^stub/));
  await eventually(async () => assert.equal(await page.locator('#speed').textContent(), speed));
  await eventually(async () => assert.equal(await page.locator('.bubble').textContent(), 'Before', 'the conversation is still there'));
  await checkLayout(page, 'with a notice');
  // A long message leaves room for the conversation.
  await page.evaluate(() => (stub.loadError = { code: 'invalid_file', message: 'something that is long '.repeat(500) }));
  await openModels();
  await page.locator('#model-query').fill('https://models.example/wrong.gguf');
  await page.locator('#model-query').press('Enter');
  await notice().filter({ hasText: '(invalid_file)' }).waitFor();
  assert.ok((await page.locator('#log').evaluate((log) => log.clientHeight)) > 200);
  await ask(page, 'After');
  await eventually(async () => assert.equal(await answers(page).last().locator('.prose').innerText(), 'You said: After'));
});

test('where both models don’t fit, the old one can be given up', LIMIT, async () => {
  await page.evaluate(() => (stub.loadError = { code: 'out_of_memory', message: 'no room' }));
  await page.evaluate(() => (stub.disposed.length = 0));
  await openModels();
  await page.locator('#model-query').fill('https://models.example/large');
  await page.locator('#model-query').press('Enter');
  await page.locator('#notice-action', { hasText: 'Unload the running model' }).click();
  await page.locator('#model-summary', { hasText: 'large' }).waitFor();
  await eventually(async () => assert.deepEqual(await page.evaluate(() => stub.disposed), ['stub']));
  await eventually(async () => assert.equal(await notice().isVisible(), false));
});

test('a download tells speed and time left, is paused, goes on, and is cancelled', LIMIT, async () => {
  await page.evaluate(() => {
    stub.loadProgress = [{ phase: 'weights', loaded: 25e6, total: 1e8, bytesPerSecond: 5e6, secondsLeft: 15, from: 'network' }];
    stub.holdLoad = true;
    stub.loads.length = 0;
  });
  await openModels();
  await page.locator('#model-query').fill('https://models.example/slow');
  await page.locator('#model-query').press('Enter');
  await page.locator('#progress-text', { hasText: '25.0 MB of 100.0 MB, 5.0 MB/s, 15 s left' }).waitFor();
  await eventually(async () => assert.match(await page.locator('#model-line').textContent(), /25 %/));
  await picture(page, 'download');
  await page.locator('#pause-load').click();
  await page.locator('#pause-load', { hasText: 'Resume' }).waitFor();
  await eventually(async () => assert.match(await page.locator('#progress-text').textContent(), /are kept/));
  // Meanwhile the old one answers.
  await ask(page, 'Still there?');
  await page.locator('#pause-load').click();
  await page.locator('#pause-load', { hasText: 'Pause' }).waitFor();
  // What was said of the connection is no news when it is paused.
  await page.locator('#cancel-load').click();
  await page.evaluate(() => {
    stub.loads.length = 1;
    stub.loadEvents = [{ type: 'retrying', waitMs: 3000, message: 'no connection' }];
  });
  await openModels();
  await page.locator('#model-query').fill('https://models.example/slow');
  await page.locator('#model-query').press('Enter');
  await page.locator('#progress-text', { hasText: 'Trying again in 3 s: no connection' }).waitFor();
  await page.locator('#pause-load').click();
  await page.locator('#progress-text', { hasText: 'are kept' }).waitFor();
  await page.evaluate(() => (stub.loadEvents = []));
  await page.locator('#pause-load').click();
  await page.locator('#pause-load', { hasText: 'Pause' }).waitFor();
  await page.evaluate(() => (stub.loads.length -= 1));
  await eventually(async () => assert.equal(await page.evaluate(() => stub.loads.length), 2));
  await page.locator('#cancel-load').click();
  await page.waitForFunction(() => document.getElementById('loading') === null);
  await page.waitForFunction(() => document.activeElement.id === 'choose-model');
  await eventually(async () => assert.match(await page.locator('#model-summary').textContent(), /^large/));
  // A second load while one is under way takes its place.
  await openModels();
  await page.locator('#model-query').fill('https://models.example/first');
  await page.locator('#model-query').press('Enter');
  await openModels();
  await page.evaluate(() => {
    stub.holdLoad = false;
    stub.loadProgress = [];
  });
  await page.locator('#model-query').fill('https://models.example/second');
  await page.locator('#model-query').press('Enter');
  await page.locator('#model-summary', { hasText: 'second' }).waitFor();
  await page.waitForTimeout(50);
  await eventually(async () => assert.match(await page.locator('#model-summary').textContent(), /^second/));
});

test('files, folders and drops are loaded', LIMIT, async () => {
  await page.evaluate(() => (stub.loads.length = 0));
  await openModels();
  await page.locator('#file').setInputFiles([
    { name: 'a.safetensors', mimeType: 'application/octet-stream', buffer: Buffer.from('a') },
    { name: 'config.json', mimeType: 'application/json', buffer: Buffer.from('{}') },
  ]);
  await page.locator('#model-summary', { hasText: 'a file' }).waitFor();
  await page.evaluate(() => {
    const transfer = new DataTransfer();
    transfer.items.add(new File(['x'], 'dropped.gguf'));
    for (const type of ['dragenter', 'dragover', 'drop'])
      document.body.dispatchEvent(new DragEvent(type, { dataTransfer: transfer, bubbles: true, cancelable: true }));
  });
  await page.waitForFunction(() => stub.loads.length === 2);
  assert.deepEqual(
    await page.evaluate(() => stub.loads.map(({ source }) => (Array.isArray(source) ? source.map(({ name }) => name) : source.name))),
    [['a.safetensors', 'config.json'], 'dropped.gguf'],
  );
  // A file's name in the address field is no reason to forget the model of the next visit.
  assert.equal(
    await page.evaluate(() => JSON.parse(localStorage.getItem('rillm-preferences')).model.source),
    'https://models.example/second',
  );
  assert.ok(
    await page.evaluate(() => JSON.parse(localStorage.getItem('rillm-preferences')).askedToPersist > 0),
    'a model that was chosen is not to be taken away',
  );
});

test('unloaded, the page keeps the text that is written, and asks for a model', LIMIT, async () => {
  await settled(page);
  await page.locator('#prompt').fill('Do not lose me');
  await page.locator('#unload').click();
  await page.locator('#model-summary', { hasText: 'No model is loaded' }).waitFor();
  await page.locator('#prompt').press('Enter');
  await eventually(async () => assert.equal(await page.locator('#prompt').inputValue(), 'Do not lose me'));
  await eventually(async () => assert.equal(await page.locator('#send').isDisabled(), true));
});

test('without WebGPU the page says what to do here, and conversations can still be read', LIMIT, async () => {
  const other = await opened.context.newPage();
  try {
    await other.addInitScript(() => Object.defineProperty(navigator, 'gpu', { value: undefined }));
    await opened.start(other);
    const notice = other.locator('#notice');
    await notice.waitFor();
    assert.match(await notice.textContent(), /^\s*Chrome.* gives this page no GPU, so the CPU runs the models: choose small ones\./);
    assert.equal(await notice.getAttribute('role'), 'status', 'nothing went wrong');
    const advice = notice.getByText('chrome://').first();
    assert.equal(await advice.isVisible(), false);
    await notice.locator('summary').click();
    await advice.waitFor();
    await checkLayout(other, 'without WebGPU, with advice');
    await notice.locator('summary').click();
    await other.locator('#choose-model').click();
    await other.locator('#runs-on').waitFor();
    await other.evaluate(() => {
      const facts = { fits: true, tokens_per_s: 3, reason: 'it runs on the CPU, and needs 1 GB; about 3.0 tokens a second' };
      stub.recommendation = { ...facts };
      stub.inspection = { file_bytes: 1.1e9, quantization: 'Q4_K', trained_context_length: 40960, adapter: { max_buffer_bytes: 1 } };
    });
    const known = other.locator('section[aria-labelledby=shelf-known] li');
    const verdictOf = (name) => known.filter({ hasText: name }).locator('.fit').textContent();
    assert.deepEqual(
      [await known.first().locator('.name').textContent(), await verdictOf('LFM2 350M'), await verdictOf('Qwen3 8B')].map((text) =>
        text.trim(),
      ),
      ['SmolLM2 135M Instruct fits', 'fits', 'slow'],
    );
    await other.getByRole('button', { name: 'Check Qwen3 1.7B' }).click();
    await known.filter({ hasText: 'It runs on the CPU, and needs 1 GB; about 3.0 tokens a second.' }).waitFor();
    assert.equal(await verdictOf('Qwen3 1.7B'), 'slow');
    await known.first().scrollIntoViewIfNeeded();
    await other.locator('#runs-on').scrollIntoViewIfNeeded();
    await picture(other, 'models-without-webgpu');
    await other.setViewportSize(PHONE);
    await picture(other, 'models-without-webgpu-phone');
    await checkLayout(other, 'the dialog of models without WebGPU on a phone');
    await other.getByRole('button', { name: 'Close', exact: true }).click();
    await picture(other, 'without-webgpu-phone');
    await checkLayout(other, 'without WebGPU on a phone');
    await other.setViewportSize(WIDE);
    await other.locator('#conversations .open').first().click();
    await other.locator('.bubble').first().waitFor();
    await picture(other, 'without-webgpu');
    await checkLayout(other, 'without WebGPU');
  } finally {
    await other.close();
  }
});
