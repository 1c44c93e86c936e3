//! Passes that verify a draft: its tokens go through the model at once, and the model says which token it would have chosen after each
//! (greedy). Recorded once for each number of tokens. A model's own head drafts in the same plan.

use crate::error::Result;
use crate::model::adapters::ActiveAdapters;
use crate::model::{LayerStates, Logits, Transformer};
use crate::tensor::ops::{Argmax, MatVecSmallBatch};
use crate::tensor::{Context, Desc, HostTensor, Plan, Tensor};

/// The most tokens of a draft. With the token before it, they are as many as can share each read of the weights.
pub const MAX_DRAFT: usize = MatVecSmallBatch::MAX_TOKENS - 1;

/// The passes recorded so far.
#[derive(Default)]
pub struct Verification {
    recorded: Vec<Recorded>,
}

struct Recorded {
    /// How many tokens it takes in, and whether the head drafts all but the first.
    shape: (usize, bool),
    adapters: Option<ActiveAdapters>,
    /// [4] u32 each: for the head, the states of positions from that of the pass on.
    further: Vec<Tensor>,
    /// [n] u32: the tokens that the pass takes in.
    tokens: Tensor,
    /// [n] u32: the most probable token after each.
    greedy: Tensor,
    plan: Plan,
}

impl Recorded {
    fn is_with(&self, adapters: Option<&ActiveAdapters>) -> bool {
        match (&self.adapters, adapters) {
            (None, None) => true,
            (Some(own), Some(other)) => own.is_same(other),
            _ => false,
        }
    }
}

/// Tokens that may come next.
#[derive(Clone)]
pub enum Draft {
    Known(Vec<u32>),
    /// This many tokens at the beginning of a tensor that nobody has read.
    OnGpu(Tensor, usize),
    /// This many tokens, which the model's own head predicts before the pass.
    Predicted(usize),
}

impl Draft {
    pub fn len(&self) -> usize {
        match self {
            Self::Known(ids) => ids.len(),
            Self::OnGpu(_, count) | Self::Predicted(count) => *count,
        }
    }

    /// The tokens, if the host knows them.
    pub fn known(&self) -> &[u32] {
        match self {
            Self::Known(ids) => ids,
            Self::OnGpu(..) | Self::Predicted(_) => &[],
        }
    }

    /// What a pass over it and the token before it is recorded for.
    fn shape(&self) -> (usize, bool) {
        (1 + self.len(), matches!(self, Self::Predicted(_)))
    }
}

impl Verification {
    /// Whether passes for drafts like this one, with these adapters, are recorded.
    pub fn is_prepared(&self, draft: &Draft, adapters: Option<&ActiveAdapters>) -> bool {
        self.of(draft, adapters).is_some()
    }

    fn of(&self, draft: &Draft, adapters: Option<&ActiveAdapters>) -> Option<&Recorded> {
        let is_it = |recorded: &&Recorded| recorded.shape == draft.shape() && recorded.is_with(adapters);
        self.recorded.iter().find(is_it)
    }

    /// Drops passes with adapters that were unloaded.
    pub fn forget_unloaded(&mut self) {
        self.recorded.retain(|recorded| !recorded.adapters.as_ref().is_some_and(ActiveAdapters::has_unloaded));
    }

    /// Records passes for drafts like this one, of 1 to 7 tokens, from position `state[0]` on. Recording runs one over arbitrary tokens; the
    /// sequence counts as stopped.
    pub async fn prepare(
        &mut self,
        transformer: &Transformer,
        state: &Tensor,
        states: &LayerStates,
        draft: &Draft,
    ) -> Result<()> {
        let context = transformer.context();
        let (n, predicts) = draft.shape();
        let tokens = context.zeros(Desc::u32(&[n]))?;
        let stopped = || context.tensor(&HostTensor::u32(&[4], &[0, 0, 1, 0]));
        let further = (2..n).filter(|_| predicts).map(|_| stopped()).collect::<Result<Vec<Tensor>>>()?;
        let pass = || {
            if predicts {
                transformer.draft(&tokens, state, &further, states)?;
            }
            context.run1(&Argmax, &[&transformer.forward(&tokens, state, states, Logits::All)?])
        };
        let (greedy, plan) = context.plan(pass).await?;
        let adapters = states.adapters().cloned();
        // Of passes with adapters those with the last ones are kept.
        if adapters.is_some() {
            self.recorded.retain(|recorded| recorded.adapters.is_none() || recorded.is_with(adapters.as_ref()));
        }
        self.recorded.push(Recorded { shape: (n, predicts), adapters, further, tokens, greedy, plan });
        Ok(())
    }

    /// Runs a pass over `last`, at `position` of the sequence with this number, and a draft. Returns what to read: the greedy token after
    /// each, and the tokens themselves.
    pub fn run(
        &self,
        context: &Context,
        (position, sequence): (usize, usize),
        last: u32,
        draft: &Draft,
        adapters: Option<&ActiveAdapters>,
    ) -> Result<[(&Tensor, std::ops::Range<usize>); 2]> {
        let n = 1 + draft.len();
        let Some(Recorded { further, tokens, greedy, plan, .. }) = self.of(draft, adapters) else {
            bail!(Internal, "a pass over {n} tokens that nobody recorded")
        };
        for (number, state) in further.iter().enumerate() {
            let words = [(position + number) as u32, 0, 0, sequence as u32];
            context.write(state, 0, bytemuck::cast_slice(&words))?;
        }
        let ids = [&[last], draft.known()].concat();
        context.write(tokens, 0, bytemuck::cast_slice(&ids))?;
        if let Draft::OnGpu(drafted, count) = draft {
            context.copy(drafted, 0..*count, tokens, 1)?;
        }
        context.replay(plan)?;
        Ok([(greedy, 0..n), (tokens, 0..n)])
    }
}
