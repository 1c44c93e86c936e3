//! What the layers keep of the tokens that they have seen, as one trait: keys and values (`kv_cache.rs`) and latents (`latents.rs`), which have
//! a part for each position (`rows.rs`), and recurrent states (`recurrent.rs`), whose size does not depend on the number of tokens.

mod kv_cache;
mod latents;
mod layers;
mod mtp;
mod recurrent;
mod rows;
mod saved;
mod source;

use std::ops::Range;

pub use kv_cache::{KvCache, KvFormat};
pub use latents::LatentCache;
pub use layers::LayerStates;
pub use mtp::MtpStates;
pub use recurrent::{RecurrentLayer, RecurrentStates};
pub use rows::StateSize;
pub use saved::{restore, save};
pub use source::SourceStates;

use crate::error::Result;
use crate::tensor::{Context, Tensor};

/// The state of one sequence. Passes append to it themselves: they write at the positions they are given.
///
/// Lengths are in tokens. A length is *recoverable* if the state can return to it. A state with a part for each position can return to
/// every length, a recurrent one to 0 and to its checkpoints (llama.cpp: `llama_memory_i`; vLLM: `KVCacheSpec`). What is written here is that of a
/// state that has nothing but a part for each position: what lies after the end is overwritten before it is read.
pub trait SequenceState {
    /// The greatest recoverable length that is at most `length`.
    fn recoverable(&self, length: usize) -> usize {
        length
    }

    /// The recoverable lengths besides 0; None if all lengths are.
    fn checkpoints(&self) -> Option<Vec<usize>> {
        None
    }

    /// Makes the present length, `length`, recoverable. If there are many checkpoints, some are forgotten.
    fn checkpoint(&self, _context: &Context, _length: usize) -> Result<()> {
        Ok(())
    }

    /// Gives up all checkpoints and their memory, which may not work. Only 0 is recoverable then.
    fn give_up_checkpoints(&self) {}

    /// Returns to a recoverable length. Longer ones are no longer recoverable.
    fn roll_back(&self, _context: &Context, _length: usize) -> Result<()> {
        Ok(())
    }

    /// Copies the state that another sequence of the same memory had at a length that it can recover.
    fn copy_from(&self, context: &Context, sequence: usize, length: usize) -> Result<()>;

    /// The greatest length of another sequence, at most `length`, that `copy_from` accepts.
    fn copyable(&self, _sequence: usize, length: usize) -> usize {
        length
    }

    /// Drops positions of a full context. `rope` tells how a layer's keys were turned.
    fn shift(&self, context: &Context, shift: Shift, rope: &dyn Fn(usize) -> Result<KeyRope>) -> Result<()>;

    /// The parts of a range of positions, to read or write.
    fn positions(&self, range: Range<usize>) -> Result<Vec<Tensor>>;

    /// The rest of the state at a recoverable length, to read.
    fn snapshot(&self, _length: usize) -> Result<Vec<Tensor>> {
        Ok(vec![])
    }

    /// Takes over the result of `snapshot`, or a copy, for a sequence of `length` tokens.
    fn load(&self, _context: &Context, _length: usize, _snapshot: &[Tensor]) -> Result<()> {
        Ok(())
    }
}

/// Of `length` positions the first `sinks` stay, the next `dropped` are removed, and the others move up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shift {
    /// Positions at the beginning that stay.
    pub sinks: usize,
    /// How many positions after them are removed; at least 1.
    pub dropped: usize,
    /// Positions before the shift.
    pub length: usize,
}

/// How rope turned a layer's keys.
pub struct KeyRope {
    /// [pairs]; None if the keys were not turned.
    pub frequencies: Option<Tensor>,
    /// Whether the two elements of a pair are neighbours, instead of half a head apart.
    pub interleaved: bool,
}
