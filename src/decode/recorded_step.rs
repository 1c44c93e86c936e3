//! The forward pass of a slot's decode step, recorded: without adapters, and with those that ran last. Both write the same logits.

use crate::error::Result;
use crate::model::adapters::ActiveAdapters;
use crate::model::{LayerStates, Logits, Transformer};
use crate::tensor::{Context, Plan, Tensor};

pub struct RecordedStep {
    /// [1, vocab_size]
    pub logits: Tensor,
    plain: Plan,
    adapted: Option<(ActiveAdapters, Plan)>,
}

impl RecordedStep {
    /// Records the step of `token` [1] at the position in `state` [4], without adapters. Recording runs it.
    pub async fn new(transformer: &Transformer, token: &Tensor, state: &Tensor, states: &LayerStates) -> Result<Self> {
        let forward = || transformer.forward(token, state, states, Logits::Last);
        let (logits, plain) = transformer.context().plan(forward).await?;
        Ok(Self { logits, plain, adapted: None })
    }

    /// Whether the step with these adapters is recorded; their scales are no part of it.
    pub fn has(&self, adapters: &ActiveAdapters) -> bool {
        self.adapted.as_ref().is_some_and(|(recorded, _)| recorded.is_same(adapters))
    }

    /// Records the step with the adapters of `states`, in place of that with others. Recording runs it.
    pub async fn record(
        &mut self,
        transformer: &Transformer,
        token: &Tensor,
        state: &Tensor,
        states: &LayerStates,
    ) -> Result<()> {
        self.adapted = None;
        let Some(adapters) = states.adapters() else { return Ok(()) };
        let context = transformer.context();
        let forward = || {
            let logits = transformer.forward(token, state, states, Logits::Last)?;
            context.copy(&logits, 0..logits.shape().elements(), &self.logits, 0)
        };
        let ((), plan) = context.plan(forward).await?;
        self.adapted = Some((adapters.clone(), plan));
        Ok(())
    }

    /// Drops the step with adapters that were unloaded.
    pub fn forget_unloaded(&mut self) {
        if self.adapted.as_ref().is_some_and(|(active, _)| active.has_unloaded()) {
            self.adapted = None;
        }
    }

    /// Runs the step with these adapters, or without any.
    pub fn replay(&self, context: &Context, adapters: Option<&ActiveAdapters>) -> Result<()> {
        match (adapters, &self.adapted) {
            (None, _) => context.replay(&self.plain),
            (Some(_), Some((_, adapted))) => context.replay(adapted),
            (Some(_), None) => bail!(Internal, "a step with adapters that nobody recorded"),
        }
    }
}
