//! Logits that the caller changes before each choice. They are read back, passed to the caller's function, and written again; then the GPU
//! chooses from them as usual. So each token waits for the GPU and for the caller. Only the forward pass over the token just chosen runs
//! ahead. Other sequences go on meanwhile.

use std::cell::RefCell;
use std::rc::Rc;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

use super::mask_automaton::single;
use super::{Pace, Proposal, Proposer, forced};
use crate::decode::grammar::GrammarState;
use crate::decode::sequence::Sequence;
use crate::error::Result;

/// Changes logits.
pub trait LogitsProcessor {
    /// Returns the logits to choose from instead of `logits`, the model's [vocab_size] after `tokens` (the prompt and the answer so far).
    /// The last `step` tokens are of the answer. Bias, penalties and truncation apply to the result. None cancels the generation.
    fn process(&self, logits: Vec<f32>, tokens: Vec<u32>, step: usize) -> LocalBoxFuture<'_, Result<Option<Vec<f32>>>>;
}

/// The model's logits for the next choice, once they were read.
pub type RawLogits = Rc<RefCell<Option<Vec<f32>>>>;

pub struct ProcessorProposer {
    pub processor: Rc<dyn LogitsProcessor>,
    pub raw: RawLogits,
    /// A grammar that the choice must also follow.
    pub grammar: Option<Rc<RefCell<GrammarState>>>,
}

impl Proposer for ProcessorProposer {
    fn propose(&mut self, sequence: &mut Sequence, _: &Pace) -> Result<Proposal> {
        if sequence.in_flight > 0 {
            return Ok(Proposal::Wait);
        }
        if let Some(shared) = &self.grammar {
            let grammar = &mut *shared.borrow_mut();
            if grammar.is_worth_a_pass()? {
                *self.raw.borrow_mut() = None;
                return forced::propose(grammar, sequence);
            }
        }
        let step = sequence.steps;
        let Some(raw) = self.raw.borrow().clone() else { return Ok(Proposal::ReadLogits) };
        if raw.iter().any(|logit| logit.is_nan()) {
            bail!(
                NumericalError,
                "the logits of token {step} are not numbers (NaN); the model's weights are broken or overflow"
            );
        }
        let masks = match &self.grammar {
            Some(shared) => Some(single(&mut shared.borrow_mut(), shared, sequence)?),
            None => None,
        };
        let (processor, tokens, vocabulary) = (self.processor.clone(), sequence.slot.tokens().to_vec(), raw.len());
        let processed = async move {
            let Some(logits) = processor.process(raw, tokens, step).await? else { return Ok(Proposal::Cancel) };
            check(&logits, vocabulary, step)?;
            Ok(Proposal::Single { masks, logits: Some(logits), reads_logits: true, takes_in: true })
        };
        Ok(Proposal::Later(processed.boxed_local()))
    }
}

/// Refuses logits that no token can be chosen from.
fn check(processed: &[f32], vocabulary: usize, step: usize) -> Result<()> {
    if processed.len() != vocabulary {
        bail!(
            LogitsProcessor,
            "the logits processor gave {} logits for token {step}, wanted {vocabulary}, one for each token of the vocabulary",
            processed.len()
        );
    }
    if let Some(token) = processed.iter().position(|logit| logit.is_nan() || *logit == f32::INFINITY) {
        bail!(
            NumericalError,
            "the logits processor made the logit of token id {token} {} for token {step}, wanted numbers below Infinity",
            processed[token]
        );
    }
    if processed.iter().all(|logit| *logit == f32::NEG_INFINITY) {
        bail!(NumericalError, "the logits processor left nothing to choose for token {step}: all logits are -Infinity");
    }
    Ok(())
}
