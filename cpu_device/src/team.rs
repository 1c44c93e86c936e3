//! Several threads and their memory, in which weights are: a wasm of its own, whose memory is not the engine's.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use wgpu::wgt::WasmNotSendSync;

use super::kernel::Problem;

/// Where bytes of a team are: in its upper half which of the team's memories, in its lower one the address there. 0 is nowhere.
pub type TeamAddress = u64;

/// Which of a team's memories it is in.
pub fn memory_of(at: TeamAddress) -> u32 {
    (at >> u32::BITS) as u32
}

/// A matrix of weights in a team's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TeamMatrix {
    /// Where it begins.
    pub at: TeamAddress,
    /// The `ggml_type` of its format.
    pub gguf_type: u32,
    /// It is packed for products with activations of 8 bits.
    pub is_packed: bool,
    /// Its rows.
    pub rows: usize,
    /// Its columns.
    pub columns: usize,
}

/// Attention as words and bytes (`Sent` of the crate `rillm-cpu-kernels`).
#[derive(Clone, Copy, Debug)]
pub struct TeamAttention<'a> {
    /// What it is.
    pub words: &'a [u32],
    /// Queries.
    pub q: &'a [f32],
    /// Rows of the keys, unless `places` says where they are.
    pub keys: &'a [u8],
    /// Rows of the values, unless `places` says where they are.
    pub values: &'a [u8],
    /// Where the keys and the values are in one of the team's memories, or 0.
    pub places: [TeamAddress; 2],
    /// What is added to scores.
    pub numbers: &'a [f32],
}

/// A feed-forward with two packed matrices in one of a team's memories.
#[derive(Clone, Copy, Debug)]
pub struct TeamFeedForward<'a> {
    /// [inner, columns], or [2 · inner, columns] with gates first.
    pub up: TeamMatrix,
    /// [outputs, inner].
    pub down: TeamMatrix,
    /// The function between them (`Activation::words` of the crate `rillm-cpu-kernels`).
    pub activation: [u32; 2],
    /// Whether it is that of gates.
    pub is_gated: bool,
    /// Activations [tokens, columns].
    pub x: &'a [f32],
    /// What is added to a token's first products, or nothing.
    pub bias: &'a [f32],
}

impl TeamFeedForward<'_> {
    /// How many tokens there are.
    pub fn tokens(&self) -> usize {
        self.x.len().checked_div(self.up.columns).unwrap_or(0)
    }

    /// Both matrices, by their addresses in their memory, and the rest but the numbers, as `feed_forward` of the crate `rillm-cpu-team` takes them.
    /// `None` if a number has more than 32 bits.
    pub fn words(&self) -> Option<[u32; 12]> {
        let Self { up, down, activation: [kind, number], .. } = *self;
        let word = |number: usize| u32::try_from(number).ok();
        let [of_up, of_down] = [up, down].map(|TeamMatrix { at, gguf_type, rows, columns, .. }| {
            Some([at as u32, gguf_type, word(rows)?, word(columns)?])
        });
        let ([a, b, c, d], [e, f, g, h]) = (of_up?, of_down?);
        Some([a, b, c, d, e, f, g, h, word(self.tokens())?, u32::from(self.is_gated), kind, number])
    }
}

/// Threads that multiply and attend, and their memory.
pub trait Team: Debug + WasmNotSendSync {
    /// Zeros in one memory, at an address that is a multiple of 16. `None` if there is no room.
    fn allocate(&self, bytes: usize) -> Option<TeamAddress>;

    /// Gives back what `allocate` gave for these bytes.
    fn release(&self, at: TeamAddress, bytes: usize);

    /// Overwrites bytes.
    fn write(&self, at: TeamAddress, bytes: &[u8]) -> Result<(), Problem>;

    /// Copies bytes from there.
    fn read(&self, at: TeamAddress, bytes: &mut [u8]) -> Result<(), Problem>;

    /// Packs rows of a file to their place in a packed matrix of zeros.
    fn pack(&self, matrix: TeamMatrix, first: usize, count: usize, file: &[u8]) -> Result<(), Problem>;

    /// The products of rows with activations [tokens, columns], written to `out` [tokens, rows]. Of a packed matrix rows begin and end with a group.
    fn multiply(&self, matrix: TeamMatrix, rows: Range<usize>, x: &[f32], out: &mut [f32]) -> Result<(), Problem>;

    /// Attention: sums and totals, as long as its words say.
    fn attend(&self, attention: TeamAttention<'_>, sums: &mut [f32], totals: &mut [f32]) -> Result<(), Problem>;

    /// A feed-forward, written to `out` [tokens, outputs].
    fn feed_forward(&self, feed_forward: TeamFeedForward<'_>, out: &mut [f32]) -> Result<(), Problem>;

    /// A row as floats.
    fn row(&self, matrix: TeamMatrix, row: usize, out: &mut [f32]) -> Result<(), Problem>;

    /// How many work at once, the caller among them.
    fn threads(&self) -> usize;

    /// Bytes of all memories that it may have.
    fn most_bytes(&self) -> u64;
}

/// Bytes in a team's memory, which are given back when the last handle is gone.
#[derive(Debug)]
pub struct TeamBytes {
    team: Arc<dyn Team>,
    at: TeamAddress,
    bytes: usize,
}

impl TeamBytes {
    /// Zeros; `None` if there is no room.
    pub fn new(team: &Arc<dyn Team>, bytes: usize) -> Option<Self> {
        Some(Self { team: team.clone(), at: team.allocate(bytes)?, bytes })
    }

    /// Whose they are.
    pub fn team(&self) -> &dyn Team {
        &*self.team
    }

    /// Where the first is.
    pub fn at(&self) -> TeamAddress {
        self.at
    }

    /// How many there are.
    pub fn size(&self) -> usize {
        self.bytes
    }
}

impl Drop for TeamBytes {
    fn drop(&mut self) {
        self.team.release(self.at, self.bytes);
    }
}
