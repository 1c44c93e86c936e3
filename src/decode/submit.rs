//! From proposals to one submit: what all sequences want is recorded together and read back together.

use std::ops::Range;
use std::rc::Rc;

use super::batch::{Batch, StepShape};
use super::flight::PartKind;
use super::grammar::MaskPlace;
use super::proposal::{Masks, Proposal};
use super::reading::Reading;
use super::scheduler::{Member, ProposalState, Scheduler};
use super::sequence::{Cursor, NextLogits, Sequence};
use super::verification::Draft;
use super::wishes::Wishes;
use crate::error::Result;
use crate::model::Transformer;
use crate::tensor::{Context, Tensor};

impl Scheduler {
    /// Submits what the members want, if another flight may start. Returns whether anything was done.
    pub(super) fn submit(&mut self, transformer: &Rc<Transformer>) -> Result<bool> {
        if self.preparing.is_some() {
            return Ok(false);
        }
        let made = self.ask(transformer)?;
        let mut wishes = self.wishes();
        if !wishes.first.is_empty() {
            // A first token is worth a read-back of its own.
            self.choose_first(transformer, &wishes.first)?;
            return Ok(true);
        }
        if !self.has_room() {
            // A draft is verified whatever is in flight: of each sequence there is one at most.
            wishes = Wishes { drafts: wishes.drafts, ..Wishes::default() };
        }
        if wishes.is_empty() {
            return Ok(made);
        }
        if self.prepare_drafts(transformer, &wishes)? {
            return Ok(true);
        }
        let forwards = self.forwards(&wishes);
        let rows = wishes.runners.len() + forwards.len();
        let adapters = self.adapters(&[&wishes.runners, &forwards]);
        let has_room = |batch: &&mut Batch| rows > 1 && batch.has_room_for(rows);
        let adapters = self.batch.as_mut().filter(has_room).map(|batch| batch.number_of(adapters));
        let shape = adapters.map(|adapters| self.shape(&wishes.runners, rows, adapters));
        let steps = self.steps(&wishes);
        if self.prepare_batch(shape, steps) {
            return Ok(true);
        }
        for index in wishes.runners.iter().chain(&forwards) {
            self.members[*index].sequence.settle(transformer)?;
        }
        let mut reading = Reading::default();
        let mut choices = Reading::default();
        self.choose_singles(transformer, &wishes.singles, (&mut choices, &mut reading))?;
        // In a submit of its own: a read-back waits for the whole submit, and what follows a choice runs while the token is on its way.
        let no_runners = wishes.runners.is_empty();
        let choices = choices.start(transformer.context(), usize::from(no_runners))?;
        // Of two flights, one is timed.
        let timed = if no_runners { usize::from(choices.is_none() && !wishes.singles.is_empty()) } else { steps };
        self.flights.extend(choices);
        for &index in &forwards {
            store_row(self.batch.as_ref(), &mut self.members[index].sequence)?;
            self.members[index].sequence.place(transformer.context())?;
        }
        match (shape, self.batch.take()) {
            (Some(shape), Some(mut batch)) => {
                let (of, runners) = (&mut batch, &wishes.runners);
                let submitted = self.step_together(transformer, of, (shape, steps), runners, &forwards, &mut reading);
                self.batch = Some(batch);
                submitted?;
            }
            (_, batch) => {
                self.batch = batch;
                self.step_alone(transformer, &wishes.runners, &forwards, steps, &mut reading)?;
            }
        }
        self.finish_forwards(&wishes, &mut reading)?;
        match reading.start(transformer.context(), timed)? {
            Some(flight) => self.flights.push_back(flight),
            None if wishes.drafts.is_empty() => transformer.context().device().flush(),
            // It goes with the first draft.
            None => {}
        }
        self.verify(transformer, &wishes.drafts)?;
        Ok(true)
    }

    /// Submits the first choice of sequences that have just joined.
    pub(super) fn submit_first(&mut self, transformer: &Rc<Transformer>) -> Result<()> {
        if self.preparing.is_none() {
            self.ask(transformer)?;
            let first = self.wishes().first;
            if !first.is_empty() {
                self.choose_first(transformer, &first)?;
            }
        }
        Ok(())
    }

