//! The one decode loop: proposals → a submit → its results → what is accepted of them. A caller that waits for a token drives all sequences
//! (continuous batching with a new schedule every few steps: Yu et al. 2022, "Orca").
//!
//! All state of a round is here and none is in a future, so it does not matter which caller polls, or stops polling.

use std::cell::{RefCell, RefMut};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};

use futures_util::future::LocalBoxFuture;
use web_time::{Duration, Instant};

use super::accept::{Acceptor, Outcome};
use super::batch::Batch;
use super::flight::{Flight, Part};
use super::proposal::{Pace, Proposal, Proposer};
use super::run_ahead::RunAhead;
use super::sequence::{Cursor, Sequence};
use super::slot::Slot;
use super::verification::Verification;
use crate::error::{Code, Error, Result};
use crate::model::Transformer;
use crate::sampler::Sampled;

/// A sequence waits when this many of its tokens have not been taken.
const MOST_UNREAD: usize = 128;

/// What a sequence gives next.
pub enum Tokens {
    /// At least one.
    Some(VecDeque<Sampled>),
    /// Its grammar leaves nothing but the end.
    Complete,
    /// The caller's logits processor wants no more.
    Cancelled,
}

/// The result of an attempt to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Made,
    /// Waits for the GPU or a caller's function.
    Pending,
    /// There is nothing to do and nothing to wait for.
    Nothing,
}

pub struct Scheduler {
    pub(super) members: Vec<Member>,
    /// Submits that have not been read yet, oldest first.
    pub(super) flights: VecDeque<Flight>,
    is_at_once: bool,
    pub(super) run_ahead: RunAhead,
    /// How long a step took the last time that a sequence decoded.
    last_step: Option<Duration>,
    /// Makes steps of several sequences. None for a model that decodes one at a time.
    pub(super) batch: Option<Batch>,
    /// Plans that are being recorded. Nothing is submitted meanwhile.
    pub(super) preparing: Option<LocalBoxFuture<'static, Prepared>>,
    waiting: Vec<Waker>,
    next_id: u64,
}

/// Plans that were recorded, given back to their owner.
pub enum Prepared {
    Batch(Box<Batch>, Result<()>),
    Verification(u64, Box<Verification>, Result<()>),
}

/// A sequence with its proposer and its acceptor.
pub struct Member {
    pub id: u64,
    pub sequence: Sequence,
    pub proposer: Box<dyn Proposer>,
    acceptor: Box<dyn Acceptor>,
    pub proposal: ProposalState,
    error: Option<Error>,
    is_distrusted: bool,
}

/// What is known of a member's next proposal.
#[derive(Default)]
pub enum ProposalState {
    #[default]
    None,
    /// The proposer has not decided yet (`Proposal::Later`).
    Pending(LocalBoxFuture<'static, Result<Proposal>>),
    /// Can be submitted.
    Ready(Proposal),
}

impl Member {
    /// Whether it takes part in further steps.
    fn goes_on(&self) -> bool {
        self.error.is_none() && !self.sequence.is_over() && self.sequence.accepted.len() < MOST_UNREAD
    }

    pub fn fail(&mut self, error: Error) {
        self.proposal = ProposalState::None;
        self.error.get_or_insert(error);
    }
}

impl Scheduler {
    /// `is_at_once`: steps are computed in the call that submits them.
    pub fn new(batch: Option<Batch>, is_at_once: bool) -> Self {
        Self {
            members: Vec::new(),
            flights: VecDeque::new(),
            is_at_once,
            run_ahead: RunAhead::new(is_at_once, None),
            last_step: None,
            batch,
            preparing: None,
            waiting: Vec::new(),
            next_id: 0,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.members.is_empty()
    }

    /// How long a step takes, if that is known.
    pub fn step(&self) -> Option<Duration> {
        self.run_ahead.step().or(self.last_step)
    }

    /// Adds a sequence. With `expects_last_pace`, its steps are expected to take as long as the last ones.
    pub fn join(
        &mut self,
        sequence: Sequence,
        proposer: Box<dyn Proposer>,
        acceptor: Box<dyn Acceptor>,
        expects_last_pace: bool,
    ) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        if self.members.is_empty() {
            self.flights.clear();
            self.last_step = self.step();
            self.run_ahead = RunAhead::new(self.is_at_once, self.last_step.filter(|_| expects_last_pace));
        }
        self.members.push(Member {
            id,
            sequence,
            proposer,
            acceptor,
            proposal: ProposalState::None,
            error: None,
            is_distrusted: false,
        });
        id
    }

