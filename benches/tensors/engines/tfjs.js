// TensorFlow.js on its WebGPU backend behind the common face (index.js).

import * as tf from '@tensorflow/tfjs';
import '@tensorflow/tfjs-backend-webgpu';

/** Its default order of dimensions and back. Images: batch, height, width, channels; kernels: height, width, channels in, channels out. */
const ORDER = { image: { to: [0, 2, 3, 1], from: [0, 3, 1, 2] }, kernel: { to: [2, 3, 1, 0], from: [3, 2, 0, 1] } };

/** As its layers compute it: by the error function. */
const gelu = (x) => x.mul(x.div(Math.SQRT2).erf().add(1).mul(0.5));

export async function open() {
  tf.enableProdMode();
  // Else it computes small tensors that were never on the GPU on the CPU.
  tf.env().set('WEBGPU_CPU_FORWARD', false);
  if (!(await tf.setBackend('webgpu'))) throw new Error('it finds no WebGPU');
  await tf.ready();
  const { device } = tf.backend();
  return {
    device,
    facts: { fusion: 'none but a bias into its product', waits: 'data() of one element of the last result' },
    notes: {
      layerNorm: 'moments, then batchNorm',
      mlp: 'gelu of erf, mul, add',
      elementwise: 'gelu of erf, mul, add',
    },
    tensor(data, shape, layout) {
      if (layout === undefined) return tf.tensor(data, shape);
      return tf.tidy(() => tf.tensor(data, shape).transpose(ORDER[layout].to));
    },
    operations: {
      matmul: ({ x, w }) => tf.matMul(x, w),
      softmax: ({ x }) => tf.softmax(x),
      layerNorm: ({ x, weight, bias }) =>
        tf.tidy(() => {
          const { mean, variance } = tf.moments(x, -1, true);
          return tf.batchNorm(x, mean, variance, bias.expandDims(0), weight.expandDims(0), 1e-5);
        }),
      conv2d: ({ x, w }, { padding }) => tf.conv2d(x, w, 1, padding, 'NHWC'),
      mlp: ({ x, w1, b1, w2, b2 }) =>
        tf.tidy(() => tf.fused.matMul({ a: gelu(tf.fused.matMul({ a: x, b: w1, bias: b1 })), b: w2, bias: b2 })),
      elementwise: ({ x, w, b, mask }) => tf.tidy(() => gelu(x.mul(w).add(b)).mul(mask)),
      add: ({ x, y }) => tf.add(x, y),
    },
    // It has no other way to wait than to read, and its queue works in order.
    async wait(tensors) {
      const last = tensors.at(-1);
      const one = last.slice(
        last.shape.map(() => 0),
        last.shape.map(() => 1),
      );
      await one.data();
      one.dispose();
    },
    async read(tensor, layout) {
      const ordered = layout === undefined ? tensor.clone() : tensor.transpose(ORDER[layout].from);
      const values = await ordered.data();
      ordered.dispose();
      return values;
    },
    free: (tensor) => tensor.dispose(),
    close() {
      tf.removeBackend('webgpu');
      device.destroy();
    },
  };
}
