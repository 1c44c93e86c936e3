// Two spirals, learned in the page: gradients, an optimizer, and a plan of a training step. index.html says how to run it.

import { Adam, cosineSchedule, Device } from 'rillm/tensor';

export const STEPS = 200;
/** Numbers of a layer. */
const WIDTH = 32;

/** Points on two spirals around each other, in the square from −1 to 1, and which spiral each is on. */
export function spirals(count) {
  const points = [];
  const classes = [];
  for (let i = 0; i < count; i++) {
    for (const spiral of [0, 1]) {
      const along = 0.08 + (0.88 * i) / count;
      const angle = 1.75 * Math.PI * along * 2 + spiral * Math.PI;
      points.push(along * Math.cos(angle), along * Math.sin(angle));
      classes.push(spiral);
    }
  }
  return { points, classes };
}

/** Weights and biases of three layers, which require gradients. The same seed gives the same numbers. */
export function parametersOf(device, seed = 1) {
  const layer = (inputs, outputs, seed) =>
    device.tidy(() => [
      device
        .randn([inputs, outputs], { seed })
        .mul(1.5 / Math.sqrt(inputs))
        .clone(),
      device.zeros([outputs]),
    ]);
  const layers = [layer(2, WIDTH, 3 * seed), layer(WIDTH, WIDTH, 3 * seed + 1), layer(WIDTH, 2, 3 * seed + 2)];
  return layers.flat().map((parameter) => parameter.requireGrad());
}

/** For each point [n, 2] a number for each spiral [n, 2]. */
export function believed(points, [w1, b1, w2, b2, w3, b3]) {
  const first = points.mul(3).matmul(w1).add(b1).sin();
  return first.matmul(w2).add(b2).tanh().matmul(w3).add(b3);
}

/**
 * Trains the parameters. The first step is recorded; the others are replays of it, in which JavaScript computes nothing. Calls `onProgress` with the
 * number of steps that are done and their losses after each `every` steps, and ends early if that resolves to false.
 */
export async function train(points, classes, parameters, { steps = STEPS, every = 20, onProgress }) {
  const { device } = points;
  const optimizer = new Adam(parameters, { lr: 0.01, schedule: cosineSchedule({ steps, to: 0.05 }) });
  const losses = device.zeros([every]);
  const place = device.zeros([1], 'i32');
  const plan = await device.plan(() => {
    const loss = believed(points, parameters).crossEntropy(classes);
    loss.backward();
    optimizer.step();
    optimizer.zeroGrad();
    // Losses are kept on the GPU until some are there.
    losses.assign(device.arange(every).equal(place).where(loss.detach(), losses));
    place.assign(place.add(1));
  });
  try {
    for (let done = 1; done <= steps; done++) {
      if (done > 1) plan.replay();
      if (done % every !== 0) continue;
      const values = await losses.readback();
      place.assign(0);
      if ((await onProgress?.(done, [...values])) === false) return;
    }
  } finally {
    plan.dispose();
    optimizer.dispose();
    for (const tensor of [losses, place]) tensor.dispose();
  }
}

/** The share of points that the network puts on their spiral. */
export async function accuracy(points, classes, parameters) {
  const { device } = points;
  const right = device.noGrad(() => device.tidy(() => believed(points, parameters).argmax(1).equal(classes).mean()));
  const share = await right.item();
  right.dispose();
  return share;
}

/** How sure the network is of the second spiral, from 0 to 1, at each place of a square: [size · size], from the top left on. */
export function picture(device, parameters, size) {
  return device.noGrad(() =>
    device.tidy(() => {
      const x = device.linspace(-1, 1, size).expand([size, size]);
      const y = device.linspace(1, -1, size).unsqueeze(1).expand([size, size]);
      const places = device.stack([x, y], 2).reshape([size * size, 2]);
      return believed(places, parameters).softmax().select(1, 1).clone();
    }),
  );
}

