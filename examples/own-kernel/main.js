// A WGSL kernel between operations of tensors: the Mandelbrot set. index.html says how to run it.

import { Device } from 'rillm/tensor';

/** What is shown of the plane. */
export const REGION = { left: -2.2, right: 0.8, top: 1.2, bottom: -1.2 };

export const WGSL = `
@group(0) @binding(0) var<storage, read> re: array<f32>;
@group(0) @binding(1) var<storage, read> im: array<f32>;
@group(0) @binding(2) var<storage, read_write> steps: array<u32>;
@group(0) @binding(3) var<uniform> size: vec4u; // width, height, most steps

@compute @workgroup_size(WORKGROUP_X, WORKGROUP_Y)
fn main(@builtin(global_invocation_id) at: vec3u) {
  if (at.x >= size.x || at.y >= size.y) { return; }
  let c = vec2f(re[at.x], im[at.y]);
  var z = vec2f(0, 0);
  var n = 0u;
  while (n < size.z && dot(z, z) <= 4) {
    z = vec2f(z.x * z.x - z.y * z.y, 2 * z.x * z.y) + c;
    n += 1;
  }
  steps[at.y * size.x + at.x] = n;
}`;

/** Compiles the kernel. It is compiled once for a device. */
export function mandelbrotKernel(device) {
  return device.kernel({ label: 'mandelbrot', wgsl: WGSL, bindings: ['read', 'read', 'read_write', 'uniform'], workgroup: [8, 8] });
}

/** How many steps each point takes to leave, at most `limit`: u32 [height, width]. */
export function stepsOf(kernel, width, height, limit) {
  const { device } = kernel;
  return device.tidy(() => {
    const re = device.linspace(REGION.left, REGION.right, width);
    const im = device.linspace(REGION.top, REGION.bottom, height);
    const steps = device.zeros([height, width], 'u32');
    kernel.dispatch({ bindings: [re, im, steps, Uint32Array.of(width, height, limit, 0)], threads: [width, height] });
    return steps;
  });
}

/** The share of points that stay, and the mean of the steps of the others. Each is one number on the GPU. */
export function figuresOf(steps, limit) {
  return steps.device.tidy(() => {
    const left = steps.lower(limit); // bool
    const leaving = left.sum(); // i32
    return { leaving, mean: left.where(steps, 0).sum().div(leaving) };
  });
}

/** Brightness from 0 to 1: the share of the points that leave no later, so that all shades are used. Points that stay are black. */
export function shadesOf(steps, limit) {
  const { device } = steps;
  return device.tidy(() => {
    const index = steps.flatten();
    const counts = device.zeros([limit + 1], 'u32').scatterAdd(0, index, device.ones([index.size], 'u32'));
    const noLater = counts.cumsum(0).div(index.size); // [limit + 1]
    return steps.lower(limit).where(noLater.gather(0, index).reshape(steps.shape), 0);
  });
}

/** RGBA from 0 to 255 for each shade [h, w]: [h, w, 4]. */
function coloursOf(shades) {
  const { device } = shades;
  const power = device.tensor([1.6, 2.6, 0.9, 0], [4]);
  return shades.unsqueeze(2).pow(power).mul(255);
}

// The page.

const element = (id) => document.getElementById(id);
const { width, height } = element('picture');
element('wgsl').textContent = WGSL.trim();

function complain(error) {
  element('alert').textContent = error.message;
  element('alert').hidden = false;
}

async function update(kernel) {
  const { device } = kernel;
  const limit = element('limit').valueAsNumber;
  element('limit-value').textContent = limit;
  const [pixels, [leaving], [mean]] = await device.tidy(() => {
    const steps = stepsOf(kernel, width, height, limit);
    const figures = figuresOf(steps, limit);
    // One submit and one wait for all three.
    return device.readback(coloursOf(shadesOf(steps, limit)), figures.leaving, figures.mean);
  });
  element('picture')
    .getContext('2d')
    .putImageData(new ImageData(Uint8ClampedArray.from(pixels), width, height), 0, 0);
  const whole = (REGION.right - REGION.left) * (REGION.top - REGION.bottom);
  element('area').textContent = (whole * (1 - leaving / (width * height))).toFixed(3);
  element('leave').textContent = leaving.toLocaleString('en');
  element('steps').textContent = mean.toFixed(2);
}

try {
  const device = await Device.request();
  const kernel = await mandelbrotKernel(device);
  await update(kernel);
  element('limit').addEventListener('input', () => update(kernel).catch(complain));
  element('limit').disabled = false;
  // The page is left for good: free the GPU at once.
  addEventListener('pagehide', ({ persisted }) => persisted || device.destroy());
} catch (error) {
  complain(error);
}
