//! The generations that decode on one engine: whoever waits for a token drives all of them, a round at a time (continuous batching
//! with a schedule for each few steps: Yu et al. 2022, "Orca").
//!
//! One sequence decodes by its session's own step. Several share one (`sequences.rs`), or where a model has none take turns. Who
//! takes part changes between submits only: what is in flight is read first, then everything about each sequence is known here,
//! and the others go on from that.
//!
//! Invariant: a member's session vouches for the prompt and all tokens that were read but the last.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use web_time::Instant;

use super::context_shift::ContextShift;
use super::loaded::Inner;
use super::run_ahead::{RunAhead, SUBMITS_IN_FLIGHT};
use super::sequences::{Row, Sequences};
use super::session::{ContextShifts, Session};
use crate::error::{Error, Result};
use crate::sampler::{Choosing, Ending, Features, Sampled, SamplerSettings, TokenRules, sampled};
use crate::tensor::{Context, Readback};

/// A sequence with so many tokens that nobody has taken waits until they are.
const MOST_UNREAD: usize = 128;

pub struct Decoding {
    members: Vec<Member>,
    /// What was submitted and not read yet, oldest first.
    flights: VecDeque<Flight>,
    /// Who takes part in the steps.
    seated: Seated,
    run_ahead: RunAhead,
    /// None for a model that decodes one sequence at a time, and while somebody changes who takes part.
    together: Option<Sequences>,
    /// Somebody drives a round.
    driving: bool,
    waiting: Vec<Waker>,
    next_id: u64,
}

/// A generation as far as decoding goes.
struct Member {
    id: u64,
    session: Session,
    sampler: SamplerSettings,
    rules: Rc<TokenRules>,
    features: Features,
    ending: Ending,
    context_shift: Option<ContextShift>,
    /// Steps submitted; step k samples the answer's token k.
    submitted: usize,
    /// Tokens that came back, and the last of them.
    sampled: usize,
    last: Option<u32>,
    /// Of these, what nobody has taken.
    unread: VecDeque<Sampled>,
    /// Too many of them.
    is_paused: bool,
    error: Option<Error>,
}

struct Flight {
    readback: Readback,
    rows: Vec<FlightRow>,
}

/// Whose tokens come back, from which step on and of how many steps.
struct FlightRow {
    id: u64,
    first: usize,
    steps: usize,
    /// Whether log probabilities come with them: of how many of the most probable tokens.
    logprobs: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Seated {
    Nobody,
    Alone(u64),
    Together(Vec<u64>),
    InTurns(Vec<u64>),
}

impl Seated {
    fn ids(&self) -> &[u64] {
        match self {
            Self::Nobody => &[],
            Self::Alone(id) => std::slice::from_ref(id),
            Self::Together(ids) | Self::InTurns(ids) => ids,
        }
    }
}

impl Member {
    fn is_over(&self) -> bool {
        self.sampled >= self.ending.steps
            || self.last.is_some_and(|last| last == u32::MAX || self.ending.stops.contains(&last))
    }

    /// Whether it takes part in more steps.
    fn goes_on(&self) -> bool {
        !self.is_paused && self.error.is_none() && !self.is_over() && self.submitted < self.ending.steps
    }

    /// Steps that the context has room for.
    fn room(&self) -> usize {
        // Step k takes the answer's token k - 1 in; all that were read but the last stand in the context.
        let taken_in = self.session.tokens().len() + self.submitted - self.sampled.max(1);
        self.session.capacity().saturating_sub(taken_in)
    }

