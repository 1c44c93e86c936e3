// The option `smoothness`: the same answers in more submits, changed while an engine runs, and not while the page is hidden. How submits are
// sized is tested natively, on GPUs of made-up speeds (tests/engine/smoothness.rs).

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { sharedStage } from './browser.mjs';

const LIMIT = { timeout: 120_000 };
const MODEL = '/golden/tied-q8_0.gguf';

const shared = sharedStage();

for (const worker of [true, false]) {
  test(`answers are the same with frames and with throughput (worker: ${worker})`, LIMIT, async () => {
    const { page, prepare, close } = await shared.stage.openPage();
    await prepare('/rillm/dist/index.js');
    const found = await page.evaluate(
      async ([model, worker]) => {
        const prompt = 'The boat went down the river and the old man on the bridge saw it pass while rain fell. '.repeat(3);
        const setHidden = (isHidden) => {
          Object.defineProperty(document, 'visibilityState', { value: isHidden ? 'hidden' : 'visible', configurable: true });
          document.dispatchEvent(new Event('visibilitychange'));
        };
        const answer = async (engine, start) => {
          largest = 0;
          const { choices } = await engine.completions.create({ prompt: start + prompt, max_tokens: 8, temperature: 0, ignore_eos: true });
          return { text: choices[0].text, largest };
        };
        // On the page's thread the GPU seems to take 30 ms longer for each submit, and the dispatches of the largest submit are counted.
        let largest = 0;
        if (!worker) {
          let dispatches = 0;
          const { dispatchWorkgroups } = GPUComputePassEncoder.prototype;
          GPUComputePassEncoder.prototype.dispatchWorkgroups = function (...grid) {
            dispatches += 1;
            return dispatchWorkgroups.apply(this, grid);
          };
          const { submit } = GPUQueue.prototype;
          GPUQueue.prototype.submit = function (buffers) {
            largest = Math.max(largest, dispatches);
            dispatches = 0;
            return submit.call(this, buffers);
          };
          const { onSubmittedWorkDone } = GPUQueue.prototype;
          let last = Promise.resolve();
          GPUQueue.prototype.onSubmittedWorkDone = function () {
            const done = Promise.all([onSubmittedWorkDone.call(this), last]);
            last = done.then(() => new Promise((resolve) => setTimeout(resolve, 30)));
            return last;
          };
        }
        const made = {};
        const engine = await rillm.Engine.load(model, { worker, smoothness: 'frames' });
        await answer(engine, '0 ');
        made.frames = await answer(engine, '1 ');
        setHidden(true);
        made.hidden = await answer(engine, '2 ');
        setHidden(false);
        made.visible = await answer(engine, '3 ');
        await engine.setSmoothness('throughput');
        made.throughput = await answer(engine, '4 ');
        const running = answer(engine, '5 ');
        await engine.setSmoothness('frames');
        made.changed = await running;
        const error = await failure(engine.setSmoothness('smooth'));
        await engine.dispose();

        const other = await rillm.Engine.load(model, { worker });
        made.wanted = [];
        for (const start of ['1 ', '2 ', '3 ', '4 ', '5 ']) made.wanted.push((await answer(other, start)).text);
        await other.dispose();
        return { ...made, error };
      },
      [MODEL, worker],
    );
    await close();
    const { frames, hidden, visible, throughput, changed, wanted, error } = found;
    assert.deepEqual(
      [frames, hidden, visible, throughput, changed].map(({ text }) => text),
      wanted,
    );
    assert.equal(error.code, 'invalid_request');
    // A fast GPU in a worker need not cut anything.
    if (worker) return;
    const uncut = Math.min(hidden.largest, throughput.largest);
    for (const { largest } of [frames, visible]) assert.ok(largest < uncut, `${largest} dispatches in a submit in place of ${uncut}`);
  });
}
