//! The kernels that choose tokens, for one sequence or for several in a step: which of them a request's settings need, and the tensors
//! that they read. If requested, logits are adjusted first (`sampler/adjustment.rs`), in a tensor of their own. Then a token is chosen
//! from the whole vocabulary (greedy or not), from the tokens that thresholds keep (`sampler/truncation.rs`), or from a band
//! (`sampler/band.rs`).

use super::adjustment::{AdjustLists, DryBreakerWords};
use super::features::Features;
use super::masking::Masking;
use super::ops::{
    AdjustLogits, AdjustMarks, BandMass, BandPartial, DryMarks, MirostatUpdate, SampleBand, SampleHistogram,
    SampleMerge, SamplePartial, SampleRange, SampleResolve, SampleSplit, TypicalBand, TypicalHistogram, TypicalMoments,
    Xtc,
};
use super::params::SamplingParams;
use super::path::SamplerPath;
use super::ring::RING;
use super::row::SamplerRow;
use super::rules::TokenRules;
use super::target::{Ending, Target};
use super::words::{breaker_words, several};
use crate::error::Result;
use crate::tensor::{Context, Desc, Shape, Tensor};

/// The tensors that choices of some sequences read and write. Rows are sequences.
#[derive(Clone)]
pub struct Sampler {
    target: Target,
    /// [rows, WORDS] u32: `SamplerRow`.
    settings: Tensor,
    /// Made on first use.
    adjusting: Option<Adjusting>,
    /// [rows] f32: the surprise that mirostat allows, in bits.
    mu: Option<Tensor>,
    masking: Option<Masking>,
}

/// The tensors for adjusting logits (`sampler/adjustment.rs`).
#[derive(Clone)]
struct Adjusting {
    /// [rows, WORDS] u32: `AdjustLists`.
    lists: Tensor,
    /// [rows, vocab_size] f32.
    biases: Tensor,
    /// [rows, words] u32: DRY's sequence breakers.
    breakers: Tensor,
    /// [rows, capacity] u32: the text by position.
    history: Tensor,
    /// [rows, 2 · vocab_size] u32, zero between steps.
    marks: Tensor,
}

/// The first `rows` rows of a tensor with this number of columns.
fn first(tensor: &Tensor, rows: usize, columns: usize) -> Result<Tensor> {
    tensor.part(0, Shape::from([rows, columns]))
}

/// Columns of a tensor of rows.
fn columns(tensor: &Tensor) -> Result<usize> {
    Ok(tensor.shape().matrix()?.1)
}

impl Sampler {
    /// For the sequences of the target's rows.
    pub fn new(context: &Context, target: Target) -> Result<Self> {
        let rows = target.token.shape().elements();
        let settings = context.zeros(Desc::u32(&[rows, SamplerRow::WORDS]))?;
        Ok(Self { target, settings, adjusting: None, mu: None, masking: None })
    }

    /// Makes the tensors that features need, unless they exist. Texts have at most `capacity` tokens.
    pub fn prepare(&mut self, context: &Context, features: Features, vocab_size: usize, capacity: usize) -> Result<()> {
        let rows = self.target.token.shape().elements();
        let words = |columns: usize| context.zeros(Desc::u32(&[rows, columns]));
        if features.adjusts && self.adjusting.is_none() {
            self.adjusting = Some(Adjusting {
                lists: words(AdjustLists::WORDS)?,
                biases: context.zeros(Desc::f32(&[rows, vocab_size]))?,
                breakers: words(DryBreakerWords::words_of(vocab_size))?,
                history: words(capacity)?,
                marks: words(2 * vocab_size)?,
            });
        }
        if features.masked && self.masking.is_none() {
            self.masking = Some(Masking::new(context, rows, vocab_size)?);
        }
        if features.banded && self.mu.is_none() {
            self.mu = Some(context.zeros(Desc::f32(&[rows]))?);
        }
        Ok(())
    }

