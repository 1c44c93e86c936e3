// The pages of examples/ in Chromium: what they compute and draw against the same in plain JavaScript, that they free what they make, that they fit a
// phone, and what they say where there is no WebGPU.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { CANVAS_ARGS, openStage } from './browser.mjs';
import { faultsOf } from './page/stage.mjs';

const LIMIT = { timeout: 90_000 };
const PAGES = ['kmeans', 'image-filter', 'own-kernel', 'spirals'];
/** A plain web server does not list a folder, so files that a model may have are asked for. */
const PROBES = { allowed: [/status of 404/] };

let stage;
before(async () => (stage = await openStage({ args: CANVAS_ARGS })));
after(() => stage.close());

const open = (name, { query = '', ...options } = {}) => stage.openPage({ url: `${stage.origin}/examples/${name}/${query}`, ...options });

const overflows = (page) => page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth);

/** Whether the page is as wide as its window, on a phone and on a desktop, and axe finds nothing. */
async function fits(page) {
  for (const width of [390, 1280]) {
    await page.setViewportSize({ width, height: 800 });
    assert.equal(await overflows(page), false, `${width} pixels`);
  }
  assert.deepEqual(await faultsOf(page), []);
  assert.equal(await page.getByRole('alert').count(), 0, 'no error is shown');
}

/** Texts of words that the tests' tiny encoder, whose weights are random, tells apart. */
const TEXTS = ['on', 'dog', 'is'].map((word) => [4, 5, 6].map((times) => Array(times).fill(word).join(' ')));

test('kmeans: texts of the same words come into one group; points, against their means in JavaScript', LIMIT, async () => {
  const { page, close } = await open('kmeans', { query: '?model=/encoders/bert/', ...PROBES });
  const texts = [0, 1, 2].flatMap((at) => TEXTS.map((group) => group[at]));
  await page.locator('#texts').fill(texts.join('\n'));
  await page.locator('#run').click();
  await page.locator('#status').filter({ hasText: '9 texts, 3 groups' }).waitFor();
  const groups = await page
    .locator('#groups section')
    .evaluateAll((all) => all.map((of) => [...of.querySelectorAll('li')].map((li) => li.textContent)));
  assert.deepEqual(groups, TEXTS);
  await fits(page);
  await page.locator('#count').fill('12');
  await page.locator('#run').click();
  await page.getByRole('alert').filter({ hasText: '12 groups need at least 12 texts; there are 9.' }).waitFor();
  const got = await page.evaluate(async () => {
    const { kMeans } = await import('/examples/kmeans/main.js');
    const { Device } = await import('rillm/tensor');
    const device = await Device.request();
    // On the unit circle, around 0.3, 2.4 and 4.5.
    const angles = Array.from({ length: 60 }, (_, i) => [0.3, 2.4, 4.5][i % 3] + 0.4 * Math.sin(i * 7.1));
    const rows = angles.map((angle) => [Math.cos(angle), Math.sin(angle)]);
    const x = device.tensor(rows.flat(), [60, 2]);
    const before = device.memoryStats().tensors;
    const options = { seed: 5, starts: 2 };
    const [first, again, five] = [await kMeans(x, 3, options), await kMeans(x, 3, options), await kMeans(x, 5, options)];
    const left = device.memoryStats().tensors - before;
    device.destroy();
    return { rows, first, again, five, left };
  });
  assert.equal(got.left, 0, 'tensors are left');
  assert.deepEqual(got.again.groups, got.first.groups);
  assert.deepEqual(
    got.first.groups,
    got.rows.map((_, i) => got.first.groups[i % 3]),
  );
  assert.equal(new Set(got.first.groups).size, 3);
  // Where it ends, each row is nearest to the mean of its own group, and these means are the centres.
  for (const { groups, rounds, spread } of [got.first, got.five]) {
    assert.ok(rounds < 50);
    const squares = ([x, y], [a, b]) => (x - a) ** 2 + (y - b) ** 2;
    const members = [...new Set(groups)].map((group) => got.rows.filter((_, i) => groups[i] === group));
    const means = members.map((rows) => [0, 1].map((axis) => rows.reduce((sum, row) => sum + row[axis], 0) / rows.length));
    let wanted = 0;
    for (const [group, rows] of members.entries()) {
      for (const row of rows) {
        const own = squares(row, means[group]);
        assert.ok(own <= Math.min(...means.map((mean) => squares(row, mean))) + 1e-5);
        wanted += own - squares(row, [0, 0]);
      }
    }
    assert.ok(Math.abs(spread - wanted) < 1e-3, `the distances from the centres add up to ${spread}, from the means to ${wanted}`);
  }
  await close();
});

