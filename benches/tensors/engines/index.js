// The engines side by side, each behind the same face. Each is set up as its documentation says, and where there is a choice, as it is fastest.
//
// open() resolves to
//   device            the GPUDevice that it runs on
//   facts             {fusion, waits}: what it does to join operations, and how it is told to wait, in words
//   notes             by operation, what it has no function of its own for, in words
//   setFusion(on)     whether what can be computed in one kernel may be; an engine that never does leaves it out
//   tensor(data, shape, layout)   a tensor on the GPU; `layout` as in rows.js
//   operations        by name, functions of tensors {x, …} and options that make a new tensor, and free what they need on the way
//   handOver(tensors) the GPU gets everything that these need, without a wait; an engine that does so by itself leaves it out
//   wait(tensors)     resolves when the GPU has computed them and all that was called before
//   read(tensor, layout)          resolves to its numbers in row-major order
//   free(tensor)
//   close()

const OPEN = {
  rillm: () => import('./rillm.js'),
  'jax-js': () => import('./jax.js'),
  'tfjs-webgpu': () => import('./tfjs.js'),
};

/** The names of the engines. */
export const ENGINES = Object.keys(OPEN);

export async function openEngine(name) {
  const { open } = await OPEN[name]();
  return open();
}
