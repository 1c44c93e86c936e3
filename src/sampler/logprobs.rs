//! Log probabilities of an answer's tokens: the commands around a choice that compute them on the GPU, and the rings from which they
//! are read.
//!
//! They are the model's own: softmax over its unchanged logits, before temperature, penalties, truncation and other settings.

use std::ops::Range;

use super::ops::{LogprobsMerge, LogprobsPartial};
use super::ring::{RING, ring_ranges};
use super::step_logprobs::{MOST as MAX_TOP_LOGPROBS, StepLogprobs};
use super::target::Target;
use crate::error::Result;
use crate::tensor::{Context, Desc, Plan, Shape, Tensor};

/// Numbers and tokens of a slot.
const VALUES: usize = 1 + MAX_TOP_LOGPROBS;
const TOKENS: usize = MAX_TOP_LOGPROBS;

/// The requests for log probabilities of some sequences, and where they are written.
pub struct LogprobRings {
    /// [rows] u32: the number of most probable tokens to report.
    wanted: Tensor,
    /// [rows, RING, VALUES] f32
    values: Tensor,
    /// [rows, RING, TOKENS] u32
    tokens: Tensor,
}

impl LogprobRings {
    pub fn new(context: &Context, rows: usize) -> Result<Self> {
        Ok(Self {
            wanted: context.zeros(Desc::u32(&[rows]))?,
            values: context.zeros(Desc::f32(&[rows, RING, VALUES]))?,
            tokens: context.zeros(Desc::u32(&[rows, RING, TOKENS]))?,
        })
    }

    /// The first `rows` rows.
    pub fn first(&self, rows: usize) -> Result<Self> {
        Ok(Self {
            wanted: self.wanted.part(0, Shape::from([rows]))?,
            values: self.values.part(0, Shape::from([rows, RING, VALUES]))?,
            tokens: self.tokens.part(0, Shape::from([rows, RING, TOKENS]))?,
        })
    }

    /// Sets, for each row, the number of tokens to report besides the chosen one.
    pub fn configure(&self, context: &Context, wanted: &[u32]) -> Result<()> {
        context.write(&self.wanted, 0, bytemuck::cast_slice(wanted))
    }

    /// The same for one row.
    pub fn configure_row(&self, context: &Context, row: usize, wanted: u32) -> Result<()> {
        context.write(&self.wanted, row, bytemuck::bytes_of(&wanted))
    }

    /// The places of `steps` steps of a row, from step `first` on.
    pub fn ranges(&self, row: usize, first: usize, steps: usize) -> Vec<(&Tensor, Range<usize>)> {
        let of = |tensor, width: usize| {
            let begin = row * RING;
            ring_ranges(first, steps)
                .map(move |range| (tensor, (begin + range.start) * width..(begin + range.end) * width))
        };
        of(&self.values, VALUES).chain(of(&self.tokens, TOKENS)).collect()
    }

    /// Records the kernels that compute them before and after `choose`, for logits [rows, vocab_size].
    pub fn around(
        &self,
        context: &Context,
        logits: &Tensor,
        target: &Target,
        choose: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let partial = self.before(context, logits, target)?;
        choose()?;
        self.after(context, logits, target, &partial)
    }

    fn before(&self, context: &Context, logits: &Tensor, target: &Target) -> Result<[Tensor; 2]> {
        let partial = context.run(&LogprobsPartial, &[logits, &self.wanted, &target.state])?;
        <[Tensor; 2]>::try_from(partial).map_err(|_| err!(Internal, "logprobs_partial has two outputs"))
    }

    fn after(&self, context: &Context, logits: &Tensor, target: &Target, [sums, best]: &[Tensor; 2]) -> Result<()> {
        let inputs = [logits, &self.wanted, sums, best, &target.token, &self.values, &self.tokens];
        context.run(&LogprobsMerge, &inputs).map(|_| ())
    }
}

/// The same, recorded for the logits of a decode step.
pub struct LogprobPlans {
    before: Plan,
    after: Plan,
}

impl LogprobPlans {
    /// Recording runs them once, which writes to slots of the rings that are not in use.
    pub async fn new(context: &Context, rings: &LogprobRings, logits: &Tensor, target: &Target) -> Result<Self> {
        let (partial, before) = context.plan(|| rings.before(context, logits, target)).await?;
        let ((), after) = context.plan(|| rings.after(context, logits, target, &partial)).await?;
        Ok(Self { before, after })
    }

    pub fn around(&self, context: &Context, choose: impl FnOnce() -> Result<()>) -> Result<()> {
        context.replay(&self.before)?;
        choose()?;
        context.replay(&self.after)
    }
}

/// A token that was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    pub token: u32,
    pub logprobs: Option<StepLogprobs>,
}

impl From<u32> for Sampled {
    fn from(token: u32) -> Self {
        Self { token, logprobs: None }
    }
}

/// The results of `steps` steps from `first` on: from pieces of the ring of tokens, and, if log probabilities are `wanted`, of their
/// rings.
pub fn sampled<'a>(
    pieces: &mut impl Iterator<Item = &'a Vec<u8>>,
    first: usize,
    steps: usize,
    wanted: Option<usize>,
) -> Vec<Sampled> {
    let count = ring_ranges(first, steps).count();
    let tokens = words::<u32>(pieces.by_ref().take(count));
    let Some(wanted) = wanted else { return tokens.into_iter().map(Sampled::from).collect() };
    let values = words::<f32>(pieces.by_ref().take(count));
    let top = words::<u32>(pieces.by_ref().take(count));
    let logprobs = StepLogprobs::of_slots(&values, &top, wanted);
    tokens.into_iter().zip(logprobs).map(|(token, of)| Sampled { token, logprobs: Some(of) }).collect()
}

fn words<'a, T: bytemuck::Pod>(pieces: impl Iterator<Item = &'a Vec<u8>>) -> Vec<T> {
    pieces.flat_map(|piece| bytemuck::pod_collect_to_vec::<u8, T>(piece)).collect()
}