    /// Takes what was read back in.
    fn arrived(&mut self, sampled: Vec<Sampled>) {
        for sampled in sampled {
            // What a step past the end left in the ring is of another time.
            if self.is_over() {
                break;
            }
            if let Some(last) = self.last.replace(sampled.token) {
                // The step that gave this one has taken the last one into the cache.
                self.session.decoded(last);
            }
            self.sampled += 1;
            self.unread.push_back(sampled);
        }
        self.is_paused |= self.unread.len() >= MOST_UNREAD;
    }
}

impl Decoding {
    /// `together` makes steps of several sequences.
    pub fn new(together: Option<Sequences>) -> Self {
        Self {
            members: Vec::new(),
            flights: VecDeque::new(),
            seated: Seated::Nobody,
            run_ahead: RunAhead::default(),
            together,
            driving: false,
            waiting: Vec::new(),
            next_id: 0,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.members.is_empty()
    }

    /// Takes a session in that has just taken in its prompt and sampled step 0, whose token `first` brings.
    pub fn join(
        &mut self,
        session: Session,
        sampler: &SamplerSettings,
        rules: &Rc<TokenRules>,
        ending: Ending,
        context_shift: Option<ContextShift>,
        first: Readback,
    ) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        if self.members.is_empty() {
            self.flights.clear();
            self.run_ahead = RunAhead::default();
            // Its session goes on by itself, before its first token is read.
            self.seated = Seated::Alone(id);
        }
        let row = FlightRow { id, first: 0, steps: 1, logprobs: session.logprobs() };
        self.flights.push_back(Flight { readback: first, rows: vec![row] });
        self.members.push(Member {
            id,
            session,
            sampler: *sampler,
            rules: rules.clone(),
            features: Features::of(sampler, rules),
            ending,
            context_shift,
            submitted: 1,
            sampled: 0,
            last: None,
            unread: VecDeque::new(),
            is_paused: false,
            error: None,
        });
        id
    }

    /// Ends a member and gives its session back. Steps in flight write behind what it vouches for.
    pub fn leave(&mut self, id: u64) -> Option<Session> {
        let index = self.members.iter().position(|member| member.id == id)?;
        let member = self.members.remove(index);
        if self.members.is_empty() && !self.driving {
            self.flights.clear();
            self.seated = Seated::Nobody;
        }
        self.wake();
        Some(member.session)
    }

    fn member(&mut self, id: u64) -> Result<&mut Member> {
        match self.members.iter_mut().find(|member| member.id == id) {
            Some(member) => Ok(member),
            None => bail!(Internal, "a generation decodes that has left"),
        }
    }

    fn wake(&mut self) {
        self.waiting.drain(..).for_each(Waker::wake);
    }

    /// Keeps steps in flight, as far as those who are seated are those who should be.
    fn submit(&mut self, inner: &Inner) -> Result<()> {
        let context = &inner.context;
        while self.flights.len() < SUBMITS_IN_FLIGHT
            && self.seated.ids() == self.wanted()
            && self.seated != Seated::Nobody
        {
            let members: Vec<&Member> = self.in_order(self.seated.ids())?;
            let room = members.iter().map(|member| member.ending.steps - member.submitted).max().unwrap_or(0);
            // Where a context is full, all are read before it is shifted.
            let before_shift = members.iter().map(|member| member.room()).min().unwrap_or(0);
            let steps = self.run_ahead.steps_per_submit().min(room).min(before_shift);
            let firsts: Vec<usize> = members.iter().map(|member| member.submitted).collect();
            let readback = match (&self.seated, &self.together) {
                (Seated::Together(_), Some(together)) => {
                    for _ in 0..steps {
                        together.step(context)?;
                    }
                    together.read_tokens(context, &firsts, steps)?
                }
                _ => {
                    let mut ranges = Vec::new();
                    for member in &members {
                        for _ in 0..steps {
                            member.session.step(context)?;
                        }
                        ranges.extend(member.session.token_ranges(member.submitted, steps));
                    }
                    context.start_readback(&ranges)?
                }
            };
            // A sequence that ends earlier stands still from there on.
            let rows = members
                .iter()
                .map(|member| FlightRow {
                    id: member.id,
                    first: member.submitted,
                    steps,
                    logprobs: member.session.logprobs(),
                })
                .collect();
            self.flights.push_back(Flight { readback, rows });
            let ids = self.seated.ids().to_vec();
            for member in self.members.iter_mut().filter(|member| ids.contains(&member.id)) {
                member.submitted = (member.submitted + steps).min(member.ending.steps);
            }
        }
        Ok(())
    }

