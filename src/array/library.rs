//! What arrays are made with: a device, the kernels of programs, and the list of what waits.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use futures_util::future::LocalBoxFuture;

use super::dtype::DType;
use super::gradient::tape::Tape;
use super::graph::compiled::Kernels;
use super::sweep::push_swept;
use super::trial::Trials;
use super::waiting::Waiting;
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
    last_number: Cell<u64>,
    trials: Trials,
    tape: Tape,
}

impl Library {
    /// Arrays on this device.
    pub fn new(context: Context) -> Self {
        Self(Rc::new(Parts {
            context,
            kernels: Kernels::default(),
            pending: RefCell::default(),
            last_number: Cell::default(),
            trials: Trials::default(),
            tape: Tape::default(),
        }))
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
        let waits = |waiting: &Weak<dyn Waiting>| waiting.upgrade().is_some_and(|waiting| waiting.waits());
        push_swept(&mut self.0.pending.borrow_mut(), waiting, waits);
    }

    pub(crate) fn tape(&self) -> &Tape {
        &self.0.tape
    }

    pub(super) fn next_number(&self) -> u64 {
        self.0.last_number.set(self.0.last_number.get() + 1);
        self.0.last_number.get()
    }

    pub(super) fn trials(&self) -> &Trials {
        &self.0.trials
    }

    /// An error while a plan is recorded, when nothing may be submitted, read or written by the CPU.
    pub fn check_is_free(&self, what: &str) -> Result<()> {
        self.trials().check_is_free(what)
    }

    /// Runs `work` to learn what it would give. Nothing is recorded, and arrays that were there stay as they were.
    pub(super) fn rehearse<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let rehearse = || self.context().device().rehearse(work);
        self.trials().run(self.next_number(), rehearse).map(|(result, _)| result)
    }

    /// What compiles the kernels that `work` needs. It runs at the call; nothing is recorded, and arrays that were there stay as they were.
    pub(super) fn needed_kernels<T>(
        &self,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<LocalBoxFuture<'static, Result<()>>> {
        let prepare = || Ok(self.context().prepare(work));
        self.trials().run(self.next_number(), prepare).map(|(compiled, _)| compiled)
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
