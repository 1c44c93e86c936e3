//! Decode steps of several sequences at once: each step reads the weights once and gives a token to every sequence. Each has its
//! part of the KV cache, and a row of the tensors that kernels read and advance.
//!
//! A step is recorded once for each number of sequences. Who sits in which row is written when sequences join or leave, and
//! between that a step writes nothing.

use std::rc::Rc;

use crate::error::Result;
use crate::model::{KvCache, Logits, Transformer};
use crate::sampler::{
    Choosing, Ending, Features, LogprobPlans, LogprobRings, Plans, RING, SamplerSettings, Target, TokenRules,
    ring_ranges,
};
use crate::tensor::ops::MatVecFew;
use crate::tensor::{Context, Desc, Plan, Readback, Tensor};

/// The most sequences of a step.
pub const MAX_SEQUENCES: usize = MatVecFew::MAX_TOKENS;

pub struct Sequences {
    cache: KvCache,
    /// Rows are those who take part; the last word of a row's state is the number of its sequence in the cache.
    choosing: Choosing,
    /// Made when log probabilities are first asked for, with which rows want them.
    logprobs: Option<LogprobRings>,
    wants_logprobs: Vec<bool>,
    by_rows: [Option<Recorded>; MAX_SEQUENCES + 1],
    rows: usize,
    /// What the choices of those who take part need.
    features: Features,
}

/// The step of so many sequences.
struct Recorded {
    forward: Plan,
    /// [rows, vocab_size]
    logits: Tensor,
    plans: Plans,
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
    pub sampler: SamplerSettings,
    pub rules: Rc<TokenRules>,
    pub ending: Ending,
    pub features: Features,
    /// The text before `token`, where its features look at it.
    pub text: Vec<u32>,
    /// Of how many of the most probable tokens log probabilities come with the tokens.
    pub logprobs: Option<usize>,
}

impl Sequences {
    pub fn new(context: &Context, cache: KvCache) -> Result<Self> {
        let zeros = |dims: &[usize]| context.zeros(Desc::u32(dims));
        let target = Target {
            state: zeros(&[MAX_SEQUENCES, 4])?,
            token: zeros(&[MAX_SEQUENCES])?,
            ring: zeros(&[MAX_SEQUENCES, RING])?,
        };
        Ok(Self {
            cache,
            choosing: Choosing::new(context, target)?,
            logprobs: None,
            wants_logprobs: Vec::new(),
            by_rows: Default::default(),
            rows: 0,
            features: Features::PLAIN,
        })
    }

    /// Lets these take part in the next steps, 2 to 8 of them. Records what was not recorded yet.
    pub async fn seat(&mut self, context: &Context, transformer: &Transformer, rows: &[Row]) -> Result<()> {
        let n = rows.len();
        if !MatVecFew::takes(n) {
            bail!(Internal, "a step of {n} sequences, wanted 2 to {MAX_SEQUENCES}");
        }
        let Some(features) = rows.iter().map(|row| row.features).reduce(Features::and) else {
            bail!(Internal, "a step of no sequences")
        };
        self.features = features;
        let vocab_size = transformer.config().vocab_size;
        self.choosing.prepare(context, features, vocab_size, self.cache.capacity())?;
        // Recording a plan runs it once, which does nothing for sequences that have stopped.
        let state = |stopped: u32| -> Vec<u32> {
            rows.iter().flat_map(|row| [row.position as u32, row.step as u32, stopped, row.sequence as u32]).collect()
        };
        let target = self.choosing.target().clone();
        context.write(&target.state, 0, bytemuck::cast_slice(&state(1)))?;
        let mut recorded = match self.by_rows[n].take() {
            Some(recorded) => recorded,
            None => self.record(context, transformer, n).await?,
        };
        if recorded.plans.get(features).is_none() {
            let choosing = self.choosing.first(n)?;
            let choose = || choosing.choose(context, &recorded.logits, features, 1, true);
            let ((), plan) = context.plan(choose).await?;
            recorded.plans.keep(features, plan);
        }
        self.wants_logprobs = rows.iter().map(|row| row.logprobs.is_some()).collect();
        if self.wants_logprobs.contains(&true) {
            let rings = match self.logprobs.take() {
                Some(rings) => rings,
                None => LogprobRings::new(context, MAX_SEQUENCES)?,
            };
            if recorded.logprobs.is_none() {
                let of_rows = self.choosing.first(n)?;
                let plans = LogprobPlans::new(context, &rings.first(n)?, &recorded.logits, of_rows.target()).await?;
                recorded.logprobs = Some(plans);
            }
            let wanted: Vec<u32> = rows.iter().map(|row| row.logprobs.unwrap_or(0) as u32).collect();
            rings.configure(context, &wanted)?;
            self.logprobs = Some(rings);
        }
        self.by_rows[n] = Some(recorded);
        let tokens: Vec<u32> = rows.iter().map(|row| row.token).collect();
        context.write(&target.token, 0, bytemuck::cast_slice(&tokens))?;
        for (index, row) in rows.iter().enumerate() {
            self.choosing.configure(context, index, features, &row.sampler, &row.rules, &row.ending)?;
            if row.features.adjusts() {
                self.choosing.set_text(context, index, &row.text)?;
            }
        }
        context.write(&target.state, 0, bytemuck::cast_slice(&state(0)))?;
        self.rows = n;
        Ok(())
    }

    /// What choices read and write, by rows.
    pub fn choosing(&self) -> &Choosing {
        &self.choosing
    }

    async fn record(&self, context: &Context, transformer: &Transformer, rows: usize) -> Result<Recorded> {
        let choosing = self.choosing.first(rows)?;
        let Target { state, token, .. } = choosing.target();
        let (logits, forward) = context
            .plan(|| match transformer.forward(token, state, &self.cache, Logits::All)? {
                Some(logits) => Ok(logits),
                None => bail!(Internal, "a step of several sequences gave no logits"),
            })
            .await?;
        Ok(Recorded { forward, logits, plans: Plans::default(), logprobs: None })
    }

    /// Records a step of those who take part: the commands are the same every time.
    pub fn step(&self, context: &Context) -> Result<()> {
        let Some(recorded) = self.by_rows.get(self.rows).and_then(Option::as_ref) else {
            bail!(Internal, "a step of {} sequences, which nobody recorded", self.rows)
        };
        context.replay(&recorded.forward)?;
        let choose = || match recorded.plans.get(self.features) {
            Some(plan) => context.replay(plan),
            None => bail!(Internal, "a choice that nobody recorded: {:?}", self.features),
        };
        match &recorded.logprobs {
            Some(plans) if self.wants_logprobs.contains(&true) => plans.around(context, choose),
            _ => choose(),
        }
    }

    /// Starts reading the tokens of each row: those of `steps` steps from the row's `firsts` on. The read-back gives them row
    /// by row, each in one or two pieces, with their log probabilities where these are wanted (`logprobs::sampled` reads it).
    pub fn read_tokens(&self, context: &Context, firsts: &[usize], steps: usize) -> Result<Readback> {
        let ring = &self.choosing.target().ring;
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
