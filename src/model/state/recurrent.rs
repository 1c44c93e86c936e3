//! The states of recurrent layers. Their size does not depend on the number of tokens, and each token changes them. So only checkpoints,
//! which are copies, bring back earlier lengths.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use super::{KeyRope, SequenceState, Shift};
use crate::error::Result;
use crate::model::config::Config;
use crate::tensor::{Context, Desc, Shape, Tensor};

/// The most checkpoints of a sequence, and the most bytes of them if there are more than are needed.
pub const MOST_CHECKPOINTS: usize = 8;
const MOST_BYTES: u64 = 256 << 20;

/// The newest checkpoints always stay, since steps that ran ahead are rolled back to them.
const NEWEST: usize = 3;

/// The most checkpoints of a sequence whose states have this many bytes.
fn most_checkpoints(bytes: u64) -> usize {
    (MOST_BYTES / bytes.max(1)).clamp(NEWEST as u64 + 1, MOST_CHECKPOINTS as u64) as usize
}

/// A layer that keeps a state of fixed size.
pub trait RecurrentLayer {
    /// How many f32 its state has.
    fn state_len(&self) -> usize;

    /// Changes the residual stream `x` [n, n_embd] and the layer's state, [state_len] or [sequences, state_len]. With `soa`, `x` is one
    /// token in SoA.
    ///
    /// `position` is [4] for n tokens of one sequence, or [n, 4] for one token of each of n sequences. It has the position of the (first)
    /// token, a step, whether the sequence has stopped, and the number of the sequence. At position 0 the old state counts as zero. If a
    /// sequence has stopped, its state stays the same.
    fn run(&self, context: &Context, x: &Tensor, soa: bool, position: &Tensor, state: &Tensor) -> Result<()>;
}

/// A copy of the states of all layers after `length` tokens.
struct Checkpoint {
    length: usize,
    layers: Vec<Tensor>,
}

/// The checkpoints of one sequence, by length.
#[derive(Default)]
struct Checkpoints {
    kept: Vec<Checkpoint>,
    /// Memory of forgotten checkpoints.
    free: Vec<Vec<Tensor>>,
}

/// The states of all recurrent layers, of one sequence or several. Cloning clones the handle.
#[derive(Clone)]
pub struct RecurrentStates {
    /// Each layer's state, f32: [sequences, state_len], or [state_len].
    layers: Vec<Tensor>,
    /// The checkpoints of all sequences.
    checkpoints: Rc<RefCell<Vec<Checkpoints>>>,
    /// Which sequence this is.
    sequence: usize,
}

impl RecurrentStates {
    /// `layers` has the length of each layer's state.
    pub fn new(context: &Context, layers: &[usize], sequences: usize) -> Result<Self> {
        let layers = layers
            .iter()
            .map(|len| context.lasting(Desc::f32(&[sequences, *len]), "recurrent_state"))
            .collect::<Result<_>>()?;
        let checkpoints = (0..sequences).map(|_| Checkpoints::default()).collect();
        Ok(Self { layers, checkpoints: Rc::new(RefCell::new(checkpoints)), sequence: 0 })
    }

    /// The bytes of the states of a model, without checkpoints.
    pub fn needs(config: &Config, sequences: usize) -> u64 {
        let of_one: u64 = config.recurrent_state_lens().map(|len| 4 * len as u64).sum();
        of_one.saturating_mul(sequences as u64)
    }

    /// The most bytes that the checkpoints of a model take.
    pub fn checkpoint_needs(config: &Config, sequences: usize) -> u64 {
        let of_one = Self::needs(config, 1);
        of_one.saturating_mul(most_checkpoints(of_one) as u64).saturating_mul(sequences as u64)
    }

    /// The part of one sequence, in the same memory.
    pub fn sequence(&self, index: usize) -> Result<Self> {
        let of_sequence = |state: &Tensor| {
            let (_, len) = state.shape().matrix()?;
            state.part(index * len, Shape::from([len]))
        };
        let layers = self.layers.iter().map(of_sequence).collect::<Result<_>>()?;
        Ok(Self { layers, checkpoints: self.checkpoints.clone(), sequence: index })
    }

    /// The state of the recurrent layer with this number.
    pub fn layer(&self, index: usize) -> Option<&Tensor> {
        self.layers.get(index)
    }

    /// Bytes on the GPU, without checkpoints.
    pub fn bytes(&self) -> u64 {
        self.layers.iter().map(Tensor::bytes).sum()
    }

