//! How a session chooses tokens on the GPU: the settings that kernels read, and the recorded commands of one choice. There are
//! two: Gumbel-max over the whole vocabulary, which is greedy too, and the same over what top-k, top-p and min-p keep.

use crate::error::Result;
use crate::tensor::ops::{
    MaskLogits, SampleHistogram, SampleMerge, SamplePartial, SampleRange, SampleResolve, SampleSplit,
};
use crate::tensor::{Chooser, Context, Desc, Plan, SampleSettings, Tensor};
use crate::text::sampler::SamplerSettings;

pub struct Sampling {
    /// The logits of a decode step, [1, vocab_size].
    logits: Tensor,
    /// [WORDS] u32: `SampleSettings`.
    settings: Tensor,
    target: Target,
    whole: Plan,
    /// Recorded when it is first asked for.
    truncated: Option<Plan>,
    is_truncated: bool,
    masked: Option<Masked>,
}

/// Choices among the tokens that a mask leaves.
struct Masked {
    /// [1, words] u32: a bit for each token.
    allowed: Tensor,
    whole: Plan,
    /// Recorded when it is first asked for.
    truncated: Option<Plan>,
}

/// What ends a sequence on the GPU, so that steps which ran ahead leave the state and the cache as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// Tokens that end it. More than `SampleSettings::MAX_STOPS` are seen by the CPU only.
    pub stops: Vec<u32>,
    /// The most tokens.
    pub steps: usize,
}

/// What a choice is written to.
#[derive(Clone)]
pub struct Target {
    /// [4] u32: position of the next token, step of the generation, whether it has stopped.
    pub state: Tensor,
    /// [1] u32: the token that the next decode step takes in.
    pub token: Tensor,
    /// Sampled tokens by step.
    pub ring: Tensor,
}

impl Sampling {
    /// Records the choice among the logits of a decode step.
    pub async fn new(context: &Context, logits: Tensor, target: Target) -> Result<Self> {
        let settings = context.zeros(Desc::u32(&[SampleSettings::WORDS]))?;
        let ((), whole) = context.plan(|| choose(context, &logits, &settings, &target, 1)).await?;
        Ok(Self { logits, settings, target, whole, truncated: None, is_truncated: false, masked: None })
    }

    /// Sets what the next choices depend on. A plan that is recorded here runs once: it changes the state and the token.
    pub async fn configure(&mut self, context: &Context, settings: &SamplerSettings, ending: &Ending) -> Result<()> {
        self.is_truncated = settings.is_truncated();
        if self.is_truncated && self.truncated.is_none() {
            let choose = || choose_truncated(context, &self.logits, &self.settings, &self.target, 1);
            self.truncated = Some(context.plan(choose).await?.1);
        }
        context.write(&self.settings, 0, bytemuck::cast_slice(&words(settings, ending)))
    }

    /// Chooses among the logits of the decode step: the commands are the same every time.
    pub fn replay(&self, context: &Context) -> Result<()> {
        match &self.truncated {
            Some(truncated) if self.is_truncated => context.replay(truncated),
            _ => context.replay(&self.whole),
        }
    }

    /// Prepares choices among what a mask leaves, by the settings that `configure` got last.
    pub async fn prepare_masks(&mut self, context: &Context) -> Result<()> {
        let (logits, settings, target) = (&self.logits, &self.settings, &self.target);
        let masked = match &mut self.masked {
            Some(masked) => masked,
            None => {
                let (_, vocab_size) = logits.shape().matrix()?;
                let allowed = context.zeros(Desc::u32(&[1, MaskLogits::words(vocab_size)]))?;
                let choose = || choose(context, &mask(context, logits, &allowed)?, settings, target, 1);
                let ((), whole) = context.plan(choose).await?;
                self.masked.insert(Masked { allowed, whole, truncated: None })
            }
        };
        if self.is_truncated && masked.truncated.is_none() {
            let allowed = &masked.allowed;
            let choose = || choose_truncated(context, &mask(context, logits, allowed)?, settings, target, 1);
            masked.truncated = Some(context.plan(choose).await?.1);
        }
        Ok(())
    }

