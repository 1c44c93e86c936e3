//! What a library knows of the operations that are recorded for gradients.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use crate::array::sweep::push_swept;

/// An operation that was recorded.
pub(crate) trait Recorded {
    /// Whether a backward pass can still go through it.
    fn is_kept(&self) -> bool;
    /// Frees what it keeps.
    fn forget(&self);
    /// Drops the gradient that it has. Returns whether it had one.
    fn forget_gradient(&self) -> bool;
    /// The arrays that it keeps, by the numbers of their nodes, and their bytes.
    fn kept_bytes(&self) -> Vec<(u64, u64)>;
}

/// Whether operations are recorded, and those that were.
#[derive(Default)]
pub(crate) struct Tape {
    is_disabled: Cell<bool>,
    recorded: RefCell<Vec<Weak<dyn Recorded>>>,
    checkpointed: Cell<u64>,
}

/// Records again, or not, as before once it is dropped.
pub(crate) struct Switched<'a>(&'a Cell<bool>, bool);

impl Drop for Switched<'_> {
    fn drop(&mut self) {
        self.0.set(self.1);
    }
}

impl Tape {
    pub fn is_enabled(&self) -> bool {
        !self.is_disabled.get()
    }

    pub fn set_enabled(&self, on: bool) {
        self.is_disabled.set(!on);
    }

    /// Records or does not until the result is dropped.
    pub fn switched(&self, on: bool) -> Switched<'_> {
        Switched(&self.is_disabled, self.is_disabled.replace(!on))
    }

    pub fn add(&self, recorded: Weak<dyn Recorded>) {
        let is_kept = |recorded: &Weak<dyn Recorded>| recorded.upgrade().is_some_and(|recorded| recorded.is_kept());
        push_swept(&mut self.recorded.borrow_mut(), recorded, is_kept);
    }

    /// The operations that a backward pass can still go through.
    pub fn operations(&self) -> usize {
        self.kept().len()
    }

    /// Bytes of the arrays that they keep, each counted once.
    pub fn kept_bytes(&self) -> u64 {
        let mut arrays: Vec<(u64, u64)> = self.kept().iter().flat_map(|recorded| recorded.kept_bytes()).collect();
        arrays.sort_unstable();
        arrays.dedup();
        arrays.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Bytes that checkpoints have not kept so far.
    pub fn checkpointed_bytes(&self) -> u64 {
        self.checkpointed.get()
    }

    pub fn note_checkpoint(&self, bytes: u64) {
        self.checkpointed.set(self.checkpointed.get() + bytes);
    }

    /// Frees what all recorded operations keep.
    pub fn clear(&self) {
        let kept = self.kept();
        self.recorded.take();
        kept.iter().for_each(|recorded| recorded.forget());
    }

    fn kept(&self) -> Vec<Rc<dyn Recorded>> {
        self.recorded.borrow().iter().filter_map(Weak::upgrade).filter(|recorded| recorded.is_kept()).collect()
    }
}
