//! What an array was computed from. Generic over arrays, which hold their histories.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

use super::tape::Recorded;
use crate::array::dtype::DType;
use crate::error::Result;
use crate::tensor::Shape;

/// Where a gradient of an array goes. An array without one requires no gradient.
pub(crate) struct History<A> {
    /// Later ones have higher numbers: inputs of an operation have lower ones than its result.
    pub number: u64,
    /// Of the array, and of its gradient.
    pub shape: Shape,
    pub dtype: DType,
    pub source: Source<A>,
}

pub(crate) enum Source<A> {
    /// Nothing: it is the caller's, and keeps its gradient.
    Leaf(RefCell<Option<A>>),
    /// An operation. `None` once a backward pass went through it, or it was cleared.
    Operation { name: Cow<'static, str>, kept: RefCell<Option<Rc<Kept<A>>>> },
}

/// What a backward pass needs of an operation.
pub(crate) struct Kept<A> {
    /// Of the inputs, in order; `None` of those that require no gradient.
    pub inputs: Vec<Option<Rc<History<A>>>>,
    pub saved: Vec<Option<Saved<A>>>,
    /// From the gradient of the result to those of the inputs. `None` if the operation has no gradient.
    pub rule: Option<Box<Rule<A>>>,
}

pub(super) type Rule<A> = dyn Fn(&Pull<A>) -> Result<Vec<Option<A>>>;

/// An array as it was when it was saved.
pub(crate) struct Saved<A> {
    pub array: A,
    /// Of its memory.
    pub version: u64,
    /// The number of its node, and its bytes.
    pub size: (u64, u64),
}

/// What a rule computes gradients of inputs from. Floats are f32, whatever the dtype of the operation.
pub(crate) struct Pull<A> {
    /// Of the result, in its shape.
    pub gradient: A,
    pub saved: Vec<Option<A>>,
    /// Which inputs want a gradient.
    pub wanted: Vec<bool>,
}

impl<A> Pull<A> {
    /// An array that the operation saved.
    pub fn saved(&self, index: usize) -> Result<&A> {
        self.saved.get(index).and_then(Option::as_ref).ok_or_else(|| err!(Internal, "the operation saved no {index}"))
    }

    /// The gradients of the inputs, in order. Those that nobody wants are not computed.
    pub fn each(&self, gradients: &[&dyn Fn() -> Result<A>]) -> Result<Vec<Option<A>>> {
        let wanted = self.wanted.iter().zip(gradients);
        wanted.map(|(wanted, gradient)| wanted.then(gradient).transpose()).collect()
    }
}

impl<A> History<A> {
    /// What a backward pass needs of the operation, if it is still there. `None` also of what is the caller's.
    pub fn kept(&self) -> Option<Rc<Kept<A>>> {
        match &self.source {
            Source::Operation { kept, .. } => kept.borrow().clone(),
            Source::Leaf(_) => None,
        }
    }

    /// The name of the operation.
    pub fn name(&self) -> &str {
        match &self.source {
            Source::Operation { name, .. } => name,
            Source::Leaf(_) => "leaf",
        }
    }

    fn take(&self) -> Option<Rc<Kept<A>>> {
        match &self.source {
            Source::Operation { kept, .. } => kept.take(),
            Source::Leaf(_) => None,
        }
    }
}

impl<A> Recorded for History<A> {
    fn is_kept(&self) -> bool {
        matches!(&self.source, Source::Operation { kept, .. } if kept.borrow().is_some())
    }

    fn forget(&self) {
        drop(self.take());
    }

    fn forget_gradient(&self) -> bool {
        matches!(&self.source, Source::Leaf(gradient) if gradient.take().is_some())
    }

    fn kept_bytes(&self) -> Vec<(u64, u64)> {
        self.kept().iter().flat_map(|kept| kept.saved.iter().flatten().map(|saved| saved.size)).collect()
    }
}

impl<A> Drop for Kept<A> {
    /// One after the other: a graph may be deeper than the stack.
    fn drop(&mut self) {
        let mut open: Vec<Rc<History<A>>> = self.inputs.drain(..).flatten().collect();
        while let Some(history) = open.pop() {
            if let Some(last) = Rc::into_inner(history)
                && let Some(mut kept) = last.take().and_then(Rc::into_inner)
            {
                open.extend(kept.inputs.drain(..).flatten());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deep_graph_is_dropped_without_deep_recursion() {
        let history = |number: u64, input: Option<Rc<History<()>>>| {
            let kept = Kept { inputs: vec![input], saved: Vec::new(), rule: None };
            let source = Source::Operation { name: "add".into(), kept: RefCell::new(Some(Rc::new(kept))) };
            Rc::new(History { number, shape: Shape::from([]), dtype: DType::F32, source })
        };
        let last = (0..1_000_000).fold(None, |input, number| Some(history(number, input)));
        drop(last);
    }
}