    /// Bytes of the checkpoints of all sequences on the GPU.
    pub fn checkpoint_bytes(&self) -> u64 {
        let all = self.checkpoints.borrow();
        let layers = all.iter().flat_map(|of| of.kept.iter().map(|kept| &kept.layers).chain(&of.free));
        layers.flatten().map(Tensor::bytes).sum()
    }

    fn copy_all(context: &Context, from: &[Tensor], to: &[Tensor]) -> Result<()> {
        if from.len() != to.len() {
            bail!(InvalidFile, "states of {} recurrent layers, and the model has {}", from.len(), to.len());
        }
        if let Some((from, to)) =
            from.iter().zip(to).find(|(from, to)| from.shape().elements() != to.shape().elements())
        {
            bail!(InvalidFile, "a state {} for a layer whose state is {}", from.shape(), to.shape());
        }
        from.iter().zip(to).try_for_each(|(from, to)| context.copy(from, 0..from.shape().elements(), to, 0))
    }

    /// The tensors of a sequence's checkpoint.
    fn layers_at(&self, sequence: usize, length: usize) -> Result<Vec<Tensor>> {
        let all = self.checkpoints.borrow();
        let found = all.get(sequence).and_then(|of| of.kept.iter().find(|checkpoint| checkpoint.length == length));
        match found {
            Some(checkpoint) => Ok(checkpoint.layers.clone()),
            None => bail!(Internal, "sequence {sequence} has no checkpoint at {length}"),
        }
    }

    fn recoverable_of(&self, sequence: usize, length: usize) -> usize {
        if self.layers.is_empty() {
            return length;
        }
        let all = self.checkpoints.borrow();
        let lengths = all.get(sequence).into_iter().flat_map(|of| of.kept.iter().map(|checkpoint| checkpoint.length));
        lengths.filter(|at| *at <= length).max().unwrap_or(0)
    }

    fn with_own<T>(&self, change: impl FnOnce(&mut Checkpoints) -> T) -> Result<T> {
        match self.checkpoints.borrow_mut().get_mut(self.sequence) {
            Some(own) => Ok(change(own)),
            None => bail!(Internal, "there is no sequence {}", self.sequence),
        }
    }
}

impl Checkpoints {
    /// Forgets the checkpoints of greater lengths.
    fn truncate(&mut self, length: usize) {
        let (kept, gone) = std::mem::take(&mut self.kept).into_iter().partition(|at| at.length <= length);
        self.kept = kept;
        self.free.extend((gone as Vec<Checkpoint>).into_iter().map(|checkpoint| checkpoint.layers));
    }

    /// Makes room for one more of at most this number: forgets the older checkpoint whose neighbours are nearest to each other.
    fn make_room(&mut self, most: usize) {
        if self.kept.len() < most {
            return;
        }
        let gap = |index: &usize| {
            let before = if *index == 0 { 0 } else { self.kept[index - 1].length };
            self.kept[index + 1].length - before
        };
        let candidates = 0..self.kept.len() - NEWEST;
        if let Some(index) = candidates.min_by_key(gap) {
            let gone = self.kept.remove(index);
            self.free.push(gone.layers);
        }
    }
}

impl SequenceState for RecurrentStates {
    fn recoverable(&self, length: usize) -> usize {
        self.recoverable_of(self.sequence, length)
    }

    fn checkpoints(&self) -> Option<Vec<usize>> {
        let all = self.checkpoints.borrow();
        let own = all.get(self.sequence).filter(|_| !self.layers.is_empty())?;
        Some(own.kept.iter().map(|checkpoint| checkpoint.length).collect())
    }

    fn checkpoint(&self, context: &Context, length: usize) -> Result<()> {
        if length == 0 || self.layers.is_empty() {
            return Ok(());
        }
        let most = most_checkpoints(self.layers.iter().map(Tensor::bytes).sum());
        let (is_there, free) = self.with_own(|own| {
            own.truncate(length);
            if own.kept.last().is_some_and(|last| last.length == length) {
                return (true, None);
            }
            own.make_room(most);
            (false, own.free.pop())
        })?;
        if is_there {
            return Ok(());
        }
        let layers = match free {
            Some(layers) => layers,
            None => self
                .layers
                .iter()
                .map(|state| context.lasting(state.desc(), "recurrent_checkpoint"))
                .collect::<Result<_>>()?,
        };
        Self::copy_all(context, &self.layers, &layers)?;
        self.with_own(|own| own.kept.push(Checkpoint { length, layers }))
    }