    /// The same tensors for the first `rows` sequences.
    pub fn first(&self, rows: usize) -> Result<Self> {
        let adjusting = match &self.adjusting {
            None => None,
            Some(all) => Some(Adjusting {
                lists: first(&all.lists, rows, columns(&all.lists)?)?,
                biases: first(&all.biases, rows, columns(&all.biases)?)?,
                breakers: first(&all.breakers, rows, columns(&all.breakers)?)?,
                history: first(&all.history, rows, columns(&all.history)?)?,
                marks: first(&all.marks, rows, columns(&all.marks)?)?,
            }),
        };
        let mu = self.mu.as_ref().map(|all| all.part(0, Shape::from([rows]))).transpose()?;
        let masking = self.masking.as_ref().map(|all| all.first(rows)).transpose()?;
        let target = Target {
            state: first(&self.target.state, rows, 4)?,
            token: self.target.token.part(0, Shape::from([rows]))?,
            ring: first(&self.target.ring, rows, columns(&self.target.ring)?)?,
        };
        Ok(Self { target, settings: first(&self.settings, rows, SamplerRow::WORDS)?, adjusting, mu, masking })
    }

    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Sets how a sequence chooses, in steps of these features.
    pub fn configure(
        &self,
        context: &Context,
        row: usize,
        features: Features,
        settings: &SamplingParams,
        rules: &TokenRules,
        ending: &Ending,
    ) -> Result<()> {
        let write = |tensor: &Tensor, words: &[u32]| {
            context.write(tensor, row * (tensor.shape().matrix()?.1), bytemuck::cast_slice(words))
        };
        write(&self.settings, &SamplerRow::of(settings, rules, ending).words())?;
        if let Some(adjusting) = self.adjusting.as_ref().filter(|_| features.adjusts) {
            write(&adjusting.lists, &AdjustLists::words(&rules.ends, &several(rules))?)?;
            let vocab_size = columns(&adjusting.biases)?;
            let mut biases = vec![0f32; vocab_size];
            let at = |id: u32| {
                if (id as usize) < vocab_size {
                    Ok(id as usize)
                } else {
                    Err(err!(Internal, "a rule about token {id} of {vocab_size}"))
                }
            };
            for (id, bias) in &rules.biases {
                biases[at(*id)?] += bias;
            }
            for id in rules.banned() {
                biases[at(id)?] = f32::NEG_INFINITY;
            }
            context.write(&adjusting.biases, row * vocab_size, bytemuck::cast_slice(&biases))?;
            if settings.dry.is_on() {
                write(&adjusting.breakers, &breaker_words(&rules.dry_breakers, vocab_size)?)?;
            }
        }
        Ok(())
    }

    /// Starts mirostat as its authors and llama.cpp do.
    pub fn start_mu(&self, context: &Context, row: usize, settings: &SamplingParams) -> Result<()> {
        match (&self.mu, settings.mirostat) {
            (Some(mu), Some(mirostat)) => context.write(mu, row, bytemuck::bytes_of(&(2.0 * mirostat.tau))),
            _ => Ok(()),
        }
    }

    /// The tensors of masked choices, after they were prepared.
    pub fn masking(&self) -> Result<&Masking> {
        self.masking.as_ref().ok_or_else(|| err!(Internal, "a mask before masks were prepared"))
    }

    /// Sets the text before the next step or choice, for adjusting.
    pub fn set_text(&self, context: &Context, row: usize, text: &[u32]) -> Result<()> {
        match &self.adjusting {
            Some(adjusting) => {
                let capacity = columns(&adjusting.history)?;
                context.write(&adjusting.history, row * capacity, bytemuck::cast_slice(text))
            }
            None => Ok(()),
        }
    }

    /// Copies the state of a row of another sampler to a row: its step `step` comes next, after `length` tokens of text. Settings are
    /// not copied. `features` are those of the sequence.
    pub fn take_row(
        &self,
        context: &Context,
        row: usize,
        (from, from_row): (&Self, usize),
        (step, length): (usize, usize),
        features: Features,
    ) -> Result<()> {
        let copy = |from: &Tensor, to: &Tensor, columns: usize, at: usize, count: usize| {
            let begin = from_row * columns + at;
            context.copy(from, begin..begin + count, to, row * columns + at)
        };
        copy(&from.target.state, &self.target.state, 4, 0, 4)?;
        copy(&from.target.token, &self.target.token, 1, 0, 1)?;
        if features.masked {
            // The state of a step follows from the token and state of the previous step.
            let before = (step + RING - 1) % RING;
            copy(&from.target.ring, &self.target.ring, RING, before, 1)?;
            copy(from.masking()?.states(), self.masking()?.states(), RING, before, 1)?;
        }
        if let (true, Some(from), Some(to)) = (features.adjusts, &from.adjusting, &self.adjusting)
            && length > 0
        {
            copy(&from.history, &to.history, columns(&to.history)?, 0, length)?;
        }
        if let (true, Some(from), Some(to)) = (features.mirostat, &from.mu, &self.mu) {
            copy(from, to, 1, 0, 1)?;
        }
        Ok(())
    }

