//! What the layers of a model keep of the tokens that they have seen, behind one trait: keys and values (`kv_cache.rs`), which have a
//! part for each position, and recurrent states (`recurrent.rs`), which are of one size however many tokens there were.

mod kv_cache;
mod layers;
mod recurrent;
mod saved;

use std::ops::Range;

pub use kv_cache::{KvCache, KvFormat};
pub use layers::LayerStates;
pub use recurrent::{RecurrentLayer, RecurrentStates};
pub use saved::{restore, save};

use crate::error::Result;
use crate::tensor::{Context, Tensor};

/// The state of one sequence. Passes append to it by themselves: they write for the positions that they are given.
///
/// Lengths are in tokens. A length is *recoverable* if the state can return to it: one with a part for each position to every length, a
/// recurrent one to 0 and to its checkpoints (llama.cpp: `llama_memory_i`; vLLM: `KVCacheSpec`).
pub trait SequenceState {
    /// The greatest recoverable length that is at most `length`.
    fn recoverable(&self, length: usize) -> usize;

    /// The lengths that are recoverable besides 0; None if all are.
    fn checkpoints(&self) -> Option<Vec<usize>>;

    /// Makes `length`, at which the state stands, recoverable. Of many checkpoints some are forgotten.
    fn checkpoint(&self, context: &Context, length: usize) -> Result<()>;

    /// Returns to a recoverable length. Longer ones are recoverable no more.
    fn roll_back(&self, context: &Context, length: usize) -> Result<()>;

    /// Becomes what another sequence of the same memory was at a length that is recoverable there.
    fn copy_from(&self, context: &Context, sequence: usize, length: usize) -> Result<()>;

    /// The greatest length of another sequence, at most `length`, that `copy_from` takes.
    fn copyable(&self, sequence: usize, length: usize) -> usize;

    /// Drops positions of a full context. `rope` tells how the keys of a layer were turned.
    fn shift(&self, context: &Context, shift: Shift, rope: &dyn Fn(usize) -> Result<KeyRope>) -> Result<()>;

    /// Where the parts of a range of positions stand, to be read or written.
    fn positions(&self, range: Range<usize>) -> Result<Vec<Tensor>>;

    /// Where the rest stands at a recoverable length, to be read.
    fn snapshot(&self, length: usize) -> Result<Vec<Tensor>>;

    /// Takes over what `snapshot` gave of a sequence of `length` tokens, or copies of it.
    fn load(&self, context: &Context, length: usize, snapshot: &[Tensor]) -> Result<()>;
}

/// Of `length` positions the first `sinks` stay, and `dropped` after them go: those that follow move up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shift {
    /// Positions at the beginning that stay.
    pub sinks: usize,
    /// Positions after them that go; at least 1.
    pub dropped: usize,
    /// Positions before the shift.
    pub length: usize,
}

/// How rope turned the keys of a layer.
pub struct KeyRope {
    /// [pairs]; none if they were not turned.
    pub frequencies: Option<Tensor>,
    /// Whether the two numbers of a pair stand side by side, and not half a head apart.
    pub interleaved: bool,
}
