//! The way back from a result to the arrays that require a gradient (reverse-mode differentiation, Linnainmaa 1970).

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::history::{History, Kept, Pull, Source};
use super::tape::Recorded;
use crate::array::dtype::DType;
use crate::array::graph::node::Array;
use crate::array::layout::{Layout, broadcast_shapes};
use crate::array::ops::{Binary, Reduce, Scalar};
use crate::error::Result;
use crate::tensor::Shape;

/// How a backward pass runs.
#[derive(Clone, Copy, Default)]
pub struct Backward<'a> {
    /// The gradient of the array itself, in its shape. It may be left out where that has one element, and is 1 then.
    pub gradient: Option<&'a Array>,
    /// Whether the graph stays, for another pass through it.
    pub retain_graph: bool,
}

/// Something that requires a gradient, by its history.
type Leaf = Rc<History<Array>>;

impl Array {
    /// Adds the gradients of this array with regard to all that it was computed from and that requires a gradient to those that they have. Returns
    /// the numbers of what got one.
    pub fn backward(&self, how: Backward<'_>) -> Result<Vec<u64>> {
        let gradients = self.leaf_gradients(how)?;
        let _paused = self.library().tape().switched(false);
        gradients.iter().try_for_each(|(leaf, gradient)| accumulate(leaf, gradient))?;
        Ok(gradients.iter().map(|(leaf, _)| leaf.number).collect())
    }

    /// The gradients of this array with regard to all that it was computed from and that requires one, by their numbers
    /// ([`Array::leaf_number`]). Nothing is added to what these have.
    pub fn gradients(&self, how: Backward<'_>) -> Result<Vec<(u64, Array)>> {
        let gradients = self.leaf_gradients(how)?;
        let _paused = self.library().tape().switched(false);
        gradients.into_iter().map(|(leaf, gradient)| Ok((leaf.number, gradient.apart()?))).collect()
    }

    fn leaf_gradients(&self, how: Backward<'_>) -> Result<Vec<(Leaf, Array)>> {
        let Some(history) = self.history() else {
            bail!(
                InvalidRequest,
                "backward: nothing that the tensor {} was computed from requires a gradient",
                self.shape()
            )
        };
        let gradient = self.start("backward", how.gradient)?;
        Pass { retain_graph: how.retain_graph, first: 0 }.run(history, gradient)
    }

    /// The gradient to begin with.
    fn start(&self, what: &str, given: Option<&Array>) -> Result<Array> {
        match given {
            None if self.elements() == 1 => self.library().full(self.dims(), self.dtype(), Scalar::Int(1)),
            None => bail!(
                ShapeMismatch,
                "{what}: the tensor {} has {} elements; pass the gradient of each of them",
                self.shape(),
                self.elements()
            ),
            Some(given) if !given.library().is_same(self.library()) => {
                bail!(WrongDevice, "{what}: the gradient {} is one of another device", given.shape())
            }
            Some(given) if given.shape() != self.shape() => {
                bail!(ShapeMismatch, "{what}: the gradient is {}, wanted {}", given.shape(), self.shape())
            }
            Some(given) if !given.dtype().is_float() => {
                bail!(DtypeMismatch, "{what}: the gradient is {}, wanted floats", given.dtype().name())
            }
            Some(given) => given.detached().cast(self.dtype()),
        }
    }
}

/// A pass back through operations.
pub(super) struct Pass {
    pub retain_graph: bool,
    /// Histories with lower numbers are taken for leaves.
    pub first: u64,
}

impl Pass {
    /// The gradients of the leaves that `from` leads to. Nothing is computed if something is missing.
    pub fn run(&self, from: &Leaf, gradient: Array) -> Result<Vec<(Leaf, Array)>> {
        let library = gradient.library().clone();
        self.check(from)?;
        let _paused = library.tape().switched(false);
        let mut leaves = Vec::new();
        let mut open = BTreeMap::from([(from.number, (from.clone(), gradient))]);
        while let Some((_, (history, gradient))) = open.pop_last() {
            let Some(kept) = self.kept_by(&history)? else {
                // What uses it, such as an optimizer, uses it more than once.
                if gradient.has_product() {
                    gradient.evaluate()?;
                }
                leaves.push((history, gradient));
                continue;
            };
            let gradients = back(&kept, &gradient)?;
            for (input, gradient) in kept.inputs.iter().zip(gradients) {
                let (Some(input), Some(gradient)) = (input, gradient) else { continue };
                let sum = match open.remove(&input.number) {
                    Some((_, other)) => other.binary(Binary::Add, &gradient)?,
                    None => gradient,
                };
                open.insert(input.number, (input.clone(), sum));
            }
            if !self.retain_graph {
                // What it keeps is free for what comes.
                history.forget();
            }
        }
        // In the order in which they were made.
        leaves.reverse();
        Ok(leaves)
    }

