//! What a sequence wants of the next submit. A proposer says it, the scheduler does it, and an acceptor (`accept`) looks at the result.

pub mod draft;
pub mod draft_under_grammar;
pub mod forced;
pub mod lookup;
pub mod mask_automaton;
pub mod mtp;
pub mod processor;
pub mod run_ahead;
pub mod with_rows;

use std::cell::RefCell;
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;

use super::grammar::GrammarState;
use super::run_ahead::RunAhead;
use super::sequence::Sequence;
use super::verification::Draft;
use crate::error::Result;

/// What a proposer knows of other sequences: how long steps take, and whether others take part in them.
pub struct Pace<'a> {
    pub run_ahead: &'a RunAhead,
    pub is_shared: bool,
}

pub enum Proposal {
    /// Nothing until what is in flight has been read.
    Wait,
    /// Up to this many steps, each of which chooses on the GPU and takes in what the one before chose; with 0 it takes part in the steps of
    /// others.
    Steps { most: usize, masks: Option<Masks> },
    /// A forward pass over the last token. Its logits are not read yet.
    TakeIn,
    /// Reads the logits after the last token.
    ReadLogits,
    /// One choice from the logits that are ready, and with `takes_in` the forward pass over the chosen token.
    Single { masks: Option<Masks>, logits: Option<Vec<f32>>, reads_logits: bool, takes_in: bool },
    /// A pass over the last token and a draft; says what the model chooses after each.
    Draft(Draft),
    /// Tokens that are certain. A pass takes them in.
    Force(Vec<u32>),
    /// The proposal takes a while to find.
    Later(LocalBoxFuture<'static, Result<Proposal>>),
    /// The caller wants no more.
    Cancel,
}

/// The masks for the choices of steps.
pub struct Masks {
    pub grammar: Rc<RefCell<GrammarState>>,
    /// The state of the first step; None if it follows from the step before.
    pub enter: Option<u32>,
}

/// Says what a sequence wants next.
pub trait Proposer {
    /// Called whenever something may be submitted, also while steps are in flight.
    fn propose(&mut self, sequence: &mut Sequence, pace: &Pace) -> Result<Proposal>;

    /// Called while the GPU works, so there is time.
    fn meanwhile(&mut self) -> Result<()> {
        Ok(())
    }
}
