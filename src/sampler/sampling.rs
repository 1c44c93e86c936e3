//! How a session chooses tokens on the GPU: the settings of its generation, and the recorded commands of one choice. There is a plan
//! for each set of kernels that requests have asked for (`features.rs`).

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

    /// Sets what the next choices depend on. A plan that is recorded here runs once: it changes the state and the token.
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

    /// Records what was not recorded yet.
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

    /// Chooses among the logits of the decode step: the commands are the same every time. `masked`: from what the state of the step
    /// allows.
    pub fn replay(&self, context: &Context, masked: bool) -> Result<()> {
        let features = self.features(masked);
        match self.plans.get(features) {
            Some(plan) => context.replay(plan),
            None => bail!(Internal, "a choice that nobody recorded: {features:?}"),
        }
    }

    /// Prepares choices among what a mask leaves, by the settings that `configure` got last. What is recorded runs once.
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

    /// Whether a choice looks at all tokens that are left, and is the best of them by a number of each token's own: then fewer tokens
    /// change nothing as long as the chosen one is among them.
    pub fn is_best_of_all(&self) -> bool {
        self.features.is_whole()
    }

    /// Tells what penalties look at that the text is this now: after it was cut back, or went on where this session did not see it.
    pub fn set_text(&self, context: &Context, text: &[u32]) -> Result<()> {
        if self.features.adjusts() { self.sampler.set_text(context, 0, text) } else { Ok(()) }
    }

    /// What its kernels read and write, in one row.
    pub fn sampler(&self) -> &Sampler {
        &self.sampler
    }
}
