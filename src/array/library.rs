//! What arrays are made with: a device, the kernels of programs, and the list of what waits.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use super::dtype::DType;
use super::graph::compiled::Kernels;
use crate::error::Result;
use crate::tensor::{self, Context, Desc, Shape, Tensor};

/// A device with what arrays need on it. Cloning clones the handle.
#[derive(Clone)]
pub struct Library(Rc<Parts>);

struct Parts {
    context: Context,
    kernels: Kernels,
    /// What was not computed when it was made.
    pending: RefCell<Vec<Weak<dyn Waiting>>>,
}

/// Something that is computed when it is needed.
pub(crate) trait Waiting {
    /// Whether it is still not computed.
    fn waits(&self) -> bool;
    /// Whether nothing computed it along the way, so that somebody may want it.
    fn is_wanted(&self) -> bool;
    /// Computes it.
    fn compute(self: Rc<Self>) -> Result<()>;
}

impl Library {
    /// Arrays on this device.
    pub fn new(context: Context) -> Self {
        Self(Rc::new(Parts { context, kernels: Kernels::default(), pending: RefCell::default() }))
    }

    /// The context of the device.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    pub(crate) fn kernels(&self) -> &Kernels {
        &self.0.kernels
    }

    pub(crate) fn is_same(&self, other: &Library) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    /// Memory for so many elements, as one dimension.
    pub(crate) fn memory(&self, elements: usize, dtype: DType) -> Result<Tensor> {
        self.context().empty(Desc { shape: Shape::from([elements]), dtype: dtype.storage() }, "tensor")
    }

    /// Records an op on tensors that lie as the op reads them.
    pub(crate) fn run(&self, op: &dyn tensor::Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        self.context().run(op, inputs)
    }

    pub(crate) fn note_pending(&self, waiting: Weak<dyn Waiting>) {
        let mut pending = self.0.pending.borrow_mut();
        // What is gone or computed is swept when the list would grow.
        if pending.len() == pending.capacity() {
            pending.retain(|waiting| waiting.upgrade().is_some_and(|waiting| waiting.waits()));
        }
        pending.push(waiting);
    }

    /// Computes what waits and was not computed along the way of something else.
    pub fn evaluate_pending(&self) -> Result<()> {
        let waiting: Vec<Rc<dyn Waiting>> = self.0.pending.take().iter().filter_map(Weak::upgrade).collect();
        // The last first: those before it are often part of it.
        let computed = waiting
            .iter()
            .rev()
            .filter(|it| it.waits())
            .try_for_each(|it| if it.waits() && it.is_wanted() { it.clone().compute() } else { Ok(()) });
        let left = waiting.iter().filter(|it| it.waits()).map(Rc::downgrade);
        self.0.pending.borrow_mut().splice(0..0, left);
        computed
    }
}
