//! Decode steps of several sequences at once: each step reads the weights once and gives a token to every sequence. Each has its
//! part of the KV cache, and a row of the tensors that kernels read and advance.
//!
//! A step is recorded once for each number of sequences. Who sits in which row is written when sequences join or leave, and
//! between that a step writes nothing.

use super::logprobs::{LogprobPlans, LogprobRings};
use super::sampling::{Target, choose, choose_truncated};
use super::session::RING;
use crate::error::Result;
use crate::model::{KvCache, Logits, Transformer};
use crate::tensor::ops::MatVecFew;
use crate::tensor::{Context, Desc, Plan, Readback, SampleSettings, Shape, Tensor};

/// The most sequences of a step.
pub const MAX_SEQUENCES: usize = MatVecFew::MAX_TOKENS;

pub struct Sequences {
    cache: KvCache,
    /// Rows as in `Target`; the last word of a row's state is the number of its sequence in the cache.
    target: Target,
    /// [rows, WORDS] u32: `SampleSettings`.
    settings: Tensor,
    /// Made when log probabilities are first asked for, with which rows want them.
    logprobs: Option<LogprobRings>,
    wants_logprobs: Vec<bool>,
    by_rows: [Option<Recorded>; MAX_SEQUENCES + 1],
    rows: usize,
    chooses: Chooses,
}

/// Which choices are wanted.
#[derive(Clone, Copy, Debug, Default)]
struct Chooses {
    whole: bool,
    truncated: bool,
}

/// The step of so many sequences.
struct Recorded {
    forward: Plan,
    /// [rows, vocab_size]
    logits: Tensor,
    settings: Tensor,
    target: Target,
    whole: Plan,
    /// Recorded when it is first asked for.
    truncated: Option<Plan>,
    logprobs: Option<LogprobPlans>,
}

/// A sequence that is to take part.
pub struct Row {
    /// Its number in the cache.
    pub sequence: usize,
    /// Where its next token stands.
    pub position: usize,
    pub step: usize,
    /// What the next step takes in.
    pub token: u32,
    /// How it chooses, and what ends it.
    pub settings: [u32; SampleSettings::WORDS],
    pub is_truncated: bool,
    /// Of how many of the most probable tokens log probabilities come with the tokens.
    pub logprobs: Option<usize>,
}

impl Sequences {
    pub fn new(context: &Context, cache: KvCache) -> Result<Self> {
        let zeros = |dims: &[usize]| context.zeros(Desc::u32(dims));
        Ok(Self {
            cache,
            target: Target {
                state: zeros(&[MAX_SEQUENCES, 4])?,
                token: zeros(&[MAX_SEQUENCES])?,
                ring: zeros(&[MAX_SEQUENCES, RING])?,
            },
            settings: zeros(&[MAX_SEQUENCES, SampleSettings::WORDS])?,
            logprobs: None,
            wants_logprobs: Vec::new(),
            by_rows: Default::default(),
            rows: 0,
            chooses: Chooses::default(),
        })
    }

