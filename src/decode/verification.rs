//! Passes that verify a draft: its tokens go through the model at once, and the model says which token it would have chosen after each
//! (greedy). Recorded once for each number of tokens.

use crate::error::Result;
use crate::model::{LayerStates, Logits, Transformer};
use crate::tensor::ops::{Argmax, MatVecSmallBatch};
use crate::tensor::{Context, Desc, Plan, Tensor};

/// The most tokens of a draft. With the token before it, they are as many as can share each read of the weights.
pub const MAX_DRAFT: usize = MatVecSmallBatch::MAX_TOKENS - 1;

/// The passes recorded so far.
#[derive(Default)]
pub struct Verification {
    /// Each with its number of tokens.
    recorded: Vec<(usize, Recorded)>,
}

struct Recorded {
    /// [n] u32: the tokens that the pass takes in.
    tokens: Tensor,
    /// [n] u32: the most probable token after each.
    greedy: Tensor,
    plan: Plan,
}

/// Tokens that may come next.
#[derive(Clone)]
pub enum Draft {
    Known(Vec<u32>),
    /// This many tokens at the beginning of a tensor that nobody has read.
    OnGpu(Tensor, usize),
}

impl Draft {
    pub fn len(&self) -> usize {
        match self {
            Self::Known(ids) => ids.len(),
            Self::OnGpu(_, count) => *count,
        }
    }

    /// The tokens, if the host knows them.
    pub fn known(&self) -> &[u32] {
        match self {
            Self::Known(ids) => ids,
            Self::OnGpu(..) => &[],
        }
    }
}

impl Verification {
    /// Whether passes over `n` tokens are recorded.
    pub fn is_prepared(&self, n: usize) -> bool {
        self.of(n).is_some()
    }

    fn of(&self, n: usize) -> Option<&Recorded> {
        self.recorded.iter().find(|(of, _)| *of == n).map(|(_, recorded)| recorded)
    }

    /// Records passes over `n` tokens, 2 to 8, from position `state[0]` on. Recording runs one over arbitrary tokens.
    pub async fn prepare(
        &mut self,
        transformer: &Transformer,
        state: &Tensor,
        states: &LayerStates,
        n: usize,
    ) -> Result<()> {
        let context = transformer.context();
        let tokens = context.zeros(Desc::u32(&[n]))?;
        let (greedy, plan) = context
            .plan(|| context.run1(&Argmax, &[&transformer.forward(&tokens, state, states, Logits::All)?]))
            .await?;
        self.recorded.push((n, Recorded { tokens, greedy, plan }));
        Ok(())
    }

    /// Runs a pass over `last` and a draft. Returns what to read: the greedy token after each, and the tokens themselves.
    pub fn run(&self, context: &Context, last: u32, draft: &Draft) -> Result<[(&Tensor, std::ops::Range<usize>); 2]> {
        let n = 1 + draft.len();
        let Some(Recorded { tokens, greedy, plan }) = self.of(n) else {
            bail!(Internal, "a pass over {n} tokens that nobody recorded")
        };
        let ids = [&[last], draft.known()].concat();
        context.write(tokens, 0, bytemuck::cast_slice(&ids))?;
        if let Draft::OnGpu(drafted, count) = draft {
            context.copy(drafted, 0..*count, tokens, 1)?;
        }
        context.replay(plan)?;
        Ok([(greedy, 0..n), (tokens, 0..n)])
    }
}