    /// Those who should take part.
    fn wanted(&self) -> Vec<u64> {
        let members = self.members.iter().filter(|member| member.goes_on() && member.room() > 0);
        members.map(|member| member.id).collect()
    }

    /// With nothing in flight: shifts the contexts that are full.
    fn make_room(&mut self, inner: &Inner) -> Result<()> {
        for member in self.members.iter_mut().filter(|member| member.goes_on() && member.room() == 0) {
            let Some(ContextShift { sinks }) = member.context_shift else {
                bail!(Internal, "a generation goes on in a full context")
            };
            let dropped = member.session.shift(inner.decoder()?, sinks)?;
            if member.features.adjusts() {
                // Penalties look at what the context still holds, and count what is of the answer.
                let answer_start = member.rules.answer_start;
                let answer_start = answer_start.saturating_sub(dropped).max(sinks).min(answer_start);
                member.rules = Rc::new(TokenRules { answer_start, ..(*member.rules).clone() });
                let Member { session, features, sampler, rules, ending, .. } = member;
                session.choosing()?.configure(&inner.context, 0, *features, sampler, rules, ending)?;
            }
        }
        Ok(())
    }

    pub fn shifts(&self, id: u64) -> ContextShifts {
        let member = self.members.iter().find(|member| member.id == id);
        member.map_or_else(ContextShifts::default, |member| member.session.shifts())
    }

    /// With nothing in flight: gives what mirostat allows those who sat together back to their sessions.
    fn take_surprises_back(&self, context: &Context) -> Result<()> {
        let (Seated::Together(ids), Some(together)) = (&self.seated, &self.together) else { return Ok(()) };
        for (row, id) in ids.iter().enumerate() {
            // Some may have left.
            let member = self.members.iter().find(|member| member.id == *id);
            if let Some(member) = member.filter(|member| member.features.mirostat()) {
                member.session.choosing()?.take_surprise(context, 0, together.choosing(), row)?;
            }
        }
        Ok(())
    }

    fn in_order(&self, ids: &[u64]) -> Result<Vec<&Member>> {
        ids.iter()
            .map(|id| match self.members.iter().find(|member| member.id == *id) {
                Some(member) => Ok(member),
                None => bail!(Internal, "a sequence is seated that has left"),
            })
            .collect()
    }

    /// Hands out what a flight brought: the tokens of each row, in pieces as its ring was read.
    fn arrived(&mut self, rows: &[FlightRow], bytes: &[Vec<u8>]) {
        let mut pieces = bytes.iter();
        for row in rows {
            let sampled = sampled(&mut pieces, row.first, row.steps, row.logprobs);
            if let Ok(member) = self.member(row.id) {
                member.arrived(sampled);
            }
        }
        // A prompt says nothing about how long a step takes.
        let steps = rows.first().map_or(0, |row| if row.first == 0 { 0 } else { row.steps });
        self.run_ahead.arrived(steps, Instant::now());
    }

    /// What went wrong is everybody's: what the GPU holds is not known any more.
    fn fail(&mut self, error: &Error) {
        self.flights.clear();
        self.seated = Seated::Nobody;
        for member in &mut self.members {
            member.error.get_or_insert_with(|| error.clone());
        }
    }
}

/// Held by whoever drives a round.
struct Turn<'a> {
    inner: &'a Inner,
    is_over: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut decoding = self.inner.decoding.borrow_mut();
        if !self.is_over {
            decoding.fail(&err!(Aborted, "the wait for the GPU was given up, and with it the tokens of all sequences"));
        }
        decoding.driving = false;
        decoding.wake();
    }
}