    /// One choice for each of these members, from logits that are there.
    fn choose_first(&mut self, transformer: &Rc<Transformer>, members: &[usize]) -> Result<()> {
        let context = transformer.context();
        let mut reading = Reading::default();
        for &index in members {
            let member = &mut self.members[index];
            let ProposalState::Ready(Proposal::Steps { masks, .. }) = std::mem::take(&mut member.proposal) else {
                continue;
            };
            let sequence = &mut member.sequence;
            mask_slot(context, sequence, masks.as_ref())?;
            choose(context, sequence, masks.is_some())?;
            let (first, logprobs) = (sequence.steps, sequence.slot.logprobs());
            let kind = PartKind::Steps { first, steps: 1, logprobs };
            let ranges = slot_ranges(&member.sequence, first, 1, masks.is_some())?;
            reading.add(member, kind, 0, ranges);
            member.sequence.in_flight += 1;
        }
        self.flights.extend(reading.start(context, 0)?);
        Ok(())
    }

    /// The choices of members that decode one token at a time. What is read of them is in the first reading, unless logits that follow
    /// the choice are read as well.
    fn choose_singles(
        &mut self,
        transformer: &Rc<Transformer>,
        members: &[usize],
        (choices, with_logits): (&mut Reading, &mut Reading),
    ) -> Result<()> {
        let context = transformer.context();
        for &index in members {
            let member = &mut self.members[index];
            let ProposalState::Ready(Proposal::Single { masks, logits, reads_logits, takes_in }) =
                std::mem::take(&mut member.proposal)
            else {
                continue;
            };
            let sequence = &mut member.sequence;
            let is_taken_in = takes_in && sequence.goes_on_after_single();
            if let Some(logits) = logits {
                context.write(next_logits(sequence)?.0, 0, bytemuck::cast_slice(&logits))?;
            }
            mask_slot(context, sequence, masks.as_ref())?;
            choose(context, sequence, masks.is_some())?;
            let (step, logprobs) = (sequence.steps, sequence.slot.logprobs());
            let reads_logits = reads_logits && is_taken_in;
            let kind = PartKind::Single { step, logprobs, is_taken_in, reads_logits };
            let forwards = usize::from(is_taken_in);
            let sequence = &member.sequence;
            let mut ranges = sequence.slot.token_ranges(step, 1);
            if reads_logits {
                let logits = sequence.slot.logits();
                ranges.push((logits, 0..logits.shape().elements()));
            }
            let reading = if reads_logits { &mut *with_logits } else { &mut *choices };
            reading.add(member, kind, forwards, ranges);
            let sequence = &mut member.sequence;
            sequence.submitted(1, forwards);
            if is_taken_in {
                sequence.logits = NextLogits::Step;
            }
        }
        Ok(())
    }