    /// Lets these take part in the next steps, 2 to 8 of them. Records what was not recorded yet.
    pub async fn seat(&mut self, context: &Context, transformer: &Transformer, rows: &[Row]) -> Result<()> {
        let n = rows.len();
        if !MatVecFew::takes(n) {
            bail!(Internal, "a step of {n} sequences, wanted 2 to {MAX_SEQUENCES}");
        }
        self.chooses = Chooses {
            whole: rows.iter().any(|row| !row.is_truncated),
            truncated: rows.iter().any(|row| row.is_truncated),
        };
        // Recording a plan runs it once, which does nothing for sequences that have stopped.
        let state = |stopped: u32| -> Vec<u32> {
            rows.iter().flat_map(|row| [row.position as u32, row.step as u32, stopped, row.sequence as u32]).collect()
        };
        context.write(&self.target.state, 0, bytemuck::cast_slice(&state(1)))?;
        let mut recorded = match self.by_rows[n].take() {
            Some(recorded) => recorded,
            None => self.record(context, transformer, n).await?,
        };
        if self.chooses.truncated && recorded.truncated.is_none() {
            let Recorded { logits, settings, target, .. } = &recorded;
            let choose = || choose_truncated(context, logits, settings, target, 1);
            recorded.truncated = Some(context.plan(choose).await?.1);
        }
        self.wants_logprobs = rows.iter().map(|row| row.logprobs.is_some()).collect();
        if self.wants_logprobs.contains(&true) {
            let rings = match self.logprobs.take() {
                Some(rings) => rings,
                None => LogprobRings::new(context, MAX_SEQUENCES)?,
            };
            if recorded.logprobs.is_none() {
                let Recorded { logits, target, .. } = &recorded;
                recorded.logprobs = Some(LogprobPlans::new(context, &rings.first(n)?, logits, target).await?);
            }
            let wanted: Vec<u32> = rows.iter().map(|row| row.logprobs.unwrap_or(0) as u32).collect();
            rings.configure(context, &wanted)?;
            self.logprobs = Some(rings);
        }
        self.by_rows[n] = Some(recorded);
        let tokens: Vec<u32> = rows.iter().map(|row| row.token).collect();
        let settings: Vec<u32> = rows.iter().flat_map(|row| row.settings).collect();
        context.write(&self.target.token, 0, bytemuck::cast_slice(&tokens))?;
        context.write(&self.settings, 0, bytemuck::cast_slice(&settings))?;
        context.write(&self.target.state, 0, bytemuck::cast_slice(&state(0)))?;
        self.rows = n;
        Ok(())
    }

    async fn record(&self, context: &Context, transformer: &Transformer, rows: usize) -> Result<Recorded> {
        let first = |tensor: &Tensor, columns: usize| tensor.part(0, Shape::from([rows, columns]));
        let target = Target {
            state: first(&self.target.state, 4)?,
            token: self.target.token.part(0, Shape::from([rows]))?,
            ring: first(&self.target.ring, RING)?,
        };
        let settings = first(&self.settings, SampleSettings::WORDS)?;
        let (logits, forward) = context
            .plan(|| match transformer.forward(&target.token, &target.state, &self.cache, Logits::All)? {
                Some(logits) => Ok(logits),
                None => bail!(Internal, "a step of several sequences gave no logits"),
            })
            .await?;
        let ((), whole) = context.plan(|| choose(context, &logits, &settings, &target, 1)).await?;
        Ok(Recorded { forward, logits, settings, target, whole, truncated: None, logprobs: None })
    }

    /// Records a step of those who take part: the commands are the same every time.
    pub fn step(&self, context: &Context) -> Result<()> {
        let Some(recorded) = self.by_rows.get(self.rows).and_then(Option::as_ref) else {
            bail!(Internal, "a step of {} sequences, which nobody recorded", self.rows)
        };
        context.replay(&recorded.forward)?;
        let choose = || {
            if self.chooses.whole {
                context.replay(&recorded.whole)?;
            }
            match &recorded.truncated {
                Some(truncated) if self.chooses.truncated => context.replay(truncated),
                _ => Ok(()),
            }
        };
        match &recorded.logprobs {
            Some(plans) if self.wants_logprobs.contains(&true) => plans.around(context, choose),
            _ => choose(),
        }
    }

    /// Starts reading the tokens of each row: those of `steps` steps from the row's `firsts` on. The read-back gives them row
    /// by row, each in one or two pieces, with their log probabilities where these are wanted (`logprobs::sampled` reads it).
    pub fn read_tokens(&self, context: &Context, firsts: &[usize], steps: usize) -> Result<Readback> {
        let ring = &self.target.ring;
        let mut ranges = Vec::with_capacity(2 * firsts.len());
        for (row, first) in firsts.iter().enumerate() {
            ranges.extend(
                ring_ranges(*first, steps).map(|range| (ring, row * RING + range.start..row * RING + range.end)),
            );
            if let (Some(rings), Some(true)) = (&self.logprobs, self.wants_logprobs.get(row)) {
                ranges.extend(rings.ranges(row, *first, steps));
            }
        }
        context.start_readback(&ranges)
    }
}

/// Where in a ring the tokens of some steps stand: at most as many as it has slots.
pub fn ring_ranges(first: usize, steps: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let begin = first % RING;
    let before_wrap = steps.min(RING - begin);
    [begin..begin + before_wrap, 0..steps - before_wrap].into_iter().filter(|range| !range.is_empty())
}
