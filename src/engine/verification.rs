//! A pass over a few tokens that gives the greedy token after each of them: what verifies a draft. Recorded once for each
//! number of tokens.

use crate::error::Result;
use crate::model::{KvCache, Logits, Transformer};
use crate::tensor::ops::{Argmax, MatVecFew};
use crate::tensor::{Desc, Plan, Readback, Tensor};

/// The passes that were recorded so far.
#[derive(Default)]
pub struct Verification {
    by_tokens: [Option<Recorded>; MatVecFew::MAX_TOKENS + 1],
}

struct Recorded {
    /// [n] u32: what the pass takes in.
    tokens: Tensor,
    /// [n] u32: the most probable token after each.
    greedy: Tensor,
    plan: Plan,
}

/// What may come next.
#[derive(Clone, Copy)]
pub enum Draft<'a> {
    Known(&'a [u32]),
    /// So many tokens at the beginning of a tensor, which nobody has read.
    OnGpu(&'a Tensor, usize),
}

impl<'a> Draft<'a> {
    pub fn len(&self) -> usize {
        match self {
            Self::Known(ids) => ids.len(),
            Self::OnGpu(_, count) => *count,
        }
    }

    /// The tokens, as far as they are known here.
    pub fn known(&self) -> &'a [u32] {
        match self {
            Self::Known(ids) => ids,
            Self::OnGpu(..) => &[],
        }
    }
}

impl Verification {
    /// Runs a pass over `last`, at position `state[0]`, and a draft, 2 to 8 tokens in all. Starts reading what it gives, and what
    /// it took in.
    pub async fn run(
        &mut self,
        transformer: &Transformer,
        state: &Tensor,
        cache: &KvCache,
        last: u32,
        draft: Draft<'_>,
    ) -> Result<Readback> {
        let context = transformer.context();
        let n = 1 + draft.len();
        let Some(recorded) = self.by_tokens.get_mut(n) else {
            bail!(Internal, "{n} tokens are too many to verify at once")
        };
        let write = |tokens: &Tensor| {
            let ids = [&[last], draft.known()].concat();
            context.write(tokens, 0, bytemuck::cast_slice(&ids))?;
            match draft {
                Draft::Known(_) => Ok(()),
                Draft::OnGpu(drafted, count) => context.copy(drafted, 0..count, tokens, 1),
            }
        };
        let recorded = match recorded {
            Some(recorded) => {
                write(&recorded.tokens)?;
                context.replay(&recorded.plan)?;
                recorded
            }
            None => {
                let tokens = context.empty(Desc::u32(&[n]), "draft")?;
                write(&tokens)?;
                // Recording a plan runs it once.
                let (greedy, plan) = context
                    .plan(|| match transformer.forward(&tokens, state, cache, Logits::All)? {
                        Some(logits) => context.run1(&Argmax, &[&logits]),
                        None => bail!(Internal, "a pass over all tokens gave no logits"),
                    })
                    .await?;
                recorded.insert(Recorded { tokens, greedy, plan })
            }
        };
        context.start_readback(&[(&recorded.greedy, 0..n), (&recorded.tokens, 0..n)])
    }
}
