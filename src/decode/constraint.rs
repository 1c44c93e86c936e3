//! What holds an answer to a grammar, as the decode loop sees it.

use crate::error::Result;

/// Where in a grammar an answer stands.
pub trait Constraint {
    /// Takes tokens in as long as they are allowed. If some are forced, only these are; if the answer may end, so is a token that ends it.
    fn advance(&mut self, tokens: &[u32]) -> Result<Advance>;

    /// The tokens that may follow, as bits: the first token is the lowest bit of the first word.
    fn mask(&mut self, bits: &mut [u32]) -> Result<()>;

    /// A copy of this place, to look ahead from; None if there can be no copy.
    fn fork(&self) -> Result<Option<Box<dyn Constraint>>>;
}

/// What happened to the given tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advance {
    /// How many of them were allowed. These were taken in.
    pub taken: usize,
    /// The only tokens that may follow, in order, as far as the grammar leaves no choice. They are not taken in.
    pub forced: Vec<u32>,
    /// Nothing but the end may follow, or the end has come.
    pub is_complete: bool,
}

/// The bytes of tokens.
pub trait TokenBytes {
    /// The bytes of a token. A control token's are its name. A token that is not in the vocabulary has none.
    fn bytes(&self, token: u32) -> &[u8];
}
