// What an operation of rillm/tensor costs its thread: JavaScript and WebAssembly, and apart from them the browser's WebGPU. Needs a page at an origin
// with the package, and Chromium's DevTools protocol, whose clock counts the processor's time: the page shares the processor with the GPU process.

/** Results between two submits, as when a page hands over its work now and then. */
const GROUP = 50;
/** Microseconds between two samples of the profile. */
const INTERVAL = 100;

/** Functions of the page: a device with small inputs, and the operations on them. */
function prepare() {
  return import('/rillm/dist/tensor/index.js').then(async ({ Device }) => {
    const device = await Device.request();
    const floats = (...shape) =>
      device.tensor(
        Float32Array.from({ length: shape.reduce((a, b) => a * b) }, (_, i) => (i % 7) - 3),
        shape,
      );
    const [x, y, row] = [floats(16, 16), floats(16, 16), floats(16)];
    const [image, kernel] = [floats(2, 16, 4, 4), floats(16, 16, 3, 3)];
    const operations = {
      add: () => x.add(y),
      'add of a row': () => x.add(row),
      relu: () => x.relu(),
      sum: () => x.sum(1),
      softmax: () => x.softmax(),
      layerNorm: () => x.layerNorm({ weight: row, bias: row }),
      matmul: () => x.matmul(y),
      conv2d: () => image.conv2d(kernel, { padding: 1 }),
    };
    globalThis.bench = {
      names: Object.keys(operations),
      async run(name, groups, each) {
        let results = [];
        for (let group = 0; group < groups; group++) {
          for (const result of results) result.dispose();
          results = Array.from({ length: each }, operations[name]);
          device.flush();
        }
        for (const result of results) result.dispose();
        await device.sync();
      },
    };
    return bench.names;
  });
}

const middle = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];

/** → {unit, group, rows: [{op, us, range, browser_us}]}: medians and ranges of microseconds of the thread for each call, with all that follows from it. */
export async function measureOps(page, { repetitions = 7 } = {}) {
  const names = await page.evaluate(prepare);
  const devtools = await page.context().newCDPSession(page);
  await devtools.send('Performance.enable', { timeDomain: 'threadTicks' });
  await devtools.send('Profiler.enable');
  await devtools.send('Profiler.setSamplingInterval', { interval: INTERVAL });
  const threadTime = async () => {
    const { metrics } = await devtools.send('Performance.getMetrics');
    return metrics.find(({ name }) => name === 'ThreadTime').value;
  };
  const rows = [];
  for (const name of names) {
    const run = (groups) => page.evaluate(([...given]) => bench.run(...given), [name, groups, GROUP]);
    await run(40);
    const times = [];
    for (let i = 0; i < repetitions; i++) {
      const before = await threadTime();
      await run(100);
      times.push(((await threadTime()) - before) * 1e6);
    }
    const us = times.map((time) => time / (100 * GROUP));
    await devtools.send('Profiler.start');
    await run(400);
    const { profile } = await devtools.send('Profiler.stop');
    const share = browserShare(profile);
    rows.push({ op: name, us: middle(us), range: [Math.min(...us), Math.max(...us)], browser_us: share * middle(us) });
  }
  return { unit: 'microseconds of the thread for each call', group: GROUP, rows };
}

/** The part of a profile's busy samples that are in functions of the browser's WebGPU: they have no address, and WebAssembly and glue call them. */
function browserShare({ nodes, samples }) {
  const byId = new Map(nodes.map((node) => [node.id, node.callFrame]));
  const isBusy = ({ functionName }) => functionName !== '(idle)' && functionName !== '(program)';
  const busy = samples.map((id) => byId.get(id)).filter(isBusy);
  const isBrowser = ({ functionName, url }) => url === '' && WEBGPU.has(functionName);
  return busy.filter(isBrowser).length / busy.length;
}

/** Those that recording and submitting call. */
const WEBGPU = new Set([
  'submit',
  'createCommandEncoder',
  'beginComputePass',
  'setPipeline',
  'setBindGroup',
  'dispatchWorkgroups',
  'end',
  'finish',
  'createBindGroup',
  'createBuffer',
  'writeBuffer',
  'copyBufferToBuffer',
  'onSubmittedWorkDone',
]);
