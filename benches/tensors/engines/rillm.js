// rillm/tensor behind the common face (index.js).

import { Device } from 'rillm/tensor';

export async function open() {
  const device = await Device.request();
  return {
    device: device.gpuDevice,
    facts: { fusion: 'lazy tensors, or setLazyMode(false)', waits: 'device.sync()' },
    notes: {},
    setFusion: (on) => device.setLazyMode(on),
    tensor: (data, shape) => device.tensor(data, shape),
    operations: {
      matmul: ({ x, w }) => x.matmul(w),
      softmax: ({ x }) => x.softmax(),
      layerNorm: ({ x, weight, bias }) => x.layerNorm({ weight, bias }),
      conv2d: ({ x, w }, { padding }) => x.conv2d(w, { padding }),
      mlp: ({ x, w1, b1, w2, b2 }) => device.tidy(() => x.matmul(w1).add(b1).gelu().matmul(w2).add(b2)),
      elementwise: ({ x, w, b, mask }) => device.tidy(() => x.mul(w).add(b).gelu().mul(mask)),
      add: ({ x, y }) => x.add(y),
    },
    handOver: () => device.flush(),
    wait: () => device.sync(),
    read: (tensor) => tensor.readback(),
    free: (tensor) => tensor.dispose(),
    close: () => device.destroy(),
  };
}