    /// Chooses among the logits of each row, [rows, vocab_size], of a pass that put `advance` tokens of each sequence into the KV cache.
    /// With `is_step` that is the target's token; otherwise `set_text` was called with all of them.
    pub fn choose(
        &self,
        context: &Context,
        logits: &Tensor,
        features: Features,
        advance: usize,
        is_step: bool,
    ) -> Result<()> {
        let adjusted = self.adjust(context, logits, features, advance, is_step)?;
        let logits = &if features.masked { self.masking()?.apply(context, &adjusted, &self.target)? } else { adjusted };
        let mut staged = logits.clone();
        for op in features.stages.ops() {
            staged = context.run1(op, &[&staged, &self.settings])?;
        }
        let logits = &staged;
        if features.whole {
            self.choose_whole(context, logits, advance)?;
        }
        if features.truncated {
            self.choose_truncated(context, logits, advance)?;
        }
        if features.banded {
            self.choose_banded(context, logits, features, advance)?;
        }
        Ok(())
    }

    /// The logits with biases, penalties and bans.
    fn adjust(
        &self,
        context: &Context,
        logits: &Tensor,
        features: Features,
        advance: usize,
        is_step: bool,
    ) -> Result<Tensor> {
        if !features.adjusts {
            return Ok(logits.clone());
        }
        let settings = &self.settings;
        let Some(Adjusting { lists, biases, breakers, history, marks }) = &self.adjusting else {
            bail!(Internal, "logits are to be adjusted, and nothing was prepared for it")
        };
        let Target { state, token, .. } = &self.target;
        let appends = is_step && advance == 1;
        context.run(&AdjustMarks { advance, appends }, &[settings, lists, state, token, history, marks])?;
        if features.dry {
            context.run(&DryMarks { advance }, &[settings, state, history, breakers, marks])?;
        }
        context.run1(&AdjustLogits, &[logits, settings, biases, marks])
    }

    fn choose_whole(&self, context: &Context, logits: &Tensor, advance: usize) -> Result<()> {
        let (settings, Target { state, token, ring }) = (&self.settings, &self.target);
        let partial = context.run(&SamplePartial, &[logits, settings, state])?;
        let [values, tokens] = &partial[..] else { bail!(Internal, "sample_partial has two outputs") };
        let merge = SampleMerge { advance, own: SamplerPath::Whole };
        context.run(&merge, &[values, tokens, settings, state, token, ring])?;
        Ok(())
    }

    fn choose_truncated(&self, context: &Context, logits: &Tensor, advance: usize) -> Result<()> {
        let (settings, Target { state, token, ring }) = (&self.settings, &self.target);
        let [values, tokens, border] = &self.split(context, logits)?;
        let inputs = [logits, settings, values, tokens, border, state, token, ring];
        context.run(&SampleResolve { advance }, &inputs)?;
        Ok(())
    }

    /// The bins of the thresholds: the outputs of `sample_split`.
    fn split(&self, context: &Context, logits: &Tensor) -> Result<[Tensor; 3]> {
        let (settings, state) = (&self.settings, &self.target.state);
        let tally = context.run1(&SampleRange, &[logits])?;
        context.run(&SampleHistogram, &[logits, settings, &tally])?;
        let split = context.run(&SampleSplit, &[logits, settings, state, &tally])?;
        <[Tensor; 3]>::try_from(split).map_err(|_| err!(Internal, "sample_split has three outputs"))
    }

    fn choose_banded(&self, context: &Context, logits: &Tensor, features: Features, advance: usize) -> Result<()> {
        let (settings, Target { state, token, ring }) = (&self.settings, &self.target);
        let Some(mu) = &self.mu else {
            bail!(Internal, "a token is to be chosen from a band, and nothing was prepared for it")
        };
        let [_, _, border] = &self.split(context, logits)?;
        let band = &context.run1(&SampleBand, &[logits, settings, border, mu])?;
        if features.typical {
            let outputs = context.run(&TypicalMoments, &[logits, settings, band])?;
            let [moments, tally] = &outputs[..] else { bail!(Internal, "typical_moments has two outputs") };
            for digit in 0..3 {
                let inputs = [logits, settings, band, moments, tally];
                context.run(&TypicalHistogram { digit }, &inputs)?;
            }
            context.run(&TypicalBand, &[settings, tally, band])?;
        }
        let masses = if features.xtc || features.mirostat {
            Some(context.run1(&BandMass, &[logits, settings, band])?)
        } else {
            None
        };
        if let Some(masses) = masses.as_ref().filter(|_| features.xtc) {
            context.run(&Xtc, &[logits, settings, state, masses, band])?;
        }
        let partial = context.run(&BandPartial, &[logits, settings, state, band])?;
        let [values, tokens] = &partial[..] else { bail!(Internal, "band_partial has two outputs") };
        let merge = SampleMerge { advance, own: SamplerPath::Banded };
        context.run(&merge, &[values, tokens, settings, state, token, ring])?;
        if let Some(masses) = masses.as_ref().filter(|_| features.mirostat) {
            context.run(&MirostatUpdate, &[logits, settings, band, masses, token, mu])?;
        }
        Ok(())
    }
}
