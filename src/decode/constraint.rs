//! What holds an answer to a grammar, as decoding sees it.

use crate::error::Result;

/// Where in a grammar an answer stands.
pub trait Constraint {
    /// Takes tokens in as long as they are allowed: if some are forced, these alone; where the answer may end, what ends it.
    fn advance(&mut self, tokens: &[u32]) -> Result<Advance>;

    /// The tokens that may follow, as bits, the first token's the lowest of the first word.
    fn mask(&mut self, bits: &mut [u32]) -> Result<()>;

    /// The same place once more, to look ahead from; None if that can't be had.
    fn fork(&self) -> Result<Option<Box<dyn Constraint>>>;
}

/// What became of some tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advance {
    /// How many of them were allowed; these are taken in.
    pub taken: usize,
    /// The only tokens that may follow, one after the other, as far as the grammar leaves no choice. They are not taken in.
    pub forced: Vec<u32>,
    /// Nothing but the end may follow, or it has come.
    pub is_complete: bool,
}

/// What tokens stand for.
pub trait TokenBytes {
    /// The bytes of a token, a control token's as it is written; none of one that the vocabulary does not have.
    fn bytes(&self, token: u32) -> &[u8];
}
