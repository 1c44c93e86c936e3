//! Steps of several sequences at once. Such a step reads the weights once and gives each sequence the token after its last one.
//!
//! A step has one row for each sequence that takes part. The first rows are sampled here, and their next step follows without the CPU. The
//! other rows are forward passes only: their logits go to the sequence's own slot. Copies on the GPU load a sequence into a row and store
//! it back, so other sequences can take part in each submit, also while earlier ones are in flight.
//!
//! The commands of a step are recorded once for each number of rows and each set of kernels that choices need. Between loads, the host
//! writes nothing for a step.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use super::grammar::MaskPlace;
use super::proposal::Masks;
use super::sequence::Sequence;
use crate::error::{Code, Result};
use crate::model::adapters::ActiveAdapters;
use crate::model::{LayerStates, Logits, Transformer};
use crate::sampler::{Features, LogprobPlans, LogprobRings, MaskTable, RING, Sampler, Target, ring_ranges};
use crate::tensor::ops::MatVecSmallBatch;
use crate::tensor::{Context, Desc, Plan, Shape, Tensor};

/// The most sequences in one step.
pub const MAX_SEQUENCES: usize = MatVecSmallBatch::MAX_TOKENS;

/// The most plans of choices that are kept for one number of rows.
const MOST_PLANS: usize = 16;

/// The most sets of adapters whose plans are kept.
const MOST_ADAPTER_SETS: usize = 8;

/// What a step is like: how many rows go through the model, how many of them are sampled, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepShape {
    pub rows: usize,
    pub sampled: usize,
    pub features: Features,
    pub logprobs: bool,
    /// Which adapters its rows have, as `Batch::number_of` says; 0 for none.
    pub adapters: u32,
}

/// Whose settings a row holds: the sequence, the kernels of its steps, and the shifts of its context so far.
type Owner = (u64, Features, usize);

pub struct Batch {
    context: Context,
    transformer: Rc<Transformer>,
    states: LayerStates,
    /// Each row is a sequence. The last word of a row's state is the number of its sequence in the cache.
    sampler: Sampler,
    /// [rows, 4] u32: a copy of the states while a plan is recorded.
    saved: Tensor,
    /// Made when a request first asks for log probabilities.
    logprobs: Option<LogprobRings>,
    by_rows: [Option<Recorded>; MAX_SEQUENCES + 1],
    owners: Vec<Option<Owner>>,
    /// Steps of this number of rows found no room.
    refused_rows: Option<usize>,
    /// The adapters of the last steps, with their numbers, oldest first.
    adapters: VecDeque<(u32, ActiveAdapters)>,
    next_adapters: u32,
}

/// The forward pass of one number of rows, and what may follow it.
struct Recorded {
    /// By the number of its adapters. All write the same logits.
    forwards: Vec<(u32, Plan)>,
    /// [rows, vocab_size]
    logits: Tensor,
    choices: Vec<(usize, Features, Plan)>,
    logprobs: Vec<(usize, LogprobPlans)>,
}

/// What steps of one shape replay.
struct StepPlans<'a> {
    forward: &'a Plan,
    /// [rows, vocab_size]
    logits: &'a Tensor,
    /// None if no row is sampled.
    choice: Option<&'a Plan>,
    /// None if no log probabilities are wanted.
    logprobs: Option<&'a LogprobPlans>,
}

impl Batch {
    pub fn new(
        context: &Context,
        transformer: Rc<Transformer>,
        states: LayerStates,
        max_sequences: usize,
    ) -> Result<Self> {
        let zeros = |dims: &[usize]| context.zeros(Desc::u32(dims));
        let target = Target {
            state: zeros(&[max_sequences, 4])?,
            token: zeros(&[max_sequences])?,
            ring: zeros(&[max_sequences, RING])?,
        };
        Ok(Self {
            context: context.clone(),
            transformer,
            states,
            sampler: Sampler::new(context, target)?,
            saved: zeros(&[max_sequences, 4])?,
            logprobs: None,
            by_rows: Default::default(),
            owners: vec![None; max_sequences],
            refused_rows: None,
            adapters: VecDeque::new(),
            next_adapters: 1,
        })
    }

