//! In place of `cpu` where it is left out: in the wasm of the GPU.

use std::borrow::Cow;
use std::sync::Arc;

use super::adapter::Adapter;
use crate::error::Result;

/// A function on bound bytes.
pub trait CpuKernel: Send + Sync {
    /// Never called.
    fn run(&self, bound: Vec<Lent<'_>>) -> std::result::Result<(), String>;
}

/// The bytes of one binding.
pub enum Lent<'a> {
    /// To read.
    Read(Cow<'a, [u8]>),
    /// To read and write.
    Write(&'a mut [u8]),
}

pub(super) const IS_THERE: bool = false;

pub(super) fn request() -> Result<(wgpu::Device, wgpu::Queue, Adapter)> {
    bail!(Internal, "this build has no CPU device")
}

/// Nothing, so that the linker finds no use of any kernel.
pub(super) fn shared(_: impl CpuKernel + 'static) -> Option<Arc<dyn CpuKernel>> {
    None
}

pub(super) fn pipeline(
    _: &wgpu::Device,
    _: &str,
    _: &wgpu::PipelineLayout,
    _: Arc<dyn CpuKernel>,
) -> Option<wgpu::ComputePipeline> {
    None
}