/** Runs in the page: the filters in doubles. Planes of red, green and blue, row by row. */
function filtersInJavaScript({ data, width, height }, radius) {
  const planes = [0, 1, 2].map((colour) => Float64Array.from({ length: width * height }, (_, at) => data[4 * at + colour] / 255));
  const taps = Array.from({ length: 2 * radius + 1 }, (_, i) => Math.exp(-0.5 * (-2 + (4 * i) / (2 * radius)) ** 2));
  /** Along rows (step 1) or columns, with the weights of what lies in the image. */
  const along = (plane, step, size) =>
    plane.map((_, at) => {
      const place = Math.floor(at / step) % size;
      let [sum, weight] = [0, 0];
      for (let i = -radius; i <= radius; i++) {
        if (place + i < 0 || place + i >= size) continue;
        sum += taps[i + radius] * plane[at + i * step];
        weight += taps[i + radius];
      }
      return sum / weight;
    });
  const blur = planes.map((plane) => along(along(plane, 1, width), width, height));
  const sharpen = planes.map((plane, colour) => plane.map((x, at) => Math.min(Math.max(2 * x - blur[colour][at], 0), 1)));
  const grey = planes[0].map((_, at) => 0.299 * planes[0][at] + 0.587 * planes[1][at] + 0.114 * planes[2][at]);
  const slope = grey.map((_, at) => {
    const [x, y] = [at % width, Math.floor(at / width)];
    if (x === 0 || y === 0 || x === width - 1 || y === height - 1) return 0;
    const g = (dx, dy) => grey[at + dx + dy * width];
    const across = g(1, -1) + 2 * g(1, 0) + g(1, 1) - g(-1, -1) - 2 * g(-1, 0) - g(-1, 1);
    const down = g(-1, 1) + 2 * g(0, 1) + g(1, 1) - g(-1, -1) - 2 * g(0, -1) - g(1, -1);
    return Math.min(Math.hypot(across, down), 1);
  });
  return { none: planes, blur, sharpen, edges: [slope, slope, slope] };
}

test('image-filter: what each filter draws, against the filter in JavaScript; filters free what they make', LIMIT, async () => {
  const { page, close } = await open('image-filter');
  await page.locator('#filter:enabled').waitFor();
  const got = await page.evaluate(async (source) => {
    const filters = (0, eval)(`(${source})`);
    const [canvas, select, radius] = ['result', 'filter', 'radius'].map((id) => document.getElementById(id));
    const { width, height } = canvas;
    const image = document.getElementById('source').getContext('2d').getImageData(0, 0, width, height);
    // Drawn at the event; copied in the same task, since the canvas is empty after the frame is shown.
    const drawn = (filter) => {
      [select.value, radius.value] = [filter, '3'];
      select.dispatchEvent(new Event('input', { bubbles: true }));
      const copy = new OffscreenCanvas(width, height).getContext('2d');
      copy.drawImage(canvas, 0, 0);
      return copy.getImageData(0, 0, width, height).data;
    };
    const results = {};
    for (const [filter, planes] of Object.entries(filters(image, 3))) {
      const pixels = drawn(filter);
      let worst = 0;
      let sum = 0;
      for (let at = 0; at < width * height; at++) {
        for (let colour = 0; colour < 3; colour++) {
          worst = Math.max(worst, Math.abs(pixels[4 * at + colour] - 255 * planes[colour][at]));
          sum += pixels[4 * at + colour];
        }
      }
      results[filter] = { worst, mean: sum / (3 * width * height) };
    }
    return results;
  }, String(filtersInJavaScript));
  assert.deepEqual(Object.keys(got), ['none', 'blur', 'sharpen', 'edges']);
  for (const [filter, { worst, mean }] of Object.entries(got)) {
    assert.ok(worst <= 1.01, `${filter}: a colour is off by ${worst} of 255`);
    assert.ok(mean > 5, `${filter} has drawn something: ${mean}`);
  }
  await fits(page);
  const left = await page.evaluate(async () => {
    const { FILTERS, planesOf, painter } = await import('/examples/image-filter/main.js');
    const { Device } = await import('rillm/tensor');
    const device = await Device.request();
    const canvas = Object.assign(document.createElement('canvas'), { width: 16, height: 8 });
    const paint = painter(device, canvas);
    const image = planesOf(device, new ImageData(16, 8));
    const before = device.memoryStats().tensors;
    for (const filter of Object.values(FILTERS)) device.tidy(() => paint(filter(image, 2)));
    await device.sync();
    const left = device.memoryStats().tensors - before;
    device.destroy();
    return [before, left];
  });
  assert.deepEqual(left, [1, 0]);
  await close();
});

