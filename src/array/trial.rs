//! Trials: work that is run to learn what it would do, and whose traces on arrays are wiped out afterwards.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use super::gradient::tape::Recorded;
use super::waiting::{Waiting, Written};
use crate::error::Result;

/// Puts a node back as it was. Returns it if the trial would have given it memory.
type Undo = Box<dyn FnOnce() -> Option<Rc<dyn Waiting>>>;

/// What is kept while something is tried, and while a plan is recorded.
#[derive(Default)]
pub(super) struct Trials {
    trial: RefCell<Option<Trial>>,
    recording: RefCell<Option<Recording>>,
    /// What got a gradient meanwhile.
    gradients: RefCell<Vec<Weak<dyn Recorded>>>,
}

struct Recording {
    /// Nodes from this number on are the plan's own.
    first: u64,
    written: Vec<Rc<dyn Written>>,
}

struct Trial {
    /// Nodes from this number on are the trial's own.
    first: u64,
    undo: Vec<Undo>,
}

impl Trials {
    /// Hears of a change to the node of a number, before it is made.
    pub fn note_change(&self, number: u64, undo: impl FnOnce() -> Undo) {
        if let Some(trial) = &mut *self.trial.borrow_mut()
            && number < trial.first
        {
            trial.undo.push(undo());
        }
    }

    /// Hears of memory that is written.
    pub fn note_write(&self, memory: &Rc<impl Written + 'static>) {
        if let Some(Recording { written, .. }) = &mut *self.recording.borrow_mut()
            && !written.iter().any(|known| std::ptr::addr_eq(Rc::as_ptr(known), Rc::as_ptr(memory)))
        {
            written.push(memory.clone());
        }
    }

    /// Runs `work`, of which nothing reaches the GPU, and undoes what it did to nodes with numbers below `first`. Returns besides those of them
    /// that would have got memory.
    pub fn run<T>(&self, first: u64, work: impl FnOnce() -> Result<T>) -> Result<(T, Vec<Rc<dyn Waiting>>)> {
        self.check_is_free("a plan or a batch")?;
        *self.trial.borrow_mut() = Some(Trial { first, undo: Vec::new() });
        let result = work();
        let undo = self.trial.take().map(|trial| trial.undo).unwrap_or_default();
        let stored = undo.into_iter().rev().filter_map(|undo| undo()).collect();
        Ok((result?, stored))
    }

    /// An error while something is tried or recorded.
    pub fn check_is_free(&self, what: &str) -> Result<()> {
        if self.is_running() {
            bail!(InvalidRequest, "{what}: not inside of what a plan records; call it before or after");
        }
        Ok(())
    }

    /// Runs `work` and returns besides the memory that it writes.
    /// Nodes from the number `first` on are its own.
    pub fn noting_writes<T>(&self, first: u64, work: impl FnOnce() -> Result<T>) -> Result<(T, Vec<Rc<dyn Written>>)> {
        *self.recording.borrow_mut() = Some(Recording { first, written: Vec::new() });
        let result = work();
        let written = self.recording.take().map(|recording| recording.written).unwrap_or_default();
        Ok((result?, written))
    }

    fn is_running(&self) -> bool {
        self.trial.borrow().is_some() || self.recording.borrow().is_some()
    }

    /// Whether the node of a number was there before what is tried or recorded now, if something is.
    pub fn is_older(&self, number: u64) -> bool {
        let trial = self.trial.borrow().as_ref().map(|trial| trial.first);
        let recording = self.recording.borrow().as_ref().map(|recording| recording.first);
        trial.or(recording).is_some_and(|first| number < first)
    }

    /// Hears of a gradient that something got or lost.
    pub fn note_gradient(&self, of: &Rc<impl Recorded + 'static>) {
        if self.is_running() {
            let of: Rc<dyn Recorded> = of.clone();
            self.gradients.borrow_mut().push(Rc::downgrade(&of));
        }
    }

    /// Drops the gradients that were noted. Returns whether there were any.
    pub fn drop_gradients(&self) -> bool {
        let noted = self.gradients.take();
        noted.iter().filter_map(Weak::upgrade).filter(|of| of.forget_gradient()).count() > 0
    }
}
