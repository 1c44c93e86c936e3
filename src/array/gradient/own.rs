//! An array's own part in gradients: whether it requires one, and the one that it has.

use std::cell::RefCell;

use super::backward::Backward;
use super::follow::histories;
use super::history::{Pull, Source};
use crate::array::graph::node::Array;
use crate::array::library::Library;
use crate::array::ops::Scalar;
use crate::error::Result;

/// From the gradient of a result to those of the inputs, in the shapes of the inputs.
pub type OwnRule = dyn Fn(&Array) -> Result<Vec<Option<Array>>>;

impl Array {
    /// Whether what is computed from it is followed back to it.
    pub fn requires_grad(&self) -> bool {
        self.history().is_some()
    }

    /// Whether it requires a gradient and was not computed from something that does.
    pub fn is_leaf(&self) -> bool {
        self.leaf_number().is_some()
    }

    /// The number of something that requires a gradient, if it is one.
    pub fn leaf_number(&self) -> Option<u64> {
        self.history().filter(|history| matches!(history.source, Source::Leaf(_))).map(|history| history.number)
    }

    /// The same array as one that requires a gradient.
    pub fn requiring_grad(&self) -> Result<Array> {
        if !self.dtype().is_float() {
            bail!(DtypeMismatch, "requiresGrad: the tensor is {}, and only floats have gradients", self.dtype().name());
        }
        if self.is_leaf() {
            return Ok(self.clone());
        }
        if self.requires_grad() {
            bail!(
                InvalidRequest,
                "requiresGrad: the tensor {} was computed from one that requires a gradient; detach() it first",
                self.shape()
            );
        }
        Ok(self.with_history(Some(self.new_history(Source::Leaf(RefCell::default())))))
    }

    /// The same elements in the same memory, not followed back.
    pub fn detached(&self) -> Array {
        self.with_history(None)
    }

    /// What an operation gives when its result is its input: not the leaf itself, whose gradient is its own.
    pub fn as_result(self) -> Result<Array> {
        if !self.library().tape().is_enabled() {
            return Ok(self.detached());
        }
        if self.is_leaf() {
            self.detached().derived_from("alias", &self, |gradient| Ok(gradient.clone()))
        } else {
            Ok(self)
        }
    }

    /// Its gradient, if it has got one.
    pub fn grad(&self) -> Option<Array> {
        match &self.history()?.source {
            Source::Leaf(gradient) => gradient.borrow().clone(),
            Source::Operation { .. } => None,
        }
    }

    /// Sets its gradient: `None` for none, as before a first backward pass.
    pub fn set_grad(&self, gradient: Option<&Array>) -> Result<()> {
        let Some(history) = self.history() else {
            bail!(InvalidRequest, "grad: the tensor {} does not require a gradient", self.shape())
        };
        let Source::Leaf(own) = &history.source else {
            bail!(
                InvalidRequest,
                "grad: the tensor {} was computed; only what requires a gradient itself keeps one",
                self.shape()
            )
        };
        if let Some(gradient) = gradient
            && (gradient.shape() != self.shape() || gradient.dtype() != self.dtype())
        {
            let (name, own) = (gradient.dtype().name(), self.dtype().name());
            bail!(ShapeMismatch, "grad: {name} {}, wanted {own} {}", gradient.shape(), self.shape());
        }
        let trials = self.library().trials();
        let before = own.borrow().clone();
        match before {
            // In a plan, so that replays do the same.
            Some(before) if trials.is_older(before.0.number) => {
                let filled = match gradient {
                    Some(gradient) => gradient.detached(),
                    None => self.library().full(&[], self.dtype(), Scalar::Int(0))?,
                };
                before.assign(&filled)
            }
            _ => {
                own.replace(gradient.map(Array::detached));
                trials.note_gradient(history);
                Ok(())
            }
        }
    }

    /// This array as the result of an operation of the caller's own on `inputs`, whose gradients `rule` gives.
    pub fn record(&self, name: &str, inputs: &[&Array], rule: Box<OwnRule>) -> Result<Array> {
        if !self.dtype().is_float() {
            bail!(
                DtypeMismatch,
                "record: the result of {name} is {}, and only floats have gradients",
                self.dtype().name()
            );
        }
        if self.requires_grad() {
            bail!(InvalidRequest, "record: the result of {name} has a gradient already; detach() it first");
        }
        if let Some(other) = inputs.iter().find(|input| !input.library().is_same(self.library())) {
            bail!(WrongDevice, "record: an input {} of {name} is one of another device", other.shape());
        }
        if !self.library().tape().is_enabled() || !inputs.iter().any(|input| input.requires_grad()) {
            return Ok(self.clone());
        }
        let shapes: Vec<_> = inputs.iter().map(|input| input.shape()).collect();
        let (called, dtype) = (name.to_owned(), self.dtype());
        let checked = move |pull: &Pull<Array>| {
            let gradients = rule(&pull.gradient.cast(dtype)?)?;
            if gradients.len() != shapes.len() {
                bail!(
                    ShapeMismatch,
                    "{called}: {} gradients, wanted one for each of {} inputs",
                    gradients.len(),
                    shapes.len()
                );
            }
            for (index, (gradient, shape)) in gradients.iter().zip(&shapes).enumerate() {
                if let Some(gradient) = gradient
                    && gradient.shape() != *shape
                {
                    bail!(
                        ShapeMismatch,
                        "{called}: the gradient of input {index} is {}, wanted {shape}",
                        gradient.shape()
                    );
                }
            }
            Ok(gradients)
        };
        Ok(self.clone().with_way_back(name.to_owned().into(), histories(inputs), Vec::new(), Some(Box::new(checked))))
    }
}

impl Library {
    /// Whether operations are recorded for gradients.
    pub fn records(&self) -> bool {
        self.tape().is_enabled()
    }

    /// Records operations for gradients from now on, or does not.
    pub fn set_records(&self, on: bool) {
        self.tape().set_enabled(on);
    }

    /// Runs `work`, of which nothing is recorded.
    pub fn no_grad<T>(&self, work: impl FnOnce() -> T) -> T {
        let _paused = self.tape().switched(false);
        work()
    }

    /// How many operations a backward pass can go through, the bytes of arrays that they keep for it, and the bytes that checkpoints did not keep.
    pub fn recorded(&self) -> (usize, u64, u64) {
        let tape = self.tape();
        (tape.operations(), tape.kept_bytes(), tape.checkpointed_bytes())
    }

    /// Forgets all that was recorded. A backward pass through it is an error then.
    pub fn clear_recorded(&self) {
        self.tape().clear();
    }
}

/// The gradients of one operation's inputs: `work` gets the inputs, and the gradient of what it gives is `gradient`.
pub fn pulled_back(
    inputs: &[&Array],
    gradient: &Array,
    work: impl FnOnce(&[Array]) -> Result<Array>,
) -> Result<Vec<Option<Array>>> {
    let Some(first) = inputs.first() else { return Ok(Vec::new()) };
    let _recording = first.library().tape().switched(true);
    let floats = |input: &&Array| {
        if input.dtype().is_float() { input.detached().requiring_grad() } else { Ok((*input).clone()) }
    };
    let leaves = inputs.iter().map(floats).collect::<Result<Vec<Array>>>()?;
    let result = work(&leaves)?;
    let found = result.gradients(Backward { gradient: Some(gradient), retain_graph: false })?;
    let of = |leaf: &Array| {
        let number = leaf.leaf_number()?;
        found.iter().find(|(other, _)| *other == number).map(|(_, gradient)| gradient.clone())
    };
    Ok(leaves.iter().map(of).collect())
}
