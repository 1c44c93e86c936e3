//! Proposals of a model whose per-layer embeddings stay in files. The row of a token is read before a pass takes the token in. So each token is chosen, read
//! back, and then taken in: nothing runs ahead.

use std::cell::RefCell;
use std::rc::Rc;

use futures_util::FutureExt;

use super::{Pace, Proposal, Proposer};
use crate::decode::sequence::Sequence;
use crate::decode::verification::Draft;
use crate::error::Result;
use crate::model::{RowCache, RowLease};

/// Asks another proposer, and holds the rows of what it proposes.
pub struct WithRows {
    inner: Box<dyn Proposer>,
    cache: Rc<RowCache>,
    held: Rc<RefCell<Held>>,
}

#[derive(Default)]
struct Held {
    /// The rows of the last proposal, until it was submitted.
    rows: Option<RowLease>,
    /// Certain tokens whose rows are there now.
    forced: Option<Vec<u32>>,
}

impl WithRows {
    pub fn new(inner: Box<dyn Proposer>, cache: Rc<RowCache>) -> Self {
        Self { inner, cache, held: Rc::default() }
    }
}

impl Proposer for WithRows {
    fn propose(&mut self, sequence: &mut Sequence, pace: &Pace) -> Result<Proposal> {
        if let Some(tokens) = self.held.borrow_mut().forced.take() {
            return Ok(Proposal::Force(tokens));
        }
        self.held.borrow_mut().rows = None;
        if sequence.in_flight > 0 {
            return Ok(Proposal::Wait);
        }
        let (last, needs_pass) = (sequence.last, sequence.logits.is_none());
        let proposal = one_step(self.inner.propose(sequence, pace)?, needs_pass);
        if !matches!(proposal, Proposal::Later(_)) && taken_in(&proposal, last, needs_pass)?.is_empty() {
            return Ok(proposal);
        }
        let (cache, held) = (self.cache.clone(), self.held.clone());
        let with_rows = async move {
            let proposal = match proposal {
                Proposal::Later(proposal) => one_step(proposal.await?, needs_pass),
                proposal => proposal,
            };
            hold(&cache, &held, proposal, last, needs_pass).await
        };
        Ok(Proposal::Later(with_rows.boxed_local()))
    }

    fn meanwhile(&mut self) -> Result<()> {
        self.inner.meanwhile()
    }
}

/// A choice or a pass, where the proposal has several of them.
fn one_step(proposal: Proposal, needs_pass: bool) -> Proposal {
    match proposal {
        Proposal::Steps { .. } if needs_pass => Proposal::TakeIn,
        Proposal::Single { masks, logits, .. } => {
            Proposal::Single { masks, logits, reads_logits: false, takes_in: false }
        }
        proposal => proposal,
    }
}

/// The tokens that a proposal's pass takes in; none if it has no pass.
fn taken_in(proposal: &Proposal, last: u32, needs_pass: bool) -> Result<Vec<u32>> {
    Ok(match proposal {
        Proposal::TakeIn | Proposal::ReadLogits if needs_pass => vec![last],
        Proposal::Draft(Draft::Known(ids)) | Proposal::Force(ids) => [&[last], &ids[..]].concat(),
        Proposal::Draft(_) => {
            bail!(Internal, "a draft whose tokens nobody has read, and their embeddings are in a file")
        }
        _ => Vec::new(),
    })
}

async fn hold(
    cache: &Rc<RowCache>,
    held: &Rc<RefCell<Held>>,
    proposal: Proposal,
    last: u32,
    needs_pass: bool,
) -> Result<Proposal> {
    let tokens = taken_in(&proposal, last, needs_pass)?;
    if !tokens.is_empty() {
        let rows = cache.hold(&tokens).await?;
        held.borrow_mut().rows = Some(rows);
    }
    // Tokens that are certain are taken in when the proposer is asked again.
    Ok(match proposal {
        Proposal::Force(tokens) => {
            held.borrow_mut().forced = Some(tokens);
            Proposal::Wait
        }
        proposal => proposal,
    })
}
