// GPU devices that are lost when a test wants it: at a command, by its number, or at once. For a page and for the worker of an engine.

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** Runs where the engine does, before it. In a worker it listens to the channel `losses`. */
const PATCH = `
const { requestDevice } = GPUAdapter.prototype;
const devices = [];
/** {command, left}: the call at which it is lost. Of a worker, in its address. */
let plan = JSON.parse(new URLSearchParams(location.search).get('plan'));
globalThis.planLoss = (next) => (plan = next);
const lose = () => {
  for (const device of devices.splice(0)) device.destroy();
};
const obey = ({ now, command, count }) => {
  if (now) lose();
  else plan = { command, left: count };
};
globalThis.obeyLoss = obey;
GPUAdapter.prototype.requestDevice = async function (...args) {
  const device = await requestDevice.apply(this, args);
  devices.push(device);
  return device;
};
const count = (prototype, name) => {
  const original = prototype[name];
  prototype[name] = function (...args) {
    if (plan?.command === name && --plan.left === 0) {
      plan = undefined;
      lose();
    }
    return original.apply(this, args);
  };
};
count(GPUDevice.prototype, 'createBuffer');
count(GPUDevice.prototype, 'createComputePipelineAsync');
count(GPUDevice.prototype, 'popErrorScope');
count(GPUQueue.prototype, 'writeBuffer');
count(GPUQueue.prototype, 'submit');
count(GPUBuffer.prototype, 'mapAsync');
if (typeof document === 'undefined') {
  const channel = new BroadcastChannel('losses');
  channel.onmessage = ({ data }) => {
    if (data.obeyed !== undefined) return;
    obey(data);
    channel.postMessage({ obeyed: data.order });
  };
}
`;

/** Puts the worker that can lose its GPU into the folder \`made\` of a stage. */
export function makeLosses(made) {
  writeFileSync(join(made, 'patch.js'), PATCH);
  writeFileSync(join(made, 'lossy_worker.js'), "import '/made/patch.js';\nimport '/rillm/dist/worker.js';\n");
}

/**
 * Runs in the page: `lose()` at once, `loseAt(command, count)` at that call from now on, which resolve when it is arranged; options of a load that
 * can lose its GPU, as `plans` says of the first devices, and that tells of it in `events`.
 */
export async function prepareLosses() {
  await import('/made/patch.js');
  const channel = new BroadcastChannel('losses');
  let orders = 0;
  let inWorker = false;
  globalThis.after = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  const order = async (what) => {
    if (!inWorker) return obeyLoss(what);
    const number = ++orders;
    const obeyed = new Promise((resolve) => {
      channel.addEventListener('message', ({ data }) => data.obeyed === number && resolve());
    });
    channel.postMessage({ ...what, order: number });
    // A worker that is gone does not answer.
    await Promise.race([obeyed, after(2000)]);
  };
  globalThis.lose = () => order({ now: true });
  globalThis.loseAt = (command, count = 1) => order({ command, count });
  globalThis.events = [];
  globalThis.lossy = (worker, more, plans = []) => {
    plans = [...plans];
    inWorker = Boolean(worker);
    if (!worker) planLoss(plans.shift());
    const make = () => new Worker(`/made/lossy_worker.js?plan=${JSON.stringify(plans.shift() ?? null)}`, { type: 'module' });
    return { device: 'gpu', worker: worker ? make : false, autotune: 'off', onEvent: (event) => events.push(event), ...more };
  };
  /** Without what happens to files. */
  const OF_ENGINES = ['lost', 'recovering', 'recovered', 'leader', 'follower', 'takeover'];
  globalThis.eventTypes = () => events.splice(0).flatMap(({ type }) => (OF_ENGINES.includes(type) ? [type] : []));
}
