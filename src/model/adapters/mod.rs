//! Adapters of low rank (LoRA, Hu et al. 2021, https://arxiv.org/abs/2106.09685): what a small pair of matrices A and B adds to a product of
//! the model, y = W·x + scale · B·(A·x). They stand beside the model's weights, which stay quantised as they are.
//!
//! The scale of each adapter in each sequence is a number in a tensor. So sequences with different adapters share a pass, and another scale
//! changes no command. Where no adapter is active, nothing is added to a pass.

mod config;
mod file;
mod order;
mod save;
mod upload;
mod values;

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

pub use file::{AdapterFile, AdapterFormat};
pub use save::{gguf_file, peft_folder, reserve};
pub use values::{AdapterValues, PairValues};

use super::matrix::Matrix;
use crate::error::Result;
use crate::tensor::ops::{LowRankAdd, LowRankDown, LowRankInput};
use crate::tensor::{Context, Tensor};

/// The most adapters that a model has at one time, and the numbers of a sequence's row of scales.
pub const MAX_ADAPTERS: usize = 16;

/// An adapter on the GPU.
pub struct Adapter {
    /// Which of the scales of a sequence is its.
    place: usize,
    /// By the keys of the model's matrices.
    by_matrix: HashMap<String, LowRank>,
    rank: usize,
    bytes: u64,
    fingerprint: u64,
    format: AdapterFormat,
    targets: Vec<String>,
    is_unloaded: Cell<bool>,
}

/// What an adapter adds to one matrix of the model, which may hold several tensors.
struct LowRank {
    /// A of all of them, one below the other, [ranks, columns].
    down: Tensor,
    /// Of each rank the adapter's place among the scales and the bits of a factor besides, [ranks, 2] u32.
    factors: Tensor,
    /// The words of all B, [words] u32 (`LowRankSegment`).
    words: Tensor,
}

impl Adapter {
    /// Which of the scales of a sequence is its: below `MAX_ADAPTERS`.
    pub fn place(&self) -> usize {
        self.place
    }

    /// The largest rank of its matrices.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Bytes on the GPU.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Of its numbers and of what they add to: another adapter has another one.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The kind of its files.
    pub fn format(&self) -> AdapterFormat {
        self.format
    }

    /// Nobody begins with it any more: whoever holds something of it lets go as soon as nobody runs with it.
    pub fn unload(&self) {
        self.is_unloaded.set(true);
    }

    /// The kinds of matrices that it adds to, such as `attn_q`, in alphabetical order.
    pub fn targets(&self) -> &[String] {
        &self.targets
    }
}

/// The adapters that a pass computes, and the scales of all sequences. Cloning clones the handle.
#[derive(Clone)]
pub struct ActiveAdapters {
    adapters: Rc<[Rc<Adapter>]>,
    /// [sequences, MAX_ADAPTERS]
    scales: Tensor,
}

impl ActiveAdapters {
    /// `scales` [sequences, MAX_ADAPTERS] has the scale of each adapter, by its place, in each sequence.
    pub fn new(adapters: impl IntoIterator<Item = Rc<Adapter>>, scales: Tensor) -> Self {
        Self { adapters: adapters.into_iter().collect(), scales }
    }

    /// Whether a pass with these computes the same adapters as one with others.
    pub fn is_same(&self, other: &Self) -> bool {
        self.adapters.len() == other.adapters.len() && self.adapters.iter().all(|adapter| other.has(adapter))
    }

    /// These and others, of the same scales.
    pub fn with(&self, others: &Self) -> Self {
        let more = others.iter().filter(|adapter| !self.has(adapter));
        Self::new(self.iter().chain(more).cloned(), self.scales.clone())
    }

    /// Whether an adapter is among them.
    pub fn has(&self, adapter: &Rc<Adapter>) -> bool {
        self.adapters.iter().any(|own| Rc::ptr_eq(own, adapter))
    }

    /// Whether one of them was unloaded.
    pub fn has_unloaded(&self) -> bool {
        self.adapters.iter().any(|adapter| adapter.is_unloaded.get())
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Rc<Adapter>> {
        self.adapters.iter()
    }
}

/// What adapters add to the products of a pass.
#[derive(Clone, Copy)]
pub(super) struct Beside<'a> {
    pub context: &'a Context,
    pub adapters: Option<&'a ActiveAdapters>,
    /// [4] or [n, 4]: whose sequence each token is of.
    pub state: &'a Tensor,
}

/// How a sum is added to a product.
#[derive(Clone, Copy)]
pub(super) struct Added {
    pub factor: f32,
    /// Rows of the product are in SoA.
    pub soa: bool,
}

impl Added {
    /// As it is, to rows.
    pub const ROWS: Added = Added { factor: 1.0, soa: false };
}

impl Beside<'_> {
    /// Whether anything is added to products with this matrix.
    pub fn touches(&self, matrix: &Matrix) -> bool {
        self.of(matrix).next().is_some()
    }

    fn of<'m>(&self, matrix: &'m Matrix) -> impl Iterator<Item = &LowRank> + use<'_, 'm> {
        let adapters = self.adapters.into_iter().flat_map(ActiveAdapters::iter);
        adapters.filter_map(|adapter| adapter.by_matrix.get(matrix.key()))
    }

    /// h = scale · A·x of an adapter, [n, ranks]. `inputs` are those that `input` says.
    fn down(&self, low_rank: &LowRank, input: &LowRankInput, inputs: &[&Tensor], scales: &Tensor) -> Result<Tensor> {
        let op = LowRankDown { input: input.clone() };
        let further = [&low_rank.down, &low_rank.factors, scales, self.state];
        self.context.run1(&op, &[inputs, &further].concat())
    }

    /// What a kernel adds to the product with this matrix by itself: h and the words of B, if one adapter alone touches it and two more buffers
    /// fit. Besides the matrix the kernel has `buffers`.
    pub fn in_kernel(
        &self,
        matrix: &Matrix,
        buffers: usize,
        input: &LowRankInput,
        inputs: &[&Tensor],
    ) -> Result<Option<[Tensor; 2]>> {
        let mut touching = self.of(matrix);
        let (Some(active), Some(low_rank), None) = (self.adapters, touching.next(), touching.next()) else {
            return Ok(None);
        };
        if matrix.whole().is_none()
            || buffers + matrix.buffers() + 2 > self.context.device().capabilities().max_storage_buffers as usize
        {
            return Ok(None);
        }
        Ok(Some([self.down(low_rank, input, inputs, &active.scales)?, low_rank.words.clone()]))
    }

    /// y, a product with this matrix, += what each adapter adds. `inputs` are those that `input` says.
    pub fn add(
        &self,
        matrix: &Matrix,
        y: &Tensor,
        Added { factor, soa }: Added,
        input: &LowRankInput,
        inputs: &[&Tensor],
    ) -> Result<()> {
        let Some(active) = self.adapters else { return Ok(()) };
        for low_rank in self.of(matrix) {
            let h = self.down(low_rank, input, inputs, &active.scales)?; // [n, ranks]
            self.context.run(&LowRankAdd { factor, soa }, &[&h, &low_rank.words, y])?;
        }
        Ok(())
    }
}