    /// What steps of this shape replay, if it is recorded.
    fn plans(&self, shape: StepShape) -> Option<StepPlans<'_>> {
        let recorded = self.by_rows.get(shape.rows)?.as_ref()?;
        let choice = match shape.sampled {
            0 => None,
            _ => Some(recorded.choice(shape)?),
        };
        let logprobs = match choice {
            Some(_) if shape.logprobs => {
                Some(recorded.logprobs.iter().find(|(sampled, _)| *sampled == shape.sampled).map(|(_, plans)| plans)?)
            }
            _ => None,
        };
        Some(StepPlans { forward: recorded.forward(shape.adapters)?, logits: &recorded.logits, choice, logprobs })
    }

    fn recorded(&self, shape: StepShape) -> Result<StepPlans<'_>> {
        self.plans(shape).ok_or_else(|| err!(Internal, "steps that nobody recorded: {shape:?}"))
    }

    /// The number of adapters that rows have between them; 0 for none. Each row has its own scales, so a row may have but some of them.
    pub fn number_of(&mut self, adapters: Option<ActiveAdapters>) -> u32 {
        let Some(adapters) = adapters else { return 0 };
        if let Some((number, _)) = self.adapters.iter().find(|(_, known)| known.is_same(&adapters)) {
            return *number;
        }
        if self.adapters.len() == MOST_ADAPTER_SETS
            && let Some((number, _)) = self.adapters.pop_front()
        {
            self.drop_forwards(number);
        }
        let number = self.next_adapters;
        self.next_adapters += 1;
        self.adapters.push_back((number, adapters));
        number
    }

    /// Drops what was recorded with adapters that were unloaded. For sequences that still run with them it is recorded again.
    pub fn forget_unloaded(&mut self) {
        let unloaded = |(number, active): &(u32, ActiveAdapters)| active.has_unloaded().then_some(*number);
        let numbers: Vec<u32> = self.adapters.iter().filter_map(unloaded).collect();
        self.adapters.retain(|(number, _)| !numbers.contains(number));
        numbers.into_iter().for_each(|number| self.drop_forwards(number));
    }

    fn drop_forwards(&mut self, adapters: u32) {
        for recorded in self.by_rows.iter_mut().flatten() {
            recorded.forwards.retain(|(number, _)| *number != adapters);
        }
    }

    /// Whether steps of this number of rows may be recorded. If there was no room for them, sequences step one at a time.
    pub fn has_room_for(&self, rows: usize) -> bool {
        self.refused_rows.is_none_or(|refused| rows < refused)
    }

    /// There may be room again.
    pub fn retry(&mut self) {
        self.refused_rows = None;
    }

    /// Drops what is recorded. No sequence may be in a row.
    pub fn shed(&mut self) {
        self.by_rows = Default::default();
        self.retry();
    }

    /// Whether steps of this shape are recorded.
    pub fn is_prepared(&self, shape: StepShape) -> bool {
        self.plans(shape).is_some()
    }

    /// Records steps of this shape. Recording runs them once; all sequences are marked as stopped meanwhile, so nothing changes.
    pub async fn prepare(&mut self, shape: StepShape) -> Result<()> {
        let context = self.context.clone();
        let (vocab_size, capacity) = (self.transformer.config().vocab_size, self.states.capacity());
        self.sampler.prepare(&context, shape.features, vocab_size, capacity)?;
        if shape.logprobs && self.logprobs.is_none() {
            self.logprobs = Some(LogprobRings::new(&context, self.owners.len())?);
        }
        let state = self.sampler.target().state.clone();
        let all = 0..state.shape().elements();
        context.copy(&state, all.clone(), &self.saved, 0)?;
        // Nothing is written at position 0 of a stopped sequence.
        let stopped: Vec<u32> = (0..self.owners.len()).flat_map(|_| [0, 0, 1, 0]).collect();
        context.write(&state, 0, bytemuck::cast_slice(&stopped))?;
        let recorded = self.record(shape).await;
        context.copy(&self.saved, all, &state, 0)?;
        if recorded.as_ref().is_err_and(|error| error.code() == Code::OutOfMemory) {
            self.refused_rows = Some(shape.rows.min(self.refused_rows.unwrap_or(usize::MAX)));
            return Ok(());
        }
        recorded
    }

    async fn record(&mut self, shape: StepShape) -> Result<()> {
        let context = self.context.clone();
        let adapters = self.adapters.iter().find(|(number, _)| *number == shape.adapters);
        let states = self.states.clone().with_adapters(adapters.map(|(_, adapters)| adapters.clone()));
        let of_rows = self.sampler.first(shape.rows)?;
        let Target { state, token, .. } = of_rows.target();
        let forward = || self.transformer.forward(token, state, &states, Logits::All);
        let recorded = match &mut self.by_rows[shape.rows] {
            Some(recorded) => {
                if recorded.forward(shape.adapters).is_none() {
                    let logits = &recorded.logits;
                    let same_logits = || context.copy(&forward()?, 0..logits.shape().elements(), logits, 0);
                    let ((), forward) = context.plan(same_logits).await?;
                    recorded.forwards.push((shape.adapters, forward));
                }
                recorded
            }
            none => {
                let (logits, forward) = context.plan(forward).await?;
                let forwards = vec![(shape.adapters, forward)];
                none.insert(Recorded { forwards, logits, choices: vec![], logprobs: vec![] })
            }
        };
        if shape.sampled == 0 {
            return Ok(());
        }
        let sampler = self.sampler.first(shape.sampled)?;
        let logits = first_rows(&recorded.logits, shape.sampled)?;
        if recorded.choice(shape).is_none() {
            let ((), plan) = context.plan(|| sampler.choose(&context, &logits, shape.features, 1, true)).await?;
            if recorded.choices.len() == MOST_PLANS {
                recorded.choices.remove(0);
            }
            recorded.choices.push((shape.sampled, shape.features, plan));
        }
        if let Some(rings) = self.logprobs.as_ref().filter(|_| shape.logprobs)
            && recorded.logprobs.iter().all(|(sampled, _)| *sampled != shape.sampled)
        {
            let plans = LogprobPlans::new(&context, &rings.first(shape.sampled)?, &logits, sampler.target()).await?;
            recorded.logprobs.push((shape.sampled, plans));
        }
        Ok(())
    }

    /// Whether a row holds the settings of this sequence, for steps of these kernels.
    pub fn is_of(&self, row: usize, id: u64, sequence: &Sequence, features: Features) -> bool {
        self.owners[row] == Some((id, features, sequence.slot.shifts().count))
    }

    /// Gives the next steps of a row to a sequence, whose slot knows where it stands.
    pub fn load(&mut self, row: usize, id: u64, sequence: &Sequence, features: Features) -> Result<()> {
        let (context, slot, params) = (&self.context, &sequence.slot, &sequence.params);
        let owner = (id, features, slot.shifts().count);
        if self.owners[row] != Some(owner) {
            self.sampler.configure(context, row, features, &params.sampler, &params.rules, &params.ending)?;
            if let Some(rings) = &self.logprobs {
                rings.configure_row(context, row, params.logprobs.unwrap_or(0) as u32)?;
            }
            self.owners[row] = Some(owner);
        }
        let (step, length) = (sequence.steps + sequence.in_flight, slot.capacity() - sequence.room());
        let own = params.features();
        self.sampler.take_row(context, row, (slot.sampler(), 0), (step, length), own)?;
        if features.is_masked() && !own.is_masked() {
            self.sampler.masking()?.enter(context, row, step, MaskTable::FREE)?;
        }
        Ok(())
    }

    /// Lets the slot of a sequence go on from where the row stands.
    pub fn store(&self, row: usize, sequence: &Sequence) -> Result<()> {
        let (step, length) = (sequence.steps + sequence.in_flight, sequence.slot.capacity() - sequence.room());
        let own = sequence.params.features();
        sequence.slot.sampler().take_row(&self.context, 0, (&self.sampler, row), (step, length), own)
    }

    /// The next step of this row takes in the last token of a sequence, whose slot knows where it stands.
    pub fn load_forward(&mut self, row: usize, sequence: &Sequence) -> Result<()> {
        let Target { state, token, .. } = self.sampler.target();
        self.context.copy(sequence.slot.state(), 0..4, state, 4 * row)?;
        self.context.copy(sequence.slot.token(), 0..1, token, row)?;
        self.owners[row] = None;
        Ok(())
    }

    /// Uploads what the automaton has learned to the masks of a row.
    pub fn mask(&self, row: usize, sequence: &Sequence, masks: &Masks) -> Result<()> {
        let masking = self.sampler.masking()?;
        masks.grammar.borrow_mut().upload(&self.context, masking, MaskPlace::Batch(sequence.slot.sequence))?;
        match masks.enter {
            Some(state) => masking.enter(&self.context, row, sequence.steps, state),
            None => Ok(()),
        }
    }

    /// The forward pass of all rows.
    pub fn forward(&self, shape: StepShape) -> Result<()> {
        self.context.replay(self.recorded(shape)?.forward)
    }

    /// Chooses the next token of each sampled row.
    pub fn choose(&self, shape: StepShape) -> Result<()> {
        let StepPlans { choice, logprobs, .. } = self.recorded(shape)?;
        let Some(choice) = choice else { return Ok(()) };
        let choose = || self.context.replay(choice);
        match logprobs {
            Some(plans) => plans.around(&self.context, choose),
            None => choose(),
        }
    }

    /// Copies a row's logits to where the sequence's own step leaves them.
    pub fn store_logits(&self, shape: StepShape, row: usize, sequence: &Sequence) -> Result<()> {
        let logits = self.recorded(shape)?.logits;
        let width = logits.shape().matrix()?.1;
        self.context.copy(logits, row * width..(row + 1) * width, sequence.slot.logits(), 0)
    }

    /// Where the tokens of a row's steps are, from step `first` on; also their log probabilities and mask states if wanted.
    pub fn ranges(
        &self,
        row: usize,
        first: usize,
        steps: usize,
        logprobs: bool,
        masked: bool,
    ) -> Result<Vec<(&Tensor, Range<usize>)>> {
        let ring = &self.sampler.target().ring;
        let of_row = |range: Range<usize>| (ring, row * RING + range.start..row * RING + range.end);
        let mut ranges: Vec<_> = ring_ranges(first, steps).map(of_row).collect();
        if let Some(rings) = self.logprobs.as_ref().filter(|_| logprobs) {
            ranges.extend(rings.ranges(row, first, steps));
        }
        if masked {
            ranges.extend(self.sampler.masking()?.ranges(row, first, steps));
        }
        Ok(ranges)
    }
}

impl Recorded {
    fn forward(&self, adapters: u32) -> Option<&Plan> {
        self.forwards.iter().find(|(number, _)| *number == adapters).map(|(_, plan)| plan)
    }

    fn choice(&self, shape: StepShape) -> Option<&Plan> {
        let is_it = |(sampled, features, _): &&(usize, Features, Plan)| {
            (*sampled, *features) == (shape.sampled, shape.features)
        };
        self.choices.iter().find(is_it).map(|(_, _, plan)| plan)
    }
}

/// The first rows of [n, columns].
fn first_rows(tensor: &Tensor, rows: usize) -> Result<Tensor> {
    tensor.part(0, Shape::from([rows, tensor.shape().matrix()?.1]))
}