/** Runs in the page: the steps of the Mandelbrot set's points, rounded to f32 as on the GPU. */
function stepsInJavaScript({ left, right, top, bottom }, width, height, limit) {
  const f = Math.fround;
  const points = (from, to, count) => Float32Array.from({ length: count }, (_, i) => from + ((to - from) / (count - 1)) * i);
  const [re, im] = [points(left, right, width), points(top, bottom, height)];
  return Uint32Array.from({ length: width * height }, (_, at) => {
    const [a, b] = [re[at % width], im[Math.floor(at / width)]];
    let [x, y, n] = [0, 0, 0];
    while (n < limit && f(f(x * x) + f(y * y)) <= 4) {
      [x, y] = [f(f(f(x * x) - f(y * y)) + a), f(f(f(2 * x) * y) + b)];
      n += 1;
    }
    return n;
  });
}

test("own-kernel: the kernel's numbers and what is made of them, against JavaScript", LIMIT, async () => {
  const { page, close } = await open('own-kernel');
  await page.locator('#limit:enabled').waitFor();
  const got = await page.evaluate(async (source) => {
    const inJavaScript = (0, eval)(`(${source})`);
    const { REGION, mandelbrotKernel, stepsOf, figuresOf, shadesOf } = await import('/examples/own-kernel/main.js');
    const { Device } = await import('rillm/tensor');
    const device = await Device.request();
    const kernel = await mandelbrotKernel(device);
    const before = device.memoryStats().tensors;
    const [width, height, limit] = [97, 61, 50];
    const steps = stepsOf(kernel, width, height, limit);
    const { leaving, mean } = figuresOf(steps, limit);
    const shades = shadesOf(steps, limit);
    const [values, [left], [average], brightness] = await device.readback(steps, leaving, mean, shades);
    for (const tensor of [steps, leaving, mean, shades]) tensor.dispose();
    const kept = device.memoryStats().tensors - before;
    device.destroy();
    const wanted = inJavaScript(REGION, width, height, limit);
    const whole = inJavaScript(REGION, 480, 384, 128);
    const pixels = document.getElementById('picture').getContext('2d').getImageData(0, 0, 480, 384).data;
    return {
      values: [...values],
      wanted: [...wanted],
      limit,
      figures: [left, average],
      brightness: [...brightness],
      kept,
      area: (3 * 2.4 * whole.filter((n) => n === 128).length) / whole.length,
      // Of the points that stay on both sides of rounding: black.
      blackInside: [...whole].every((n, at) => n < 128 || pixels[4 * at + 2] === 0 || whole[at - 1] < 128 || whole[at + 1] < 128),
      bright: pixels.filter((_, at) => at % 4 === 2).reduce((most, value) => Math.max(most, value), 0),
    };
  }, String(stepsInJavaScript));
  const { values, wanted, limit } = got;
  // A compiler may fuse a product and a sum, which rounds once less; at the border that changes a few counts.
  const differing = values.filter((value, at) => value !== wanted[at]).length;
  assert.ok(differing < 0.02 * wanted.length, `${differing} of ${wanted.length} differ`);
  const leaving = values.filter((n) => n < limit);
  assert.equal(got.figures[0], leaving.length);
  assert.ok(Math.abs(got.figures[1] - leaving.reduce((sum, n) => sum + n, 0) / leaving.length) < 1e-4);
  for (const [at, n] of values.entries()) {
    const shade = n === limit ? 0 : values.filter((other) => other <= n).length / values.length;
    assert.ok(Math.abs(got.brightness[at] - shade) < 1e-6, `the shade of ${n}`);
  }
  assert.equal(got.kept, 0, 'tensors are left');
  assert.ok(Math.abs(Number(await page.locator('#area').textContent()) - got.area) < 0.005);
  assert.deepEqual([got.blackInside, got.bright > 200], [true, true]);
  await page.locator('#limit').fill('32');
  await page.locator('#limit-value').filter({ hasText: '32' }).waitFor();
  await fits(page);
  await close();
});

