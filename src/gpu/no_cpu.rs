//! In place of `cpu` where it is left out: in the wasm of the GPU.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::adapter::{Adapter, Capabilities};
use crate::error::Result;

/// Where bytes of several threads are.
pub type TeamAddress = u64;

/// Which of their memories it is in.
pub fn memory_of(at: TeamAddress) -> u32 {
    (at >> u32::BITS) as u32
}

/// A function on bound bytes.
pub trait CpuKernel: Send + Sync {
    /// Never called.
    fn run(&self, bound: Vec<Lent<'_>>, team: Option<&Arc<dyn Team>>) -> std::result::Result<(), Problem>;
}

/// Why something could not be done.
pub enum Problem {
    /// There is no room in memory.
    NoRoom(String),
    /// Anything else.
    Invalid(String),
}

impl From<String> for Problem {
    fn from(text: String) -> Self {
        Self::Invalid(text)
    }
}

/// The bytes of one binding.
pub enum Lent<'a> {
    /// To read.
    Read(Cow<'a, [u8]>, Option<Twin>),
    /// To read and write.
    Write(Written<'a>),
    /// In memory of several threads.
    Team(&'a TeamBytes),
}

/// A copy in memory of several threads, of which there are none.
#[derive(Clone, Copy)]
pub enum Twin {}

impl Twin {
    /// Never called.
    pub fn address(
        &self,
        _: &Arc<dyn Team>,
        _: &[u8],
        _: Range<usize>,
    ) -> std::result::Result<Option<TeamAddress>, Problem> {
        match *self {}
    }
}

/// Bytes that may be overwritten.
pub struct Written<'a>(&'a mut [u8]);

impl Written<'_> {
    /// The bytes as they are.
    pub fn bytes(&self) -> &[u8] {
        self.0
    }

    /// All of them.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.0
    }

    /// Some of them.
    pub fn part_mut(&mut self, range: Range<usize>) -> Option<&mut [u8]> {
        self.0.get_mut(range)
    }

    /// The first of them.
    pub fn first(self, count: usize) -> Option<Self> {
        self.0.get_mut(..count).map(Self)
    }
}

/// Attention for them.
#[derive(Clone, Copy)]
pub struct TeamAttention<'a> {
    /// What it is.
    pub words: &'a [u32],
    /// Queries.
    pub q: &'a [f32],
    /// Keys.
    pub keys: &'a [u8],
    /// Values.
    pub values: &'a [u8],
    /// Where they are.
    pub places: [TeamAddress; 2],
    /// What is added.
    pub numbers: &'a [f32],
}

/// A feed-forward for them.
#[derive(Clone, Copy)]
pub struct TeamFeedForward<'a> {
    /// Its first matrix.
    pub up: TeamMatrix,
    /// Its second matrix.
    pub down: TeamMatrix,
    /// The function between them.
    pub activation: [u32; 2],
    /// Whether it is that of gates.
    pub is_gated: bool,
    /// Activations.
    pub x: &'a [f32],
    /// What is added to the first products.
    pub bias: &'a [f32],
}

/// Threads that multiply and attend; there are none.
pub trait Team: std::fmt::Debug {
    /// Never called.
    fn pack(&self, matrix: TeamMatrix, first: usize, count: usize, file: &[u8]) -> std::result::Result<(), Problem>;
    /// Never called.
    fn write(&self, at: TeamAddress, bytes: &[u8]) -> std::result::Result<(), Problem>;
    /// Never called.
    fn read(&self, at: TeamAddress, bytes: &mut [u8]) -> std::result::Result<(), Problem>;
    /// Never called.
    fn multiply(
        &self,
        matrix: TeamMatrix,
        rows: Range<usize>,
        x: &[f32],
        out: &mut [f32],
    ) -> std::result::Result<(), Problem>;
    /// Never called.
    fn attend(
        &self,
        attention: TeamAttention<'_>,
        sums: &mut [f32],
        totals: &mut [f32],
    ) -> std::result::Result<(), Problem>;
    /// Never called.
    fn feed_forward(&self, feed_forward: TeamFeedForward<'_>, out: &mut [f32]) -> std::result::Result<(), Problem>;
    /// Never called.
    fn row(&self, matrix: TeamMatrix, row: usize, out: &mut [f32]) -> std::result::Result<(), Problem>;
    /// Never called.
    fn threads(&self) -> usize;
}

/// A matrix of weights in their memory.
#[derive(Clone, Copy, Debug)]
pub struct TeamMatrix {
    /// Where it begins.
    pub at: TeamAddress,
    /// The `ggml_type` of its format.
    pub gguf_type: u32,
    /// It is packed.
    pub is_packed: bool,
    /// Its rows.
    pub rows: usize,
    /// Its columns.
    pub columns: usize,
}

/// Bytes in their memory, of which there are none.
#[derive(Debug)]
pub enum TeamBytes {}

impl TeamBytes {
    /// Never called.
    pub fn team(&self) -> &dyn Team {
        match *self {}
    }

    /// Never called.
    pub fn at(&self) -> TeamAddress {
        match *self {}
    }

    /// Never called.
    pub fn size(&self) -> usize {
        match *self {}
    }
}

impl Capabilities {
    /// Never, which whoever compiles what depends on it knows.
    pub fn packs_on_cpu(&self) -> bool {
        false
    }
}

pub(super) fn next_is_of_team(_: &wgpu::Device) {}

pub(super) const IS_THERE: bool = false;

pub(super) fn request(_: Option<Arc<dyn Team>>) -> Result<(wgpu::Device, wgpu::Queue, Adapter)> {
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
