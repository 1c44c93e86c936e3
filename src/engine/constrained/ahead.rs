//! Steps that run ahead with guessed masks.

use std::collections::VecDeque;

use web_time::{Duration, Instant};

use super::automaton::{Fit, Wanted};
use super::{Constrained, FOLLOWED_BEFORE, Flight, From, Logits, Way};
use crate::engine::loaded::Inner;
use crate::engine::run_ahead::SUBMITS_IN_FLIGHT;
use crate::error::Result;
use crate::sampler::{Sampled, sampled};

/// Work that is under way at least: about what a page waits for a read-back. More is lost with a wrong guess, so there is as much more as
/// goes well between one and the next.
const LEAST_WORK: Duration = Duration::from_millis(2);
/// How long a fast step takes is known roughly, so no more steps than these are taken for that work.
const MOST_LEAST: usize = 8;

/// Tokens that are looked at ahead while they run.
const FOLLOWED_MEANWHILE: usize = 12;

/// Where fewer tokens go well between wrong guesses, each of which costs about two read-backs, a read-back for each token takes less.
pub(super) const SHORT_RUN: usize = 2;
/// Then so many tokens are chosen step by step, and each time twice as many, up to a limit.
pub(super) const FIRST_SINGLE: usize = 4;
const MOST_SINGLE: usize = 128;

impl Constrained {
    /// Submits what may be submitted, and takes the oldest of what is under way.
    pub(super) async fn run_ahead(
        &mut self,
        engine: &Inner,
        longest: usize,
        tokens: &mut VecDeque<Sampled>,
    ) -> Result<()> {
        self.submit(engine, longest)?;
        self.automaton.look_on(FOLLOWED_MEANWHILE)?;
        let Some(Flight { readback, steps }) = self.flights.pop_front() else {
            bail!(Internal, "nothing to run ahead with")
        };
        let bytes = readback.bytes().await?;
        self.run_ahead.arrived(steps, Instant::now());
        let pieces = &mut bytes.iter();
        let chosen = sampled(pieces, self.steps, steps, self.session.logprobs());
        let states: Vec<u32> = pieces.flat_map(|piece| bytemuck::pod_collect_to_vec::<u8, u32>(piece)).collect();
        let full_automata = self.full_automata;
        for (at, (chosen, state)) in chosen.into_iter().zip(states).enumerate() {
            let token = chosen.token;
            let Some(state) = self.place_of(token, state)? else {
                self.counts.missed += 1;
                self.counts.dropped += steps - at;
                self.drop_flights();
                self.missed();
                // The time until the next one arrives is not that of steps.
                self.run_ahead.pause();
                break;
            };
            tokens.push_back(chosen);
            if token == u32::MAX {
                break;
            }
            self.counts.forced += usize::from(!self.forced.is_empty());
            self.advance(&[token])?;
            if !self.last_is_in {
                // The step that gave this one has taken it in.
                self.session.decoded(self.last);
            }
            (self.last, self.last_is_in) = (token, false);
            self.from = From::State(state, token);
            self.run += 1;
            if self.is_complete || self.steps >= longest {
                break;
            }
            if self.full_automata != full_automata {
                // The states that follow are of one that is gone.
                self.counts.dropped += steps - at - 1;
                break;
            }
        }
        Ok(())
    }

    /// Goes on after a wrong guess.
    fn missed(&mut self) {
        let run = std::mem::take(&mut self.run);
        self.automaton.missed_after(run);
        self.recent_run = (self.recent_run + run) / 2;
        if self.recent_run < SHORT_RUN && !self.way_is_fixed {
            self.way = Way::StepByStep(Some(self.next_single));
            self.next_single = (2 * self.next_single).min(MOST_SINGLE);
            self.recent_run = 2 * SHORT_RUN;
        }
    }

    /// The automaton's state of a choice that was made in `state`, if `token` is what the grammar would have had there.
    fn place_of(&mut self, token: u32, state: u32) -> Result<Option<u32>> {
        self.look()?;
        let wanted = Wanted::of(&self.forced, &self.allowed);
        let is_allowed = token == u32::MAX || wanted.has(token);
        match self.automaton.fit(state, wanted) {
            Fit::Same => Ok(Some(state)),
            Fit::Near if self.best_of_all && is_allowed => Ok(Some(state)),
            Fit::Covers if self.best_of_all && is_allowed => self.state().map(Some),
            _ => Ok(None),
        }
    }

    /// Submits steps: few where guesses are often wrong, and the more the longer all goes well.
    fn submit(&mut self, engine: &Inner, longest: usize) -> Result<()> {
        let context = &engine.context;
        let state = self.state()?;
        self.automaton.explore(state, &*self.constraint, &self.forced, FOLLOWED_BEFORE)?;
        if !self.flights.is_empty() {
            let masking = self.session.choosing()?.masking()?;
            masking.update(context, self.automaton.news(&mut self.uploaded))?;
        }
        let least = SUBMITS_IN_FLIGHT.max(self.run_ahead.steps_of(LEAST_WORK).min(MOST_LEAST));
        let reach = least.max(self.run.max(self.automaton.usual_run()) / 2);
        while self.flights.len() < SUBMITS_IN_FLIGHT {
            let under_way: usize = self.flights.iter().map(|flight| flight.steps).sum();
            let room = (longest - self.steps).min(reach).saturating_sub(under_way);
            let steps = self.run_ahead.steps_per_submit().min(reach.div_ceil(SUBMITS_IN_FLIGHT)).min(room);
            if steps == 0 {
                break;
            }
            let mut whole = steps;
            if self.flights.is_empty() {
                let logits = std::mem::replace(&mut self.logits, Logits::None);
                if matches!(logits, Logits::None) {
                    self.go_back(engine)?;
                }
                self.enter(engine, state)?;
                match logits {
                    Logits::None => {}
                    Logits::Step => {
                        self.session.choose_step(context, true)?;
                        whole -= 1;
                    }
                    Logits::Pass(logits, ids) => {
                        self.session.choose_after(context, &logits, ids, true)?;
                        whole -= 1;
                    }
                }
            }
            for _ in 0..whole {
                self.session.forward_step(context)?;
                self.session.choose_step(context, true)?;
            }
            let first = self.steps + under_way;
            let mut ranges = self.session.token_ranges(first, steps);
            ranges.extend(self.session.choosing()?.masking()?.ranges(0, first, steps));
            let readback = context.start_readback(&ranges)?;
            self.flights.push_back(Flight { readback, steps });
        }
        Ok(())
    }
}