    fn give_up_checkpoints(&self) {
        if let Some(own) = self.checkpoints.borrow_mut().get_mut(self.sequence) {
            *own = Checkpoints::default();
        }
    }

    fn roll_back(&self, context: &Context, length: usize) -> Result<()> {
        // At position 0 the old state does not count.
        if length > 0 && !self.layers.is_empty() {
            Self::copy_all(context, &self.layers_at(self.sequence, length)?, &self.layers)?;
        }
        self.with_own(|own| own.truncate(length))
    }

    fn copy_from(&self, context: &Context, sequence: usize, length: usize) -> Result<()> {
        if length == 0 || self.layers.is_empty() {
            return self.with_own(|own| own.truncate(0));
        }
        let layers = self.layers_at(sequence, length)?;
        self.load(context, length, &layers)
    }

    fn copyable(&self, sequence: usize, length: usize) -> usize {
        self.recoverable_of(sequence, length)
    }

    /// The state has seen the dropped tokens and stays as it is.
    fn shift(&self, _: &Context, shift: Shift, _: &dyn Fn(usize) -> Result<KeyRope>) -> Result<()> {
        let Shift { sinks, dropped, .. } = shift;
        self.with_own(|own| {
            let is_kept = |at: &Checkpoint| at.length <= sinks || at.length > sinks + dropped;
            let (kept, gone) = std::mem::take(&mut own.kept).into_iter().partition(is_kept);
            own.kept = kept;
            own.free.extend((gone as Vec<Checkpoint>).into_iter().map(|checkpoint| checkpoint.layers));
            for checkpoint in own.kept.iter_mut().filter(|checkpoint| checkpoint.length > sinks) {
                checkpoint.length -= dropped;
            }
        })
    }

    fn positions(&self, _: Range<usize>) -> Result<Vec<Tensor>> {
        Ok(vec![])
    }

    fn snapshot(&self, length: usize) -> Result<Vec<Tensor>> {
        if length == 0 || self.layers.is_empty() { Ok(vec![]) } else { self.layers_at(self.sequence, length) }
    }

    fn load(&self, context: &Context, length: usize, snapshot: &[Tensor]) -> Result<()> {
        self.with_own(|own| own.truncate(0))?;
        if length == 0 {
            return Ok(());
        }
        Self::copy_all(context, snapshot, &self.layers)?;
        self.checkpoint(context, length)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of_lengths(lengths: &[usize]) -> Checkpoints {
        let mut checkpoints = Checkpoints::default();
        for length in lengths {
            checkpoints.truncate(*length);
            checkpoints.make_room(MOST_CHECKPOINTS);
            checkpoints.kept.push(Checkpoint { length: *length, layers: vec![] });
        }
        checkpoints
    }

    proptest! {
        /// The newest checkpoints stay, and the others are spread over the whole text, however many there were.
        #[test]
        fn checkpoints_thin_out_with_age(steps in prop::collection::vec(1usize..50, 1..200)) {
            let lengths: Vec<usize> = steps.iter().scan(0, |sum, step| { *sum += step; Some(*sum) }).collect();
            let kept: Vec<usize> = of_lengths(&lengths).kept.iter().map(|checkpoint| checkpoint.length).collect();
            prop_assert!(kept.len() <= MOST_CHECKPOINTS);
            prop_assert!(kept.is_sorted_by(|a, b| a < b));
            let newest = lengths.len().min(NEWEST);
            prop_assert_eq!(&kept[kept.len() - newest..], &lengths[lengths.len() - newest..]);
            // A length in the middle is not far from a checkpoint.
            let middle = lengths[lengths.len() / 2];
            let before = kept.iter().filter(|at| **at <= middle).max().copied().unwrap_or(0);
            prop_assert!(middle - before <= lengths[lengths.len() - 1] / 2 + 50);
        }
    }

    #[test]
    fn large_states_have_fewer_checkpoints() {
        assert_eq!([0, 1 << 20, 32 << 20].map(most_checkpoints), [MOST_CHECKPOINTS; 3]);
        assert_eq!((most_checkpoints(50 << 20), most_checkpoints(77 << 20), most_checkpoints(1 << 40)), (5, 4, 4));
    }

    #[test]
    fn a_shorter_length_forgets_the_longer_ones() {
        let mut checkpoints = of_lengths(&[3, 9, 20]);
        checkpoints.truncate(9);
        let kept: Vec<usize> = checkpoints.kept.iter().map(|checkpoint| checkpoint.length).collect();
        assert_eq!((kept, checkpoints.free.len()), (vec![3, 9], 1));
    }
}
