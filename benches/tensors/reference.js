// What the operations give for some of their elements, in f64, and how far an engine's result is from it.

/** Rows and columns that are looked at, of a result as a matrix: so many, spread over all of it. */
const ROWS = 16;
const COLUMNS = 64;

/** Up to so many numbers below `size`: the first, the last, and others that fall on every place of a tile. */
function spread(size, count) {
  if (size <= count) return Array.from({ length: size }, (_, i) => i);
  const numbers = Array.from({ length: count }, (_, i) =>
    i === count - 1 ? size - 1 : Math.floor((i * (size - 1)) / (count - 1)) + (i % 7),
  );
  return [...new Set(numbers.map((number) => Math.min(number, size - 1)))];
}

/** erf(x) by a series whose terms are all of one sign (Abramowitz, Stegun 1964, 7.1.6). */
export function erf(x) {
  if (Math.abs(x) > 6) return Math.sign(x);
  let [sum, term] = [x, x];
  for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) {
    term *= (2 * x * x) / (2 * n + 1);
    sum += term;
  }
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
}

const gelu = (x) => (x * (1 + erf(x / Math.SQRT2))) / 2;

function dot(length, a, b) {
  let sum = 0;
  for (let k = 0; k < length; k++) sum += a(k) * b(k);
  return sum;
}

/** Each gives for a row of the result what computes an element of it from its column. `shapes` are those of the inputs. */
const REFERENCES = {
  matmul({ x, w }, { shapes }) {
    const [inner, columns] = shapes.w;
    return (row) => (column) =>
      dot(
        inner,
        (k) => x[row * inner + k],
        (k) => w[k * columns + column],
      );
  },
  softmax({ x }, { shapes }) {
    const columns = shapes.x[1];
    return (row) => {
      const line = x.subarray(row * columns, (row + 1) * columns);
      const most = line.reduce((a, b) => Math.max(a, b));
      let sum = 0;
      for (const value of line) sum += Math.exp(value - most);
      return (column) => Math.exp(line[column] - most) / sum;
    };
  },
  layerNorm({ x, weight, bias }, { shapes }) {
    const columns = shapes.x[1];
    return (row) => {
      const line = x.subarray(row * columns, (row + 1) * columns);
      let [sum, squares] = [0, 0];
      for (const value of line) sum += value;
      const mean = sum / columns;
      for (const value of line) squares += (value - mean) ** 2;
      const scale = 1 / Math.sqrt(squares / columns + 1e-5);
      return (column) => (line[column] - mean) * scale * weight[column] + bias[column];
    };
  },
  conv2d({ x, w }, { shapes, options: { padding } }) {
    const [, channels, height, width] = shapes.x;
    const [outputs, , kernel] = shapes.w;
    // A row of the result is a plane of it.
    return (plane) => {
      const [image, output] = [Math.floor(plane / outputs), plane % outputs];
      return (place) => {
        const [top, left] = [Math.floor(place / width) - padding, (place % width) - padding];
        let sum = 0;
        for (let channel = 0; channel < channels; channel++) {
          for (let i = 0; i < kernel; i++) {
            for (let j = 0; j < kernel; j++) {
              const [y, z] = [top + i, left + j];
              if (y < 0 || y >= height || z < 0 || z >= width) continue;
              const from = ((image * channels + channel) * height + y) * width + z;
              sum += x[from] * w[((output * channels + channel) * kernel + i) * kernel + j];
            }
          }
        }
        return sum;
      };
    };
  },
  mlp({ x, w1, b1, w2, b2 }, { shapes }) {
    const [width, hidden] = shapes.w1;
    return (row) => {
      const middle = Float64Array.from(b1);
      for (let k = 0; k < width; k++) for (let j = 0; j < hidden; j++) middle[j] += x[row * width + k] * w1[k * hidden + j];
      for (let j = 0; j < hidden; j++) middle[j] = gelu(middle[j]);
      return (column) =>
        b2[column] +
        dot(
          hidden,
          (j) => middle[j],
          (j) => w2[j * width + column],
        );
    };
  },
  elementwise({ x, w, b, mask }, { shapes }) {
    const columns = shapes.x[1];
    return (row) => (column) => gelu(x[row * columns + column] * w[column] + b[column]) * mask[row * columns + column];
  },
  add({ x, y }, { shapes }) {
    const columns = shapes.x[1];
    return (row) => (column) => x[row * columns + column] + y[row * columns + column];
  },
};

/** Elements of a row's first result, {at, value}: where they stand in it, in row-major order. A result has the shape of `x`. */
export function expectedOf({ op, inputs, options }, data) {
  const shapes = Object.fromEntries(Object.entries(inputs).map(([name, { shape }]) => [name, shape]));
  // Images are seen as a matrix of planes.
  const columns = op === 'conv2d' ? shapes.x[2] * shapes.x[3] : shapes.x.at(-1);
  const rows = data.x.length / columns;
  const lineOf = REFERENCES[op](data, { shapes, options });
  return spread(rows, ROWS).flatMap((row) => {
    const valueAt = lineOf(row);
    return spread(columns, COLUMNS).map((column) => ({ at: row * columns + column, value: valueAt(column) }));
  });
}

/** The largest difference, in parts of the largest value; infinite where a result is no number or has another length. */
export function errorOf(values, expected, length) {
  if (values.length !== length) return Number.POSITIVE_INFINITY;
  let [worst, largest] = [0, 0];
  for (const { at, value } of expected) {
    const difference = Math.abs(values[at] - value);
    worst = Number.isNaN(difference) ? Number.POSITIVE_INFINITY : Math.max(worst, difference);
    largest = Math.max(largest, Math.abs(value));
  }
  return worst / largest;
}
