//! Where the tokens of a pass are: consecutive in one sequence, or each in a sequence of its own. `placement.wgsl` is the same
//! for kernels.

use crate::error::Result;
use crate::gpu::Define;
use crate::tensor::Desc;

/// The shape of the state decides: [4] for one sequence, [tokens, 4] for a sequence per token. Its words are the position of the
/// first token, the step, whether the sequence has stopped, and its index in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tensor::ops) enum Placement {
    Consecutive,
    Sequences,
}

impl Placement {
    pub fn of(op: &str, state: Desc, tokens: usize) -> Result<Self> {
        match *state.shape.dims() {
            [4] => Ok(Self::Consecutive),
            [rows, 4] if rows == tokens => Ok(Self::Sequences),
            _ => bail!(ShapeMismatch, "{op}: state {}, wanted [4], or [{tokens}, 4] for sequences", state.shape),
        }
    }

    /// Positions of a sequence and elements of each in a cache [capacity, columns] or [sequences, capacity, columns].
    pub fn cache(self, op: &str, cache: Desc) -> Result<(usize, usize)> {
        match (self, cache.shape.dims()) {
            (Self::Consecutive, [capacity, columns]) | (Self::Sequences, [_, capacity, columns]) => {
                Ok((*capacity, *columns))
            }
            _ => bail!(ShapeMismatch, "{op}: a cache {} for {self:?} tokens", cache.shape),
        }
    }

    /// The length of a sequence's state in a tensor [len] or [sequences, len]; a single sequence may have either.
    pub fn state_len(self, op: &str, state: Desc) -> Result<usize> {
        match (self, state.shape.dims()) {
            (Self::Consecutive, [len] | [1, len]) | (Self::Sequences, [_, len]) => Ok(*len),
            _ => bail!(ShapeMismatch, "{op}: a state {} for {self:?} tokens", state.shape),
        }
    }

    /// The consecutive tokens of each sequence.
    pub fn runs(self, tokens: usize) -> Vec<std::ops::Range<usize>> {
        match self {
            Self::Consecutive => std::iter::once(0..tokens).collect(),
            Self::Sequences => (0..tokens).map(|token| token..token + 1).collect(),
        }
    }

    pub fn defines(self) -> Vec<(&'static str, Define)> {
        match self {
            Self::Consecutive => vec![],
            Self::Sequences => vec![("SEQUENCES", Define::Flag)],
        }
    }

    pub fn position(self, state: &[u32], token: usize) -> usize {
        match self {
            Self::Consecutive => state[0] as usize + token,
            Self::Sequences => state[token * 4] as usize,
        }
    }

    pub fn has_stopped(self, state: &[u32], token: usize) -> bool {
        match self {
            Self::Consecutive => state[2] != 0,
            Self::Sequences => state[token * 4 + 2] != 0,
        }
    }

    /// The positions that a token attends to.
    pub fn length(self, state: &[u32], token: usize, capacity: usize) -> usize {
        if self.has_stopped(state, token) { 0 } else { (self.position(state, token) + 1).min(capacity) }
    }

    /// The row of the cache at which a token's sequence begins.
    pub fn first_row(self, state: &[u32], token: usize, capacity: usize) -> usize {
        match self {
            Self::Consecutive => 0,
            Self::Sequences => state[token * 4 + 3] as usize * capacity,
        }
    }
}
