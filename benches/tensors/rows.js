// What is measured: the operations with their shapes, their inputs and what they cost. Knows nothing of engines.
//
// A row's steps come in groups, since a page hands its work over now and then and frees what it no longer needs. With `chain` a group is so many
// steps, of which each takes the result of the one before; the next group begins with `x` again. With `fresh` it is so many results from the same
// inputs. What lies between a chain's steps could be computed in one kernel if all were functions of elements, so those rows are `fresh`.

const SHAPES = {
  full: {
    matmul: [1024, 4096],
    lines: [
      [4096, 4096],
      [8192, 512],
    ],
    conv: [
      { batch: 8, channels: 64, side: 56, kernel: 3 },
      { batch: 8, channels: 256, side: 28, kernel: 1 },
    ],
    mlp: { batch: 256, width: 1024, hidden: 4096 },
    elementwise: [4096, 4096],
    small: [16, 16],
  },
  // For adapters in software: everything runs, and takes a minute.
  small: {
    matmul: [96, 256],
    lines: [
      [256, 256],
      [300, 64],
    ],
    conv: [
      { batch: 2, channels: 8, side: 14, kernel: 3 },
      { batch: 2, channels: 32, side: 7, kernel: 1 },
    ],
    mlp: { batch: 16, width: 64, hidden: 256 },
    elementwise: [256, 256],
    small: [16, 16],
  },
};

/** The sizes that there are. */
export const SIZES = Object.keys(SHAPES);

const CHAIN = 8;
const FLOAT = 4;

const words = (shape) => `[${shape.join(', ')}]`;
const elements = (shape) => shape.reduce((product, dim) => product * dim, 1);

/** An input of numbers between −range and range. */
const uniform = (shape, range = 1, more = {}) => ({ shape, range, ...more });
/** One of weights that leaves numbers about as large as they were, summed over `inner` of them. */
const weight = (shape, inner, more = {}) => uniform(shape, Math.sqrt(3 / inner), more);

function matmul(n) {
  return {
    id: `matmul-${n}`,
    name: `matmul ${words([n, n])} · ${words([n, n])}`,
    op: 'matmul',
    inputs: { x: uniform([n, n]), w: weight([n, n], n) },
    chain: CHAIN,
    flops: 2 * n ** 3,
  };
}

function softmax([rows, columns]) {
  return {
    id: `softmax-${rows}-${columns}`,
    name: `softmax ${words([rows, columns])}`,
    op: 'softmax',
    inputs: { x: uniform([rows, columns], 5) },
    chain: CHAIN,
    bytes: 2 * rows * columns * FLOAT,
  };
}

function layerNorm([rows, columns]) {
  return {
    id: `layer-norm-${rows}-${columns}`,
    name: `layer_norm ${words([rows, columns])}, weight and bias`,
    op: 'layerNorm',
    inputs: { x: uniform([rows, columns], 3), weight: uniform([columns], 2), bias: uniform([columns]) },
    chain: CHAIN,
    bytes: 2 * rows * columns * FLOAT,
  };
}

function conv2d({ batch, channels, side, kernel }) {
  const [x, w] = [
    [batch, channels, side, side],
    [channels, channels, kernel, kernel],
  ];
  const padding = (kernel - 1) / 2;
  return {
    id: `conv2d-${kernel}x${kernel}`,
    name: `conv2d ${words(x)} ∗ ${words(w)}, padding ${padding}`,
    op: 'conv2d',
    // `layout` says what the dimensions are, for an engine that keeps images or kernels in another order.
    inputs: { x: uniform(x, 1, { layout: 'image' }), w: weight(w, channels * kernel ** 2, { layout: 'kernel' }) },
    options: { padding },
    output: 'image',
    chain: CHAIN,
    flops: 2 * elements(x) * channels * kernel ** 2,
  };
}

function mlp({ batch, width, hidden }) {
  return {
    id: 'mlp',
    name: `MLP, batch ${batch}, ${width} → ${hidden} → ${width}, gelu, biases`,
    op: 'mlp',
    inputs: {
      x: uniform([batch, width]),
      w1: weight([width, hidden], width),
      b1: uniform([hidden]),
      w2: weight([hidden, width], hidden),
      b2: uniform([width]),
    },
    chain: CHAIN,
    flops: 4 * batch * width * hidden,
  };
}

function elementwise(shape, fusion) {
  const columns = [shape.at(-1)];
  return {
    id: fusion ? 'elementwise-fused' : 'elementwise-one-by-one',
    name: `gelu(x · w + b) · mask ${words(shape)}, ${fusion ? 'fused where the engine can' : 'one operation at a time'}`,
    op: 'elementwise',
    fusion,
    inputs: { x: uniform(shape, 2), w: uniform(columns, 2), b: uniform(columns), mask: { shape, kind: 'mask' } },
    fresh: 2,
    bytes: 3 * elements(shape) * FLOAT,
  };
}

function small(shape, fusion) {
  return {
    id: fusion ? 'small' : 'small-one-by-one',
    name: `add ${words(shape)}, 2,000 times${fusion ? '' : ', rillm one submit each'}`,
    op: 'add',
    fusion,
    inputs: { x: uniform(shape), y: uniform(shape) },
    fresh: 50,
    steps: 2000,
    unit: 'µs',
  };
}

function wait(shape) {
  return {
    id: 'wait',
    name: `one add ${words(shape)} and the wait for it`,
    op: 'add',
    inputs: { x: uniform(shape), y: uniform(shape) },
    fresh: 1,
    steps: 1,
    repetitions: 21,
  };
}

/** All rows in one of the sizes. */
export function rowsOf(size) {
  const shapes = SHAPES[size];
  const all = [
    ...shapes.matmul.map(matmul),
    ...shapes.lines.map(softmax),
    ...shapes.lines.map(layerNorm),
    ...shapes.conv.map(conv2d),
    mlp(shapes.mlp),
    elementwise(shapes.elementwise, true),
    elementwise(shapes.elementwise, false),
    small(shapes.small, true),
    small(shapes.small, false),
    wait(shapes.small),
  ];
  return all.map((row) => ({ fusion: true, options: {}, ...row }));
}

/** The numbers of a row's inputs, by name: the same in every run. */
export function dataOf({ inputs }) {
  return Object.fromEntries(
    Object.entries(inputs).map(([name, { shape, range, kind }], index) => {
      const random = generator(index + 1);
      const numbers = new Float32Array(elements(shape));
      for (let i = 0; i < numbers.length; i++) numbers[i] = kind === 'mask' ? Math.round(random()) : (2 * random() - 1) * range;
      return [name, numbers];
    }),
  );
}

/** Numbers in [0, 1) from xorshift (Marsaglia 2003). */
function generator(seed) {
  let state = Math.imul(seed, 0x9e3779b9) | 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 32;
  };
}
