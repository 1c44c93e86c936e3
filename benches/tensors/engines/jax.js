// jax-js behind the common face (index.js). Its functions take ownership of what they are given, so `ref` keeps it.

import { blockUntilReady, defaultDevice, getWebGPUDevice, init, jit, lax, nn, numpy as np } from '@jax-js/jax';

const gelu = (x) => nn.gelu(x, { approximate: false });

/** Functions of several operations; each uses each of its arguments once. */
const plain = {
  softmax: (x) => nn.softmax(x),
  layerNorm: (x, weight, bias) => nn.standardize(x).mul(weight).add(bias),
  mlp: (x, w1, b1, w2, b2) => np.matmul(gelu(np.matmul(x, w1).add(b1)), w2).add(b2),
  elementwise: (x, w, b, mask) => gelu(x.mul(w).add(b)).mul(mask),
};

export async function open() {
  const devices = await init('webgpu');
  if (!devices.includes('webgpu')) throw new Error('it finds no WebGPU');
  defaultDevice('webgpu');
  const joined = Object.fromEntries(Object.entries(plain).map(([name, work]) => [name, jit(work)]));
  let functions = joined;
  return {
    device: getWebGPUDevice(),
    facts: { fusion: 'jit(), or without', waits: 'blockUntilReady()' },
    notes: { layerNorm: 'nn.standardize, then weight and bias' },
    setFusion: (on) => {
      functions = on ? joined : plain;
    },
    tensor: (data, shape) => np.array(data, { shape }),
    operations: {
      matmul: ({ x, w }) => np.matmul(x.ref, w.ref),
      softmax: ({ x }) => functions.softmax(x.ref),
      layerNorm: ({ x, weight, bias }) => functions.layerNorm(x.ref, weight.ref, bias.ref),
      conv2d({ x, w }, { padding }) {
        const around = [padding, padding];
        return lax.convGeneralDilated(x.ref, w.ref, [1, 1], [around, around]);
      },
      mlp: ({ x, w1, b1, w2, b2 }) => functions.mlp(x.ref, w1.ref, b1.ref, w2.ref, b2.ref),
      elementwise: ({ x, w, b, mask }) => functions.elementwise(x.ref, w.ref, b.ref, mask.ref),
      add: ({ x, y }) => x.ref.add(y.ref),
    },
    // What waits is submitted when somebody asks for the buffer, which is not read.
    handOver(tensors) {
      for (const tensor of tensors) tensor.ref.gpuBufferSync();
    },
    wait: (tensors) => blockUntilReady(tensors),
    read: (tensor) => tensor.ref.data(),
    free: (tensor) => tensor.dispose(),
    close() {
      for (const work of Object.values(joined)) work.dispose();
      getWebGPUDevice().destroy();
    },
  };
}