/// The next tokens of a member, at least one.
pub async fn next_tokens(inner: &Inner, id: u64) -> Result<VecDeque<Sampled>> {
    loop {
        let turn = {
            let mut decoding = inner.decoding.borrow_mut();
            let member = decoding.member(id)?;
            if let Some(error) = &member.error {
                return Err(error.clone());
            }
            if !member.unread.is_empty() {
                member.is_paused = false;
                return Ok(std::mem::take(&mut member.unread));
            }
            if member.is_over() {
                bail!(Internal, "a generation is over and waits for tokens");
            }
            if std::mem::replace(&mut decoding.driving, true) { None } else { Some(Turn { inner, is_over: false }) }
        };
        match turn {
            Some(mut turn) => {
                let result = round(inner).await;
                if let Err(error) = &result {
                    inner.decoding.borrow_mut().fail(error);
                }
                turn.is_over = true;
            }
            None => wait(inner, id).await,
        }
    }
}

/// Until there is something for a member, or nobody drives.
async fn wait(inner: &Inner, id: u64) {
    poll_fn(|waiting| {
        let mut decoding = inner.decoding.borrow_mut();
        let has_news = decoding.member(id).map_or(true, |member| !member.unread.is_empty() || member.error.is_some());
        if has_news || !decoding.driving {
            return Poll::Ready(());
        }
        decoding.waiting.push(waiting.waker().clone());
        Poll::Pending
    })
    .await;
}

/// Submits what may be submitted, and waits for the oldest of what is in flight.
async fn round(inner: &Inner) -> Result<()> {
    let oldest = {
        let mut decoding = inner.decoding.borrow_mut();
        decoding.submit(inner)?;
        decoding.flights.pop_front()
    };
    let Some(Flight { readback, rows }) = oldest else { return seat(inner).await };
    let bytes = readback.bytes().await?;
    inner.decoding.borrow_mut().arrived(&rows, &bytes);
    Ok(())
}

/// With nothing in flight: lets those take part who should.
async fn seat(inner: &Inner) -> Result<()> {
    let context = &inner.context;
    let (together, rows, surprises) = {
        let mut decoding = inner.decoding.borrow_mut();
        decoding.run_ahead.pause();
        decoding.take_surprises_back(context)?;
        decoding.make_room(inner)?;
        let wanted = decoding.wanted();
        let mut rows = Vec::with_capacity(wanted.len());
        for member in decoding.in_order(&wanted)? {
            let Some(token) = member.last else { bail!(Internal, "a sequence is seated before its first token came") };
            rows.push(Row {
                sequence: member.session.sequence,
                position: member.session.tokens().len(),
                step: member.sampled,
                token,
                sampler: member.sampler,
                rules: member.rules.clone(),
                ending: member.ending.clone(),
                features: member.features,
                text: if member.features.adjusts() { member.session.tokens().to_vec() } else { Vec::new() },
                logprobs: member.session.logprobs(),
            });
        }
        let together = if rows.len() > 1 { decoding.together.take() } else { None };
        // What they allow themselves now, once there is room for it.
        let surprises: Vec<Option<Choosing>> = decoding
            .in_order(&wanted)?
            .into_iter()
            .map(|member| member.features.mirostat().then(|| member.session.choosing().cloned()).transpose())
            .collect::<Result<_>>()?;
        if together.is_none() {
            for (member, row) in decoding.in_order(&wanted)?.into_iter().zip(&rows) {
                member.session.resume(context, row.token, row.step)?;
            }
        }
        decoding.seated = match (&wanted[..], &together) {
            ([], _) => bail!(Internal, "nobody is left to decode, and somebody waits for tokens"),
            ([id], _) => Seated::Alone(*id),
            (_, Some(_)) => Seated::Together(wanted),
            (_, None) => Seated::InTurns(wanted),
        };
        (together, rows, surprises)
    };
    let Some(mut together) = together else { return Ok(()) };
    let result = together.seat(context, inner.decoder()?, &rows).await.and_then(|()| {
        let with_rows = surprises.iter().enumerate();
        with_rows
            .filter_map(|(row, own)| Some((row, own.as_ref()?)))
            .try_for_each(|(row, own)| together.choosing().take_surprise(context, row, own, 0))
    });
    inner.decoding.borrow_mut().together = Some(together);
    result
}