/** What draws a tensor of a square's shades to a canvas, by a render pass that reads the tensor where it lies. */
export function painter(device, canvas) {
  const { gpuDevice } = device;
  const context = canvas.getContext('webgpu');
  const format = navigator.gpu.getPreferredCanvasFormat();
  context.configure({ device: gpuDevice, format });
  const module = gpuDevice.createShaderModule({
    code: `
      @group(0) @binding(0) var<storage, read> shades: array<f32>;
      @vertex fn corner(@builtin(vertex_index) at: u32) -> @builtin(position) vec4f {
        return vec4f(f32(at & 1) * 4 - 1, f32(at >> 1) * 4 - 1, 0, 1);
      }
      @fragment fn colour(@builtin(position) at: vec4f) -> @location(0) vec4f {
        let shade = shades[u32(at.y) * ${canvas.width} + u32(at.x)];
        return vec4f(mix(vec3f(0.95, 0.62, 0.25), vec3f(0.12, 0.5, 0.62), shade), 1);
      }`,
  });
  const pipeline = gpuDevice.createRenderPipeline({ layout: 'auto', vertex: { module }, fragment: { module, targets: [{ format }] } });
  return (shades) => {
    const encoder = gpuDevice.createCommandEncoder();
    const view = context.getCurrentTexture().createView();
    const pass = encoder.beginRenderPass({ colorAttachments: [{ view, loadOp: 'clear', storeOp: 'store' }] });
    const entries = [{ binding: 0, resource: shades.buffer() }];
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, gpuDevice.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }));
    pass.draw(3);
    pass.end();
    gpuDevice.queue.submit([encoder.finish()]);
  };
}

// The page.

const element = (id) => document.getElementById(id);

function complain(error) {
  element('alert').textContent = error.message;
  element('alert').hidden = false;
}

function drawPoints({ points, classes }) {
  const { width } = element('points');
  const context = element('points').getContext('2d');
  for (const [at, spiral] of classes.entries()) {
    context.fillStyle = ['#7a3d00', '#003743'][spiral];
    context.beginPath();
    context.arc(((points[2 * at] + 1) / 2) * width, ((1 - points[2 * at + 1]) / 2) * width, width / 130, 0, 2 * Math.PI);
    context.fill();
  }
}

function drawCurve(losses) {
  const most = Math.max(...losses, 0.7);
  const corners = losses.map((loss, step) => `${((100 * step) / STEPS).toFixed(2)},${(98 - (96 * loss) / most).toFixed(2)}`);
  element('curve').setAttribute('points', corners.join(' '));
}

async function run(device, paint, data, seed) {
  const points = device.tensor(data.points, [data.classes.length, 2]);
  const classes = device.tensor(data.classes, [data.classes.length], 'i32');
  const parameters = parametersOf(device, seed);
  const curve = [];
  const began = performance.now();
  await train(points, classes, parameters, {
    onProgress(done, losses) {
      curve.push(...losses);
      drawCurve(curve);
      device.tidy(() => paint(picture(device, parameters, element('picture').width)));
      element('status').textContent = `Step ${done} of ${STEPS}, loss ${losses.at(-1).toFixed(3)}`;
      return new Promise((resolve) => requestAnimationFrame(() => resolve(true)));
    },
  });
  const share = await accuracy(points, classes, parameters);
  const seconds = (performance.now() - began) / 1000;
  element('status').textContent =
    `${(100 * share).toFixed(1)} % of the points are on the right spiral, after ${STEPS} steps in ${seconds.toFixed(1)} s`;
  for (const tensor of [points, classes, ...parameters]) tensor.dispose();
}

try {
  const device = await Device.request();
  const paint = painter(device, element('picture'));
  const data = spirals(100);
  drawPoints(data);
  let seed = 1;
  const learn = async () => {
    element('run').disabled = true;
    await run(device, paint, data, seed++).catch(complain);
    element('run').disabled = false;
  };
  element('run').addEventListener('click', learn);
  // The page is left for good: free the GPU at once.
  addEventListener('pagehide', ({ persisted }) => persisted || device.destroy());
  await learn();
} catch (error) {
  complain(error);
}
