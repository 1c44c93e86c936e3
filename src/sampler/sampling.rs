//! Sampling of a session on the GPU: the settings of its generation, and the recorded commands of one choice. There is a plan for each
//! set of kernels that requests need (`features.rs`).

use std::rc::Rc;

use super::features::{Features, Plans};
use super::kernels::Sampler;
use super::params::SamplingParams;
use super::rules::TokenRules;
use super::target::{Ending, Target};
use crate::error::Result;
use crate::tensor::{Context, Tensor};

pub struct Sampling {
    /// The logits of a decode step, [1, vocab_size].
    logits: Tensor,
    /// The most tokens of a text.
    capacity: usize,
    sampler: Sampler,
    plans: Plans,
    features: Features,
}

impl Sampling {
    /// Records the choice among the logits of a decode step.
    pub async fn new(context: &Context, logits: Tensor, target: Target, capacity: usize) -> Result<Self> {
        let sampler = Sampler::new(context, target)?;
        let features = Features::PLAIN;
        let mut sampling = Self { logits, capacity, sampler, plans: Plans::default(), features };
        sampling.plan(context, features).await?;
        Ok(sampling)
    }

    /// Sets the parameters of the next choices. A plan recorded here runs once, which changes the state and the token.
    pub async fn configure(
        &mut self,
        context: &Context,
        settings: &SamplingParams,
        rules: &Rc<TokenRules>,
        ending: &Ending,
    ) -> Result<()> {
        self.features = Features::of(settings, rules);
        self.plan(context, self.features).await?;
        self.sampler.configure(context, 0, self.features, settings, rules, ending)?;
        self.sampler.start_mu(context, 0, settings)
    }

    /// Records the plan of these features, unless it exists.
    async fn plan(&mut self, context: &Context, features: Features) -> Result<()> {
        let vocab_size = self.logits.shape().matrix()?.1;
        self.sampler.prepare(context, features, vocab_size, self.capacity)?;
        if self.plans.get(features).is_none() {
            let choose = || self.sampler.choose(context, &self.logits, features, 1, true);
            let ((), plan) = context.plan(choose).await?;
            self.plans.keep(features, plan);
        }
        Ok(())
    }

    /// Chooses among the logits of the decode step, always with the same commands. `masked`: from the tokens that the state of the step
    /// allows.
    pub fn replay(&self, context: &Context, masked: bool) -> Result<()> {
        let features = self.features(masked);
        match self.plans.get(features) {
            Some(plan) => context.replay(plan),
            None => bail!(Internal, "a choice that was not recorded: {features:?}"),
        }
    }

    /// Prepares masked choices with the last settings of `configure`. A plan recorded here runs once.
    pub async fn prepare_masks(&mut self, context: &Context) -> Result<()> {
        self.plan(context, self.features.masked()).await
    }

    /// Chooses among other logits, of a pass that put the last `advance` tokens of `text` into the KV cache.
    pub fn record(&self, context: &Context, logits: &Tensor, advance: usize, text: &[u32], masked: bool) -> Result<()> {
        self.set_text(context, text)?;
        self.sampler.choose(context, logits, self.features(masked), advance, false)
    }

    fn features(&self, masked: bool) -> Features {
        if masked { self.features.masked() } else { self.features }
    }

    /// Whether a choice is the best of all allowed tokens by a number that depends on the token alone: then fewer allowed tokens change
    /// nothing, as long as the chosen one is allowed.
    pub fn is_best_of_all(&self) -> bool {
        self.features.is_whole()
    }

    /// Sets the text for penalties, after it was cut or was continued elsewhere.
    pub fn set_text(&self, context: &Context, text: &[u32]) -> Result<()> {
        if self.features.adjusts() { self.sampler.set_text(context, 0, text) } else { Ok(()) }
    }

    /// The tensors of its kernels, with one row.
    pub fn sampler(&self) -> &Sampler {
        &self.sampler
    }
}
