//! What a sequence wants of the next submit. A proposer says it, whoever drives the sequences does it, and an acceptor (`accept`) looks
//! at what came of it.

pub mod draft;
pub mod draft_under_grammar;
pub mod forced;
pub mod lookup;
pub mod mask_automaton;
pub mod processor;
pub mod run_ahead;

use std::cell::RefCell;
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;

use super::grammar::GrammarState;
use super::run_ahead::RunAhead;
use super::sequence::Sequence;
use super::verification::Draft;
use crate::error::Result;

/// What a proposer may know of the others: how long steps take, and whether other sequences take part in them.
pub struct Pace<'a> {
    pub run_ahead: &'a RunAhead,
    pub is_shared: bool,
}

pub enum Proposal {
    /// Nothing before what is in flight was read.
    Wait,
    /// Up to this many steps, each of which chooses on the GPU and takes in what the one before chose; with 0 it takes part in the steps of
    /// others.
    Steps { most: usize, masks: Option<Masks> },
    /// A forward pass over the last token, whose logits nobody reads yet.
    TakeIn,
    /// The logits that follow the last token, to the host.
    ReadLogits,
    /// One choice among the logits that are ready, and with `takes_in` the forward pass over what was chosen.
    Single { masks: Option<Masks>, logits: Option<Vec<f32>>, reads_logits: bool, takes_in: bool },
    /// A pass over the last token and a draft, which says what the model chooses after each.
    Draft(Draft),
    /// Tokens that are certain: a pass takes them in.
    Force(Vec<u32>),
    /// What it is takes a while to find out.
    Later(LocalBoxFuture<'static, Result<Proposal>>),
    /// The caller wants no more.
    Cancel,
}

/// The masks that steps choose by.
pub struct Masks {
    pub grammar: Rc<RefCell<GrammarState>>,
    /// The state that the first step chooses in; none where it follows from the step before.
    pub enter: Option<u32>,
}

/// Says what a sequence wants next.
pub trait Proposer {
    /// Asked whenever something may be submitted, also while steps are in flight.
    fn propose(&mut self, sequence: &mut Sequence, pace: &Pace) -> Result<Proposal>;

    /// There is time while the GPU works.
    fn meanwhile(&mut self) -> Result<()> {
        Ok(())
    }
}