    /// Removes a member and returns its slot. Steps in flight write only after the slot's tokens.
    pub fn leave(&mut self, id: u64) -> Option<Slot> {
        let index = self.members.iter().position(|member| member.id == id)?;
        let Member { sequence, error, is_distrusted, .. } = self.members.remove(index);
        if self.members.is_empty() {
            self.flights.clear();
        }
        self.batch.iter_mut().for_each(Batch::retry);
        self.forget_unloaded();
        self.wake();
        let mut slot = sequence.slot;
        if error.is_some() || is_distrusted {
            // After an error the contents of the cache are unknown.
            slot.distrust();
        }
        Some(slot)
    }

    /// Drops the recorded steps of several sequences, if none runs.
    pub fn shed(&mut self) {
        if self.members.is_empty() {
            self.batch.iter_mut().for_each(Batch::shed);
        }
    }

    /// Drops steps of several sequences with adapters that were unloaded.
    pub fn forget_unloaded(&mut self) {
        self.batch.iter_mut().for_each(Batch::forget_unloaded);
    }

    /// Lets steps run ahead, or one at a time, whatever the device does.
    #[cfg(test)]
    pub fn set_at_once(&mut self, is_at_once: bool) {
        self.is_at_once = is_at_once;
        self.forget_pace();
    }

    /// Forgets how long steps take.
    #[cfg(test)]
    pub fn forget_pace(&mut self) {
        (self.run_ahead, self.last_step) = (RunAhead::new(self.is_at_once, None), None);
    }

    pub fn distrust(&mut self, id: u64) {
        if let Some(member) = self.members.iter_mut().find(|member| member.id == id) {
            member.is_distrusted = true;
        }
    }

    pub fn sequence(&self, id: u64) -> Option<&Sequence> {
        self.members.iter().find(|member| member.id == id).map(|member| &member.sequence)
    }

    fn member(&mut self, id: u64) -> Result<&mut Member> {
        let member = self.members.iter_mut().find(|member| member.id == id);
        member.ok_or_else(|| err!(Internal, "sequence {id} decodes and has left"))
    }

    /// Whether a member's grammar leaves nothing but the end, and all tokens were taken.
    pub fn is_complete(&self, id: u64) -> bool {
        self.sequence(id).is_some_and(|sequence| sequence.is_complete && sequence.accepted.is_empty())
    }

    /// The tokens that a member has for its caller, if there are any.
    pub fn take_tokens(&mut self, id: u64) -> Result<Option<Tokens>> {
        let member = self.member(id)?;
        let sequence = &mut member.sequence;
        if !sequence.accepted.is_empty() {
            return Ok(Some(Tokens::Some(std::mem::take(&mut sequence.accepted))));
        }
        if let Some(error) = &member.error {
            return Err(error.clone());
        }
        Ok(if sequence.is_cancelled {
            Some(Tokens::Cancelled)
        } else if sequence.is_over() {
            Some(Tokens::Complete)
        } else {
            None
        })
    }

    pub fn wake(&mut self) {
        self.waiting.drain(..).for_each(Waker::wake);
    }

    pub fn wait(&mut self, waker: &Waker) {
        self.waiting.push(waker.clone());
    }

