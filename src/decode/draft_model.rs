//! A second, smaller model drafts what the first may say (speculative decoding; Leviathan et al. 2023, Chen et al. 2023). Its greedy tokens
//! stay on the GPU until the first model has verified them.

use std::rc::Rc;

use web_time::Instant;

use super::prefill_pace::PrefillPace;
use super::slot::{Slot, common_prefix};
use crate::error::Result;
use crate::model::{LayerStates, Transformer};
use crate::sampler::{Ending, SamplingParams};
use crate::tensor::Tensor;

/// Up to this many tokens are taken in one by one, by the step that is recorded anyway.
const FEW_TOKENS: usize = 4;

pub struct DraftModel {
    transformer: Transformer,
    slot: Slot,
    pace: PrefillPace,
}

impl DraftModel {
    /// `states` are of one sequence of `capacity` tokens. Compiles a step's kernels.
    pub async fn new(transformer: Transformer, states: LayerStates, capacity: usize) -> Result<Self> {
        let mut slot = Slot::new(&transformer, states, capacity, 0).await?;
        let unending = Ending { stops: vec![], steps: usize::MAX };
        slot.configure(&transformer, &SamplingParams::greedy(), &Rc::default(), &unending).await?;
        Ok(Self { transformer, slot, pace: PrefillPace::default() })
    }

    /// Lets the GPU draft `count` tokens that may follow `sequence` and then `last`. They are at the beginning of the returned tensor.
    /// Returns `None` beyond its context, or after tokens that it does not know.
    pub async fn draft(&mut self, sequence: &[u32], last: u32, count: usize) -> Result<Option<Tensor>> {
        let (slot, transformer) = (&mut self.slot, &self.transformer);
        let known = transformer.config().vocab_size;
        // The last token of the draft is not taken in.
        if sequence.len() + count > slot.capacity() || last as usize >= known {
            return Ok(None);
        }
        let common = slot.recoverable(common_prefix(slot.tokens(), sequence));
        slot.truncate(common);
        let missing = &sequence[slot.tokens().len()..];
        if missing.iter().any(|id| *id as usize >= known) {
            return Ok(None);
        }
        if missing.len() <= FEW_TOKENS {
            for id in missing {
                slot.take_in(transformer, *id)?;
            }
        } else {
            let mut done = 0;
            while done < missing.len() {
                let begin = Instant::now();
                let tokens = self.pace.part_of(missing.len() - done, true);
                slot.prefill(transformer, &missing[done..done + tokens])?;
                done += tokens;
                transformer.context().device().sync().await?;
                self.pace.took(tokens, begin.elapsed());
            }
        }
        let context = transformer.context();
        slot.settle(transformer, 0)?;
        slot.checkpoint(context, 0)?;
        slot.resume(context, last, 0)?;
        slot.decoded(last);
        slot.wrote(count);
        for _ in 0..count {
            slot.step(context)?;
        }
        Ok(Some(slot.ring().clone()))
    }

    /// The first `count` tokens of `draft` were right. It has taken in all but the last.
    pub fn accepted(&mut self, draft: &[u32], count: usize) {
        for token in &draft[..count.min(draft.len().saturating_sub(1))] {
            self.slot.decoded(*token);
        }
    }

    /// To be called after an error, when the contents of its cache are unknown.
    pub fn forget(&mut self) {
        self.slot.distrust();
    }
}