    /// What a backward pass needs of an operation: `None` of what is taken for a leaf. An error if it is gone.
    fn kept_by(&self, history: &History<Array>) -> Result<Option<Rc<Kept<Array>>>> {
        let is_leaf = history.number < self.first || matches!(history.source, Source::Leaf(_));
        match history.kept() {
            _ if is_leaf => Ok(None),
            Some(kept) => Ok(Some(kept)),
            None => bail!(
                InvalidRequest,
                "backward: the graph of {} was freed, by a backward pass before or by clear(); pass retainGraph to go through it again",
                history.name()
            ),
        }
    }

    /// An error if the graph was freed, holds an operation without a gradient, or needs an array that was written since.
    fn check(&self, from: &Leaf) -> Result<()> {
        let mut seen = BTreeSet::from([from.number]);
        let mut open = vec![from.clone()];
        while let Some(history) = open.pop() {
            let Some(kept) = self.kept_by(&history)? else { continue };
            let name = history.name();
            if kept.rule.is_none() {
                bail!(InvalidRequest, "backward: {name} has no gradient; detach() what it is applied to");
            }
            for saved in kept.saved.iter().flatten() {
                if saved.array.memory_version() != saved.version {
                    bail!(
                        InvalidRequest,
                        "backward: a tensor {} that {name} needs for its gradient was written after it; clone() it before, or write it later",
                        saved.array.shape()
                    );
                }
            }
            open.extend(kept.inputs.iter().flatten().filter(|input| seen.insert(input.number)).cloned());
        }
        Ok(())
    }
}

/// The gradients of an operation's inputs, in their shapes and dtypes.
fn back(kept: &Kept<Array>, gradient: &Array) -> Result<Vec<Option<Array>>> {
    let Some(rule) = &kept.rule else { bail!(Internal, "a rule was checked for") };
    let saved = kept.saved.iter().map(|saved| saved.as_ref().map(|saved| in_f32(&saved.array)).transpose());
    let wanted = kept.inputs.iter().map(Option::is_some).collect();
    let pull = Pull { gradient: in_f32(gradient)?, saved: saved.collect::<Result<_>>()?, wanted };
    let gradients = rule(&pull)?;
    if gradients.len() != kept.inputs.len() {
        bail!(Internal, "{} gradients for {} inputs", gradients.len(), kept.inputs.len());
    }
    let fit = |(input, gradient): (&Option<Leaf>, Option<Array>)| match (input, gradient) {
        (Some(input), Some(gradient)) => fitted(&gradient, input.shape)?.detached().cast(input.dtype).map(Some),
        _ => Ok(None),
    };
    kept.inputs.iter().zip(gradients).map(fit).collect()
}

fn in_f32(array: &Array) -> Result<Array> {
    if array.dtype().is_float() { array.cast(DType::F32) } else { Ok(array.clone()) }
}

/// A gradient in the shape of what it belongs to: the sum over what broadcasting repeated, or repeated itself.
fn fitted(gradient: &Array, shape: Shape) -> Result<Array> {
    let own = gradient.shape();
    if own == shape {
        return Ok(gradient.clone());
    }
    let dims: Vec<i64> = shape.dims().iter().map(|dim| *dim as i64).collect();
    if Layout::contiguous(own).broadcast(shape).is_some() {
        return gradient.expand(&dims);
    }
    if broadcast_shapes(&[own, shape]) != Some(own) {
        bail!(Internal, "a gradient {own} of a tensor {shape}");
    }
    let missing = own.dims().len() - shape.dims().len();
    let is_repeated = |dim: &usize| *dim < missing || shape.dims()[dim - missing] != own.dims()[*dim];
    let repeated: Vec<i64> = (0..own.dims().len()).filter(is_repeated).map(|dim| dim as i64).collect();
    gradient.reduce(Reduce::Sum, Some(&repeated), true)?.viewed(shape)
}

fn accumulate(leaf: &Leaf, gradient: &Array) -> Result<()> {
    let Source::Leaf(own) = &leaf.source else { bail!(Internal, "a leaf is wanted") };
    let before = own.borrow().clone();
    let library = gradient.library();
    let sum = match before {
        // A plan adds to what was there before it, so that replays do too.
        Some(before) if library.trials().is_older(before.0.number) => {
            return before.assign(&before.binary(Binary::Add, gradient)?);
        }
        Some(before) => before.binary(Binary::Add, gradient)?,
        // In memory of its own, if anybody wants that: others may share what was computed, such as the caller's gradient.
        None => gradient.apart()?,
    };
    own.replace(Some(sum));
    library.trials().note_gradient(leaf);
    Ok(())
}
