// The browser's GPU process crashes: all devices of all pages are lost, and after the third time Chromium gives no more. In a browser of its own.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { openStage } from './browser.mjs';
import { makeLosses, prepareLosses } from './losses.mjs';

const LIMIT = { timeout: 120_000 };
const RECOVERED = ['lost', 'recovering', 'recovered'];

let stage;
let crash;
before(async () => {
  stage = await openStage({ args: ['--disable-domain-blocking-for-3d-apis'] });
  makeLosses(stage.made);
  const session = await stage.browser.newBrowserCDPSession();
  crash = () => session.send('Browser.crashGpuProcess').catch(() => {});
});
after(() => stage.close());

test('in a load, in mid-stream and, the third time, for good; nothing is left unhandled', LIMIT, async () => {
  const { page, prepare, close } = await stage.openPage();
  try {
    await page.exposeFunction('crashGpu', crash);
    await prepare('/rillm/dist/index.js');
    await page.evaluate(prepareLosses);
    const found = await page.evaluate(async () => {
      const found = {};
      const BOAT = { prompt: 'The small boat', max_tokens: 200, context_shift: true, temperature: 0, ignore_eos: true };
      const read = async (engine, at) => {
        let [text, parts] = ['', 0];
        for await (const { choices } of await engine.completions.create({ ...BOAT, stream: true })) {
          text += choices[0].text;
          if (++parts === at) await crashGpu();
        }
        return text;
      };
      let isCrashed = false;
      const crashOnce = ({ phase, loaded }) => {
        if (phase !== 'weights' || loaded === 0 || isCrashed) return;
        isCrashed = true;
        void crashGpu();
      };
      const engine = await rillm.Engine.load('/golden/tied-q8_0.gguf', lossy(true, { onProgress: crashOnce }));
      found.wanted = await read(engine, Infinity);
      found.load = eventTypes();
      found.lost = await read(engine, 5);
      found.stream = eventTypes();
      await crashGpu();
      found.last = await failure(read(engine, Infinity));
      found.end = eventTypes();
      await engine.dispose();
      found.again = await failure(rillm.Engine.load('/golden/tied-q8_0.gguf', { device: 'gpu' }));
      return found;
    });
    assert.deepEqual(found.load, RECOVERED);
    assert.deepEqual(found.stream, RECOVERED);
    assert.equal(found.lost, found.wanted);
    assert.deepEqual(found.end, ['lost', 'recovering']);
    assert.equal(found.last.code, 'device_lost');
    assert.equal(found.again.code, 'adapter_unavailable');
    for (const { message } of [found.last, found.again]) assert.match(message, /lost its GPU 3 times before.*block list/s);
  } finally {
    await close();
  }
});
