//! Logits that the caller changes before each choice: they are read back, handed to a function of the caller's, written again, and
//! chosen from on the GPU as any others. So there is a wait for the GPU and one for the caller in every step, which makes this the
//! slow way; nothing runs ahead but the pass over the token that was just chosen.

use std::rc::Rc;

use futures_util::future::LocalBoxFuture;

use super::loaded::Inner;
use super::session::Session;
use crate::error::Result;
use crate::sampler::{Sampled, StepLogprobs};
use crate::tensor::{Readback, Tensor};

/// Changes logits.
pub trait LogitsProcessor {
    /// The logits to choose from in place of `logits`, the model's [vocab_size], from which `tokens` (the prompt and the answer so far)
    /// are followed; `step` of the tokens are of the answer. Bias, penalties and truncation apply to what this gives. None ends
    /// the generation as if it was cancelled.
    fn process(&self, logits: Vec<f32>, tokens: Vec<u32>, step: usize) -> LocalBoxFuture<'_, Result<Option<Vec<f32>>>>;
}

/// What decodes by itself, because its logits are processed.
pub(super) struct Processing {
    session: Session,
    processor: Rc<dyn LogitsProcessor>,
    /// Of how many of the most probable tokens log probabilities are wanted.
    logprobs: Option<usize>,
    /// Behind the prompt, until they are chosen from, and how many tokens the pass took in that gave them.
    first: Option<(Tensor, usize)>,
    /// The logits that follow the last token.
    in_flight: Option<Readback>,
    /// Tokens chosen, and the most there may be.
    steps: usize,
    longest: usize,
}

impl Processing {
    /// From a session that has taken in its prompt, with the `logits` behind it and how many tokens the pass took in that gave them.
    pub fn new(
        session: Session,
        processor: Rc<dyn LogitsProcessor>,
        logprobs: Option<usize>,
        (logits, advance): (Tensor, usize),
        longest: usize,
    ) -> Self {
        Self { session, processor, logprobs, first: Some((logits, advance)), in_flight: None, steps: 0, longest }
    }

    /// The next token, after `last`. None where the caller has cancelled.
    pub async fn next_token(&mut self, engine: &Inner, last: Option<u32>) -> Result<Option<Sampled>> {
        let context = &engine.context;
        // The pass that gave the logits has taken the last token into the cache.
        if let Some(last) = last {
            self.session.decoded(last);
        }
        let (logits, readback) = match (&self.first, self.in_flight.take()) {
            (Some((logits, _)), _) => {
                (logits.clone(), context.start_readback(&[(logits, 0..logits.shape().elements())])?)
            }
            (None, Some(readback)) => (self.session.logits()?.clone(), readback),
            (None, None) => bail!(Internal, "no logits are in flight"),
        };
        let raw: Vec<f32> = match readback.bytes().await?.last() {
            Some(bytes) => bytemuck::pod_collect_to_vec(bytes),
            None => bail!(Internal, "logits were read back without their bytes"),
        };
        if raw.iter().any(|logit| logit.is_nan()) {
            bail!(
                NumericalError,
                "the logits of token {} are not numbers (NaN); the model's weights are broken or overflow",
                self.steps
            );
        }
        let tokens = self.session.tokens().to_vec();
        let Some(processed) = self.processor.process(raw.clone(), tokens, self.steps).await? else { return Ok(None) };
        check(&processed, raw.len(), self.steps)?;
        context.write(&logits, 0, bytemuck::cast_slice(&processed))?;
        match self.first.take() {
            Some((logits, advance)) => self.session.choose_after(context, &logits, advance, false)?,
            None => self.session.choose_step(context, false)?,
        }
        let token = self.session.read_tokens(context, self.steps, 1)?;
        // While the token is on its way: what follows it, unless the kernels see that nothing does.
        if self.steps + 1 < self.longest {
            self.session.forward_step(context)?;
            let logits = self.session.logits()?;
            self.in_flight = Some(context.start_readback(&[(logits, 0..logits.shape().elements())])?);
        }
        let token = match token.bytes().await?.first() {
            Some(bytes) => bytemuck::pod_read_unaligned::<u32>(bytes),
            None => bail!(Internal, "a token was read back without its bytes"),
        };
        self.steps += 1;
        let logprobs = self.logprobs.map(|wanted| StepLogprobs::of(&raw, token, wanted));
        Ok(Some(Sampled { token, logprobs }))
    }

    pub fn end(self) -> Session {
        self.session
    }
}

/// Refuses what can't be chosen from.
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