test('spirals: the network learns them in 200 steps, and the page draws what it believes', LIMIT, async (t) => {
  const { page, close } = await open('spirals');
  await page.locator('#status').filter({ hasText: 'on the right spiral' }).waitFor();
  const [, share, seconds] = (await page.locator('#status').textContent()).match(/([\d.]+) % .* in ([\d.]+) s/);
  // How long it takes is the machine's affair, and ten seconds of one that has nothing else to do.
  t.diagnostic(`${seconds} s`);
  assert.ok(Number(share) >= 99, `${share} %`);
  const corners = (await page.locator('#curve').getAttribute('points')).split(' ').map((corner) => corner.split(',').map(Number));
  assert.equal(corners.length, 200);
  assert.ok(corners.at(-1)[1] > 90 && corners[0][1] < 50, 'the loss has come down');
  await fits(page);
  const got = await page.evaluate(async () => {
    const { spirals, parametersOf, train, picture, painter } = await import('/examples/spirals/main.js');
    const { Device } = await import('rillm/tensor');
    const device = await Device.request();
    const data = spirals(100);
    const points = device.tensor(data.points, [200, 2]);
    const classes = device.tensor(data.classes, [200], 'i32');
    const before = device.memoryStats().tensors;
    const parameters = parametersOf(device);
    let steps = 0;
    await train(points, classes, parameters, { steps: 200, onProgress: (done) => ((steps = done), done < 120) });
    const canvas = Object.assign(document.createElement('canvas'), { width: 64, height: 64 });
    const shades = picture(device, parameters, 64);
    painter(device, canvas)(shades);
    const copy = new OffscreenCanvas(64, 64).getContext('2d');
    copy.drawImage(canvas, 0, 0);
    const pixels = copy.getImageData(0, 0, 64, 64).data;
    const values = await shades.readback();
    // Blue where it is sure of the second spiral.
    const drawn = values.every((shade, at) => Math.abs(pixels[4 * at + 2] - 255 * (0.25 + shade * 0.37)) < 2);
    for (const tensor of [shades, ...parameters]) tensor.dispose();
    const left = device.memoryStats().tensors - before;
    device.destroy();
    return { steps, drawn, left };
  });
  assert.deepEqual(got, { steps: 120, drawn: true, left: 0 });
  await close();
});

test('without WebGPU each page says so in words', LIMIT, async () => {
  const { page, close } = await stage.openPage();
  await page.addInitScript(() => Object.defineProperty(Navigator.prototype, 'gpu', { get: () => undefined }));
  for (const name of PAGES) {
    await page.goto(`${stage.origin}/examples/${name}/`);
    await page.getByRole('alert').filter({ hasText: 'this browser has no WebGPU' }).waitFor();
    assert.equal(await overflows(page), false, name);
  }
  await close();
});
