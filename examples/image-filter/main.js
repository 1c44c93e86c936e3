// Filters of an image by convolutions of tensors, drawn without a copy. index.html says how to run it.

import { Device } from 'rillm/tensor';

/** The three colours of an ImageData as planes [3, 1, height, width], from 0 to 1. Each colour is an image of its own. */
export function planesOf(device, { data, width, height }) {
  return device.tidy(() => {
    const pixels = device.tensor(Float32Array.from(data), [height, width, 4]);
    return pixels.permute([2, 0, 1]).slice(0, 3).unsqueeze(1).div(255);
  });
}

/** What each filter makes of planes [3, 1, h, w]. Tensors that they make on the way are the caller's to dispose of (`tidy`). */
export const FILTERS = {
  none: (image) => image.clone(),
  blur,
  sharpen: (image, radius) => image.mul(2).sub(blur(image, radius)).clamp({ min: 0, max: 1 }),
  edges,
};

/** Gauss's blur: along rows, then along columns. What lies outside of the image counts for nothing. */
function blur(image, radius) {
  const { device } = image;
  const size = 2 * radius + 1;
  const weights = device.linspace(-2, 2, size).pow(2).mul(-0.5).exp(); // [size]
  const row = weights.reshape([1, 1, 1, size]);
  const column = weights.reshape([1, 1, size, 1]);
  const smooth = (x) => x.conv2d(row, { padding: [0, radius] }).conv2d(column, { padding: [radius, 0] });
  const [height, width] = image.shape.slice(2);
  return smooth(image).div(smooth(device.ones([1, 1, height, width])));
}

/** How steep the brightness is (Sobel's operator), the same in all three colours. */
function edges(image) {
  const { device } = image;
  const brightness = device.tensor([0.299, 0.587, 0.114], [3, 1, 1, 1]);
  const grey = image.mul(brightness).sum(0); // [1, h, w]
  const across = device.tensor([-1, 0, 1, -2, 0, 2, -1, 0, 1], [3, 3]);
  const slopes = grey.conv2d(device.stack([across, across.transpose()]).unsqueeze(1)); // [2, h - 2, w - 2]
  const steepness = slopes.pow(2).sum(0).sqrt().clamp({ max: 1 });
  return steepness.pad([1, 1, 1, 1]).expand(image.shape);
}

const SHADER = `
override WIDTH: u32;
override HEIGHT: u32;
@group(0) @binding(0) var<storage, read> planes: array<f32>;

@vertex fn corner(@builtin(vertex_index) at: u32) -> @builtin(position) vec4f {
  return vec4f(f32(at & 1) * 4 - 1, f32(at >> 1) * 4 - 1, 0, 1);
}

@fragment fn colour(@builtin(position) position: vec4f) -> @location(0) vec4f {
  let at = u32(position.y) * WIDTH + u32(position.x);
  let plane = WIDTH * HEIGHT;
  return vec4f(planes[at], planes[plane + at], planes[2 * plane + at], 1);
}`;

/** A function that draws planes [3, 1, h, w] to a canvas of that size. */
export function painter(device, canvas) {
  const { gpuDevice } = device;
  const format = navigator.gpu.getPreferredCanvasFormat();
  const context = canvas.getContext('webgpu');
  context.configure({ device: gpuDevice, format });
  const module = gpuDevice.createShaderModule({ code: SHADER });
  const pipeline = gpuDevice.createRenderPipeline({
    layout: 'auto',
    vertex: { module },
    fragment: { module, targets: [{ format }], constants: { WIDTH: canvas.width, HEIGHT: canvas.height } },
  });
  return (image) => {
    // The tensor's own memory, side by side. What was recorded is submitted by `buffer()`, so the pass below comes after it.
    const planes = image.contiguous();
    const group = gpuDevice.createBindGroup({
      layout: pipeline.getBindGroupLayout(0),
      entries: [{ binding: 0, resource: planes.buffer() }],
    });
    const encoder = gpuDevice.createCommandEncoder();
    const pass = encoder.beginRenderPass({
      colorAttachments: [{ view: context.getCurrentTexture().createView(), loadOp: 'clear', storeOp: 'store' }],
    });
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, group);
    pass.draw(3);
    pass.end();
    gpuDevice.queue.submit([encoder.finish()]);
    planes.dispose();
  };
}

// The page.

const element = (id) => document.getElementById(id);

/** Sky, sun, hills and a word. */
function drawPicture(context) {
  const { width, height } = context.canvas;
  const sky = context.createLinearGradient(0, 0, 0, height);
  sky.addColorStop(0, '#274b8f');
  sky.addColorStop(1, '#f2b880');
  context.fillStyle = sky;
  context.fillRect(0, 0, width, height);
  context.fillStyle = '#fff3c4';
  context.beginPath();
  context.arc(width * 0.72, height * 0.36, height * 0.13, 0, 2 * Math.PI);
  context.fill();
  for (const [colour, level, wave] of [
    ['#3f6f6b', 0.62, 90],
    ['#2a4f43', 0.75, 60],
    ['#16302a', 0.88, 40],
  ]) {
    context.fillStyle = colour;
    context.beginPath();
    context.moveTo(0, height);
    for (let x = 0; x <= width; x++) context.lineTo(x, height * (level + 0.06 * Math.sin(x / wave + level * 20)));
    context.lineTo(width, height);
    context.fill();
  }
  context.fillStyle = '#ffffff';
  context.font = `bold ${height * 0.2}px system-ui, sans-serif`;
  context.fillText('rillm', width * 0.07, height * 0.4);
}

const source = element('source').getContext('2d', { willReadFrequently: true });
drawPicture(source);

try {
  const device = await Device.request();
  const image = planesOf(device, source.getImageData(0, 0, source.canvas.width, source.canvas.height));
  const paint = painter(device, element('result'));
  const update = () => {
    const radius = element('radius').valueAsNumber;
    element('radius-value').textContent = radius;
    device.tidy(() => paint(FILTERS[element('filter').value](image, radius)));
  };
  update();
  element('form').addEventListener('input', update);
  for (const id of ['filter', 'radius']) element(id).disabled = false;
  // The page is left for good: free the GPU at once.
  addEventListener('pagehide', ({ persisted }) => persisted || device.destroy());
} catch (error) {
  element('alert').textContent = error.message;
  element('alert').hidden = false;
}