    /// Chooses among the logits of the decode step, from the tokens whose bits are set.
    pub fn replay_masked(&self, context: &Context, allowed: &[u32]) -> Result<()> {
        let masked = self.masked()?;
        context.write(&masked.allowed, 0, bytemuck::cast_slice(allowed))?;
        match &masked.truncated {
            Some(truncated) if self.is_truncated => context.replay(truncated),
            _ => context.replay(&masked.whole),
        }
    }

    /// The same among other logits, of a pass that put `advance` tokens into the KV cache.
    pub fn record_masked(&self, context: &Context, logits: &Tensor, advance: usize, allowed: &[u32]) -> Result<()> {
        let masked = self.masked()?;
        context.write(&masked.allowed, 0, bytemuck::cast_slice(allowed))?;
        self.record(context, &mask(context, logits, &masked.allowed)?, advance)
    }

    fn masked(&self) -> Result<&Masked> {
        self.masked.as_ref().ok_or_else(|| err!(Internal, "a mask before masks were prepared"))
    }

    /// Chooses among other logits, of a pass that put `advance` tokens into the KV cache.
    pub fn record(&self, context: &Context, logits: &Tensor, advance: usize) -> Result<()> {
        match self.is_truncated {
            true => choose_truncated(context, logits, &self.settings, &self.target, advance),
            false => choose(context, logits, &self.settings, &self.target, advance),
        }
    }
}

/// The settings as kernels read them.
pub fn words(settings: &SamplerSettings, ending: &Ending) -> [u32; SampleSettings::WORDS] {
    let choice = if settings.is_truncated() { Chooser::Truncated } else { Chooser::Whole };
    let settings = SampleSettings {
        temperature: if settings.is_greedy() { 0.0 } else { settings.temperature },
        top_k: settings.top_k,
        top_p: settings.top_p,
        min_p: settings.min_p,
        seed: mixed(settings.seed),
    };
    settings.ending(u32::try_from(ending.steps).unwrap_or(u32::MAX), &ending.stops, choice)
}

/// Kernels combine the seed with a token's id by exclusive or: without this, neighbouring seeds, which the choices of a request have,
/// would share their noise among other tokens. The finalizer of SplitMix64 (Steele, Lea, Flood 2014).
fn mixed(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn mask(context: &Context, logits: &Tensor, allowed: &Tensor) -> Result<Tensor> {
    context.run1(&MaskLogits, &[logits, allowed])
}

/// Chooses among the logits of each row, [rows, vocab_size], from the whole vocabulary.
pub fn choose(context: &Context, logits: &Tensor, settings: &Tensor, target: &Target, advance: usize) -> Result<()> {
    let Target { state, token, ring } = target;
    let partial = context.run(&SamplePartial, &[logits, settings, state])?;
    let [values, tokens] = &partial[..] else { bail!(Internal, "sample_partial has two outputs") };
    context.run(&SampleMerge { advance }, &[values, tokens, settings, state, token, ring])?;
    Ok(())
}

/// The same from what is kept of the vocabulary.
pub fn choose_truncated(
    context: &Context,
    logits: &Tensor,
    settings: &Tensor,
    target: &Target,
    advance: usize,
) -> Result<()> {
    let Target { state, token, ring } = target;
    let tally = context.run1(&SampleRange, &[logits])?;
    context.run(&SampleHistogram, &[logits, settings, &tally])?;
    let split = context.run(&SampleSplit, &[logits, settings, state, &tally])?;
    let [values, tokens, border] = &split[..] else { bail!(Internal, "sample_split has three outputs") };
    context.run(&SampleResolve { advance }, &[logits, settings, values, tokens, border, state, token, ring])?;
    Ok(())
}