    /// Ends all members: after this error the state of the GPU is unknown.
    pub fn fail(&mut self, error: &Error) {
        self.flights.clear();
        for member in &mut self.members {
            member.sequence.cursor = Cursor::Host;
            member.fail(error.clone());
        }
        self.wake();
    }

    /// Does one piece of work, if that is possible now.
    pub fn progress(
        shared: &RefCell<Self>,
        transformer: &Rc<Transformer>,
        task: &mut TaskContext<'_>,
    ) -> Result<Progress> {
        let is_preparing = Self::poll_preparing(shared, task)?;
        let is_asking = Self::poll_proposals(shared, task);
        let mut scheduler = shared.borrow_mut();
        if scheduler.submit(transformer)? || is_preparing == Progress::Made || is_asking == Progress::Made {
            return Ok(Progress::Made);
        }
        match scheduler.poll_flight(task)? {
            Progress::Nothing if is_preparing == Progress::Pending || is_asking == Progress::Pending => {
                Ok(Progress::Pending)
            }
            progress => Ok(progress),
        }
    }

    fn poll_preparing(shared: &RefCell<Self>, task: &mut TaskContext<'_>) -> Result<Progress> {
        let preparing = shared.borrow_mut().preparing.take();
        let Some(mut preparing) = preparing else { return Ok(Progress::Nothing) };
        let prepared = match preparing.as_mut().poll(task) {
            Poll::Pending => {
                shared.borrow_mut().preparing = Some(preparing);
                return Ok(Progress::Pending);
            }
            Poll::Ready(prepared) => prepared,
        };
        let mut scheduler = shared.borrow_mut();
        let result = match prepared {
            Prepared::Batch(batch, result) => {
                scheduler.batch = Some(*batch);
                result
            }
            Prepared::Verification(id, verification, result) => {
                if let Some(member) = scheduler.members.iter_mut().find(|member| member.id == id) {
                    member.sequence.slot.keep_verification(*verification);
                    if let Err(error) = &result
                        && error.code() == Code::OutOfMemory
                    {
                        // Nothing ran, so this concerns nobody else.
                        member.fail(error.clone());
                        return Ok(Progress::Made);
                    }
                }
                result
            }
        };
        result.map(|()| Progress::Made)
    }

    /// Polls the proposals that take a while. A caller's function may run here, so nothing is borrowed meanwhile.
    fn poll_proposals(shared: &RefCell<Self>, task: &mut TaskContext<'_>) -> Progress {
        let mut progress = Progress::Nothing;
        let ids: Vec<u64> = shared.borrow().members.iter().map(|member| member.id).collect();
        let member = |id: u64| {
            let of_id = |members: &mut Vec<Member>| members.iter().position(|member| member.id == id);
            RefMut::filter_map(shared.borrow_mut(), |scheduler| {
                let index = of_id(&mut scheduler.members)?;
                scheduler.members.get_mut(index)
            })
            .ok()
        };
        for id in ids {
            let Some(state) = member(id).map(|mut member| std::mem::take(&mut member.proposal)) else {
                continue;
            };
            let ProposalState::Pending(mut later) = state else {
                if let Some(mut member) = member(id) {
                    member.proposal = state;
                }
                continue;
            };
            let polled = later.as_mut().poll(task);
            let Some(mut member) = member(id) else { continue };
            match polled {
                Poll::Pending => {
                    member.proposal = ProposalState::Pending(later);
                    if progress == Progress::Nothing {
                        progress = Progress::Pending;
                    }
                }
                Poll::Ready(proposal) => {
                    progress = Progress::Made;
                    match proposal {
                        Ok(Proposal::Cancel) => member.sequence.is_cancelled = true,
                        // The proposer is asked again later.
                        Ok(Proposal::Wait) => {}
                        Ok(proposal) => member.proposal = ProposalState::Ready(proposal),
                        Err(error) => member.fail(error),
                    }
                }
            }
        }
        progress
    }