    /// Steps of several members. All rows take part in the first one, and only the runners in those that follow.
    fn step_together(
        &mut self,
        transformer: &Rc<Transformer>,
        batch: &mut Batch,
        (shape, steps): (StepShape, usize),
        runners: &[usize],
        forwards: &[usize],
        reading: &mut Reading,
    ) -> Result<()> {
        self.seat(transformer, batch, shape, runners)?;
        let members = &mut self.members;
        for (row, &index) in runners.iter().enumerate() {
            let member = &members[index];
            if let ProposalState::Ready(Proposal::Steps { masks: Some(masks), .. }) = &member.proposal {
                batch.mask(row, &member.sequence, masks)?;
            }
        }
        for (at, &index) in forwards.iter().enumerate() {
            batch.load_forward(runners.len() + at, &members[index].sequence)?;
        }
        batch.forward(shape)?;
        for (at, &index) in forwards.iter().enumerate() {
            batch.store_logits(shape, runners.len() + at, &members[index].sequence)?;
        }
        batch.choose(shape)?;
        let goes_on_alone = runners.len() == 1 && steps > 1;
        let together = if goes_on_alone { 1 } else { steps };
        if runners.len() > 1 {
            let shape = StepShape { rows: shape.sampled, ..shape };
            for _ in 1..steps {
                batch.forward(shape)?;
                batch.choose(shape)?;
            }
        }
        for (row, &index) in runners.iter().enumerate() {
            let member = &mut members[index];
            let (sequence, masked) = (&member.sequence, is_masked(&member.proposal));
            let (first, logprobs) = (sequence.steps + sequence.in_flight, sequence.params.logprobs);
            let kind = PartKind::Steps { first, steps: together, logprobs };
            let ranges = batch.ranges(row, first, together, logprobs.is_some(), masked)?;
            reading.add(member, kind, together, ranges);
            let sequence = &mut member.sequence;
            sequence.submitted(together, together);
            if !goes_on_alone {
                member.proposal = ProposalState::None;
            }
        }
        if let [runner] = runners
            && goes_on_alone
        {
            store_row(Some(batch), &mut self.members[*runner].sequence)?;
            self.run(transformer, *runner, steps - 1, reading)?;
        }
        Ok(())
    }

    /// Seats the runners in the first rows of the batch.
    fn seat(
        &mut self,
        transformer: &Rc<Transformer>,
        batch: &mut Batch,
        shape: StepShape,
        runners: &[usize],
    ) -> Result<()> {
        let row_of = |index: usize| runners.iter().position(|runner| *runner == index);
        for index in 0..self.members.len() {
            if let Cursor::Row(row) = self.members[index].sequence.cursor
                && row_of(index) != Some(row)
                && row < shape.rows
            {
                store_row(Some(batch), &mut self.members[index].sequence)?;
            }
        }
        for (row, &index) in runners.iter().enumerate() {
            let Member { id, sequence, .. } = &mut self.members[index];
            let is_there = sequence.cursor == Cursor::Row(row) && batch.is_of(row, *id, sequence, shape.features);
            if !is_there {
                store_row(Some(batch), sequence)?;
                sequence.place(transformer.context())?;
                batch.load(row, *id, sequence, shape.features)?;
                sequence.cursor = Cursor::Row(row);
            }
        }
        Ok(())
    }

    /// Each member's own steps: of the only one, or one after the other if a model has no steps of several.
    fn step_alone(
        &mut self,
        transformer: &Rc<Transformer>,
        runners: &[usize],
        forwards: &[usize],
        steps: usize,
        reading: &mut Reading,
    ) -> Result<()> {
        for &index in forwards {
            self.members[index].sequence.slot.forward_step(transformer.context())?;
        }
        for &index in runners {
            store_row(self.batch.as_ref(), &mut self.members[index].sequence)?;
            self.run(transformer, index, steps, reading)?;
        }
        Ok(())
    }

    /// Steps of one member on its own slot.
    fn run(&mut self, transformer: &Rc<Transformer>, index: usize, steps: usize, reading: &mut Reading) -> Result<()> {
        let context = transformer.context();
        let member = &mut self.members[index];
        let ProposalState::Ready(Proposal::Steps { masks, .. }) = std::mem::take(&mut member.proposal) else {
            return Ok(());
        };
        let sequence = &mut member.sequence;
        sequence.place(context)?;
        mask_slot(context, sequence, masks.as_ref())?;
        for _ in 0..steps {
            sequence.slot.forward_step(context)?;
            sequence.slot.choose_step(context, masks.is_some())?;
        }
        let (first, logprobs) = (sequence.steps + sequence.in_flight, sequence.slot.logprobs());
        let kind = PartKind::Steps { first, steps, logprobs };
        let ranges = slot_ranges(&member.sequence, first, steps, masks.is_some())?;
        reading.add(member, kind, steps, ranges);
        member.sequence.submitted(steps, steps);
        Ok(())
    }

