//! Tokens that are chosen one by one, each by the grammar's own mask.

use std::collections::VecDeque;

use web_time::Instant;

use super::automaton::Wanted;
use super::{Constrained, From, Logits, Way};
use crate::engine::loaded::Inner;
use crate::error::Result;
use crate::sampler::{Sampled, sampled};

impl Constrained {
    /// Chooses one token, and waits for it.
    pub(super) async fn choose(
        &mut self,
        engine: &Inner,
        longest: usize,
        tokens: &mut VecDeque<Sampled>,
    ) -> Result<()> {
        let context = &engine.context;
        let logits = std::mem::replace(&mut self.logits, Logits::None);
        if matches!(logits, Logits::None) {
            self.go_back(engine)?;
            self.session.forward_step(context)?;
            self.session.decoded(self.last);
            self.last_is_in = true;
        }
        // The GPU begins before the mask is there.
        context.device().flush();
        self.look()?;
        // Where steps will not run ahead, nobody asks what was learned.
        let learns = self.way != Way::StepByStep(None);
        let state = if learns {
            self.state()?
        } else {
            self.automaton.scratch(Wanted::of(&self.forced, &self.allowed), &mut self.uploaded)
        };
        self.enter(engine, state)?;
        match logits {
            Logits::Pass(logits, ids) => self.session.choose_after(context, &logits, ids, true)?,
            _ => self.session.choose_step(context, true)?,
        }
        let readback = self.session.read_tokens(context, self.steps, 1)?;
        let goes_on = self.steps + 1 < longest;
        if goes_on {
            // In a submit of its own: the token is on its way here while this runs.
            self.session.forward_step(context)?;
            context.device().flush();
        }
        let bytes = readback.bytes().await?;
        if self.way == Way::StepByStep(None) {
            self.run_ahead.arrived(1, Instant::now());
        }
        let Some(chosen) = sampled(&mut bytes.iter(), self.steps, 1, self.session.logprobs()).pop() else {
            bail!(Internal, "a read-back of one token gave none")
        };
        let token = chosen.token;
        tokens.push_back(chosen);
        if token == u32::MAX {
            return Ok(());
        }
        self.counts.forced += usize::from(!self.forced.is_empty());
        self.advance(&[token])?;
        (self.last, self.last_is_in) = (token, false);
        self.from = if learns { From::State(state, token) } else { From::Unknown };
        // A token that ends the answer stops the GPU, and is not taken in.
        if goes_on && !self.is_complete {
            self.session.decoded(token);
            (self.logits, self.last_is_in) = (Logits::Step, true);
        }
        Ok(())
    }
}