    /// Asks each member without a proposal what it wants next. Tokens that are certain are taken in at once.
    pub(super) fn ask(&mut self, transformer: &Transformer) -> Result<bool> {
        let is_shared = self.batch.is_some() && self.members.iter().filter(|member| member.goes_on()).count() > 1;
        let mut made = false;
        let Self { members, run_ahead, .. } = self;
        for member in members.iter_mut() {
            while member.goes_on() && matches!(member.proposal, ProposalState::None) {
                let sequence = &mut member.sequence;
                if let (true, Some(shift)) = (sequence.is_full(), sequence.params.context_shift) {
                    sequence.shift(transformer, shift)?;
                }
                let epoch = sequence.epoch;
                let pace = Pace { run_ahead, is_shared };
                let proposal = member.proposer.propose(sequence, &pace);
                made |= matches!(proposal, Err(_) | Ok(Proposal::Cancel | Proposal::Later(_)));
                match proposal {
                    Err(error) => member.fail(error),
                    Ok(Proposal::Wait) => break,
                    Ok(Proposal::Cancel) => sequence.is_cancelled = true,
                    Ok(Proposal::Later(later)) => member.proposal = ProposalState::Pending(later),
                    Ok(Proposal::Force(tokens)) => {
                        sequence.force(transformer, tokens)?;
                        run_ahead.pause();
                        made = true;
                    }
                    Ok(proposal) => member.proposal = ProposalState::Ready(proposal),
                }
                if member.sequence.epoch != epoch {
                    run_ahead.pause();
                }
            }
        }
        Ok(made)
    }

    pub(super) fn poll_flight(&mut self, task: &mut TaskContext<'_>) -> Result<Progress> {
        let Self { flights, members, .. } = self;
        let Some(flight) = flights.front_mut() else { return Ok(Progress::Nothing) };
        if !std::mem::replace(&mut flight.is_waited_for, true) {
            for member in members {
                if let Err(error) = member.proposer.meanwhile() {
                    member.fail(error);
                }
            }
        }
        let Poll::Ready(bytes) = flight.bytes.as_mut().poll(task) else { return Ok(Progress::Pending) };
        if let Some(flight) = self.flights.pop_front() {
            self.arrived(flight, &bytes?)?;
        }
        Ok(Progress::Made)
    }

    /// Hands the results of a flight to its members.
    fn arrived(&mut self, flight: Flight, bytes: &[Vec<u8>]) -> Result<()> {
        if !flight.verifies_draft() {
            self.run_ahead.arrived(flight.steps, Instant::now());
        }
        let Flight { parts, .. } = flight;
        let mut pieces = bytes.iter();
        for part in parts {
            let mut own = pieces.by_ref().take(part.pieces);
            let outcome = part.outcome(&mut own);
            own.for_each(drop);
            let Some(member) = self.members.iter_mut().find(|member| member.id == part.id) else { continue };
            let sequence = &mut member.sequence;
            if sequence.epoch != part.epoch || member.error.is_some() {
                continue;
            }
            sequence.in_flight -= part.kind.steps();
            sequence.forwards_in_flight -= part.forwards;
            // Its proposal was made without knowing this result, so it is dropped.
            member.proposal = ProposalState::None;
            if let Err(error) = outcome.and_then(|outcome: Outcome| member.acceptor.accept(sequence, outcome)) {
                member.fail(error);
                continue;
            }
            if member.sequence.epoch != part.epoch {
                // The time until the next tokens arrive is not that of steps.
                self.run_ahead.pause();
            }
        }
        let Self { flights, members, .. } = self;
        let is_live =
            |part: &Part| members.iter().any(|member| member.id == part.id && member.sequence.epoch == part.epoch);
        flights.retain(|flight| flight.parts.iter().any(is_live));
        Ok(())
    }

    pub(super) fn has_room(&self) -> bool {
        self.flights.iter().filter(|flight| !flight.verifies_draft()).count() < self.run_ahead.submits_in_flight()
    }
}