    /// Finishes the members whose last token has been taken in.
    fn finish_forwards(&mut self, wishes: &Wishes, reading: &mut Reading) -> Result<()> {
        for &index in &wishes.taking_in {
            let member = &mut self.members[index];
            let ProposalState::Ready(proposal) = std::mem::take(&mut member.proposal) else {
                continue;
            };
            let sequence = &mut member.sequence;
            if sequence.logits.is_none() {
                sequence.took_in_last();
                sequence.slot.wrote(1);
                sequence.logits = NextLogits::Step;
            }
            if matches!(proposal, Proposal::ReadLogits) {
                let logits = next_logits(&member.sequence)?.0;
                reading.add(member, PartKind::Logits, 0, [(logits, 0..logits.shape().elements())]);
                member.sequence.in_flight += 1;
            }
        }
        Ok(())
    }

    /// Passes over the last token and a draft. Each has a submit of its own: while one is verified, results of others are on their way.
    fn verify(&mut self, transformer: &Rc<Transformer>, members: &[usize]) -> Result<()> {
        for &index in members {
            let member = &mut self.members[index];
            let ProposalState::Ready(Proposal::Draft(draft)) = std::mem::take(&mut member.proposal) else {
                continue;
            };
            // The slot's tensors now say where this pass stands, not where the next step does.
            member.sequence.cursor = Cursor::Host;
            let forwards = 1 + Draft::len(&draft);
            let last = member.sequence.last;
            member.sequence.slot.begin_verification(transformer, last, &draft)?;
            let ranges = member.sequence.slot.verify(transformer.context(), last, &draft)?;
            let mut reading = Reading::default();
            reading.add(member, PartKind::Draft, forwards, ranges);
            member.sequence.submitted(1, forwards);
            self.flights.extend(reading.start(transformer.context(), 0)?);
        }
        Ok(())
    }
}

/// Moves a sequence from its row of the batch back to its slot.
fn store_row(batch: Option<&Batch>, sequence: &mut Sequence) -> Result<()> {
    if let (Cursor::Row(row), Some(batch)) = (sequence.cursor, batch) {
        batch.store(row, sequence)?;
        sequence.cursor = Cursor::Slot;
    }
    Ok(())
}

fn is_masked(proposal: &ProposalState) -> bool {
    matches!(proposal, ProposalState::Ready(Proposal::Steps { masks: Some(_), .. }))
}

/// Uploads what the automaton has learned to a slot's masks.
fn mask_slot(context: &Context, sequence: &Sequence, masks: Option<&Masks>) -> Result<()> {
    let Some(masks) = masks else { return Ok(()) };
    let masking = sequence.slot.sampler().masking()?;
    masks.grammar.borrow_mut().upload(context, masking, MaskPlace::Slot)?;
    match masks.enter {
        Some(state) => masking.enter(context, 0, sequence.steps, state),
        None => Ok(()),
    }
}

/// The logits for the next choice, and how many tokens their pass had if it was not a step.
fn next_logits(sequence: &Sequence) -> Result<(&Tensor, Option<usize>)> {
    match &sequence.logits {
        NextLogits::Pass(logits, advance) => Ok((logits, Some(*advance))),
        NextLogits::Step => Ok((sequence.slot.logits(), None)),
        NextLogits::None => bail!(Internal, "a choice without logits"),
    }
}

/// One choice on a sequence's slot.
fn choose(context: &Context, sequence: &mut Sequence, masked: bool) -> Result<()> {
    match next_logits(sequence)? {
        (logits, Some(advance)) => sequence.slot.choose_after(context, logits, advance, masked)?,
        (_, None) => sequence.slot.choose_step(context, masked)?,
    }
    sequence.logits = NextLogits::None;
    sequence.cursor = Cursor::Slot;
    Ok(())
}

/// Where the tokens of steps on a slot are.
fn slot_ranges(sequence: &Sequence, first: usize, steps: usize, masked: bool) -> Result<Vec<(&Tensor, Range<usize>)>> {
    let mut ranges = sequence.slot.token_ranges(first, steps);
    if masked {
        ranges.extend(sequence.slot.sampler().masking()?.ranges(0, first, steps));
    }
    Ok(ranges)
}
