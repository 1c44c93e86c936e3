//! A GPU device's bindings for JavaScript. Tensors and kernels are numbers there: `pkg-template/src/gpu` has classes for them.

mod batch;
mod device;
mod gradients;
mod info;
mod kernel;
mod operations;
mod options;
mod plan;
mod readback;
mod registry;
mod target;
mod tensors;
