//! A pass over a few tokens that gives the greedy token after each of them: what verifies a draft. Recorded once for each
//! number of tokens.

use crate::error::Result;
use crate::model::{KvCache, Logits, Transformer};
use crate::tensor::ops::{Argmax, MatVecFew};
use crate::tensor::{Context, Desc, Plan, Readback, Tensor};

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

impl Verification {
    /// Runs a pass over `ids`, 2 to 8, the first at position `state[0]`, and starts reading what it gives.
    pub async fn run(
        &mut self,
        context: &Context,
        transformer: &Transformer,
        state: &Tensor,
        cache: &KvCache,
        ids: &[u32],
    ) -> Result<Readback> {
        let Some(recorded) = self.by_tokens.get_mut(ids.len()) else {
            bail!(Internal, "{} tokens are too many to verify at once", ids.len())
        };
        let bytes: &[u8] = bytemuck::cast_slice(ids);
        let recorded = match recorded {
            Some(recorded) => {
                context.write(&recorded.tokens, 0, bytes)?;
                context.replay(&recorded.plan)?;
                recorded
            }
            None => {
                let tokens = context.empty(Desc::u32(&[ids.len()]), "draft")?;
                context.write(&tokens, 0, bytes)?;
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
        context.start_readback(&[(&recorded.greedy, 0..ids.len())])
    }
}
